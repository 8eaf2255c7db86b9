/* A stand-in for libmxsml.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Written from MxSml.h and MxSmlMcm.h of MXSML 2.3.1; mxSmlGetDeviceDieId is of another release, known from public callers.
 *
 * State: the file named by FAKE_MXSML_STATE (see state.h):
 *
 *   devices 2                 devices, or dies that show as devices
 *   driver 3.8.30
 *   bios 1.33.5.0
 *   processes 71:1048576 72:2097152      pid:bytes, each on every device
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of MXSML: name uuid pci brand (1 N, 2 C) mode (2 virtual) state (0 faulty) why; power [mW of each rail, blanks
 * between], volts [mV of each rail], limit [mW], total used [KB, of each die], hotspot [0.01 C], usage [%], clock [MHz], throttle
 * [bits]; board die dies slices. The values of a device's second die are used1 hotspot1 usage1 clock1 throttle1.
 * Calls that faults name: init info state why power limit memory temperature usage clock throttle version processes boardid dieid dies.
 *
 * -DFAKE_OLD leaves out what older libraries lack: limits, ids of boards and dies, calls for one die, slices. -DFAKE_NO_POWER: power.
 */
#define STATE_VARIABLE "FAKE_MXSML_STATE"
#include "layout.h"
#include "state.h"

typedef enum {
    SUCCESS = 0,
    NO_DEVICE = 2,
    NOT_SUPPORTED = 3,
    INVALID_DEVICE_ID = 6,
    INVALID_DIE_ID = 7,
    INVALID_INPUT = 9,
    INSUFFICIENT_SIZE = 10,
} mxSmlReturn_t;

typedef enum { BRAND_UNKNOWN, BRAND_N, BRAND_C, BRAND_G } mxSmlDeviceBrand_t;
typedef enum { MODE_NONE, MODE_PF, MODE_VF } mxSmlDeviceVirtualizationMode_t;
typedef enum { DEVICE_UNKNOWN } mxSmlDeviceType_t;
typedef enum { USAGE_DLA, USAGE_VPUE, USAGE_VPUD, USAGE_G2D, USAGE_XCORE } mxSmlUsageIp_t;
typedef enum { CLOCK_CSC, CLOCK_DLA, CLOCK_XCORE = 11 } mxSmlClockIp_t;
typedef enum { TEMPERATURE_HOTSPOT, TEMPERATURE_LIMIT } mxSmlTemperatureSensors_t;
typedef enum { VERSION_BIOS, VERSION_DRIVER } mxSmlVersionUnit_t;

typedef struct {
    unsigned int deviceId;
    mxSmlDeviceType_t type;
    char bdfId[32];
    unsigned int gpuId;
    unsigned int nodeId;
    char uuid[96];
    mxSmlDeviceBrand_t brand;
    mxSmlDeviceVirtualizationMode_t mode;
    char deviceName[32];
} mxSmlDeviceInfo_t;

typedef struct {
    long visVramTotal;
    long visVramUse;
    long vramTotal;
    long vramUse;
    long xttTotal;
    long xttUse;
} mxSmlMemoryInfo_t;

typedef struct {
    unsigned int voltage;
    unsigned int current;
    unsigned int power;
} mxSmlBoardWayElectricInfo_t;

typedef struct {
    char bdfId[32];
    unsigned int gpuId;
    unsigned long gpuMemoryUsage;
} mxSmlProcessGpuInfo_t;

typedef struct {
    unsigned int processId;
    char processName[64];
    unsigned int gpuNumber;
    mxSmlProcessGpuInfo_t processGpuInfo[64];
} mxSmlProcessInfo_t;

typedef struct {
    int unavailableCode;
    char unavailableReason[64];
} mxSmlDeviceUnavailableReasonInfo_t;

static int inits;

static unsigned int count(void)
{
    return (unsigned int)number(-1, "devices", 0);
}

#define BEGIN(call, out)                                                                                                  \
    do {                                                                                                                  \
        int status;                                                                                                       \
        if (!inits)                                                                                                       \
            return NO_DEVICE;                                                                                             \
        if (device >= count())                                                                                            \
            return INVALID_DEVICE_ID;                                                                                     \
        if ((status = trouble((int)device, call)))                                                                        \
            return (mxSmlReturn_t)status;                                                                                 \
        if (!(out))                                                                                                       \
            return INVALID_INPUT;                                                                                         \
    } while (0)

#define DIE(call, out)                                                                                                    \
    BEGIN(call, out);                                                                                                     \
    if (die >= number((int)device, "dies", 1))                                                                            \
        return INVALID_DIE_ID;

static void put(char *out, size_t size, const char *text)
{
    memset(out, 0, size);
    snprintf(out, size, "%s", text ? text : "");
}

static const char *bdf(unsigned int device)
{
    static char text[32];
    const char *told = find((int)device, "pci");
    snprintf(text, sizeof text, "%s", told ? told : "");
    if (!told)
        snprintf(text, sizeof text, "0000:%02x:00.0", 8 + device);
    return text;
}

/* A value of die 0 is WHAT, of die 1 WHAT1. */
static unsigned long long of_die(unsigned int device, unsigned int die, const char *what, unsigned long long otherwise)
{
    char key[32];
    snprintf(key, sizeof key, die ? "%s%u" : "%s", what, die);
    return number((int)device, key, otherwise);
}

mxSmlReturn_t mxSmlInit(void)
{
    const char *all = find(0, "init.ret");
    int status = trouble(-1, "init");
    if (!status && all)
        status = atoi(all);
    if (!status)
        inits++;
    return (mxSmlReturn_t)status;
}

unsigned int mxSmlGetDeviceCount(void)
{
    return inits ? count() : 0;
}

mxSmlReturn_t mxSmlGetDeviceInfo(unsigned int device, mxSmlDeviceInfo_t *out)
{
    char uuid[64];
    const char *told;
    BEGIN("info", out);
    memset(out, 0xA5, sizeof *out);
    out->deviceId = device;
    out->gpuId = device;
    out->nodeId = 7;
    told = find((int)device, "uuid");
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-0000000000a%u", device + 1);
    put(out->uuid, sizeof out->uuid, told ? told : uuid);
    put(out->bdfId, sizeof out->bdfId, bdf(device));
    told = find((int)device, "name");
    put(out->deviceName, sizeof out->deviceName, told ? told : "MetaX C500");
    out->brand = (mxSmlDeviceBrand_t)number((int)device, "brand", BRAND_C);
    out->mode = (mxSmlDeviceVirtualizationMode_t)number((int)device, "mode", MODE_NONE);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDeviceState(unsigned int device, int *out)
{
    BEGIN("state", out);
    *out = (int)number((int)device, "state", 1);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDeviceUnavailableReason(unsigned int device, mxSmlDeviceUnavailableReasonInfo_t *out)
{
    BEGIN("why", out);
    out->unavailableCode = 1;
    put(out->unavailableReason, sizeof out->unavailableReason, find((int)device, "why"));
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDeviceVersion(unsigned int device, mxSmlVersionUnit_t unit, char *out, unsigned int *size)
{
    const char *told = find(-1, unit == VERSION_DRIVER ? "driver" : "bios");
    BEGIN("version", out && size);
    if (!told || strlen(told) >= *size)
        return told ? INSUFFICIENT_SIZE : NOT_SUPPORTED;
    strcpy(out, told);
    return SUCCESS;
}

#ifndef FAKE_NO_POWER
mxSmlReturn_t mxSmlGetBoardPowerInfo(unsigned int device, unsigned int *size, mxSmlBoardWayElectricInfo_t *out)
{
    unsigned int power[16], volts, rails = 0;
    char *next, *volt;
    BEGIN("power", out && size);
    next = (char *)find((int)device, "power");
    while (next && rails < 16) {
        char *end;
        power[rails] = (unsigned int)strtoul(next, &end, 0);
        if (end == next)
            break;
        rails++;
        next = end;
    }
    if (*size < rails) {
        *size = rails;
        return INSUFFICIENT_SIZE;
    }
    *size = rails;
    volt = (char *)find((int)device, "volts");
    for (rails = 0; rails < *size; rails++) {
        volts = volt ? (unsigned int)strtoul(volt, &volt, 0) : 12000;
        out[rails].voltage = volts;
        out[rails].current = volts ? power[rails] / (volts / 1000 + 1) : 0;
        out[rails].power = power[rails];
    }
    return SUCCESS;
}
#endif

static mxSmlReturn_t memory(unsigned int device, unsigned int die, mxSmlMemoryInfo_t *out)
{
    DIE("memory", out);
    out->visVramTotal = 268435456;
    out->visVramUse = 1;
    out->vramTotal = (long)number((int)device, "total", 0);
    out->vramUse = (long)of_die(device, die, "used", 0);
    out->xttTotal = 33554432;
    out->xttUse = 2;
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetMemoryInfo(unsigned int device, mxSmlMemoryInfo_t *out)
{
    return memory(device, 0, out);
}

static mxSmlReturn_t usage(unsigned int device, unsigned int die, mxSmlUsageIp_t ip, int *out)
{
    DIE("usage", out);
    if (ip != (number((int)device, "brand", BRAND_C) == BRAND_N ? USAGE_DLA : USAGE_XCORE))
        return NOT_SUPPORTED;
    *out = (int)of_die(device, die, "usage", 0);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDeviceIpUsage(unsigned int device, mxSmlUsageIp_t ip, int *out)
{
    return usage(device, 0, ip, out);
}

static mxSmlReturn_t temperature(unsigned int device, unsigned int die, mxSmlTemperatureSensors_t sensor, int *out)
{
    DIE("temperature", out);
    if (sensor == TEMPERATURE_LIMIT)
        *out = 10800;
    else if (sensor == TEMPERATURE_HOTSPOT)
        *out = (int)of_die(device, die, "hotspot", 0);
    else
        return NOT_SUPPORTED;
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetTemperatureInfo(unsigned int device, mxSmlTemperatureSensors_t sensor, int *out)
{
    return temperature(device, 0, sensor, out);
}

static mxSmlReturn_t clocks(unsigned int device, unsigned int die, mxSmlClockIp_t ip, unsigned int *size, unsigned int *out)
{
    DIE("clock", out && size);
    if (ip != (number((int)device, "brand", BRAND_C) == BRAND_N ? CLOCK_DLA : CLOCK_XCORE))
        return INVALID_INPUT;
    if (*size < 1) {
        *size = 1;
        return INSUFFICIENT_SIZE;
    }
    *size = 1;
    out[0] = (unsigned int)of_die(device, die, "clock", 0);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetClocks(unsigned int device, mxSmlClockIp_t ip, unsigned int *size, unsigned int *out)
{
    return clocks(device, 0, ip, size, out);
}

mxSmlReturn_t mxSmlGetNumberOfProcess(unsigned int *out)
{
    const char *next = find(-1, "processes");
    if (!out)
        return INVALID_INPUT;
    for (*out = 0; next; next = strchr(next + 1, ':'))
        if (strchr(next, ':'))
            ++*out;
        else
            break;
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetSingleGpuProcess(unsigned int device, unsigned int *size, mxSmlProcessInfo_t *out)
{
    char *next = (char *)find(-1, "processes");
    unsigned int room, i = 0;
    BEGIN("processes", out && size);
    room = *size;
    while (next && i < room) {
        mxSmlProcessInfo_t *one = &out[i];
        char *end;
        unsigned long pid = strtoul(next, &end, 10);
        if (end == next || *end != ':')
            break;
        memset(one, 0, sizeof *one);
        one->processId = (unsigned int)pid;
        put(one->processName, sizeof one->processName, "engine");
        one->gpuNumber = 2;
        put(one->processGpuInfo[0].bdfId, sizeof one->processGpuInfo[0].bdfId, "0000:ff:00.0"); /* a device elsewhere */
        one->processGpuInfo[0].gpuMemoryUsage = 999;
        put(one->processGpuInfo[1].bdfId, sizeof one->processGpuInfo[1].bdfId, bdf(device));
        one->processGpuInfo[1].gpuId = device;
        one->processGpuInfo[1].gpuMemoryUsage = strtoul(end + 1, &next, 10);
        i++;
    }
    *size = i;
    return SUCCESS;
}

#ifndef FAKE_OLD
mxSmlReturn_t mxSmlGetBoardPowerLimit(unsigned int device, unsigned int *out)
{
    BEGIN("limit", out);
    *out = (unsigned int)number((int)device, "limit", 0);
    return SUCCESS;
}

static mxSmlReturn_t throttle(unsigned int device, unsigned int die, unsigned long long *out)
{
    DIE("throttle", out);
    *out = of_die(device, die, "throttle", 0);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetCurrentClocksThrottleReason(unsigned int device, unsigned long long *out)
{
    return throttle(device, 0, out);
}

int mxSmlGetDeviceBoardId(unsigned int device)
{
    return device < count() && !trouble((int)device, "boardid") ? (int)number((int)device, "board", -1) : -1;
}

unsigned int mxSmlGetSgpuCount(unsigned int device)
{
    return (unsigned int)number((int)device, "slices", 0);
}

mxSmlReturn_t mxSmlGetDeviceDieId(unsigned int device, unsigned int *out)
{
    BEGIN("dieid", out);
    *out = (unsigned int)number((int)device, "die", 0);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDeviceDieCount(unsigned int device, unsigned int *out)
{
    BEGIN("dies", out);
    *out = (unsigned int)number((int)device, "dies", 1);
    return SUCCESS;
}

mxSmlReturn_t mxSmlGetDieMemoryInfo(unsigned int device, unsigned int die, mxSmlMemoryInfo_t *out)
{
    return memory(device, die, out);
}

mxSmlReturn_t mxSmlGetDieIpUsage(unsigned int device, unsigned int die, mxSmlUsageIp_t ip, int *out)
{
    return usage(device, die, ip, out);
}

mxSmlReturn_t mxSmlGetDieTemperatureInfo(unsigned int device, unsigned int die, mxSmlTemperatureSensors_t sensor, int *out)
{
    return temperature(device, die, sensor, out);
}

mxSmlReturn_t mxSmlGetDieClocks(unsigned int device, unsigned int die, mxSmlClockIp_t ip, unsigned int *size, unsigned int *out)
{
    return clocks(device, die, ip, size, out);
}

mxSmlReturn_t mxSmlGetDieCurrentClocksThrottleReason(unsigned int device, unsigned int die, unsigned long long *out)
{
    return throttle(device, die, out);
}
#endif

LAYOUT(SIZE(mxSmlDeviceInfo_t), AT(mxSmlDeviceInfo_t, bdfId), AT(mxSmlDeviceInfo_t, gpuId), AT(mxSmlDeviceInfo_t, uuid),
       AT(mxSmlDeviceInfo_t, brand), AT(mxSmlDeviceInfo_t, mode), AT(mxSmlDeviceInfo_t, deviceName), SIZE(mxSmlMemoryInfo_t),
       AT(mxSmlMemoryInfo_t, vramTotal), AT(mxSmlMemoryInfo_t, vramUse), SIZE(mxSmlBoardWayElectricInfo_t),
       AT(mxSmlBoardWayElectricInfo_t, current), AT(mxSmlBoardWayElectricInfo_t, power), SIZE(mxSmlProcessGpuInfo_t),
       AT(mxSmlProcessGpuInfo_t, gpuId), AT(mxSmlProcessGpuInfo_t, gpuMemoryUsage), SIZE(mxSmlProcessInfo_t),
       AT(mxSmlProcessInfo_t, processName), AT(mxSmlProcessInfo_t, gpuNumber), AT(mxSmlProcessInfo_t, processGpuInfo),
       SIZE(mxSmlDeviceUnavailableReasonInfo_t), AT(mxSmlDeviceUnavailableReasonInfo_t, unavailableReason))
