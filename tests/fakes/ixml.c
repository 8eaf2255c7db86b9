/* A stand-in for Iluvatar's libixml.so: real symbol names (NVML's, and the vendor's own), structs and codes, values from a text file.
 *
 * Layouts, return codes and units follow api.h of IX-ML 4.4.0, written here from the documented fields. A handle is a structure of
 * one pointer, passed by value. Exported functions call exported functions, through the loader as C does: where this library and
 * NVIDIA's get into each other's names, a call ends up in the wrong one. -DFAKE_OLD_IXML leaves the vendor's own calls out.
 * -DFAKE_NO_POWER leaves all power calls out, as a library without the symbols.
 *
 * State: the file named by FAKE_IXML_STATE (see state.h):
 *
 *   devices 2
 *   driver 4.4.0
 *   CHIP.WHAT VALUE
 *
 * WHAT, in raw units of IX-ML: name uuid bus_id vbios; power board_power limit management_limit default_limit [W or mW], energy [mJ],
 * energy_rate_w [W, added since the start], total free used [B], gpu [%], temp [C], clock [MHz], board position, pids
 * (`12:4096,34:-1`, bytes held).
 * Calls that faults name: init count handle driver name uuid pci vbios power board_power limit management_limit default_limit energy
 * memory utilisation temp clock board position processes. For init, count and driver the chip is '*'.
 */
#define STATE_VARIABLE "FAKE_IXML_STATE"
#include "state.h"
#include "layout.h"

typedef int nvmlReturn_t;

typedef struct {
    struct nvmlDevice_st *handle;
} nvmlDevice_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    INSUFFICIENT_SIZE = 7,
};

typedef struct {
    char busIdLegacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct {
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

#define MOST_CHIPS 16

static int inits;
static struct nvmlDevice_st {
    int chip;
} handles[MOST_CHIPS]; /* their addresses are handed out: a binding that cuts a pointer to 32 bits is found out */

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out);

/* What every call on a chip does first; 0 to go on. */
static int begin(nvmlDevice_t device, const char *call, int *chip)
{
    unsigned int count, i;

    *chip = -1;
    if (!inits)
        return UNINITIALIZED;
    if (nvmlDeviceGetCount_v2(&count) != SUCCESS)
        return UNINITIALIZED;
    for (i = 0; i < MOST_CHIPS; i++)
        if (device.handle == &handles[i])
            *chip = (int)i;
    if (*chip < 0 || *chip >= (int)count)
        return INVALID_ARGUMENT;
    return trouble(*chip, call);
}

#define BEGIN(call)                                                                                                       \
    int chip, status = begin(device, call, &chip);                                                                        \
    if (status)                                                                                                           \
    return status

/* A number of a chip, not supported where the state has none. */
#define NUMBER(symbol, what)                                                                                              \
    nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *out)                                                           \
    {                                                                                                                     \
        BEGIN(what);                                                                                                      \
        if (!find(chip, what))                                                                                            \
            return NOT_SUPPORTED;                                                                                         \
        *out = (unsigned int)number(chip, what, 0);                                                                       \
        return SUCCESS;                                                                                                   \
    }

#define TEXT(symbol, what)                                                                                                \
    nvmlReturn_t symbol(nvmlDevice_t device, char *out, unsigned int length)                                              \
    {                                                                                                                     \
        BEGIN(what);                                                                                                      \
        return text(chip, what, out, length);                                                                             \
    }

static int text(int chip, const char *what, char *out, unsigned int length)
{
    const char *found = find(chip, what);

    if (!found)
        return NOT_SUPPORTED;
    if (strlen(found) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, found);
    return SUCCESS;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    int status = trouble(-1, "init");

    (void)flags;
    uptime_s();
    if (!status)
        inits++;
    return status;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    if (!inits)
        return UNINITIALIZED;
    inits--;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    if (!inits)
        return UNINITIALIZED;
    *out = (unsigned int)number(-1, "devices", 1);
    return trouble(-1, "count");
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    unsigned int count;
    int status = nvmlDeviceGetCount_v2(&count);

    if (status)
        return status;
    if (index >= count || index >= MOST_CHIPS)
        return INVALID_ARGUMENT;
    out->handle = &handles[index];
    return trouble((int)index, "handle");
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int length)
{
    int status = trouble(-1, "driver");
    return status ? status : text(-1, "driver", out, length);
}

TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetVbiosVersion, "vbios")

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    BEGIN("pci");
    memset(out, 0, sizeof *out);
    memset(out->busIdLegacy, 'x', sizeof out->busIdLegacy);
    out->pciDeviceId = 0x00021e3e;
    return text(chip, "bus_id", out->busId, sizeof out->busId);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    BEGIN("memory");
    if (!find(chip, "total"))
        return NOT_SUPPORTED;
    out->total = number(chip, "total", 0);
    out->used = number(chip, "used", 0);
    out->free = number(chip, "free", 1);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    BEGIN("utilisation");
    if (!find(chip, "gpu"))
        return NOT_SUPPORTED;
    out->gpu = (unsigned int)number(chip, "gpu", 0);
    out->memory = 77;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *out)
{
    BEGIN("temp");
    if (sensor)
        return INVALID_ARGUMENT;
    if (!find(chip, "temp"))
        return NOT_SUPPORTED;
    *out = (unsigned int)number(chip, "temp", 0);
    return SUCCESS;
}

/* Clock 1 is that of the multiprocessors, 2 of the memory. */
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int which, unsigned int *out)
{
    BEGIN("clock");
    if (which != 1 && which != 2)
        return NOT_SUPPORTED;
    if (!find(chip, "clock"))
        return NOT_SUPPORTED;
    *out = which == 1 ? (unsigned int)number(chip, "clock", 0) : 1600;
    return SUCCESS;
}

#ifndef FAKE_NO_POWER
NUMBER(nvmlDeviceGetPowerUsage, "power")

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *out)
{
    BEGIN("energy");
    if (!find(chip, "energy"))
        return NOT_SUPPORTED;
    *out = number(chip, "energy", 0);
    *out += (unsigned long long)(uptime_s() * 1e3 * (double)number(chip, "energy_rate_w", 0));
    return SUCCESS;
}
#endif

NUMBER(nvmlDeviceGetEnforcedPowerLimit, "limit")
NUMBER(nvmlDeviceGetPowerManagementLimit, "management_limit")
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "default_limit")
NUMBER(nvmlDeviceGetBoardId, "board")

#ifndef FAKE_OLD_IXML
#ifndef FAKE_NO_POWER
NUMBER(ixmlDeviceGetBoardPowerUsage, "board_power")
#endif
NUMBER(ixmlDeviceGetBoardPosition, "position")
#endif

/* The driver's health bits, which are none of NVIDIA's reasons. */
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *out)
{
    BEGIN("throttle");
    *out = 0x4;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos)
{
    unsigned int room = *count, found = 0;
    const char *listed;
    BEGIN("processes");

    for (listed = find(chip, "pids"); listed && *listed;) {
        char *end;
        unsigned long pid = strtoul(listed, &end, 10);
        unsigned long long held = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
        if (found < room) {
            infos[found].pid = (unsigned int)pid;
            infos[found].usedGpuMemory = held;
        }
        found++;
        listed = *end ? end + 1 : NULL;
    }
    if (found > room)
        return INSUFFICIENT_SIZE; /* how many there are is not told: the vendor's own binding doubles its room */
    *count = found;
    return SUCCESS;
}

LAYOUT(
    SIZE(nvmlPciInfo_t),
    AT(nvmlPciInfo_t, domain),
    AT(nvmlPciInfo_t, bus),
    AT(nvmlPciInfo_t, device),
    AT(nvmlPciInfo_t, pciDeviceId),
    AT(nvmlPciInfo_t, pciSubSystemId),
    AT(nvmlPciInfo_t, busId),
    SIZE(nvmlMemory_t),
    AT(nvmlMemory_t, total),
    AT(nvmlMemory_t, free),
    AT(nvmlMemory_t, used),
    SIZE(nvmlUtilization_t),
    AT(nvmlUtilization_t, gpu),
    AT(nvmlUtilization_t, memory),
    SIZE(nvmlProcessInfo_v1_t),
    AT(nvmlProcessInfo_v1_t, pid),
    AT(nvmlProcessInfo_v1_t, usedGpuMemory))
