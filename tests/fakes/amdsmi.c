/* A stand-in for libamd_smi.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts and return codes follow amdsmi.h of AMD SMI 26.1 (ROCm 7; AMDSMI_LIB_VERSION_MAJOR 26), written here from the documented
 * fields; tests/probes/test_amdsmi_layout.py compares each size and offset with those of the binding amdsmi 7.0.2, which is
 * generated from the header. All other symbols that the binding looks up when it is imported are here too, not supported.
 *
 * State: the file named by FAKE_AMDSMI_STATE (see state.h):
 *
 *   devices 2                 GPUs or partitions
 *   driver 6.12.12
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of AMD SMI: name product serial (hexadecimal) device_id domain bus slot function; current average
 * socket [W], cap [uW], energy [counts of 2^-16 J], energy_rate_w [W, added since the start], resolution [uJ], vram_total vram_used
 * [B], vram_total_mib vram_used_mib, gfx [%], hotspot edge [C], clock [MHz], ppt thrm prochot vr hbm [0, 1, 255].
 * Calls that faults name: init sockets handles asic board driver bdf power cap energy memory_total memory_used vram activity
 * temp clock violation. For init and sockets the board is '*'.
 *
 * -DFAKE_NO_ENERGY leaves one symbol out, as an older library does.
 */
#define STATE_VARIABLE "FAKE_AMDSMI_STATE"
#include "state.h"

#include <stddef.h>
#include <stdint.h>

typedef int amdsmi_status_t;
typedef void *amdsmi_processor_handle;
typedef void *amdsmi_socket_handle;

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2, NOT_INIT = 32 };

#define STRING 256
#define XCP 8
#define XCC 8

typedef struct {
    uint64_t socket_power;
    uint32_t current_socket_power;
    uint32_t average_socket_power;
    uint64_t gfx_voltage;
    uint64_t soc_voltage;
    uint64_t mem_voltage;
    uint32_t power_limit;
    uint64_t reserved[18];
} amdsmi_power_info_t;

typedef struct {
    uint64_t power_cap;
    uint64_t default_power_cap;
    uint64_t dpm_cap;
    uint64_t min_power_cap;
    uint64_t max_power_cap;
    uint64_t reserved[3];
} amdsmi_power_cap_info_t;

typedef struct {
    char market_name[STRING];
    uint32_t vendor_id;
    char vendor_name[STRING];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[STRING];
    uint32_t oam_id;
    uint32_t num_of_compute_units;
    uint64_t target_graphics_version;
    uint32_t subsystem_id;
    uint32_t reserved[21];
} amdsmi_asic_info_t;

typedef struct {
    char model_number[STRING];
    char product_serial[STRING];
    char fru_id[STRING];
    char product_name[STRING];
    char manufacturer_name[STRING];
    uint64_t reserved[64];
} amdsmi_board_info_t;

typedef struct {
    char driver_version[STRING];
    char driver_date[STRING];
    char driver_name[STRING];
} amdsmi_driver_info_t;

typedef union {
    struct {
        uint64_t function_number : 3;
        uint64_t device_number : 5;
        uint64_t bus_number : 8;
        uint64_t domain_number : 48;
    } bdf;
    uint64_t as_uint;
} amdsmi_bdf_t;

typedef struct {
    uint32_t vram_total;
    uint32_t vram_used;
    uint32_t reserved[2];
} amdsmi_vram_usage_t;

typedef struct {
    uint32_t gfx_activity;
    uint32_t umc_activity;
    uint32_t mm_activity;
    uint32_t reserved[13];
} amdsmi_engine_usage_t;

typedef struct {
    uint32_t clk;
    uint32_t min_clk;
    uint32_t max_clk;
    uint8_t clk_locked;
    uint8_t clk_deep_sleep;
    uint32_t reserved[4];
} amdsmi_clk_info_t;

typedef struct {
    uint64_t reference_timestamp;
    uint64_t violation_timestamp;
    uint64_t acc_counter;
    uint64_t acc_prochot_thrm;
    uint64_t acc_ppt_pwr;
    uint64_t acc_socket_thrm;
    uint64_t acc_vr_thrm;
    uint64_t acc_hbm_thrm;
    uint64_t acc_gfx_clk_below_host_limit;
    uint64_t per_prochot_thrm;
    uint64_t per_ppt_pwr;
    uint64_t per_socket_thrm;
    uint64_t per_vr_thrm;
    uint64_t per_hbm_thrm;
    uint64_t per_gfx_clk_below_host_limit;
    uint8_t active_prochot_thrm;
    uint8_t active_ppt_pwr;
    uint8_t active_socket_thrm;
    uint8_t active_vr_thrm;
    uint8_t active_hbm_thrm;
    uint8_t active_gfx_clk_below_host_limit;
    uint64_t acc_gfx_clk_below_host_limit_pwr[XCP][XCC];
    uint64_t acc_gfx_clk_below_host_limit_thm[XCP][XCC];
    uint64_t acc_low_utilization[XCP][XCC];
    uint64_t acc_gfx_clk_below_host_limit_total[XCP][XCC];
    uint64_t per_gfx_clk_below_host_limit_pwr[XCP][XCC];
    uint64_t per_gfx_clk_below_host_limit_thm[XCP][XCC];
    uint64_t per_low_utilization[XCP][XCC];
    uint64_t per_gfx_clk_below_host_limit_total[XCP][XCC];
    uint8_t active_gfx_clk_below_host_limit_pwr[XCP][XCC];
    uint8_t active_gfx_clk_below_host_limit_thm[XCP][XCC];
    uint8_t active_low_utilization[XCP][XCC];
    uint8_t active_gfx_clk_below_host_limit_total[XCP][XCC];
    uint64_t reserved[XCP][XCC];
    uint64_t reserved2[XCP][XCC];
    uint64_t reserved3[XCP][XCC];
} amdsmi_violation_status_t;

/* --- boards ------------------------------------------------------------------------------------------------------- */

#define MOST_BOARDS 16

static int inits;
static int socket_mark;
static struct {
    int board;
} handles[MOST_BOARDS]; /* their addresses are handed out: a binding that cuts a pointer to 32 bits is found out */

static int count(void)
{
    int devices = (int)number(-1, "devices", 1);
    return devices > MOST_BOARDS ? MOST_BOARDS : devices;
}

static int board_of(amdsmi_processor_handle handle)
{
    int i;
    for (i = 0; i < MOST_BOARDS; i++)
        if (handle == &handles[i])
            return i;
    return -1;
}

static void text_of(int board, const char *what, const char *otherwise, char *out)
{
    const char *text = find(board, what);
    snprintf(out, STRING, "%s", text ? text : otherwise);
}

/* What every call on a board does first; 0 to go on. */
static int begin(amdsmi_processor_handle handle, const char *call, int *board)
{
    *board = board_of(handle);
    if (*board < 0)
        return INVAL;
    if (!inits)
        return NOT_INIT;
    return trouble(*board, call);
}

#define BEGIN(call)                                                                                                       \
    int board, status = begin(handle, call, &board);                                                                      \
    if (status)                                                                                                           \
    return status

/* --- calls -------------------------------------------------------------------------------------------------------- */

amdsmi_status_t amdsmi_init(uint64_t flags)
{
    int status = trouble(-1, "init");
    const char *all = find(0, "init.ret");
    (void)flags;
    uptime_s();
    if (!status && all)
        status = atoi(all);
    if (!status)
        inits++;
    return status;
}

amdsmi_status_t amdsmi_shut_down(void)
{
    if (!inits)
        return NOT_INIT;
    inits--;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_socket_handles(uint32_t *many, amdsmi_socket_handle *out)
{
    const char *fails = find(0, "sockets.ret");
    if (!inits)
        return NOT_INIT;
    if (fails)
        return atoi(fails);
    *many = 1;
    if (out)
        out[0] = &socket_mark;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_processor_handles(amdsmi_socket_handle socket, uint32_t *many, amdsmi_processor_handle *out)
{
    int i;
    if (socket != &socket_mark)
        return INVAL;
    *many = (uint32_t)count();
    for (i = 0; out && i < count(); i++)
        out[i] = &handles[i];
    return trouble(0, "handles");
}

amdsmi_status_t amdsmi_get_gpu_device_bdf(amdsmi_processor_handle handle, amdsmi_bdf_t *out)
{
    BEGIN("bdf");
    out->as_uint = 0;
    out->bdf.domain_number = number(board, "domain", 0);
    out->bdf.bus_number = number(board, "bus", 0x05u + 0x10u * (unsigned)board);
    out->bdf.device_number = number(board, "slot", 0);
    out->bdf.function_number = number(board, "function", 0);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_asic_info(amdsmi_processor_handle handle, amdsmi_asic_info_t *out)
{
    char serial[32];
    BEGIN("asic");
    memset(out, 0, sizeof *out);
    snprintf(serial, sizeof serial, "%016x", 0xa0b0c000 + board);
    text_of(board, "name", "AMD Instinct MI300X", out->market_name);
    text_of(board, "serial", serial, out->asic_serial);
    snprintf(out->vendor_name, STRING, "Advanced Micro Devices, Inc. [AMD/ATI]");
    out->vendor_id = 0x1002;
    out->device_id = number(board, "device_id", 0x74a1);
    out->target_graphics_version = 0x942;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_board_info(amdsmi_processor_handle handle, amdsmi_board_info_t *out)
{
    BEGIN("board");
    memset(out, 0, sizeof *out);
    text_of(board, "product", "", out->product_name);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_driver_info(amdsmi_processor_handle handle, amdsmi_driver_info_t *out)
{
    BEGIN("driver");
    memset(out, 0, sizeof *out);
    text_of(-1, "driver", "6.12.12", out->driver_version);
    snprintf(out->driver_name, STRING, "amdgpu");
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_power_info(amdsmi_processor_handle handle, amdsmi_power_info_t *out)
{
    BEGIN("power");
    memset(out, 0, sizeof *out);
    out->current_socket_power = (uint32_t)number(board, "current", 0xFFFF);
    out->average_socket_power = (uint32_t)number(board, "average", 0xFFFF);
    out->socket_power = number(board, "socket", 0xFFFF);
    out->gfx_voltage = out->soc_voltage = out->mem_voltage = 0xFFFF;
    out->power_limit = (uint32_t)(number(board, "cap", 0) / 1000000);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_power_cap_info(amdsmi_processor_handle handle, uint32_t sensor, amdsmi_power_cap_info_t *out)
{
    BEGIN("cap");
    if (sensor != 0)
        return INVAL;
    memset(out, 0, sizeof *out);
    out->power_cap = out->default_power_cap = out->max_power_cap = number(board, "cap", 0);
    return SUCCESS;
}

#ifndef FAKE_NO_ENERGY
amdsmi_status_t amdsmi_get_energy_count(amdsmi_processor_handle handle, uint64_t *counts, float *resolution, uint64_t *at)
{
    const char *told;
    BEGIN("energy");
    told = find(board, "resolution");
    *resolution = told ? (float)atof(told) : 15.259f;
    *counts = number(board, "energy", 0);
    if (*counts)
        *counts += (uint64_t)((double)number(board, "energy_rate_w", 0) * uptime_s() * 65536.0);
    *at = (uint64_t)(uptime_s() * 1e9);
    return SUCCESS;
}
#endif

amdsmi_status_t amdsmi_get_gpu_memory_total(amdsmi_processor_handle handle, uint32_t kind, uint64_t *out)
{
    BEGIN("memory_total");
    if (kind != 0)
        return NOT_SUPPORTED;
    *out = number(board, "vram_total", 0);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_memory_usage(amdsmi_processor_handle handle, uint32_t kind, uint64_t *out)
{
    BEGIN("memory_used");
    if (kind != 0)
        return NOT_SUPPORTED;
    *out = number(board, "vram_used", 0);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_vram_usage(amdsmi_processor_handle handle, amdsmi_vram_usage_t *out)
{
    BEGIN("vram");
    memset(out, 0, sizeof *out);
    out->vram_total = (uint32_t)number(board, "vram_total_mib", 0);
    out->vram_used = (uint32_t)number(board, "vram_used_mib", 0);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_gpu_activity(amdsmi_processor_handle handle, amdsmi_engine_usage_t *out)
{
    BEGIN("activity");
    memset(out, 0, sizeof *out);
    out->gfx_activity = (uint32_t)number(board, "gfx", 0xFFFF);
    out->umc_activity = out->mm_activity = 0xFFFF;
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_temp_metric(amdsmi_processor_handle handle, uint32_t sensor, uint32_t metric, int64_t *out)
{
    BEGIN("temp");
    if (metric != 0)
        return INVAL;
    *out = (int64_t)number(board, sensor == 1 ? "hotspot" : "edge", 0);
    return *out ? SUCCESS : NOT_SUPPORTED;
}

amdsmi_status_t amdsmi_get_clock_info(amdsmi_processor_handle handle, uint32_t kind, amdsmi_clk_info_t *out)
{
    BEGIN("clock");
    if (kind != 0)
        return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->clk = (uint32_t)number(board, "clock", 0xFFFFFFFFu);
    return SUCCESS;
}

amdsmi_status_t amdsmi_get_violation_status(amdsmi_processor_handle handle, amdsmi_violation_status_t *out)
{
    BEGIN("violation");
    memset(out, 0xFF, sizeof *out);
    out->active_ppt_pwr = (uint8_t)number(board, "ppt", 255);
    out->active_socket_thrm = (uint8_t)number(board, "thrm", 255);
    out->active_prochot_thrm = (uint8_t)number(board, "prochot", 255);
    out->active_vr_thrm = (uint8_t)number(board, "vr", 255);
    out->active_hbm_thrm = (uint8_t)number(board, "hbm", 255);
    return SUCCESS;
}

void amdsmi_free_name_value_pairs(void *pairs)
{
    free(pairs);
}

/* --- layout, for the test ------------------------------------------------------------------------------------------- */

#define SIZE(type) {#type, sizeof(type)}
#define AT(type, member) {#type "." #member, offsetof(type, member)}

static const struct {
    const char *name;
    unsigned long value;
} layout[] = {
    SIZE(amdsmi_power_info_t),
    AT(amdsmi_power_info_t, current_socket_power),
    AT(amdsmi_power_info_t, average_socket_power),
    AT(amdsmi_power_info_t, mem_voltage),
    AT(amdsmi_power_info_t, power_limit),
    SIZE(amdsmi_power_cap_info_t),
    AT(amdsmi_power_cap_info_t, power_cap),
    AT(amdsmi_power_cap_info_t, max_power_cap),
    SIZE(amdsmi_asic_info_t),
    AT(amdsmi_asic_info_t, vendor_id),
    AT(amdsmi_asic_info_t, device_id),
    AT(amdsmi_asic_info_t, asic_serial),
    AT(amdsmi_asic_info_t, target_graphics_version),
    AT(amdsmi_asic_info_t, subsystem_id),
    SIZE(amdsmi_board_info_t),
    AT(amdsmi_board_info_t, product_name),
    SIZE(amdsmi_driver_info_t),
    AT(amdsmi_driver_info_t, driver_name),
    SIZE(amdsmi_bdf_t),
    SIZE(amdsmi_vram_usage_t),
    AT(amdsmi_vram_usage_t, vram_used),
    SIZE(amdsmi_engine_usage_t),
    AT(amdsmi_engine_usage_t, mm_activity),
    SIZE(amdsmi_clk_info_t),
    AT(amdsmi_clk_info_t, clk_deep_sleep),
    SIZE(amdsmi_violation_status_t),
    AT(amdsmi_violation_status_t, per_prochot_thrm),
    AT(amdsmi_violation_status_t, active_prochot_thrm),
    AT(amdsmi_violation_status_t, active_hbm_thrm),
    AT(amdsmi_violation_status_t, acc_gfx_clk_below_host_limit_pwr),
    AT(amdsmi_violation_status_t, active_gfx_clk_below_host_limit_total),
    AT(amdsmi_violation_status_t, reserved3),
};

const char *fake_layout_name(int index)
{
    return index < (int)(sizeof layout / sizeof layout[0]) ? layout[index].name : NULL;
}

unsigned long fake_layout_value(int index)
{
    return layout[index].value;
}

/* --- looked up by the binding, never called by the probe -------------------------------------------------------------- */

#define ABSENT(name)                                                                                                      \
    amdsmi_status_t name(void)                                                                                            \
    {                                                                                                                     \
        return NOT_SUPPORTED;                                                                                             \
    }

/* clang-format off */
ABSENT(amdsmi_get_processor_type)
ABSENT(amdsmi_clean_gpu_local_data) ABSENT(amdsmi_cpu_apb_disable) ABSENT(amdsmi_cpu_apb_enable)
ABSENT(amdsmi_first_online_core_on_cpu_socket) ABSENT(amdsmi_get_afids_from_cper) ABSENT(amdsmi_get_clk_freq)
ABSENT(amdsmi_get_cpu_affinity_with_scope) ABSENT(amdsmi_get_cpu_cclk_limit) ABSENT(amdsmi_get_cpu_core_boostlimit)
ABSENT(amdsmi_get_cpu_core_current_freq_limit) ABSENT(amdsmi_get_cpu_core_energy)
ABSENT(amdsmi_get_cpu_cores_per_socket) ABSENT(amdsmi_get_cpu_current_io_bandwidth)
ABSENT(amdsmi_get_cpu_current_xgmi_bw) ABSENT(amdsmi_get_cpu_ddr_bw) ABSENT(amdsmi_get_cpu_dimm_power_consumption)
ABSENT(amdsmi_get_cpu_dimm_temp_range_and_refresh_rate) ABSENT(amdsmi_get_cpu_dimm_thermal_sensor)
ABSENT(amdsmi_get_cpu_family) ABSENT(amdsmi_get_cpu_fclk_mclk) ABSENT(amdsmi_get_cpu_handles)
ABSENT(amdsmi_get_cpu_hsmp_driver_version) ABSENT(amdsmi_get_cpu_hsmp_proto_ver) ABSENT(amdsmi_get_cpu_model)
ABSENT(amdsmi_get_cpu_model_name) ABSENT(amdsmi_get_cpu_prochot_status)
ABSENT(amdsmi_get_cpu_pwr_svi_telemetry_all_rails) ABSENT(amdsmi_get_cpu_smu_fw_version)
ABSENT(amdsmi_get_cpu_socket_c0_residency) ABSENT(amdsmi_get_cpu_socket_count)
ABSENT(amdsmi_get_cpu_socket_current_active_freq_limit) ABSENT(amdsmi_get_cpu_socket_energy)
ABSENT(amdsmi_get_cpu_socket_freq_range) ABSENT(amdsmi_get_cpu_socket_lclk_dpm_level)
ABSENT(amdsmi_get_cpu_socket_power) ABSENT(amdsmi_get_cpu_socket_power_cap)
ABSENT(amdsmi_get_cpu_socket_power_cap_max) ABSENT(amdsmi_get_cpu_socket_temperature)
ABSENT(amdsmi_get_cpucore_handles) ABSENT(amdsmi_get_esmi_err_msg) ABSENT(amdsmi_get_fw_info)
ABSENT(amdsmi_get_gpu_accelerator_partition_profile) ABSENT(amdsmi_get_gpu_accelerator_partition_profile_config)
ABSENT(amdsmi_get_gpu_available_counters) ABSENT(amdsmi_get_gpu_bad_page_info)
ABSENT(amdsmi_get_gpu_bad_page_threshold) ABSENT(amdsmi_get_gpu_bdf_id) ABSENT(amdsmi_get_gpu_busy_percent)
ABSENT(amdsmi_get_gpu_cache_info) ABSENT(amdsmi_get_gpu_compute_partition)
ABSENT(amdsmi_get_gpu_compute_process_gpus) ABSENT(amdsmi_get_gpu_compute_process_info)
ABSENT(amdsmi_get_gpu_compute_process_info_by_pid) ABSENT(amdsmi_get_gpu_cper_entries)
ABSENT(amdsmi_get_gpu_device_uuid) ABSENT(amdsmi_get_gpu_ecc_count) ABSENT(amdsmi_get_gpu_ecc_enabled)
ABSENT(amdsmi_get_gpu_ecc_status) ABSENT(amdsmi_get_gpu_enumeration_info) ABSENT(amdsmi_get_gpu_event_notification)
ABSENT(amdsmi_get_gpu_fan_rpms) ABSENT(amdsmi_get_gpu_fan_speed) ABSENT(amdsmi_get_gpu_fan_speed_max)
ABSENT(amdsmi_get_gpu_id) ABSENT(amdsmi_get_gpu_kfd_info) ABSENT(amdsmi_get_gpu_mem_overdrive_level)
ABSENT(amdsmi_get_gpu_memory_partition) ABSENT(amdsmi_get_gpu_memory_partition_config)
ABSENT(amdsmi_get_gpu_memory_reserved_pages) ABSENT(amdsmi_get_gpu_metrics_header_info)
ABSENT(amdsmi_get_gpu_metrics_info) ABSENT(amdsmi_get_gpu_od_volt_curve_regions) ABSENT(amdsmi_get_gpu_od_volt_info)
ABSENT(amdsmi_get_gpu_overdrive_level) ABSENT(amdsmi_get_gpu_pci_bandwidth) ABSENT(amdsmi_get_gpu_pci_replay_counter)
ABSENT(amdsmi_get_gpu_pci_throughput) ABSENT(amdsmi_get_gpu_perf_level) ABSENT(amdsmi_get_gpu_pm_metrics_info)
ABSENT(amdsmi_get_gpu_power_profile_presets) ABSENT(amdsmi_get_gpu_process_isolation)
ABSENT(amdsmi_get_gpu_process_list) ABSENT(amdsmi_get_gpu_ras_block_features_enabled)
ABSENT(amdsmi_get_gpu_ras_feature_info) ABSENT(amdsmi_get_gpu_reg_table_info) ABSENT(amdsmi_get_gpu_revision)
ABSENT(amdsmi_get_gpu_subsystem_id) ABSENT(amdsmi_get_gpu_subsystem_name) ABSENT(amdsmi_get_gpu_topo_numa_affinity)
ABSENT(amdsmi_get_gpu_total_ecc_count) ABSENT(amdsmi_get_gpu_vbios_info) ABSENT(amdsmi_get_gpu_vendor_name)
ABSENT(amdsmi_get_gpu_virtualization_mode) ABSENT(amdsmi_get_gpu_volt_metric) ABSENT(amdsmi_get_gpu_vram_info)
ABSENT(amdsmi_get_gpu_vram_vendor) ABSENT(amdsmi_get_gpu_xcd_counter) ABSENT(amdsmi_get_gpu_xgmi_link_status)
ABSENT(amdsmi_get_hsmp_metrics_table) ABSENT(amdsmi_get_hsmp_metrics_table_version) ABSENT(amdsmi_get_lib_version)
ABSENT(amdsmi_get_link_metrics) ABSENT(amdsmi_get_link_topology_nearest)
ABSENT(amdsmi_get_minmax_bandwidth_between_processors) ABSENT(amdsmi_get_pcie_info)
ABSENT(amdsmi_get_processor_count_from_handles) ABSENT(amdsmi_get_processor_handle_from_bdf)
ABSENT(amdsmi_get_processor_handles_by_type) ABSENT(amdsmi_get_processor_info) ABSENT(amdsmi_get_soc_pstate)
ABSENT(amdsmi_get_socket_info) ABSENT(amdsmi_get_threads_per_core) ABSENT(amdsmi_get_utilization_count)
ABSENT(amdsmi_get_xgmi_info) ABSENT(amdsmi_get_xgmi_plpd) ABSENT(amdsmi_gpu_control_counter)
ABSENT(amdsmi_gpu_counter_group_supported) ABSENT(amdsmi_gpu_create_counter) ABSENT(amdsmi_gpu_destroy_counter)
ABSENT(amdsmi_gpu_driver_reload) ABSENT(amdsmi_gpu_read_counter) ABSENT(amdsmi_gpu_validate_ras_eeprom)
ABSENT(amdsmi_gpu_xgmi_error_status) ABSENT(amdsmi_init_gpu_event_notification) ABSENT(amdsmi_is_P2P_accessible)
ABSENT(amdsmi_is_gpu_power_management_enabled) ABSENT(amdsmi_reset_gpu) ABSENT(amdsmi_reset_gpu_fan)
ABSENT(amdsmi_reset_gpu_xgmi_error) ABSENT(amdsmi_set_clk_freq) ABSENT(amdsmi_set_cpu_core_boostlimit)
ABSENT(amdsmi_set_cpu_df_pstate_range) ABSENT(amdsmi_set_cpu_gmi3_link_width_range)
ABSENT(amdsmi_set_cpu_pcie_link_rate) ABSENT(amdsmi_set_cpu_pwr_efficiency_mode)
ABSENT(amdsmi_set_cpu_socket_boostlimit) ABSENT(amdsmi_set_cpu_socket_lclk_dpm_level)
ABSENT(amdsmi_set_cpu_socket_power_cap) ABSENT(amdsmi_set_cpu_xgmi_width)
ABSENT(amdsmi_set_gpu_accelerator_partition_profile) ABSENT(amdsmi_set_gpu_clk_limit)
ABSENT(amdsmi_set_gpu_clk_range) ABSENT(amdsmi_set_gpu_compute_partition)
ABSENT(amdsmi_set_gpu_event_notification_mask) ABSENT(amdsmi_set_gpu_fan_speed)
ABSENT(amdsmi_set_gpu_memory_partition) ABSENT(amdsmi_set_gpu_memory_partition_mode)
ABSENT(amdsmi_set_gpu_od_clk_info) ABSENT(amdsmi_set_gpu_od_volt_info) ABSENT(amdsmi_set_gpu_overdrive_level)
ABSENT(amdsmi_set_gpu_pci_bandwidth) ABSENT(amdsmi_set_gpu_perf_determinism_mode) ABSENT(amdsmi_set_gpu_perf_level)
ABSENT(amdsmi_set_gpu_power_profile) ABSENT(amdsmi_set_gpu_process_isolation) ABSENT(amdsmi_set_power_cap)
ABSENT(amdsmi_set_soc_pstate) ABSENT(amdsmi_set_xgmi_plpd) ABSENT(amdsmi_status_code_to_string)
ABSENT(amdsmi_stop_gpu_event_notification) ABSENT(amdsmi_topo_get_link_type) ABSENT(amdsmi_topo_get_link_weight)
ABSENT(amdsmi_topo_get_numa_node_number) ABSENT(amdsmi_topo_get_p2p_status)
