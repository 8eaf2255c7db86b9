/* A stand-in for libdcmi.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts and return codes are written here from dcmi_interface_api.h (Huawei, 2021-03-17; the same in the header of Ascend HDK 26)
 * and dcmi_interface_api_v2.h (2026); tests/probes/ascend/test_layout.py compares them with those of the probe.
 *
 * State: the file named by FAKE_DCMI_STATE (see state.h):
 *
 *   devices 2                 NPU chips on all cards
 *   chips 1                   NPU chips a card; each card has a microcontroller after them
 *   first_card 0              number of the first card
 *   driver 25.2.0
 *   generation 1              2: the calls without a card, as on a 950; the others answer -8255
 *   BOARD.WHAT VALUE
 *
 * BOARD numbers the chips. WHAT, in raw units of DCMI: name, die (0: none), domain bus (without: no PCIe), logic, power [0.1 W],
 * mcu [0.1 W, of the card of that chip], hbm hbm_used ddr ddr_free [MB], temp [C], clock [MHz], use [%], pids (PID:BYTES,...).
 * What is not given is not supported. Calls that faults name: init count type chip pcie die component power mcu hbm ddr temp
 * clock use use_of processes logic.
 *
 * -DFAKE_NO_POWER leaves out the calls that tell power. -DFAKE_OLD leaves out what drivers before 25 lack.
 */
#define STATE_VARIABLE "FAKE_DCMI_STATE"
#include "layout.h"
#include "state.h"

enum { OK = 0, INVALID_PARAMETER = -8001, DEVICE_NOT_EXIST = -8008, NOT_REDAY = -8012, NOT_SUPPORT = -8255 };
enum dcmi_unit_type { NPU_TYPE = 0, MCU_TYPE = 1, CPU_TYPE = 2, INVALID_TYPE = 0xFF };
enum dcmi_die_type { NDIE, VDIE, DDIE };

#define MAX_CHIP_NAME_LEN 32
#define DIE_ID_COUNT 5

struct dcmi_chip_info {
    unsigned char chip_type[MAX_CHIP_NAME_LEN];
    unsigned char chip_name[MAX_CHIP_NAME_LEN];
    unsigned char chip_ver[MAX_CHIP_NAME_LEN];
    unsigned int aicore_cnt;
};

struct dcmi_chip_info_v2 {
    unsigned char chip_type[MAX_CHIP_NAME_LEN];
    unsigned char chip_name[MAX_CHIP_NAME_LEN];
    unsigned char chip_ver[MAX_CHIP_NAME_LEN];
    unsigned int aicore_cnt;
    unsigned char npu_name[MAX_CHIP_NAME_LEN];
};

struct dcmi_pcie_info_all {
    unsigned int venderid;
    unsigned int subvenderid;
    unsigned int deviceid;
    unsigned int subdeviceid;
    int domain;
    unsigned int bdf_busid;
    unsigned int bdf_deviceid;
    unsigned int bdf_funcid;
    unsigned char reserve[32];
};

_Static_assert(sizeof(struct dcmi_pcie_info_all) == 64, "the header says so");

struct dcmi_die_id {
    unsigned int soc_die[DIE_ID_COUNT];
};

struct dcmi_hbm_info {
    unsigned long long memory_size;
    unsigned int freq;
    unsigned long long memory_usage;
    int temp;
    unsigned int bandwith_util_rate;
};

struct dcmi_get_memory_info_stru {
    unsigned long long memory_size;      /* MB */
    unsigned long long memory_available; /* MB */
    unsigned int freq;
    unsigned long hugepagesize; /* KB */
    unsigned long hugepages_total;
    unsigned long hugepages_free;
    unsigned int utiliza;
    unsigned char reserve[60];
};

struct dcmi_multi_utilization_info {
    unsigned int aic_util;
    unsigned int aiv_util;
    unsigned int aicore_util;
    unsigned int npu_util;
    unsigned int reserved[8];
};

struct dcmi_proc_mem_info {
    int proc_id;
    unsigned long proc_mem_usage; /* bytes */
};

/* --- chips -------------------------------------------------------------------------------------------------------- */

#define MOST_CHIPS 16

static int started[3];

static int chips_of_a_card(void)
{
    return (int)number(-1, "chips", 1);
}

static int first_card(void)
{
    return (int)number(-1, "first_card", 0);
}

static int count(void)
{
    int devices = (int)number(-1, "devices", 1);
    return devices > MOST_CHIPS ? MOST_CHIPS : devices;
}

static int of_generation(int generation)
{
    return (int)number(-1, "generation", 1) == generation;
}

/* The chip, or -1 for none such. `device` counts the chips of a card, then its microcontroller. */
static int chip_at(int card, int device)
{
    int chip = (card - first_card()) * chips_of_a_card() + device;
    return card < first_card() || device < 0 || device >= chips_of_a_card() || chip >= count() ? -1 : chip;
}

static int init(int generation)
{
    int status = trouble(0, "init");
    (void)uptime_s;
    if (!getenv(STATE_VARIABLE) || !of_generation(generation))
        return NOT_SUPPORT;
    if (!status)
        started[generation] = 1;
    return status;
}

/* What every call on a chip does first; 0 to go on. */
static int begin(int generation, int chip, const char *call)
{
    if (!of_generation(generation))
        return NOT_SUPPORT;
    if (!started[generation])
        return NOT_REDAY;
    if (chip < 0 || chip >= count())
        return DEVICE_NOT_EXIST;
    return trouble(chip, call);
}

static int fill(int chip, const char *what, int *out)
{
    if (!find(chip, what))
        return NOT_SUPPORT;
    *out = (int)number(chip, what, 0);
    return OK;
}

static int version(const char *what, char *out, unsigned int len)
{
    const char *text = find(-1, what);
    if (!text)
        return NOT_SUPPORT;
    snprintf(out, len, "%s", text);
    return OK;
}

/* --- one call of both generations ----------------------------------------------------------------------------------- */

static int chip_info(int chip, struct dcmi_chip_info_v2 *out, size_t size)
{
    const char *name = find(chip, "name");
    struct dcmi_chip_info_v2 whole = {.chip_type = "Ascend", .chip_ver = "V1", .aicore_cnt = 24, .npu_name = "9392"};
    if (!name)
        return NOT_SUPPORT;
    snprintf((char *)whole.chip_name, MAX_CHIP_NAME_LEN, "%s", name);
    memcpy(out, &whole, size);
    return OK;
}

static int pcie_info(int chip, struct dcmi_pcie_info_all *out)
{
    if (!find(chip, "bus"))
        return NOT_SUPPORT;
    memset(out, 0, sizeof *out);
    out->venderid = 0x19e5;
    out->deviceid = 0xd802;
    out->domain = (int)number(chip, "domain", 0);
    out->bdf_busid = (unsigned)number(chip, "bus", 0);
    return OK;
}

static int die_id(int chip, enum dcmi_die_type known, enum dcmi_die_type type, struct dcmi_die_id *out)
{
    int i;
    if (type != known)
        return NOT_SUPPORT;
    for (i = 0; i < DIE_ID_COUNT; i++)
        out->soc_die[i] = find(chip, "die") ? (unsigned)number(chip, "die", 0) : 0xd1e00000u + 16u * (unsigned)chip + (unsigned)i;
    return OK;
}

static int component(int type, unsigned char *out, unsigned int len)
{
    return type == 18 ? version("firmware", (char *)out, len) : NOT_SUPPORT;
}

static int hbm_info(int chip, struct dcmi_hbm_info *out)
{
    if (!find(chip, "hbm"))
        return NOT_SUPPORT;
    out->memory_size = number(chip, "hbm", 0);
    out->memory_usage = number(chip, "hbm_used", 0);
    out->freq = 1600;
    out->temp = 38;
    out->bandwith_util_rate = 0;
    return OK;
}

static int frequency(int chip, int type, unsigned int *out)
{
    return type == 7 ? fill(chip, "clock", (int *)out) : INVALID_PARAMETER;
}

static int utilization(int chip, int type, unsigned int *out)
{
    return type == 2 ? fill(chip, "use", (int *)out) : INVALID_PARAMETER;
}

#ifndef FAKE_OLD
static int multi_utilization(int chip, struct dcmi_multi_utilization_info *out)
{
    int status = fill(chip, "use", (int *)&out->aicore_util);
    out->aic_util = out->aiv_util = 1;
    out->npu_util = 100; /* what some drivers tell of it: not to be used */
    return status;
}
#endif

static int processes(int chip, struct dcmi_proc_mem_info *out, int *many)
{
    const char *text = find(chip, "pids");
    int used;
    *many = 0;
    while (text && sscanf(text, "%d:%lu%n", &out[*many].proc_id, &out[*many].proc_mem_usage, &used) == 2) {
        ++*many;
        text += used;
        text += *text == ',';
    }
    return OK;
}

#define BEGIN(generation, chip, call)                                                                                      \
    int status = begin(generation, chip, call);                                                                            \
    if (status)                                                                                                            \
    return status

/* --- by card -------------------------------------------------------------------------------------------------------- */

int dcmi_init(void)
{
    return init(1);
}

int dcmi_get_driver_version(char *out, unsigned int len)
{
    return version("driver", out, len);
}

int dcmi_get_card_list(int *many, int *out, int len)
{
    int i, cards = (count() + chips_of_a_card() - 1) / chips_of_a_card();
    if (!started[1] || !of_generation(1))
        return started[1] ? NOT_SUPPORT : NOT_REDAY;
    for (i = 0; i < cards && i < len; i++)
        out[i] = first_card() + i;
    *many = cards;
    return OK;
}

int dcmi_get_device_num_in_card(int card, int *out)
{
    int chip = chip_at(card, 0), here;
    BEGIN(1, chip, "count");
    here = count() - chip;
    *out = (here > chips_of_a_card() ? chips_of_a_card() : here) + (int)number(-1, "counts_mcu", 0);
    return OK;
}

int dcmi_get_device_type(int card, int device, enum dcmi_unit_type *out)
{
    int chip = chip_at(card, device);
    if (chip < 0 && device == chips_of_a_card() && chip_at(card, 0) >= 0) {
        *out = MCU_TYPE;
        return OK;
    }
    BEGIN(1, chip, "type");
    *out = NPU_TYPE;
    return OK;
}

int dcmi_get_device_chip_info(int card, int device, struct dcmi_chip_info *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "chip");
    return chip_info(chip, (struct dcmi_chip_info_v2 *)out, sizeof *out);
}

int dcmi_get_device_pcie_info_v2(int card, int device, struct dcmi_pcie_info_all *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "pcie");
    return pcie_info(chip, out);
}

int dcmi_get_device_die_v2(int card, int device, enum dcmi_die_type type, struct dcmi_die_id *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "die");
    return die_id(chip, VDIE, type, out);
}

int dcmi_get_device_component_static_version(int card, int device, int type, unsigned char *out, unsigned int len)
{
    BEGIN(1, chip_at(card, device), "component");
    return component(type, out, len);
}

int dcmi_get_device_hbm_info(int card, int device, struct dcmi_hbm_info *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "hbm");
    return hbm_info(chip, out);
}

int dcmi_get_device_memory_info_v3(int card, int device, struct dcmi_get_memory_info_stru *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "ddr");
    if (!find(chip, "ddr"))
        return NOT_SUPPORT;
    memset(out, 0xFF, sizeof *out);
    out->memory_size = number(chip, "ddr", 0);
    out->memory_available = number(chip, "ddr_free", 0);
    out->utiliza = 3;
    return OK;
}

int dcmi_get_device_temperature(int card, int device, int *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "temp");
    return fill(chip, "temp", out);
}

int dcmi_get_device_frequency(int card, int device, int type, unsigned int *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "clock");
    return frequency(chip, type, out);
}

int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned int *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "use_of");
    return utilization(chip, type, out);
}

int dcmi_get_device_resource_info(int card, int device, struct dcmi_proc_mem_info *out, int *many)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "processes");
    return processes(chip, out, many);
}

int dcmi_get_device_logic_id(int *out, int card, int device)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "logic");
    *out = (int)number(chip, "logic", (unsigned)chip);
    return OK;
}

#ifndef FAKE_OLD
int dcmi_get_device_chip_info_v2(int card, int device, struct dcmi_chip_info_v2 *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "chip");
    return chip_info(chip, out, sizeof *out);
}

int dcmi_get_device_multi_utilization_rate(int card, int device, struct dcmi_multi_utilization_info *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "use");
    return multi_utilization(chip, out);
}
#endif

#ifndef FAKE_NO_POWER
int dcmi_get_device_power_info(int card, int device, int *out)
{
    int chip = chip_at(card, device);
    BEGIN(1, chip, "power");
    return fill(chip, "power", out);
}

int dcmi_mcu_get_power_info(int card, int *out)
{
    int chip = chip_at(card, 0);
    BEGIN(1, chip, "mcu");
    return fill(chip, "mcu", out);
}
#endif

/* --- flat: the 950 ---------------------------------------------------------------------------------------------------- */

#ifndef FAKE_OLD
int dcmiv2_init(void)
{
    return init(2);
}

int dcmiv2_get_driver_version(char *out, unsigned int len)
{
    return version("driver", out, len);
}

int dcmiv2_get_device_list(int *out, int *many, int len)
{
    int i;
    if (!started[2] || !of_generation(2))
        return started[2] ? NOT_SUPPORT : NOT_REDAY;
    for (i = 0; i < count() && i < len; i++)
        out[i] = i;
    *many = count();
    return OK;
}

int dcmiv2_get_device_type(int chip, enum dcmi_unit_type *out)
{
    BEGIN(2, chip, "type");
    *out = NPU_TYPE;
    return OK;
}

int dcmiv2_get_device_chip_info(int chip, struct dcmi_chip_info_v2 *out)
{
    BEGIN(2, chip, "chip");
    return chip_info(chip, out, sizeof *out);
}

int dcmiv2_get_device_pcie_info(int chip, struct dcmi_pcie_info_all *out)
{
    BEGIN(2, chip, "pcie");
    return pcie_info(chip, out);
}

int dcmiv2_get_device_die_id(int chip, enum dcmi_die_type type, struct dcmi_die_id *out)
{
    BEGIN(2, chip, "die");
    return die_id(chip, DDIE, type, out);
}

int dcmiv2_get_device_component_static_version(int chip, int type, unsigned char *out, unsigned int len)
{
    BEGIN(2, chip, "component");
    return component(type, out, len);
}

int dcmiv2_get_device_hbm_info(int chip, struct dcmi_hbm_info *out)
{
    BEGIN(2, chip, "hbm");
    return hbm_info(chip, out);
}

int dcmiv2_get_device_temperature(int chip, int *out)
{
    BEGIN(2, chip, "temp");
    return fill(chip, "temp", out);
}

int dcmiv2_get_device_frequency(int chip, int type, unsigned int *out)
{
    BEGIN(2, chip, "clock");
    return frequency(chip, type, out);
}

int dcmiv2_get_device_multi_utilization_rate(int chip, struct dcmi_multi_utilization_info *out)
{
    BEGIN(2, chip, "use");
    return multi_utilization(chip, out);
}

int dcmiv2_get_device_utilization_rate(int chip, int type, unsigned int *out)
{
    BEGIN(2, chip, "use_of");
    return utilization(chip, type, out);
}

int dcmiv2_get_device_proc_mem_info(int chip, struct dcmi_proc_mem_info *out, int *many)
{
    BEGIN(2, chip, "processes");
    return processes(chip, out, many);
}

#ifndef FAKE_NO_POWER
int dcmiv2_get_device_power_info(int chip, int *out)
{
    BEGIN(2, chip, "power");
    return fill(chip, "power", out);
}
#endif
#endif

/* --- layout, for the test ------------------------------------------------------------------------------------------- */

LAYOUT(
    SIZE(struct dcmi_chip_info_v2),
    AT(struct dcmi_chip_info_v2, chip_name),
    AT(struct dcmi_chip_info_v2, chip_ver),
    AT(struct dcmi_chip_info_v2, aicore_cnt),
    AT(struct dcmi_chip_info_v2, npu_name),
    SIZE(struct dcmi_pcie_info_all),
    AT(struct dcmi_pcie_info_all, deviceid),
    AT(struct dcmi_pcie_info_all, domain),
    AT(struct dcmi_pcie_info_all, bdf_busid),
    AT(struct dcmi_pcie_info_all, bdf_deviceid),
    AT(struct dcmi_pcie_info_all, bdf_funcid),
    AT(struct dcmi_pcie_info_all, reserve),
    SIZE(struct dcmi_die_id),
    SIZE(struct dcmi_hbm_info),
    AT(struct dcmi_hbm_info, freq),
    AT(struct dcmi_hbm_info, memory_usage),
    AT(struct dcmi_hbm_info, temp),
    AT(struct dcmi_hbm_info, bandwith_util_rate),
    SIZE(struct dcmi_get_memory_info_stru),
    AT(struct dcmi_get_memory_info_stru, memory_available),
    AT(struct dcmi_get_memory_info_stru, freq),
    AT(struct dcmi_get_memory_info_stru, hugepagesize),
    AT(struct dcmi_get_memory_info_stru, hugepages_free),
    AT(struct dcmi_get_memory_info_stru, utiliza),
    AT(struct dcmi_get_memory_info_stru, reserve),
    SIZE(struct dcmi_multi_utilization_info),
    AT(struct dcmi_multi_utilization_info, aicore_util),
    AT(struct dcmi_multi_utilization_info, npu_util),
    AT(struct dcmi_multi_utilization_info, reserved),
    SIZE(struct dcmi_proc_mem_info),
    AT(struct dcmi_proc_mem_info, proc_mem_usage))
