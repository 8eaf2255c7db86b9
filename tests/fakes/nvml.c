/* A stand-in for libnvidia-ml.so.1: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts and return codes follow nvml.h of cuda-nvml-dev 12.2.140 (NVML API version 12), written here from the
 * documented fields; tests/probes/test_nvml_layout.py compares each size and offset with those of nvidia-ml-py.
 *
 * State: the file named by FAKE_NVML_STATE, read again whenever it changes (replace it atomically). One "key value" a line,
 * '#' starts a comment, a later line wins:
 *
 *   devices 2                 boards
 *   driver 580.95.05
 *   <b>.<what> VALUE          of board <b>, or of every board with '*'
 *
 * <what> (raw units of NVML): name uuid bus_id power_mw average_mw module_mw usage_mw limit_mw energy_mj energy_rate_mw
 * energy_step_ms memory_total memory_used memory_free memory_reserved utilisation temperature clock throttle arch mig
 * virtualization pids (numbers with spaces between them)
 * Faults, per call <call>: <b>.<call>.ret CODE, .hang_s SECONDS, .crash 1, .print TEXT, .flood BYTES (to stderr). Calls:
 * init count handle name uuid pci memory memory_v2 utilisation temperature power instant average module energy limit clock
 * throttle arch mig processes virtualization. For init and count <b> is '*'.
 *
 * -DFAKE_OLD_DRIVER leaves out what drivers of 2018 did not have.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    ARGUMENT_VERSION_MISMATCH = 25
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
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;

#define MEMORY_V2 ((unsigned int)(sizeof(nvmlMemory_v2_t) | (2u << 24u)))

typedef union {
    double dVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
} nvmlValue_t;

typedef struct {
    unsigned int fieldId;
    unsigned int scopeId;
    long long timestamp;
    long long latencyUsec;
    unsigned int valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;

/* --- state -------------------------------------------------------------------------------------------------------- */

#define MOST_LINES 512

static struct {
    char key[80];
    char value[160];
} lines[MOST_LINES];
static int line_count;
static int faults; /* lines with a key of three parts: without any, a call costs little, as the real one does */
static struct stat state_stat;
static struct timespec loaded;
static int inits;

static void load_state(void)
{
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    char text[320];
    FILE *file;

    if (!path || stat(path, &now) != 0) {
        line_count = faults = 0;
        return;
    }
    if (now.st_ino == state_stat.st_ino && now.st_mtim.tv_sec == state_stat.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == state_stat.st_mtim.tv_nsec && now.st_size == state_stat.st_size)
        return;
    file = fopen(path, "r");
    if (!file)
        return;
    state_stat = now;
    line_count = faults = 0;
    while (line_count < MOST_LINES && fgets(text, sizeof text, file)) {
        const char *key = lines[line_count].key;
        text[strcspn(text, "#\n")] = 0;
        if (sscanf(text, " %79s %159[^\n]", lines[line_count].key, lines[line_count].value) == 2) {
            faults += strchr(key, '.') != NULL && strchr(key, '.') != strrchr(key, '.');
            line_count++;
        }
    }
    fclose(file);
}

static const char *find(int board, const char *what)
{
    int i;

    load_state();
    for (i = line_count - 1; i >= 0; i--) {
        const char *key = lines[i].key;
        const char *dot = strchr(key, '.');
        if (!dot) {
            if (board < 0 && !strcmp(key, what))
                return lines[i].value;
        } else if (!strcmp(dot + 1, what) && (key[0] == '*' || atoi(key) == board)) {
            return lines[i].value;
        }
    }
    return NULL;
}

static unsigned long long number(int board, const char *what, unsigned long long otherwise)
{
    const char *text = find(board, what);
    return text ? strtoull(text, NULL, 0) : otherwise;
}

static const char *fault_text(int board, const char *call, const char *fault)
{
    char what[64];
    snprintf(what, sizeof what, "%s.%s", call, fault);
    return find(board, what);
}

/* Whatever the state wants to go wrong in this call; its return code. */
static nvmlReturn_t trouble(int board, const char *call)
{
    const char *text;
    long bytes;

    load_state();
    if (!faults)
        return SUCCESS;
    if ((text = fault_text(board, call, "print"))) {
        printf("%s\n", text);
        fflush(stdout);
    }
    if ((text = fault_text(board, call, "flood")))
        for (bytes = atol(text); bytes > 0; bytes -= 64)
            fputs("NVRM: noise noise noise noise noise noise noise noise noise\n", stderr);
    if ((text = fault_text(board, call, "hang_s"))) {
        struct timespec left = {atol(text), 0};
        while (nanosleep(&left, &left) != 0)
            ;
    }
    if (fault_text(board, call, "crash"))
        *(volatile int *)8 = 1;
    text = fault_text(board, call, "ret");
    return text ? atoi(text) : SUCCESS;
}

/* Handles are addresses of these: a binding that cuts a pointer to 32 bits is found out. */
static struct nvmlDevice_st {
    int board;
    int slice;
} handles[16], slices[16][8];

static int board_of(nvmlDevice_t device)
{
    size_t i, s;
    for (i = 0; i < 16; i++) {
        if (device == &handles[i])
            return (int)i;
        for (s = 0; s < 8; s++)
            if (device == &slices[i][s])
                return (int)i;
    }
    return -1;
}

#define BEGIN(call) \
    int board = board_of(device); \
    nvmlReturn_t code; \
    if (!inits) \
        return UNINITIALIZED; \
    if (board < 0) \
        return INVALID_ARGUMENT; \
    code = trouble(board, call); \
    if (code != SUCCESS) \
        return code

static nvmlReturn_t put_text(char *out, unsigned int size, const char *text)
{
    if (strlen(text) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static nvmlReturn_t put_number(int board, const char *what, unsigned int *out)
{
    const char *text = find(board, what);
    if (!text)
        return NOT_SUPPORTED;
    *out = (unsigned int)strtoull(text, NULL, 0);
    return SUCCESS;
}

/* --- the library's own functions ------------------------------------------------------------------------------------ */

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    nvmlReturn_t code = trouble(-1, "init");
    (void)flags;
    if (code == SUCCESS && !inits++)
        clock_gettime(CLOCK_MONOTONIC, &loaded);
    return code;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
    if (!inits)
        return UNINITIALIZED;
    inits--;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code)
{
    static char text[40];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    const char *text = find(-1, "driver");
    return inits ? put_text(version, length, text ? text : "580.95.05") : UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t code = trouble(-1, "count");
    if (!inits)
        return UNINITIALIZED;
    *count = (unsigned int)number(-1, "devices", 0);
    return code;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t code;
    if (!inits)
        return UNINITIALIZED;
    if (index >= number(-1, "devices", 0) || index >= 16)
        return INVALID_ARGUMENT;
    code = trouble((int)index, "handle");
    *device = &handles[index];
    return code;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    BEGIN("name");
    return put_text(name, length, find(board, "name") ? find(board, "name") : "NVIDIA H100 80GB HBM3");
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    char text[64];
    BEGIN("uuid");
    if (device != &handles[board]) {
        int slice = (int)(device - slices[board]);
        snprintf(text, sizeof text, "MIG-00000000-aaaa-4bbb-8ccc-%06d%06d", board + 1, slice + 1);
        return put_text(uuid, length, text);
    }
    snprintf(text, sizeof text, "GPU-00000000-aaaa-4bbb-8ccc-%012d", board + 1);
    return put_text(uuid, length, find(board, "uuid") ? find(board, "uuid") : text);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    BEGIN("pci");
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x18u + (unsigned int)board;
    pci->pciDeviceId = 0x233010deu;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus & 0xffu);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus & 0xffu);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    BEGIN("memory");
    memory->total = number(board, "memory_total", 85520809984ull);
    /* version 1 counts what the driver reserves as used */
    memory->used = number(board, "memory_used", 0) + number(board, "memory_reserved", 0);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

#ifndef FAKE_OLD_DRIVER
nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    BEGIN("memory_v2");
    if (memory->version != MEMORY_V2)
        return ARGUMENT_VERSION_MISMATCH;
    memory->total = number(board, "memory_total", 85520809984ull);
    memory->reserved = number(board, "memory_reserved", 0);
    memory->used = number(board, "memory_used", 0);
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}
#endif

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    BEGIN("utilisation");
    rates->memory = 0;
    return put_number(board, "utilisation", &rates->gpu);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *celsius)
{
    BEGIN("temperature");
    return sensor == 0 ? put_number(board, "temperature", celsius) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
    BEGIN("clock");
    return type == 1 ? put_number(board, "clock", mhz) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit)
{
    BEGIN("limit");
    return put_number(board, "limit_mw", limit);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
    BEGIN("power");
    return put_number(board, find(board, "usage_mw") ? "usage_mw" : "power_mw", power);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
    struct timespec now;
    double ms, step_ms;
    BEGIN("energy");
    if (!find(board, "energy_mj"))
        return NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (now.tv_sec - loaded.tv_sec) * 1e3 + (now.tv_nsec - loaded.tv_nsec) / 1e6;
    step_ms = (double)number(board, "energy_step_ms", 100);
    ms = (double)(unsigned long long)(ms / step_ms) * step_ms;
    *energy = number(board, "energy_mj", 0) + (unsigned long long)((double)number(board, "energy_rate_mw", 0) * ms / 1e3);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    BEGIN("throttle");
    if (!find(board, "throttle"))
        return NOT_SUPPORTED;
    *reasons = number(board, "throttle", 0);
    return SUCCESS;
}

#ifndef FAKE_OLD_DRIVER
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons)
{
    return nvmlDeviceGetCurrentClocksThrottleReasons(device, reasons);
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *arch)
{
    BEGIN("arch");
    return put_number(board, "arch", arch);
}

static nvmlReturn_t field_mw(int board, unsigned int field, unsigned int scope, unsigned int *milliwatts)
{
    const char *call = scope == 1 ? "module" : field == 186 ? "instant" : "average";
    const char *what = scope == 1 ? "module_mw" : field == 186 ? "power_mw" : "average_mw";
    nvmlReturn_t code = trouble(board, call);
    if (code != SUCCESS)
        return code;
    return scope > 1 ? NOT_SUPPORTED : put_number(board, what, milliwatts);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    int i;
    BEGIN("fields");
    for (i = 0; i < count; i++) {
        unsigned int milliwatts = 0;
        if (values[i].fieldId != 185 && values[i].fieldId != 186) {
            values[i].nvmlReturn = NOT_SUPPORTED;
            continue;
        }
        values[i].nvmlReturn = field_mw(board, values[i].fieldId, values[i].scopeId, &milliwatts);
        values[i].valueType = 1;
        values[i].value.ullVal = 0xDDDDDDDDDDDDDDDDull; /* what a union leaves behind beside the member that was set */
        values[i].value.uiVal = milliwatts;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
    const char *text;
    char *end;
    unsigned int room = *count;
    unsigned long pid;
    BEGIN("processes");
    *count = 0;
    for (text = find(board, "pids"); text; text = end) {
        pid = strtoul(text, &end, 10);
        if (end == text)
            break;
        if (infos && *count < room) {
            memset(&infos[*count], 0, sizeof *infos);
            infos[*count].pid = (unsigned int)pid;
            infos[*count].usedGpuMemory = 1ull << 30;
            infos[*count].gpuInstanceId = infos[*count].computeInstanceId = 0xFFFFFFFFu;
        }
        (*count)++;
    }
    return *count > room || (*count && !infos) ? INSUFFICIENT_SIZE : SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode)
{
    BEGIN("virtualization");
    *mode = (unsigned int)number(board, "virtualization", 0);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    BEGIN("mig");
    if (!find(board, "mig"))
        return NOT_SUPPORTED;
    *current = *pending = number(board, "mig", 0) > 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    BEGIN("mig");
    *count = 7;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *slice)
{
    BEGIN("mig");
    if (index >= number(board, "mig", 0))
        return NOT_FOUND;
    *slice = &slices[board][index];
    return SUCCESS;
}
#endif

/* --- for the layout test -------------------------------------------------------------------------------------------- */

#define SIZE(type) {#type, sizeof(type)}
#define AT(type, member) {#type "." #member, offsetof(type, member)}

static const struct {
    const char *name;
    size_t value;
} layout[] = {
    SIZE(nvmlPciInfo_t), AT(nvmlPciInfo_t, domain), AT(nvmlPciInfo_t, pciDeviceId), AT(nvmlPciInfo_t, busId),
    SIZE(nvmlUtilization_t), AT(nvmlUtilization_t, memory),
    SIZE(nvmlMemory_t), AT(nvmlMemory_t, free), AT(nvmlMemory_t, used),
    SIZE(nvmlMemory_v2_t), AT(nvmlMemory_v2_t, total), AT(nvmlMemory_v2_t, reserved), AT(nvmlMemory_v2_t, free),
    AT(nvmlMemory_v2_t, used),
    SIZE(nvmlValue_t),
    SIZE(nvmlFieldValue_t), AT(nvmlFieldValue_t, scopeId), AT(nvmlFieldValue_t, timestamp),
    AT(nvmlFieldValue_t, latencyUsec), AT(nvmlFieldValue_t, valueType), AT(nvmlFieldValue_t, nvmlReturn),
    AT(nvmlFieldValue_t, value),
    SIZE(nvmlProcessInfo_t), AT(nvmlProcessInfo_t, usedGpuMemory), AT(nvmlProcessInfo_t, gpuInstanceId),
    AT(nvmlProcessInfo_t, computeInstanceId),
};

const char *fake_layout_name(unsigned int i) { return i < sizeof layout / sizeof *layout ? layout[i].name : NULL; }
unsigned long fake_layout_value(unsigned int i) { return (unsigned long)layout[i].value; }
unsigned int fake_memory_v2_version(void) { return MEMORY_V2; }
