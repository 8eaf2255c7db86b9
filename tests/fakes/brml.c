/* A stand-in for libbiren-ml.so.1: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts, return codes and units are written here from brml.h, BRML_API_VERSION 1 (Shanghai Biren Technology, 2024);
 * tests/probes/biren/test_layout.py compares them with those of the probe.
 *
 * State: the file named by FAKE_BRML_STATE (see state.h):
 *
 *   devices 2
 *   driver 1.11.0
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of BRML: name uuid bus_id firmware; power limit [mW], total free used [B], use [%], temp [C], clock [MHz],
 * throttle [bits], svi (2 or 4: cut into so many), virtual (2: a virtual GPU), pids (PID:BYTES,...), hidden_pids (how many more
 * there are than the library first says). What is not given is not supported.
 * Calls that faults name: init count handle name uuid pci firmware driver power limit memory use temp clock throttle svi virtual
 * processes. For init, count and driver the board is '*' or 0.
 *
 * -DFAKE_NO_POWER leaves out the call that tells power. -DFAKE_NEWER has brmlInit_v2 alone.
 */
#define STATE_VARIABLE "FAKE_BRML_STATE"
#include "layout.h"
#include "state.h"

typedef enum {
    BRML_SUCCESS = 0,
    BRML_ERROR_UNINITIALIZED = 1,
    BRML_ERROR_INVALID_ARGUMENT = 2,
    BRML_ERROR_NOT_SUPPORTED = 3,
    BRML_ERROR_NOT_FOUND = 5,
    BRML_ERROR_INSUFFICIENT_SIZE = 6,
    BRML_ERROR_DRIVER_NOT_LOADED = 7
} brmlReturn_t;

typedef struct brmlDevice_st *brmlDevice_t;

typedef struct {
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int function;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} brmlPciInfo_t;

typedef struct {
    unsigned int gpu;
    unsigned int memory;
} brmlUtilization_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} brmlMemory_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned long long usedHostMemory;
} brmlProcessInfo_t;

typedef struct {
    char name[96];
    char id[96];
    char serial[96];
    char board_id[96];
} brmlGPUInfo_t;

#define MOST_BOARDS 16
#define FLASH_FIRMWARE 6
#define CORE_CLOCK 1

static int inits;
static struct brmlDevice_st {
    int board;
} handles[MOST_BOARDS]; /* their addresses are handed out: a caller that cuts a pointer to 32 bits is found out */

static int count(void)
{
    int devices = (int)number(-1, "devices", 1);
    return devices > MOST_BOARDS ? MOST_BOARDS : devices;
}

/* What every call on a board does first; 0 to go on. */
static int begin(brmlDevice_t device, const char *call, int *board)
{
    int i;

    for (i = 0; i < MOST_BOARDS && device != &handles[i]; i++)
        ;
    *board = i;
    if (i == MOST_BOARDS)
        return BRML_ERROR_INVALID_ARGUMENT;
    return inits ? trouble(i, call) : BRML_ERROR_UNINITIALIZED;
}

#define BEGIN(call)                                                                                                       \
    int board, status = begin(device, call, &board);                                                                      \
    if (status)                                                                                                           \
    return status

/* One unsigned number of a board, not supported where the state has none. */
static int told(int board, const char *what, unsigned int *out)
{
    if (!find(board, what))
        return BRML_ERROR_NOT_SUPPORTED;
    *out = (unsigned int)number(board, what, 0);
    return BRML_SUCCESS;
}

static int text(int board, const char *what, char *out, unsigned int length)
{
    const char *found = find(board, what);

    if (!found)
        return BRML_ERROR_NOT_SUPPORTED;
    if (strlen(found) >= length)
        return BRML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, found);
    return BRML_SUCCESS;
}

/* A process that has no state to show is without a driver. */
static int start(void)
{
    int status = trouble(0, "init");

    (void)uptime_s;
    if (!getenv(STATE_VARIABLE))
        return BRML_ERROR_DRIVER_NOT_LOADED;
    if (!status)
        inits++;
    return status;
}

#ifdef FAKE_NEWER
int brmlInit_v2(void)
#else
int brmlInit(void)
#endif
{
    return start();
}

int brmlShutdown(void)
{
    if (inits)
        inits--;
    return BRML_SUCCESS;
}

int brmlSystemGetDriverVersion(char *version, unsigned int length)
{
    int status = trouble(0, "driver");
    return status ? status : text(-1, "driver", version, length);
}

int brmlDeviceGetCount(unsigned int *out)
{
    if (!inits)
        return BRML_ERROR_UNINITIALIZED;
    *out = (unsigned int)count();
    return trouble(0, "count");
}

int brmlDeviceGetHandleByIndex(unsigned int index, brmlDevice_t *device)
{
    if (!inits)
        return BRML_ERROR_UNINITIALIZED;
    if (index >= (unsigned int)count())
        return BRML_ERROR_NOT_FOUND;
    *device = &handles[index];
    return trouble((int)index, "handle");
}

int brmlDeviceGetUUID(brmlDevice_t device, char *uuid, unsigned int length)
{
    BEGIN("uuid");
    return text(board, "uuid", uuid, length);
}

int brmlDeviceGetFirmwareVersion(brmlDevice_t device, int type, char *version, int length)
{
    BEGIN("firmware");
    return type == FLASH_FIRMWARE ? text(board, "firmware", version, (unsigned int)length) : BRML_ERROR_NOT_SUPPORTED;
}

int brmlDeviceGetGpuInfo(brmlDevice_t device, brmlGPUInfo_t *info)
{
    BEGIN("name");
    memset(info, 0, sizeof *info);
    strcpy(info->id, "an id");
    strcpy(info->serial, "a serial number");
    return text(board, "name", info->name, sizeof info->name);
}

int brmlDeviceGetPciInfo(brmlDevice_t device, brmlPciInfo_t *info)
{
    BEGIN("pci");
    memset(info, 0, sizeof *info);
    return text(board, "bus_id", info->busId, sizeof info->busId);
}

int brmlDeviceGetMemoryInfo(brmlDevice_t device, brmlMemory_t *memory)
{
    BEGIN("memory");
    if (!find(board, "total"))
        return BRML_ERROR_NOT_SUPPORTED;
    memory->total = number(board, "total", 0);
    memory->free = number(board, "free", 0);
    memory->used = number(board, "used", 0);
    return BRML_SUCCESS;
}

int brmlDeviceGetUtilizationRates(brmlDevice_t device, brmlUtilization_t *rates)
{
    BEGIN("use");
    rates->memory = 7;
    return told(board, "use", &rates->gpu);
}

/* The die has degrees (sensor 0), the memory a code for a range of them (1). */
int brmlDeviceGetTemperature(brmlDevice_t device, int sensor, unsigned int *celsius)
{
    BEGIN("temp");
    if (sensor == 1) {
        *celsius = 3;
        return BRML_SUCCESS;
    }
    return sensor == 0 ? told(board, "temp", celsius) : BRML_ERROR_NOT_SUPPORTED;
}

int brmlDeviceGetClockInfo(brmlDevice_t device, int type, unsigned int *mhz)
{
    BEGIN("clock");
    return type == CORE_CLOCK ? told(board, "clock", mhz) : BRML_ERROR_NOT_SUPPORTED;
}

#ifndef FAKE_NO_POWER
int brmlDeviceGetPowerUsage(brmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN("power");
    return told(board, "power", milliwatts);
}
#endif

int brmlDeviceGetPowerManagementLimit(brmlDevice_t device, unsigned int *milliwatts)
{
    BEGIN("limit");
    return told(board, "limit", milliwatts);
}

int brmlDeviceGetCurrentClocksThrottleReasons(brmlDevice_t device, unsigned long long *reasons)
{
    BEGIN("throttle");
    if (!find(board, "throttle"))
        return BRML_ERROR_NOT_SUPPORTED;
    *reasons = number(board, "throttle", 0);
    return BRML_SUCCESS;
}

int brmlDeviceGetSviMode(brmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN("svi");
    *pending = 4;
    return told(board, "svi", current);
}

int brmlDeviceGetVirtualizationMode(brmlDevice_t device, int *mode)
{
    BEGIN("virtual");
    *mode = (int)number(board, "virtual", 0);
    return BRML_SUCCESS;
}

/* Of a whole card only: instances have handles of their own. */
int brmlDeviceGetComputeRunningProcesses(brmlDevice_t device, unsigned int *many, brmlProcessInfo_t *infos)
{
    const char *at;
    unsigned int room = *many, found = 0;
    BEGIN("processes");

    at = find(board, "pids");
    if (!at || number(board, "svi", 1) > 1)
        return BRML_ERROR_NOT_FOUND;
    for (; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL, found++) {
        if (infos && found < room) {
            char *colon;
            infos[found].pid = (unsigned int)strtoul(at, &colon, 10);
            infos[found].usedGpuMemory = strtoull(colon + 1, NULL, 0);
            infos[found].usedHostMemory = 1;
        }
    }
    *many = infos ? found : found - (unsigned int)number(board, "hidden_pids", 0);
    return !infos || found > room ? BRML_ERROR_INSUFFICIENT_SIZE : BRML_SUCCESS;
}

LAYOUT(SIZE(brmlPciInfo_t), AT(brmlPciInfo_t, device), AT(brmlPciInfo_t, pciSubSystemId), AT(brmlPciInfo_t, busId),
       SIZE(brmlGPUInfo_t), AT(brmlGPUInfo_t, id), AT(brmlGPUInfo_t, board_id), SIZE(brmlUtilization_t),
       AT(brmlUtilization_t, memory), SIZE(brmlMemory_t), AT(brmlMemory_t, free), AT(brmlMemory_t, used),
       SIZE(brmlProcessInfo_t), AT(brmlProcessInfo_t, usedGpuMemory), AT(brmlProcessInfo_t, usedHostMemory))
