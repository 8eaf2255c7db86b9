/* A stand-in for Hygon's librocm_smi64.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts, return codes and units follow rocm_smi.h 7.6 of DTK 26.04, written here from the documented fields. -DFAKE_DTK_24 gives
 * those of 2.8: no deep sleep in the list of clocks, no call for the power of now. -DFAKE_NO_POWER leaves out both power calls, as a
 * library without the symbols.
 *
 * State: the file named by FAKE_ROCMSMI_STATE (see state.h):
 *
 *   devices 2
 *   driver 6.3.31
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of ROCm SMI: vendor device_id name unique_id bdf vbios; power current cap [uW], energy [counts], energy_rate_w
 * [W, added since the start], resolution [uJ a count], total used [B], busy [%], edge junction core [mC], clock [Hz], deep [0 or 1],
 * process_PID [B held]. pids lists the processes of a board.
 * Calls that faults name: init count driver vendor device_id name unique_id bdf vbios power current cap energy total used busy temp
 * clock processes gpus process. For init, count, driver and processes the board is '*'.
 */
#define STATE_VARIABLE "FAKE_ROCMSMI_STATE"
#include "state.h"
#include "layout.h"

#include <stdbool.h>
#include <stdint.h>

typedef int rsmi_status_t;

enum {
    SUCCESS = 0,
    INVALID_ARGS = 1,
    NOT_SUPPORTED = 2,
    INIT_ERROR = 8,
    NOT_FOUND = 10,
    INSUFFICIENT_SIZE = 11,
};

#ifdef FAKE_DTK_24
typedef struct {
    uint32_t num_supported;
    uint32_t current;
    uint64_t frequency[32];
} rsmi_frequencies_t;
#else
typedef struct {
    bool has_deep_sleep;
    uint32_t num_supported;
    uint32_t current;
    uint64_t frequency[33];
} rsmi_frequencies_t;
#endif

typedef struct {
    uint32_t process_id;
    uint32_t pasid;
    uint64_t vram_usage;
    uint64_t sdma_usage;
    uint32_t cu_occupancy;
} rsmi_process_info_t;

static int inits;

static int devices(void)
{
    return (int)number(-1, "devices", 1);
}

/* What every call on a device does first; 0 to go on. */
static int begin(uint32_t device, const char *call)
{
    if (!inits)
        return INIT_ERROR;
    if ((int)device >= devices())
        return INVALID_ARGS;
    return trouble((int)device, call);
}

#define BEGIN(call)                                                                                                       \
    int status = begin(device, call);                                                                                     \
    if (status)                                                                                                           \
    return status

/* A number of a device, not supported where the state has none. */
#define GIVE(what, type)                                                                                                  \
    if (!out)                                                                                                             \
        return INVALID_ARGS;                                                                                              \
    if (!find((int)device, what))                                                                                         \
        return NOT_SUPPORTED;                                                                                             \
    *out = (type)number((int)device, what, 0);                                                                            \
    return SUCCESS

#define NUMBER(symbol, what, type)                                                                                        \
    rsmi_status_t symbol(uint32_t device, type *out)                                                                      \
    {                                                                                                                     \
        BEGIN(what);                                                                                                      \
        GIVE(what, type);                                                                                                 \
    }

static int text(int device, const char *what, char *out, size_t length)
{
    const char *found = find(device, what);

    if (!found)
        return NOT_SUPPORTED;
    if (strlen(found) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, found);
    return SUCCESS;
}

rsmi_status_t rsmi_init(uint64_t flags)
{
    int status = trouble(-1, "init");

    uptime_s();
    if (flags)
        return INVALID_ARGS;
    if (!status)
        inits++;
    return status;
}

rsmi_status_t rsmi_shut_down(void)
{
    if (!inits)
        return INIT_ERROR;
    inits--;
    return SUCCESS;
}

rsmi_status_t rsmi_num_monitor_devices(uint32_t *out)
{
    if (!inits)
        return INIT_ERROR;
    *out = (uint32_t)devices();
    return trouble(-1, "count");
}

/* Component 0 is the driver. */
rsmi_status_t rsmi_version_str_get(uint32_t component, char *out, uint32_t length)
{
    int status = trouble(-1, "driver");

    if (component)
        return INVALID_ARGS;
    return status ? status : text(-1, "driver", out, length);
}

NUMBER(rsmi_dev_vendor_id_get, "vendor", uint16_t)
NUMBER(rsmi_dev_id_get, "device_id", uint16_t)
NUMBER(rsmi_dev_unique_id_get, "unique_id", uint64_t)
NUMBER(rsmi_dev_pci_id_get, "bdf", uint64_t)
NUMBER(rsmi_dev_busy_percent_get, "busy", uint32_t)

rsmi_status_t rsmi_dev_name_get(uint32_t device, char *out, size_t length)
{
    BEGIN("name");
    return text((int)device, "name", out, length);
}

rsmi_status_t rsmi_dev_vbios_version_get(uint32_t device, char *out, uint32_t length)
{
    BEGIN("vbios");
    return text((int)device, "vbios", out, length);
}

#ifndef FAKE_NO_POWER
rsmi_status_t rsmi_dev_power_ave_get(uint32_t device, uint32_t sensor, uint64_t *out)
{
    BEGIN("power");
    if (sensor)
        return INVALID_ARGS;
    GIVE("power", uint64_t);
}

#ifndef FAKE_DTK_24
rsmi_status_t rsmi_dev_power_get(uint32_t device, uint64_t *out, uint32_t *kind)
{
    BEGIN("current");
    *kind = 1;
    GIVE("current", uint64_t);
}
#endif
#endif

rsmi_status_t rsmi_dev_power_cap_get(uint32_t device, uint32_t sensor, uint64_t *out)
{
    BEGIN("cap");
    if (sensor)
        return INVALID_ARGS;
    GIVE("cap", uint64_t);
}

rsmi_status_t rsmi_dev_energy_count_get(uint32_t device, uint64_t *counts, float *resolution_uj, uint64_t *stamp_ns)
{
    const char *unit;
    BEGIN("energy");

    if (!find((int)device, "energy"))
        return NOT_SUPPORTED;
    unit = find((int)device, "resolution");
    *resolution_uj = unit ? strtof(unit, NULL) : 15.3f;
    *counts = number((int)device, "energy", 0);
    if (*counts && *counts != UINT64_MAX)
        *counts += (uint64_t)(uptime_s() * 1e6 * (double)number((int)device, "energy_rate_w", 0) / *resolution_uj);
    *stamp_ns = (uint64_t)(uptime_s() * 1e9);
    return SUCCESS;
}

/* Kind 0 is the memory on the card; the others are memory of the host that the card may see. */
static int memory(uint32_t device, const char *what, uint32_t kind, uint64_t *out)
{
    BEGIN(what);
    if (kind) {
        *out = 12345;
        return SUCCESS;
    }
    GIVE(what, uint64_t);
}

rsmi_status_t rsmi_dev_memory_total_get(uint32_t device, uint32_t kind, uint64_t *out)
{
    return memory(device, "total", kind, out);
}

rsmi_status_t rsmi_dev_memory_usage_get(uint32_t device, uint32_t kind, uint64_t *out)
{
    return memory(device, "used", kind, out);
}

rsmi_status_t rsmi_dev_temp_metric_get(uint32_t device, uint32_t sensor, uint32_t metric, int64_t *out)
{
    const char *what = sensor == 0 ? "edge" : sensor == 1 ? "junction" : sensor == 11 ? "core" : "";
    BEGIN("temp");

    if (metric)
        return INVALID_ARGS;
    GIVE(what, int64_t);
}

/* Three clocks, the current one in the middle. */
rsmi_status_t rsmi_dev_gpu_clk_freq_get(uint32_t device, uint32_t kind, rsmi_frequencies_t *out)
{
    BEGIN("clock");
    if (kind)
        return INVALID_ARGS;
    if (!find((int)device, "clock"))
        return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
#ifndef FAKE_DTK_24
    out->has_deep_sleep = number((int)device, "deep", 0) != 0;
#endif
    out->num_supported = 3;
    out->current = 1;
    out->frequency[0] = number((int)device, "lowest", 300000000);
    out->frequency[1] = number((int)device, "clock", 0);
    out->frequency[2] = 2000000000;
    return SUCCESS;
}

/* Whether the list `pids` of a device, `12,34`, holds one. */
static bool holds(int device, uint32_t pid)
{
    const char *listed = find(device, "pids");

    while (listed && *listed) {
        char *end;
        if (strtoul(listed, &end, 10) == pid && end != listed)
            return true;
        listed = *end ? end + 1 : NULL;
    }
    return false;
}

/* Without `infos` their number; with them as many as fit, and their number. */
rsmi_status_t rsmi_compute_process_info_get(rsmi_process_info_t *infos, uint32_t *count)
{
    uint32_t room, found = 0;
    int device, status = trouble(-1, "processes");

    if (!inits || status)
        return inits ? status : INIT_ERROR;
    room = infos ? *count : 0;
    for (device = 0; device < devices(); device++) {
        const char *listed = find(device, "pids");
        while (listed && *listed) {
            char *end;
            uint32_t pid = (uint32_t)strtoul(listed, &end, 10), i;
            for (i = 0; i < (uint32_t)device && !holds((int)i, pid); i++)
                ;
            if (i == (uint32_t)device) {
                if (found < room) {
                    memset(&infos[found], 0, sizeof infos[found]);
                    infos[found].process_id = pid;
                    infos[found].pasid = 0x8000 + found;
                }
                found++;
            }
            listed = *end ? end + 1 : NULL;
        }
    }
    *count = infos && found > room ? room : found;
    return infos && found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

rsmi_status_t rsmi_compute_process_gpus_get(uint32_t pid, uint32_t *indices, uint32_t *count)
{
    uint32_t room = indices ? *count : 0, found = 0;
    int device, status = trouble(-1, "gpus");

    if (status)
        return status;
    for (device = 0; device < devices(); device++)
        if (holds(device, pid)) {
            if (found < room)
                indices[found] = (uint32_t)device;
            found++;
        }
    *count = indices && found > room ? room : found;
    if (!found)
        return NOT_FOUND;
    return indices && found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

rsmi_status_t rsmi_compute_process_info_by_device_get(uint32_t pid, uint32_t device, rsmi_process_info_t *info)
{
    char what[32];
    BEGIN("process");

    if (!holds((int)device, pid))
        return NOT_FOUND;
    snprintf(what, sizeof what, "process_%u", pid);
    memset(info, 0, sizeof *info);
    info->process_id = pid;
    info->vram_usage = number((int)device, what, UINT64_MAX);
    info->cu_occupancy = 7;
    return SUCCESS;
}

LAYOUT(
    SIZE(rsmi_frequencies_t),
    AT(rsmi_frequencies_t, num_supported),
    AT(rsmi_frequencies_t, current),
    AT(rsmi_frequencies_t, frequency),
    SIZE(rsmi_process_info_t),
    AT(rsmi_process_info_t, process_id),
    AT(rsmi_process_info_t, vram_usage),
    AT(rsmi_process_info_t, cu_occupancy))
