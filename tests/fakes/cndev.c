/* A stand-in for libcndev.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts and return codes follow cndev.h with CNDEV_VERSION_6, as published with Cambricon's mlu-exporter, and the one before it for
 * the calls that older drivers have, written here from the documented fields.
 *
 * State: the file named by FAKE_CNDEV_STATE (see state.h):
 *
 *   devices 2
 *   api 6                     the one version of versioned structures that is accepted
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of CNDev: name uuid sn bus domain driver firmware (5.10.13); power cap [W], energy [mJ], energy_rate_w [W, added
 * since the start], energy_type (cndevFieldValuesTypeNum_t), total used [MB], util [%], chip board [C], clock [MHz], tdp
 * power_setting clock_setting frequency_locked power_brake thermal [0, 1], processes (pid:KiB,pid:KiB),
 * inits (entries of process 1).
 * Calls that faults name: init count handle name uuid sn version pci power memory util temp clock throttle fields (the call), energy
 * (the field) processes. For init and count the board is '*'.
 *
 * -DFAKE_OLD gives an older driver: no calls with V2, no cndevGetDevicePowerInfo, no fields. -DFAKE_NO_POWER leaves both calls of
 * power out.
 */
#define STATE_VARIABLE "FAKE_CNDEV_STATE"
#include "state.h"
#include "layout.h"

#include <stdint.h>

typedef int32_t cndevDevice_t;
typedef int cndevRet_t;

enum {
    SUCCESS = 0,
    UNSUPPORTED_API_VERSION = 3,
    UNINITIALIZED = 4,
    INVALID_ARGUMENT = 5,
    INVALID_DEVICE_ID = 6,
    INSUFFICIENT_SPACE = 9,
    NOT_SUPPORTED = 10
};

typedef struct {
    int32_t version;
    uint32_t number;
} cndevCardInfo_t;

typedef struct {
    int32_t version;
    uint8_t uuid[37];
    uint64_t ncsUUID64;
} cndevUUID_t;

typedef struct {
    int32_t version;
    uint64_t sn;
    uint64_t motherBoardSn;
} cndevCardSN_t;

typedef struct {
    int32_t version;
    uint32_t mcuMajorVersion;
    uint32_t mcuMinorVersion;
    uint32_t mcuBuildVersion;
    uint32_t driverMajorVersion;
    uint32_t driverMinorVersion;
    uint32_t driverBuildVersion;
} cndevVersionInfo_t;

typedef struct {
    int64_t physicalMemoryTotal;
    int64_t physicalMemoryUsed;
    int64_t reservedMemory;
    int64_t virtualMemoryTotal;
    int64_t virtualMemoryUsed;
    uint64_t globalMemory;
    uint64_t reserved[16];
} cndevMemoryInfoV2_t;

typedef struct {
    int version;
    int64_t physicalMemoryTotal;
    int64_t physicalMemoryUsed;
    int64_t virtualMemoryTotal;
    int64_t virtualMemoryUsed;
    int64_t channelNumber;
    int64_t channelMemoryUsed[20];
    uint64_t globalMemory;
} cndevMemoryInfo_t;

typedef struct {
    int32_t usage;
    int32_t cap;
    int32_t machine;
    int32_t tdp;
    int32_t maxPower;
    int32_t reserved[16];
} cndevDevicePowerInfo_t;

typedef struct {
    int version;
    int usage;
    int cap;
    int usageDecimal;
    int machine;
    int capDecimal;
    uint16_t thermalDesignPower;
    uint16_t instantaneousPowerUsage;
    uint16_t instantaneousPowerUsageDecimal;
} cndevPowerInfo_t;

typedef struct {
    int32_t version;
    int32_t board;
    int32_t cluster[20];
    int32_t memoryDie[8];
    int32_t chip;
    int32_t airInlet;
    int32_t airOutlet;
    int32_t memory;
    int32_t videoInput;
    int32_t cpu;
    int32_t isp;
} cndevTemperatureInfo_t;

typedef struct {
    int32_t version;
    int32_t averageCoreUtilization;
    int32_t coreUtilization[80];
} cndevUtilizationInfo_t;

typedef struct {
    int32_t version;
    int32_t boardFreq;
    int32_t ddrFreq;
    uint8_t overtempDfsFlag;
    uint8_t fastDfsFlag;
    uint16_t mluClusterFreqCount;
    uint16_t mluClusterFreq[20];
    int32_t boardDefaultFreq;
    int32_t boardFreqArange[2];
} cndevFrequencyInfo_t;

typedef enum { FEATURE_DISABLED = 0, FEATURE_ENABLED = 1 } cndevEnableStatusEnum_t;

typedef struct {
    int32_t version;
    cndevEnableStatusEnum_t tdp;
    cndevEnableStatusEnum_t powerSetting;
    cndevEnableStatusEnum_t clockSetting;
    cndevEnableStatusEnum_t frequencyLocked;
    cndevEnableStatusEnum_t powerBrake;
    cndevEnableStatusEnum_t thermalSlowdown;
} cndevPerformanceThrottleReason_t;

typedef struct {
    int32_t version;
    uint32_t pid;
    uint64_t physicalMemoryUsed;
    uint64_t virtualMemoryUsed;
} cndevProcessInfo_t;

typedef struct {
    uint32_t subsystemId;
    uint32_t deviceId;
    uint16_t vendor;
    uint16_t subsystemVendor;
    uint32_t domain;
    uint32_t bus;
    uint32_t device;
    uint32_t function;
    uint16_t moduleId;
    uint16_t slotId;
    uint32_t reserved[8];
} cndevPCIeInfoV2_t;

typedef struct {
    int version;
    unsigned int subsystemId;
    unsigned int deviceId;
    uint16_t vendor;
    uint16_t subsystemVendor;
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int function;
    const char *physicalSlot;
    int slotID;
} cndevPCIeInfo_t;

typedef union {
    double dVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    int siVal;
    long slVal;
    long long sllVal;
} cndevValue_t;

typedef enum { FIELD_NUMBER = 200 } cndevFieldIdNum_t;
typedef enum { TYPE_DOUBLE = 0, TYPE_LONG_LONG = 6 } cndevFieldValuesTypeNum_t;

typedef struct {
    cndevFieldIdNum_t fieldId;
    cndevRet_t ret;
    cndevValue_t value;
    cndevFieldValuesTypeNum_t valueType;
    long long latencyUsec;
    long long timestamp;
    unsigned int scopeId;
} cndevFieldValue_t;

/* --- devices ---------------------------------------------------------------------------------------------------------- */

#define FIRST_HANDLE 0x51c0 /* a handle is no index: a caller that takes one for the other is found out */

static int inits;

static int count(void)
{
    return (int)number(-1, "devices", 1);
}

/* What every call on a device does first; 0 to go on. */
static int begin(cndevDevice_t device, const char *call, int *board)
{
    *board = device - FIRST_HANDLE;
    if (*board < 0 || *board >= count())
        return INVALID_DEVICE_ID;
    return inits ? trouble(*board, call) : UNINITIALIZED;
}

#define BEGIN(call)                                                                                                       \
    int board, status = begin(device, call, &board);                                                                      \
    if (status)                                                                                                           \
    return status

/* The same for structures that carry a version; their contents are garbage until they are filled. */
#define BEGIN_VERSIONED(call)                                                                                             \
    BEGIN(call);                                                                                                          \
    if (out->version != (int)number(-1, "api", 6))                                                                        \
        return UNSUPPORTED_API_VERSION;                                                                                   \
    memset((char *)out + sizeof out->version, 0x5a, sizeof *out - sizeof out->version)

static int32_t value(int board, const char *what)
{
    return (int32_t)number(board, what, 0);
}

static const char *text(int board, const char *what, const char *otherwise)
{
    const char *found = find(board, what);
    return found ? found : otherwise;
}

cndevRet_t cndevInit(int32_t reserved)
{
    int status = trouble(-1, "init");
    const char *all = find(0, "init.ret");

    if (reserved != 0)
        return INVALID_ARGUMENT;
    uptime_s();
    if (!status && all)
        status = atoi(all);
    if (!status)
        inits++;
    return status;
}

cndevRet_t cndevRelease(void)
{
    if (!inits)
        return UNINITIALIZED;
    inits--;
    return SUCCESS;
}

cndevRet_t cndevGetDeviceCount(cndevCardInfo_t *out)
{
    if (!inits)
        return UNINITIALIZED;
    if (out->version != (int)number(-1, "api", 6))
        return UNSUPPORTED_API_VERSION;
    out->number = (uint32_t)count();
    return trouble(-1, "count");
}

cndevRet_t cndevGetDeviceHandleByIndex(int index, cndevDevice_t *out)
{
    if (index < 0 || index >= count())
        return INVALID_DEVICE_ID;
    *out = FIRST_HANDLE + index;
    return trouble(index, "handle");
}

const char *cndevGetCardNameStringByDevId(cndevDevice_t device)
{
    int board;
    if (begin(device, "name", &board))
        return NULL;
    return text(board, "name", "MLU370-X4");
}

cndevRet_t cndevGetUUID(cndevUUID_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("uuid");
    snprintf((char *)out->uuid, sizeof out->uuid, "%s", text(board, "uuid", ""));
    return SUCCESS;
}

cndevRet_t cndevGetCardSN(cndevCardSN_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("sn");
    out->sn = number(board, "sn", 0);
    out->motherBoardSn = 0xb0a4d;
    return SUCCESS;
}

cndevRet_t cndevGetVersionInfo(cndevVersionInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("version");
    sscanf(text(board, "driver", "5.10.13"), "%u.%u.%u", &out->driverMajorVersion, &out->driverMinorVersion,
           &out->driverBuildVersion);
    sscanf(text(board, "firmware", "1.1.6"), "%u.%u.%u", &out->mcuMajorVersion, &out->mcuMinorVersion, &out->mcuBuildVersion);
    return SUCCESS;
}

cndevRet_t cndevGetTemperatureInfo(cndevTemperatureInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("temp");
    out->chip = value(board, "chip");
    out->board = value(board, "board");
    return SUCCESS;
}

cndevRet_t cndevGetDeviceUtilizationInfo(cndevUtilizationInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("util");
    out->averageCoreUtilization = value(board, "util");
    return SUCCESS;
}

cndevRet_t cndevGetFrequencyInfo(cndevFrequencyInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("clock");
    out->boardFreq = value(board, "clock");
    return SUCCESS;
}

cndevRet_t cndevGetPerformanceThrottleReason(cndevPerformanceThrottleReason_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("throttle");
    out->tdp = (cndevEnableStatusEnum_t)value(board, "tdp");
    out->powerSetting = (cndevEnableStatusEnum_t)value(board, "power_setting");
    out->clockSetting = (cndevEnableStatusEnum_t)value(board, "clock_setting");
    out->frequencyLocked = (cndevEnableStatusEnum_t)value(board, "frequency_locked");
    out->powerBrake = (cndevEnableStatusEnum_t)value(board, "power_brake");
    out->thermalSlowdown = (cndevEnableStatusEnum_t)value(board, "thermal");
    return SUCCESS;
}

static unsigned add_process(cndevProcessInfo_t *out, unsigned found, unsigned room, uint32_t pid, uint64_t kib)
{
    if (found < room) {
        out[found].pid = pid;
        out[found].physicalMemoryUsed = kib;
        out[found].virtualMemoryUsed = 10 * kib;
    }
    return found + 1;
}

cndevRet_t cndevGetProcessInfo(unsigned *many, cndevProcessInfo_t *out, cndevDevice_t device)
{
    const char *rest;
    unsigned i, found = 0, room = *many;
    unsigned long pid, kib;
    int taken;
    BEGIN("processes");
    for (i = 0; i < room; i++)
        if (out[i].version != (int)number(-1, "api", 6)) {
            *many = 0;
            return UNSUPPORTED_API_VERSION;
        }
    for (i = 0; i < number(board, "inits", 0); i++)
        found = add_process(out, found, room, 1, 512);
    for (rest = text(board, "processes", ""); sscanf(rest, "%lu:%lu%n", &pid, &kib, &taken) == 2; rest += taken) {
        found = add_process(out, found, room, (uint32_t)pid, kib);
        taken += rest[taken] == ',';
    }
    *many = found;
    return found > room ? INSUFFICIENT_SPACE : SUCCESS;
}

#ifndef FAKE_OLD
cndevRet_t cndevGetPCIeInfoV2(cndevPCIeInfoV2_t *out, cndevDevice_t device)
{
    BEGIN("pci");
    memset(out, 0, sizeof *out);
    out->vendor = 0xcabc;
    out->domain = (uint32_t)number(board, "domain", 0);
    out->bus = (uint32_t)number(board, "bus", 0x39u + 4u * (unsigned)board);
    return SUCCESS;
}

cndevRet_t cndevGetMemoryUsageV2(cndevMemoryInfoV2_t *out, cndevDevice_t device)
{
    BEGIN("memory");
    memset(out, 0x5a, sizeof *out);
    out->physicalMemoryTotal = (int64_t)number(board, "total", 0);
    out->physicalMemoryUsed = (int64_t)number(board, "used", 0);
    return SUCCESS;
}

cndevRet_t cndevDeviceGetFieldValues(cndevDevice_t device, int many, cndevFieldValue_t *out)
{
    unsigned long long told;
    const char *counter;
    BEGIN("fields");
    if (many != 1)
        return INVALID_ARGUMENT;
    counter = find(board, "energy");
    out->ret = (int)out->fieldId != 71 || !counter ? NOT_SUPPORTED : trouble(board, "energy");
    if (out->ret)
        return SUCCESS;
    told = strtoull(counter, NULL, 0);
    if (told)
        told += (unsigned long long)((double)number(board, "energy_rate_w", 0) * uptime_s() * 1000.0);
    out->valueType = (cndevFieldValuesTypeNum_t)number(board, "energy_type", 3);
    if (out->valueType == TYPE_DOUBLE)
        out->value.dVal = (double)told;
    else
        out->value.ullVal = told;
    out->latencyUsec = 12;
    out->timestamp = 1700000000000000LL;
    return SUCCESS;
}
#else
cndevRet_t cndevGetPCIeInfo(cndevPCIeInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("pci");
    out->domain = (unsigned)number(board, "domain", 0);
    out->bus = (unsigned)number(board, "bus", 0x39u + 4u * (unsigned)board);
    out->device = out->function = 0;
    return SUCCESS;
}

cndevRet_t cndevGetMemoryUsage(cndevMemoryInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("memory");
    out->physicalMemoryTotal = (int64_t)number(board, "total", 0);
    out->physicalMemoryUsed = (int64_t)number(board, "used", 0);
    return SUCCESS;
}
#endif

#ifndef FAKE_NO_POWER
#ifndef FAKE_OLD
cndevRet_t cndevGetDevicePowerInfo(cndevDevicePowerInfo_t *out, cndevDevice_t device)
{
    BEGIN("power");
    memset(out, 0, sizeof *out);
    out->usage = value(board, "power");
    out->cap = value(board, "cap");
    out->machine = 3900;
    out->tdp = 300;
    return SUCCESS;
}
#else
cndevRet_t cndevGetPowerInfo(cndevPowerInfo_t *out, cndevDevice_t device)
{
    BEGIN_VERSIONED("power");
    out->usage = value(board, "power");
    out->cap = value(board, "cap");
    out->machine = 3900;
    return SUCCESS;
}
#endif
#endif

/* clang-format off */
LAYOUT(
    SIZE(cndevCardInfo_t), AT(cndevCardInfo_t, number),
    SIZE(cndevUUID_t), AT(cndevUUID_t, uuid), AT(cndevUUID_t, ncsUUID64),
    SIZE(cndevCardSN_t), AT(cndevCardSN_t, sn), AT(cndevCardSN_t, motherBoardSn),
    SIZE(cndevVersionInfo_t), AT(cndevVersionInfo_t, mcuMajorVersion), AT(cndevVersionInfo_t, driverBuildVersion),
    SIZE(cndevMemoryInfoV2_t), AT(cndevMemoryInfoV2_t, physicalMemoryTotal), AT(cndevMemoryInfoV2_t, physicalMemoryUsed),
    AT(cndevMemoryInfoV2_t, globalMemory), AT(cndevMemoryInfoV2_t, reserved),
    SIZE(cndevMemoryInfo_t), AT(cndevMemoryInfo_t, physicalMemoryTotal), AT(cndevMemoryInfo_t, channelMemoryUsed),
    AT(cndevMemoryInfo_t, globalMemory),
    SIZE(cndevDevicePowerInfo_t), AT(cndevDevicePowerInfo_t, usage), AT(cndevDevicePowerInfo_t, cap),
    AT(cndevDevicePowerInfo_t, maxPower), AT(cndevDevicePowerInfo_t, reserved),
    SIZE(cndevPowerInfo_t), AT(cndevPowerInfo_t, usage), AT(cndevPowerInfo_t, cap), AT(cndevPowerInfo_t, capDecimal),
    AT(cndevPowerInfo_t, instantaneousPowerUsageDecimal),
    SIZE(cndevTemperatureInfo_t), AT(cndevTemperatureInfo_t, board), AT(cndevTemperatureInfo_t, chip),
    AT(cndevTemperatureInfo_t, isp),
    SIZE(cndevUtilizationInfo_t), AT(cndevUtilizationInfo_t, averageCoreUtilization),
    AT(cndevUtilizationInfo_t, coreUtilization),
    SIZE(cndevFrequencyInfo_t), AT(cndevFrequencyInfo_t, boardFreq), AT(cndevFrequencyInfo_t, mluClusterFreq),
    AT(cndevFrequencyInfo_t, boardDefaultFreq), AT(cndevFrequencyInfo_t, boardFreqArange),
    SIZE(cndevPerformanceThrottleReason_t), AT(cndevPerformanceThrottleReason_t, tdp),
    AT(cndevPerformanceThrottleReason_t, thermalSlowdown),
    SIZE(cndevProcessInfo_t), AT(cndevProcessInfo_t, pid), AT(cndevProcessInfo_t, physicalMemoryUsed),
    SIZE(cndevPCIeInfoV2_t), AT(cndevPCIeInfoV2_t, vendor), AT(cndevPCIeInfoV2_t, domain), AT(cndevPCIeInfoV2_t, function),
    AT(cndevPCIeInfoV2_t, slotId),
    SIZE(cndevPCIeInfo_t), AT(cndevPCIeInfo_t, domain), AT(cndevPCIeInfo_t, function), AT(cndevPCIeInfo_t, physicalSlot),
    AT(cndevPCIeInfo_t, slotID),
    SIZE(cndevValue_t),
    SIZE(cndevFieldValue_t), AT(cndevFieldValue_t, ret), AT(cndevFieldValue_t, value), AT(cndevFieldValue_t, valueType),
    AT(cndevFieldValue_t, latencyUsec), AT(cndevFieldValue_t, scopeId)
)
