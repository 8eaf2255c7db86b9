/* A stand-in for libhlml.so: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Layouts, return codes and units follow hlml.h of Intel Gaudi 1.24 (as `habana-pyhlml` 1.24.2 is generated from it), written here
 * from the documented fields. -DFAKE_OLD_HLML gives those of 1.1x: a shorter PCI address, no link maxima, one utilisation.
 * -DFAKE_NO_POWER leaves the power call out, as a library without the symbol.
 *
 * State: the file named by FAKE_HLML_STATE (see state.h):
 *
 *   devices 2
 *   driver 1.22.1-97ec1a4
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of HLML: name uuid bus_id module firmware; power limit default_limit [mW], energy [mJ], energy_rate_w [W, added
 * since the start], free total used [B], aip [%], temp [C], clock [MHz], throttle [bits].
 * Calls that faults name: init count handle name uuid pci module power energy limit default_limit memory utilisation temp clock
 * throttle driver firmware. For init, count and driver the board is '*'.
 */
#define STATE_VARIABLE "FAKE_HLML_STATE"
#include "state.h"
#include "layout.h"

typedef int hlml_return_t;
typedef void *hlml_device_t;

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

#ifdef FAKE_OLD_HLML
#define PCI_ADDR_LEN 15
#else
#define PCI_ADDR_LEN 19
#endif
#define PCI_LINK_INFO_LEN 10

typedef struct {
    char link_speed[PCI_LINK_INFO_LEN];
    char link_width[PCI_LINK_INFO_LEN];
#ifndef FAKE_OLD_HLML
    char link_max_speed[PCI_LINK_INFO_LEN];
    char link_max_width[PCI_LINK_INFO_LEN];
#endif
} hlml_pci_cap_t;

typedef struct {
    unsigned int bus;
    char bus_id[PCI_ADDR_LEN];
    unsigned int device;
    unsigned int domain;
    unsigned int pci_device_id;
    hlml_pci_cap_t caps;
#ifndef FAKE_OLD_HLML
    unsigned int pci_rev;
    unsigned int pci_subsys_id;
#endif
} hlml_pci_info_t;

typedef struct {
    unsigned int aip;
#ifndef FAKE_OLD_HLML
    unsigned int memory;
#endif
} hlml_utilization_t;

typedef struct {
    unsigned long long free;
    unsigned long long total;
    unsigned long long used;
} hlml_memory_t;

#define MOST_BOARDS 16

static int inits;
static struct {
    int board;
} handles[MOST_BOARDS]; /* their addresses are handed out: a binding that cuts a pointer to 32 bits is found out */

/* What every call on a board does first; 0 to go on. */
static int begin(hlml_device_t device, const char *call, int *board)
{
    int i;

    for (i = 0; i < MOST_BOARDS && device != &handles[i]; i++)
        ;
    *board = i;
    if (i == MOST_BOARDS)
        return INVALID_ARGUMENT;
    return inits ? trouble(i, call) : UNINITIALIZED;
}

#define BEGIN(call)                                                                                                       \
    int board, status = begin(device, call, &board);                                                                      \
    if (status)                                                                                                           \
    return status

/* One unsigned number of a board, not supported where the state has none. */
#define UNSIGNED(symbol, call, what, type)                                                                                \
    hlml_return_t symbol(hlml_device_t device, type *out)                                                                 \
    {                                                                                                                     \
        BEGIN(call);                                                                                                      \
        if (!find(board, what))                                                                                           \
            return NOT_SUPPORTED;                                                                                         \
        *out = (type)number(board, what, 0);                                                                              \
        return SUCCESS;                                                                                                   \
    }

static int text(int board, const char *what, char *out, unsigned int length)
{
    const char *found = find(board, what);

    if (!found)
        return NOT_SUPPORTED;
    if (strlen(found) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, found);
    return SUCCESS;
}

hlml_return_t hlml_init(void)
{
    int status = trouble(-1, "init");

    uptime_s();
    if (!status)
        inits++;
    return status;
}

hlml_return_t hlml_shutdown(void)
{
    if (!inits)
        return UNINITIALIZED;
    inits--;
    return SUCCESS;
}

hlml_return_t hlml_device_get_count(unsigned int *out)
{
    if (!inits)
        return UNINITIALIZED;
    *out = (unsigned int)number(-1, "devices", 1);
    return trouble(-1, "count");
}

hlml_return_t hlml_device_get_handle_by_index(unsigned int index, hlml_device_t *out)
{
    if (index >= number(-1, "devices", 1) || index >= MOST_BOARDS)
        return INVALID_ARGUMENT;
    *out = &handles[index];
    return trouble((int)index, "handle");
}

hlml_return_t hlml_get_driver_version(char *out, unsigned int length)
{
    int status = trouble(-1, "driver");
    return status ? status : text(-1, "driver", out, length);
}

hlml_return_t hlml_device_get_name(hlml_device_t device, char *out, unsigned int length)
{
    BEGIN("name");
    return text(board, "name", out, length);
}

hlml_return_t hlml_device_get_uuid(hlml_device_t device, char *out, unsigned int length)
{
    BEGIN("uuid");
    return text(board, "uuid", out, length);
}

hlml_return_t hlml_get_firmware_spi_version(hlml_device_t device, char *out, unsigned int length)
{
    BEGIN("firmware");
    return text(board, "firmware", out, length);
}

hlml_return_t hlml_device_get_pci_info(hlml_device_t device, hlml_pci_info_t *out)
{
    BEGIN("pci");
    memset(out, 0, sizeof *out);
    out->bus = 0x21 + (unsigned int)board;
    out->pci_device_id = 0x10601da3;
    snprintf(out->caps.link_speed, sizeof out->caps.link_speed, "32.0GT/s");
    return text(board, "bus_id", out->bus_id, sizeof out->bus_id);
}

UNSIGNED(hlml_device_get_module_id, "module", "module", unsigned int)
#ifndef FAKE_NO_POWER
UNSIGNED(hlml_device_get_power_usage, "power", "power", unsigned int)
#endif
#ifndef FAKE_OLD_HLML
UNSIGNED(hlml_device_get_power_management_limit, "limit", "limit", unsigned int)
#endif
UNSIGNED(hlml_device_get_power_management_default_limit, "default_limit", "default_limit", unsigned int)
UNSIGNED(hlml_device_get_current_clocks_throttle_reasons, "throttle", "throttle", unsigned long long)

hlml_return_t hlml_device_get_total_energy_consumption(hlml_device_t device, unsigned long long *out)
{
    BEGIN("energy");
    if (!find(board, "energy"))
        return NOT_SUPPORTED;
    *out = number(board, "energy", 0) + (unsigned long long)(1e3 * (double)number(board, "energy_rate_w", 0) * uptime_s());
    return SUCCESS;
}

hlml_return_t hlml_device_get_memory_info(hlml_device_t device, hlml_memory_t *out)
{
    BEGIN("memory");
    out->free = number(board, "free", 0);
    out->total = number(board, "total", 0);
    out->used = number(board, "used", 0);
    return SUCCESS;
}

hlml_return_t hlml_device_get_utilization_rates(hlml_device_t device, hlml_utilization_t *out)
{
    BEGIN("utilisation");
    if (!find(board, "aip"))
        return NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->aip = (unsigned int)number(board, "aip", 0);
    return SUCCESS;
}

/* Only the sensor on the chip (0), and only the system clock (0). */
hlml_return_t hlml_device_get_temperature(hlml_device_t device, int sensor, unsigned int *out)
{
    BEGIN("temp");
    if (sensor != 0 || !find(board, "temp"))
        return NOT_SUPPORTED;
    *out = (unsigned int)number(board, "temp", 0);
    return SUCCESS;
}

hlml_return_t hlml_device_get_clock_info(hlml_device_t device, int kind, unsigned int *out)
{
    BEGIN("clock");
    if (kind != 0 || !find(board, "clock"))
        return NOT_SUPPORTED;
    *out = (unsigned int)number(board, "clock", 0);
    return SUCCESS;
}

#ifndef FAKE_OLD_HLML
LAYOUT(SIZE(hlml_pci_cap_t), AT(hlml_pci_cap_t, link_width), AT(hlml_pci_cap_t, link_max_width), SIZE(hlml_pci_info_t),
       AT(hlml_pci_info_t, bus_id), AT(hlml_pci_info_t, device), AT(hlml_pci_info_t, domain), AT(hlml_pci_info_t, pci_device_id),
       AT(hlml_pci_info_t, caps), AT(hlml_pci_info_t, pci_rev), AT(hlml_pci_info_t, pci_subsys_id), SIZE(hlml_utilization_t),
       AT(hlml_utilization_t, memory), SIZE(hlml_memory_t), AT(hlml_memory_t, free), AT(hlml_memory_t, total),
       AT(hlml_memory_t, used))
#endif
