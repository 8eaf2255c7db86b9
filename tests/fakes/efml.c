/* A stand-in for libefml.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts and return codes follow efml.h 1.2.3.5, as published with Enflame's gcu-exporter, written here from the documented fields:
 * both the old interface (Efml...) and the one that the header calls next (efml...). They don't work together: the second one that is
 * started fails.
 *
 * State: the file named by FAKE_EFML_STATE (see state.h):
 *
 *   devices 2
 *   next_devices 0            what the next interface lists, where that is another number
 *   driver 1.4.3.4
 *   signal 1                  the library sends its process SIGUSR1 when it starts
 *   BOARD.WHAT VALUE
 *
 * WHAT: name uuid firmware domain bus; power limit [mW; the old interface tells them in W], total used free [B], util [%], temp [C],
 * clock [MHz], processes (pid:bytes,pid:bytes), inits (entries of process 1).
 * Calls that faults name: init next_init count handle name uuid pci power limit memory util temp clock processes driver firmware. For
 * init, next_init, count and driver the board is '*'.
 *
 * -DFAKE_OLD leaves the next interface out, as an older library does, and EfmlGetDevTempV2 and the usage from a thread. -DFAKE_UUID adds
 * efmlDeviceGetUUID, as a later one does. -DFAKE_NO_POWER leaves the calls of power out.
 */
#define STATE_VARIABLE "FAKE_EFML_STATE"
#include "state.h"
#include "layout.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, FAIL = 254 };

#define MAX_CHAR_BUFF_LEN 128
#define MAX_PROCESS_COUNT 64

typedef int efmlReturn_t;

typedef struct {
    char name[MAX_CHAR_BUFF_LEN];
    uint32_t vendor_id;
    uint32_t device_id;
    uint32_t domain_id;
    uint32_t bus_id;
    uint32_t dev_id;
    uint32_t func_id;
    uint32_t logic_id;
} efmlDeviceInfo_t;

typedef struct {
    float pwr_capability;
    float cur_pwr_consumption;
} efmlDevPowerInfo_t;

typedef struct {
    uint64_t mem_total_size;
    uint32_t mem_used;
} efmlDevMemInfo_t;

typedef struct {
    uint32_t cur_hbm_clock;
    uint32_t cur_dtu_clock;
} efmlDevClkInfo_t;

typedef struct {
    float cur_asic_temp;
    float cur_mem_temp;
    float cur_board_temp;
} efmlDevThermalInfoV2_t;

typedef struct {
    uint32_t pid;
    uint64_t dev_mem_usage;
    uint64_t sys_mem_usage;
} efmlProcessInfo_t;

typedef struct efmlDevice *efmlDevice_t;

typedef struct efmlMemory_st {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} efmlMemory_t;

typedef struct efmlUtilization_st {
    unsigned int gcu;
    unsigned int memory;
} efmlUtilization_t;

typedef struct efmlProcessInfo_st {
    unsigned int pid;
    unsigned long long usedGcuMemory;
    unsigned int gcuInstanceId;
    unsigned int computeInstanceId;
} efmlProcessInfo_v1_t;

typedef struct efmlPciInfo_st {
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int function;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} efmlPciInfo_t;

/* --- both --------------------------------------------------------------------------------------------------------- */

enum interface { NOBODY, OLD, NEXT };
static enum interface started;

static int count(void)
{
    return (int)number(-1, "devices", 1);
}

static int start(enum interface which)
{
    int status = trouble(-1, "init");

    if (!status && which == NEXT)
        status = trouble(-1, "next_init");
    if (number(-1, "signal", 0))
        raise(SIGUSR1);
    if (!status && started != NOBODY && started != which)
        status = which == OLD ? FAIL : 999;
    if (!status)
        started = which;
    return status;
}

static double value(int board, const char *what)
{
    const char *found = find(board, what);
    return found ? atof(found) : 0.0;
}

static int text(int board, const char *what, char *out)
{
    const char *found = find(board, what);

    if (!found)
        return NOT_SUPPORTED;
    snprintf(out, 96, "%s", found);
    return SUCCESS;
}

static unsigned add_process(void *rows, unsigned found, unsigned room, bool old, uint32_t pid, uint64_t bytes)
{
    efmlProcessInfo_t *old_rows = rows;
    efmlProcessInfo_v1_t *next_rows = rows;

    if (found < room && old) {
        old_rows[found].pid = pid;
        old_rows[found].dev_mem_usage = bytes;
    } else if (found < room) {
        next_rows[found].pid = pid;
        next_rows[found].usedGcuMemory = bytes;
        next_rows[found].gcuInstanceId = next_rows[found].computeInstanceId = 0xFFFFFFFF;
    }
    return found + 1;
}

/* How many processes there are; as many as fit are told. */
static unsigned tell_processes(int board, void *rows, unsigned room, bool old)
{
    const char *rest = find(board, "processes");
    unsigned i, found = 0;
    unsigned long long pid, bytes;
    int taken;

    for (i = 0; i < number(board, "inits", 0); i++)
        found = add_process(rows, found, room, old, 1, 512);
    for (; rest && sscanf(rest, "%llu:%llu%n", &pid, &bytes, &taken) == 2; rest += taken) {
        found = add_process(rows, found, room, old, (uint32_t)pid, bytes);
        taken += rest[taken] == ',';
    }
    return found;
}

/* --- the old interface: cards by number, watts -------------------------------------------------------------------------- */

static int begin_old(uint32_t index, const char *call)
{
    if (started != OLD)
        return UNINITIALIZED;
    return index < (uint32_t)count() ? trouble((int)index, call) : INVALID_ARGUMENT;
}

#define BEGIN_OLD(call)                                                                                                   \
    int status = begin_old(index, call);                                                                                  \
    if (status)                                                                                                           \
    return status

efmlReturn_t EfmlInit(bool no_driver)
{
    return no_driver ? INVALID_ARGUMENT : start(OLD);
}

void EfmlShutdown(void)
{
    if (started == OLD)
        started = NOBODY;
}

efmlReturn_t EfmlGetDevCount(uint32_t *out)
{
    if (started != OLD)
        return UNINITIALIZED;
    *out = (uint32_t)count();
    return trouble(-1, "count");
}

efmlReturn_t EfmlGetDriverVer(char *out)
{
    int status = trouble(-1, "driver");

    if (started != OLD)
        return UNINITIALIZED;
    snprintf(out, MAX_CHAR_BUFF_LEN, "%s", find(-1, "driver") ? find(-1, "driver") : "1.4.3.4");
    return status;
}

efmlReturn_t EfmlGetDevSKU(uint32_t index, char *out)
{
    BEGIN_OLD("name");
    return text((int)index, "name", out);
}

efmlReturn_t EfmlGetDevUuid(uint32_t index, char *out)
{
    BEGIN_OLD("uuid");
    return text((int)index, "uuid", out);
}

efmlReturn_t EfmlGetFwVersion(uint32_t index, char *out)
{
    BEGIN_OLD("firmware");
    return text((int)index, "firmware", out);
}

efmlReturn_t EfmlGetDevInfo(uint32_t index, efmlDeviceInfo_t *out)
{
    BEGIN_OLD("pci");
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "T20");
    out->vendor_id = 0x1e36;
    out->domain_id = (uint32_t)number((int)index, "domain", 0);
    out->bus_id = (uint32_t)number((int)index, "bus", 0x17u + index);
    return SUCCESS;
}

efmlReturn_t EfmlGetDevMem(uint32_t index, efmlDevMemInfo_t *out)
{
    BEGIN_OLD("memory");
    out->mem_total_size = number((int)index, "total", 0);
    out->mem_used = (uint32_t)(number((int)index, "used", 0) >> 20);
    return SUCCESS;
}

#ifdef FAKE_OLD
efmlReturn_t EfmlGetDevDtuUsage(uint32_t index, float *out)
#else
efmlReturn_t EfmlGetDevDtuUsageAsync(uint32_t index, float *out)
#endif
{
    BEGIN_OLD("util");
    *out = (float)value((int)index, "util");
    return SUCCESS;
}

#ifdef FAKE_OLD
efmlReturn_t EfmlGetDevTemp(uint32_t index, efmlDevThermalInfoV2_t *out) /* its forerunner: chip and two memories */
#else
efmlReturn_t EfmlGetDevTempV2(uint32_t index, efmlDevThermalInfoV2_t *out)
#endif
{
    BEGIN_OLD("temp");
    out->cur_asic_temp = (float)value((int)index, "temp");
    out->cur_mem_temp = 90.0f;
    out->cur_board_temp = 20.0f;
    return SUCCESS;
}

efmlReturn_t EfmlGetDevClk(uint32_t index, efmlDevClkInfo_t *out)
{
    BEGIN_OLD("clock");
    out->cur_hbm_clock = 7000;
    out->cur_dtu_clock = (uint32_t)number((int)index, "clock", 0);
    return SUCCESS;
}

efmlReturn_t EfmlGetProcessInfo(uint32_t index, uint32_t *many, efmlProcessInfo_t *out)
{
    BEGIN_OLD("processes");
    *many = tell_processes((int)index, out, MAX_PROCESS_COUNT, true);
    *many = *many > MAX_PROCESS_COUNT ? MAX_PROCESS_COUNT : *many;
    return SUCCESS;
}

#ifndef FAKE_NO_POWER
efmlReturn_t EfmlGetDevPwr(uint32_t index, efmlDevPowerInfo_t *out)
{
    BEGIN_OLD("power");
    out->pwr_capability = (float)(value((int)index, "limit") / 1000.0);
    out->cur_pwr_consumption = (float)(value((int)index, "power") / 1000.0);
    return SUCCESS;
}
#endif

/* --- the next interface: handles, milliwatts ------------------------------------------------------------------------------ */

#ifndef FAKE_OLD
#define MOST_BOARDS 16

struct efmlDevice {
    int board;
};
static struct efmlDevice handles[MOST_BOARDS]; /* their addresses are handed out: one that is cut to 32 bits is found out */

static int begin(efmlDevice_t device, const char *call, int *board)
{
    int i;

    for (i = 0; i < MOST_BOARDS && device != &handles[i]; i++)
        ;
    *board = i;
    if (i == MOST_BOARDS)
        return INVALID_ARGUMENT;
    return started == NEXT ? trouble(i, call) : UNINITIALIZED;
}

#define BEGIN(call)                                                                                                       \
    int board, status = begin(device, call, &board);                                                                      \
    if (status)                                                                                                           \
    return status

/* One unsigned number of a board, not supported where the state has none. */
#define UNSIGNED(call)                                                                                                    \
    BEGIN(call);                                                                                                          \
    if (!find(board, call))                                                                                               \
        return NOT_SUPPORTED;                                                                                             \
    *out = (unsigned int)number(board, call, 0);                                                                          \
    return SUCCESS

efmlReturn_t efmlInit_v2(void)
{
    return start(NEXT);
}

efmlReturn_t efmlShutdown(void)
{
    if (started != NEXT)
        return UNINITIALIZED;
    started = NOBODY;
    return SUCCESS;
}

efmlReturn_t efmlDeviceGetCount_v2(unsigned int *out)
{
    if (started != NEXT)
        return UNINITIALIZED;
    *out = (unsigned int)number(-1, "next_devices", (unsigned long long)count());
    return trouble(-1, "count");
}

efmlReturn_t efmlDeviceGetHandleByIndex_v2(unsigned int index, efmlDevice_t *out)
{
    if (started != NEXT)
        return UNINITIALIZED;
    if (index >= (unsigned)count() || index >= MOST_BOARDS)
        return INVALID_ARGUMENT;
    *out = &handles[index];
    return trouble((int)index, "handle");
}

efmlReturn_t efmlDeviceGetName(efmlDevice_t device, char *out, unsigned int length)
{
    BEGIN("name");
    return length < 96 ? INSUFFICIENT_SIZE : text(board, "name", out);
}

#ifdef FAKE_UUID
efmlReturn_t efmlDeviceGetUUID(efmlDevice_t device, char *out, unsigned int length)
{
    BEGIN("uuid");
    return length < 96 ? INSUFFICIENT_SIZE : text(board, "uuid", out);
}
#endif

efmlReturn_t efmlDeviceGetPciInfo_v3(efmlDevice_t device, efmlPciInfo_t *out)
{
    BEGIN("pci");
    memset(out, 0, sizeof *out);
    out->domain = (unsigned int)number(board, "domain", 0);
    out->bus = (unsigned int)number(board, "bus", 0x17u + (unsigned)board);
    out->pciDeviceId = 0xc0351e36;
    snprintf(out->busId, sizeof out->busId, "%04x:%02x:00.0", out->domain, out->bus);
    return SUCCESS;
}

efmlReturn_t efmlDeviceGetMemoryInfo(efmlDevice_t device, efmlMemory_t *out)
{
    BEGIN("memory");
    out->total = number(board, "total", 0);
    out->used = number(board, "used", 0);
    out->free = number(board, "free", out->total - out->used);
    return SUCCESS;
}

efmlReturn_t efmlDeviceGetUtilizationRates(efmlDevice_t device, efmlUtilization_t *out)
{
    BEGIN("util");
    out->gcu = (unsigned int)number(board, "util", 0);
    out->memory = 77;
    return SUCCESS;
}

efmlReturn_t efmlDeviceGetTemperature(efmlDevice_t device, int sensor, int *out)
{
    BEGIN("temp");
    if (sensor != 0)
        return INVALID_ARGUMENT;
    *out = (int)number(board, "temp", 0);
    return SUCCESS;
}

efmlReturn_t efmlDeviceGetClockInfo(efmlDevice_t device, int kind, unsigned int *out)
{
    if (kind != 1)
        return NOT_SUPPORTED;
    UNSIGNED("clock");
}

efmlReturn_t efmlDeviceGetComputeRunningProcesses_v3(efmlDevice_t device, unsigned int *many, efmlProcessInfo_v1_t *out)
{
    unsigned int room = *many;
    BEGIN("processes");
    *many = tell_processes(board, out, room, false);
    return *many > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef FAKE_NO_POWER
efmlReturn_t efmlDeviceGetPowerUsage(efmlDevice_t device, unsigned int *out)
{
    UNSIGNED("power");
}

efmlReturn_t efmlDeviceGetEnforcedPowerLimit(efmlDevice_t device, unsigned int *out)
{
    UNSIGNED("limit");
}
#endif
#endif

/* clang-format off */
LAYOUT(
    SIZE(efmlDeviceInfo_t), AT(efmlDeviceInfo_t, vendor_id), AT(efmlDeviceInfo_t, domain_id), AT(efmlDeviceInfo_t, bus_id),
    AT(efmlDeviceInfo_t, func_id), AT(efmlDeviceInfo_t, logic_id),
    SIZE(efmlDevPowerInfo_t), AT(efmlDevPowerInfo_t, pwr_capability), AT(efmlDevPowerInfo_t, cur_pwr_consumption),
    SIZE(efmlDevMemInfo_t), AT(efmlDevMemInfo_t, mem_total_size), AT(efmlDevMemInfo_t, mem_used),
    SIZE(efmlDevClkInfo_t), AT(efmlDevClkInfo_t, cur_dtu_clock),
    SIZE(efmlDevThermalInfoV2_t), AT(efmlDevThermalInfoV2_t, cur_asic_temp), AT(efmlDevThermalInfoV2_t, cur_board_temp),
    SIZE(efmlProcessInfo_t), AT(efmlProcessInfo_t, pid), AT(efmlProcessInfo_t, dev_mem_usage),
    AT(efmlProcessInfo_t, sys_mem_usage),
    SIZE(efmlMemory_t), AT(efmlMemory_t, total), AT(efmlMemory_t, free), AT(efmlMemory_t, used),
    SIZE(efmlUtilization_t), AT(efmlUtilization_t, gcu),
    SIZE(efmlProcessInfo_v1_t), AT(efmlProcessInfo_v1_t, usedGcuMemory), AT(efmlProcessInfo_v1_t, computeInstanceId),
    SIZE(efmlPciInfo_t), AT(efmlPciInfo_t, domain), AT(efmlPciInfo_t, function), AT(efmlPciInfo_t, busId)
)
