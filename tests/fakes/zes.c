/* A stand-in for libze_loader.so.1: the Sysman part of Level Zero with its names, calling conventions and struct layouts, values from a
 * text file.
 *
 * Layouts, enumerations and return codes follow zes_api.h and ze_api.h of Level Zero 1.8, written here from the documented fields.
 * A structure whose type is not told is an invalid argument. -DFAKE_NO_POWER leaves the energy counter out.
 *
 * State: the file named by FAKE_ZES_STATE (see state.h):
 *
 *   devices 2
 *   BOARD.WHAT VALUE
 *
 * WHAT: name driver; uuid (32 hexadecimal digits, in memory order); type flags device_id stacks; domain bus slot; domains (kinds of
 * power domains, as `12`) sub (those of them that are of one stack); energy [uJ] and power [mW, added since the start] of the card or a
 * domain of unknown kind, package_energy and so on of others; limits (kinds of limits, as `12`), limit [mW], unit, max_limit [mW]; size
 * free [B], and size2 free2 of a second module in the host; engines (stack and kind of each, as `01 04 14`), busy_STACK_KIND [%]; sensors
 * (kinds, as `01`), gpu_temp temp [C]; clock [MHz], throttle [bits]; processes (`PID:BYTES ...`).
 * Calls that faults name: init drivers devices about pci domains domain power limits memory memory_about memory_state engines
 * activity temps temp freqs clock processes.
 */
#define STATE_VARIABLE "FAKE_ZES_STATE"
#include "state.h"
#include "layout.h"

#include <stdint.h>

typedef int ze_result_t;
typedef uint8_t ze_bool_t;
typedef void *handle_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 0x78000001,
    UNSUPPORTED_FEATURE = 0x78000003,
    INVALID_ARGUMENT = 0x78000004,
    INVALID_NULL_HANDLE = 0x78000005
};

typedef struct {
    int stype;
    void *pNext;
    int type;
    uint32_t vendorId;
    uint32_t deviceId;
    uint32_t flags;
    uint32_t subdeviceId;
    uint32_t coreClockRate;
    uint64_t maxMemAllocSize;
    uint32_t maxHardwareContexts;
    uint32_t maxCommandQueuePriority;
    uint32_t numThreadsPerEU;
    uint32_t physicalEUSimdWidth;
    uint32_t numEUsPerSubslice;
    uint32_t numSubslicesPerSlice;
    uint32_t numSlices;
    uint64_t timerResolution;
    uint32_t timestampValidBits;
    uint32_t kernelTimestampValidBits;
    uint8_t uuid[16];
    char name[256];
} ze_device_properties_t;

typedef struct {
    int stype;
    void *pNext;
    ze_device_properties_t core;
    uint32_t numSubdevices;
    char serialNumber[64];
    char boardNumber[64];
    char brandName[64];
    char modelName[64];
    char vendorName[64];
    char driverVersion[64];
} zes_device_properties_t;

typedef struct {
    int stype;
    void *pNext;
    struct {
        uint32_t domain, bus, device, function;
    } address;
    struct {
        int32_t gen, width;
        int64_t maxBandwidth;
    } maxSpeed;
    ze_bool_t haveBandwidthCounters, havePacketCounters, haveReplayCounters;
} zes_pci_properties_t;

typedef struct {
    int stype;
    void *pNext;
    ze_bool_t onSubdevice;
    uint32_t subdeviceId;
    ze_bool_t canControl;
    ze_bool_t isEnergyThresholdSupported;
    int32_t defaultLimit;
    int32_t minLimit;
    int32_t maxLimit;
} zes_power_properties_t;

typedef struct {
    int stype;
    void *pNext;
    int domain;
    void *defaultLimit;
} zes_power_ext_properties_t;

typedef struct {
    uint64_t energy;
    uint64_t timestamp;
} zes_power_energy_counter_t;

typedef struct {
    int stype;
    const void *pNext;
    int level;
    int source;
    int limitUnit;
    ze_bool_t enabledStateLocked;
    ze_bool_t enabled;
    ze_bool_t intervalValueLocked;
    int32_t interval;
    ze_bool_t limitValueLocked;
    int32_t limit;
} zes_power_limit_ext_desc_t;

typedef struct {
    int stype;
    void *pNext;
    int type;
    ze_bool_t onSubdevice;
    uint32_t subdeviceId;
    int location;
    uint64_t physicalSize;
    int32_t busWidth;
    int32_t numChannels;
} zes_mem_properties_t;

typedef struct {
    int stype;
    const void *pNext;
    int health;
    uint64_t free;
    uint64_t size;
} zes_mem_state_t;

typedef struct {
    int stype;
    void *pNext;
    int type;
    ze_bool_t onSubdevice;
    uint32_t subdeviceId;
} zes_engine_properties_t;

typedef struct {
    uint64_t activeTime;
    uint64_t timestamp;
} zes_engine_stats_t;

typedef struct {
    int stype;
    void *pNext;
    int type;
    ze_bool_t onSubdevice;
    uint32_t subdeviceId;
    double maxTemperature;
    ze_bool_t isCriticalTempSupported;
    ze_bool_t isThreshold1Supported;
    ze_bool_t isThreshold2Supported;
} zes_temp_properties_t;

typedef struct {
    int stype;
    void *pNext;
    int type;
    ze_bool_t onSubdevice;
    uint32_t subdeviceId;
    ze_bool_t canControl;
    ze_bool_t isThrottleEventSupported;
    double min;
    double max;
} zes_freq_properties_t;

typedef struct {
    int stype;
    const void *pNext;
    double currentVoltage;
    double request;
    double tdp;
    double efficient;
    double actual;
    uint32_t throttleReasons;
} zes_freq_state_t;

typedef struct {
    int stype;
    const void *pNext;
    uint32_t processId;
    uint64_t memSize;
    uint64_t sharedSize;
    uint32_t engines;
} zes_process_state_t;

/* --- handles ------------------------------------------------------------------------------------------------------ */

enum { DEVICE, DOMAIN, MEMORY, ENGINE, SENSOR, FREQUENCY, SORTS };

#define MOST_BOARDS 16
#define MOST_PLACES 16

static int started;
static char driver_mark;
static struct handle {
    int sort, board, place;
} handles[SORTS][MOST_BOARDS][MOST_PLACES]; /* their addresses are handed out */

static uint64_t now_us(void)
{
    return (uint64_t)(uptime_s() * 1e6);
}

static const char *words(int board, const char *what)
{
    const char *found = find(board, what);
    return found ? found : "";
}

/* What every call on a handle does first; 0 to go on. */
static int begin(handle_t handle, int sort, const char *call, int *board, int *place)
{
    const struct handle *first = &handles[sort][0][0], *given = handle;
    long at = given - first;

    if (!handle || given < first || at >= MOST_BOARDS * MOST_PLACES)
        return INVALID_NULL_HANDLE;
    *board = (int)(at / MOST_PLACES);
    *place = (int)(at % MOST_PLACES);
    return started ? trouble(*board, call) : UNINITIALIZED;
}

#define BEGIN(handle, sort, call)                                                                                         \
    int board, place, status = begin(handle, sort, call, &board, &place);                                                 \
    (void)place;                                                                                                          \
    if (status)                                                                                                           \
    return status

#define TYPED(out, type)                                                                                                  \
    if ((out)->stype != (type))                                                                                           \
    return INVALID_ARGUMENT

/* The two calls that every list takes: how many, then which. */
static int listing(int sort, int board, int many, uint32_t *count, handle_t *out)
{
    int i;

    if (!*count || (int)*count > many)
        *count = (uint32_t)many;
    for (i = 0; out && i < (int)*count; i++)
        out[i] = &handles[sort][board][i];
    return SUCCESS;
}

#define LISTING(symbol, sort, call, many)                                                                                 \
    ze_result_t symbol(handle_t device, uint32_t *count, handle_t *out)                                                   \
    {                                                                                                                     \
        BEGIN(device, DEVICE, call);                                                                                      \
        return listing(sort, board, many, count, out);                                                                    \
    }

/* --- devices ------------------------------------------------------------------------------------------------------ */

ze_result_t zesInit(uint32_t flags)
{
    int status = trouble(-1, "init");

    uptime_s();
    if (flags)
        return INVALID_ARGUMENT;
    started = !status;
    return status;
}

ze_result_t zesDriverGet(uint32_t *count, handle_t *out)
{
    *count = 1;
    if (out)
        out[0] = &driver_mark;
    return started ? trouble(-1, "drivers") : UNINITIALIZED;
}

ze_result_t zesDeviceGet(handle_t driver, uint32_t *count, handle_t *out)
{
    int i, many = (int)number(-1, "devices", 1);

    if (driver != &driver_mark)
        return INVALID_NULL_HANDLE;
    if (!*count || (int)*count > many)
        *count = (uint32_t)many;
    for (i = 0; out && i < (int)*count; i++)
        out[i] = &handles[DEVICE][i][0];
    return trouble(-1, "devices");
}

ze_result_t zesDeviceGetProperties(handle_t device, zes_device_properties_t *out)
{
    int i;

    BEGIN(device, DEVICE, "about");
    TYPED(out, 0x1);
    out->core.type = (int)number(board, "type", 1);
    out->core.vendorId = 0x8086;
    out->core.deviceId = (uint32_t)number(board, "device_id", 0xe211);
    out->core.flags = (uint32_t)number(board, "flags", 0);
    for (i = 0; i < 16 && sscanf(words(board, "uuid") + 2 * i, "%2hhx", &out->core.uuid[i]) == 1; i++)
        ;
    snprintf(out->core.name, sizeof out->core.name, "%s", words(board, "name"));
    snprintf(out->modelName, sizeof out->modelName, "%s", words(board, "model"));
    snprintf(out->driverVersion, sizeof out->driverVersion, "%s", words(board, "driver"));
    out->numSubdevices = (uint32_t)number(board, "stacks", 0);
    return SUCCESS;
}

ze_result_t zesDevicePciGetProperties(handle_t device, zes_pci_properties_t *out)
{
    BEGIN(device, DEVICE, "pci");
    TYPED(out, 0x2);
    out->address.domain = (uint32_t)number(board, "domain", 0);
    out->address.bus = (uint32_t)number(board, "bus", 0x4d + 0x10u * (unsigned)board);
    out->address.device = (uint32_t)number(board, "slot", 0);
    out->address.function = 0;
    out->maxSpeed.maxBandwidth = -1;
    return SUCCESS;
}

/* --- power -------------------------------------------------------------------------------------------------------- */

static int digit(int board, const char *what, int place)
{
    return words(board, what)[place] - '0';
}

LISTING(zesDeviceEnumPowerDomains, DOMAIN, "domains", (int)strlen(words(board, "domains")))

ze_result_t zesPowerGetProperties(handle_t domain, zes_power_properties_t *out)
{
    zes_power_ext_properties_t *more;

    BEGIN(domain, DOMAIN, "domain");
    TYPED(out, 0xd);
    out->onSubdevice = strchr(words(board, "sub"), words(board, "domains")[place]) != NULL;
    out->defaultLimit = -1;
    out->maxLimit = (int32_t)number(board, "max_limit", (unsigned long long)-1);
    for (more = out->pNext; more; more = more->pNext)
        if (more->stype == 0x28)
            more->domain = digit(board, "domains", place);
    return SUCCESS;
}

#ifndef FAKE_NO_POWER
ze_result_t zesPowerGetEnergyCounter(handle_t domain, zes_power_energy_counter_t *out)
{
    static const char *const prefixes[] = {"", "", "package_", "stack_", "memory_", "gpu_"};
    char energy[32], power[32];

    BEGIN(domain, DOMAIN, "power");
    snprintf(energy, sizeof energy, "%senergy", prefixes[digit(board, "domains", place)]);
    snprintf(power, sizeof power, "%spower", prefixes[digit(board, "domains", place)]);
    if (!find(board, energy))
        return UNSUPPORTED_FEATURE;
    out->timestamp = now_us();
    out->energy = number(board, energy, 0) + number(board, power, 0) * out->timestamp / 1000;
    return SUCCESS;
}
#endif

ze_result_t zesPowerGetLimitsExt(handle_t domain, uint32_t *count, zes_power_limit_ext_desc_t *out)
{
    uint32_t i, many;

    BEGIN(domain, DOMAIN, "limits");
    many = (uint32_t)strlen(words(board, "limits"));
    if (!*count || *count > many)
        *count = many;
    for (i = 0; out && i < *count; i++) {
        TYPED(&out[i], 0x27);
        out[i].level = digit(board, "limits", (int)i);
        out[i].limitUnit = (int)number(board, "unit", 2);
        out[i].limit = (int32_t)number(board, "limit", 0) * (out[i].level ? out[i].level : 1);
    }
    return SUCCESS;
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

LISTING(zesDeviceEnumMemoryModules, MEMORY, "memory", find(board, "size2") ? 2 : 1)

ze_result_t zesMemoryGetProperties(handle_t module, zes_mem_properties_t *out)
{
    BEGIN(module, MEMORY, "memory_about");
    TYPED(out, 0xb);
    out->location = place ? 0 : 1;
    return SUCCESS;
}

ze_result_t zesMemoryGetState(handle_t module, zes_mem_state_t *out)
{
    BEGIN(module, MEMORY, "memory_state");
    TYPED(out, 0x1e);
    out->size = number(board, place ? "size2" : "size", 0);
    out->free = number(board, place ? "free2" : "free", 0);
    return SUCCESS;
}

static int engine_count(int board)
{
    return ((int)strlen(words(board, "engines")) + 1) / 3;
}

LISTING(zesDeviceEnumEngineGroups, ENGINE, "engines", engine_count(board))

/* The stack and the kind of an engine, in `01 04 14`. */
static void engine(int board, int place, int *stack, int *kind)
{
    *stack = words(board, "engines")[3 * place] - '0';
    *kind = words(board, "engines")[3 * place + 1] - '0';
}

ze_result_t zesEngineGetProperties(handle_t group, zes_engine_properties_t *out)
{
    int stack, kind;

    BEGIN(group, ENGINE, "engine");
    TYPED(out, 0x5);
    engine(board, place, &stack, &kind);
    out->type = kind;
    out->onSubdevice = number(board, "stacks", 0) > 0;
    out->subdeviceId = (uint32_t)stack;
    return SUCCESS;
}

ze_result_t zesEngineGetActivity(handle_t group, zes_engine_stats_t *out)
{
    char what[32];
    int stack, kind;

    BEGIN(group, ENGINE, "activity");
    engine(board, place, &stack, &kind);
    snprintf(what, sizeof what, "busy_%d_%d", stack, kind);
    out->timestamp = now_us() / 100 * 100;
    out->activeTime = out->timestamp / 100 * number(board, what, 0);
    return SUCCESS;
}

LISTING(zesDeviceEnumTemperatureSensors, SENSOR, "temps", (int)strlen(words(board, "sensors")))

ze_result_t zesTemperatureGetProperties(handle_t sensor, zes_temp_properties_t *out)
{
    BEGIN(sensor, SENSOR, "temp_about");
    TYPED(out, 0x14);
    out->type = digit(board, "sensors", place);
    return SUCCESS;
}

ze_result_t zesTemperatureGetState(handle_t sensor, double *out)
{
    BEGIN(sensor, SENSOR, "temp");
    *out = atof(words(board, digit(board, "sensors", place) == 1 ? "gpu_temp" : "temp"));
    return SUCCESS;
}

LISTING(zesDeviceEnumFrequencyDomains, FREQUENCY, "freqs", find(board, "clock") ? 2 : 0)

ze_result_t zesFrequencyGetProperties(handle_t domain, zes_freq_properties_t *out)
{
    BEGIN(domain, FREQUENCY, "freq_about");
    TYPED(out, 0x9);
    out->type = place ? 0 : 1; /* memory comes first */
    return SUCCESS;
}

ze_result_t zesFrequencyGetState(handle_t domain, zes_freq_state_t *out)
{
    BEGIN(domain, FREQUENCY, "clock");
    TYPED(out, 0x1b);
    out->currentVoltage = out->tdp = -1.0;
    out->actual = place ? atof(words(board, "clock")) : 1.0;
    out->throttleReasons = (uint32_t)number(board, "throttle", 0);
    return SUCCESS;
}

ze_result_t zesDeviceProcessesGetState(handle_t device, uint32_t *count, zes_process_state_t *out)
{
    const char *at;
    uint32_t many = 0;
    unsigned pid;
    unsigned long long bytes;
    int read;

    BEGIN(device, DEVICE, "processes");
    for (at = words(board, "processes"); sscanf(at, " %u:%llu%n", &pid, &bytes, &read) == 2; at += read, many++) {
        if (!out || many >= *count)
            continue;
        TYPED(&out[many], 0x16);
        out[many].processId = pid;
        out[many].memSize = bytes;
    }
    *count = many;
    return SUCCESS;
}

LAYOUT(SIZE(ze_device_properties_t), AT(ze_device_properties_t, type), AT(ze_device_properties_t, flags),
       AT(ze_device_properties_t, maxMemAllocSize), AT(ze_device_properties_t, timerResolution), AT(ze_device_properties_t, uuid),
       AT(ze_device_properties_t, name), SIZE(zes_device_properties_t), AT(zes_device_properties_t, core),
       AT(zes_device_properties_t, numSubdevices), AT(zes_device_properties_t, modelName),
       AT(zes_device_properties_t, driverVersion), SIZE(zes_pci_properties_t), AT(zes_pci_properties_t, address),
       AT(zes_pci_properties_t, maxSpeed), AT(zes_pci_properties_t, haveReplayCounters), SIZE(zes_power_properties_t),
       AT(zes_power_properties_t, onSubdevice), AT(zes_power_properties_t, canControl),
       AT(zes_power_properties_t, defaultLimit), AT(zes_power_properties_t, maxLimit), SIZE(zes_power_ext_properties_t),
       AT(zes_power_ext_properties_t, domain), AT(zes_power_ext_properties_t, defaultLimit), SIZE(zes_power_energy_counter_t),
       AT(zes_power_energy_counter_t, timestamp), SIZE(zes_power_limit_ext_desc_t), AT(zes_power_limit_ext_desc_t, limitUnit),
       AT(zes_power_limit_ext_desc_t, enabled), AT(zes_power_limit_ext_desc_t, interval),
       AT(zes_power_limit_ext_desc_t, limit), SIZE(zes_mem_properties_t), AT(zes_mem_properties_t, location),
       AT(zes_mem_properties_t, physicalSize), SIZE(zes_mem_state_t), AT(zes_mem_state_t, free), AT(zes_mem_state_t, size),
       SIZE(zes_engine_properties_t), AT(zes_engine_properties_t, type), AT(zes_engine_properties_t, subdeviceId),
       SIZE(zes_engine_stats_t), AT(zes_engine_stats_t, timestamp), SIZE(zes_temp_properties_t), AT(zes_temp_properties_t, type),
       AT(zes_temp_properties_t, maxTemperature), SIZE(zes_freq_properties_t), AT(zes_freq_properties_t, type),
       AT(zes_freq_properties_t, max), SIZE(zes_freq_state_t), AT(zes_freq_state_t, actual),
       AT(zes_freq_state_t, throttleReasons), SIZE(zes_process_state_t), AT(zes_process_state_t, processId),
       AT(zes_process_state_t, memSize), AT(zes_process_state_t, engines))
