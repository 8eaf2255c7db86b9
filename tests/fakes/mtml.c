/* A stand-in for libmtml.so.2: real symbol names, calling conventions and struct layouts, values from a text file.
 *
 * Written from Moore Threads' mtml.h (the one with MPC and MtLink).
 *
 * State: the file named by FAKE_MTML_STATE (see state.h):
 *
 *   devices 2
 *   driver 5.1.0-server
 *   BOARD.WHAT VALUE
 *
 * WHAT, in raw units of MTML: name uuid pci bios; power [mW], total used [B], utilisation [%], temperature [C], clock [MHz]; role (2: a
 * guest's virtual device), mpc (1 parent, 2 instance), parent (the instance's parent), instances (of a parent).
 * Calls that faults name: init count device driver name uuid pci bios property power total used utilisation temperature clock gpu
 * memory instances parent. For init and count the board is '*'.
 *
 * -DFAKE_NO_POWER leaves out the power of a device.
 */
#define STATE_VARIABLE "FAKE_MTML_STATE"
#include "layout.h"
#include "state.h"

typedef enum {
    SUCCESS = 0,
    DRIVER_NOT_LOADED = 1,
    INVALID_ARGUMENT = 3,
    NOT_SUPPORTED = 4,
    INSUFFICIENT_SIZE = 6,
    NOT_FOUND = 7,
} MtmlReturn;

typedef struct {
    int open;
} MtmlLibrary;

typedef struct {
    const MtmlLibrary *library;
} MtmlSystem;

/* Opaque outside. `alive` until the library that made it is shut down. */
typedef struct {
    int board;
    int alive;
} MtmlDevice;

typedef struct {
    const MtmlDevice *device;
} MtmlGpu;

typedef struct {
    const MtmlDevice *device;
} MtmlMemory;

typedef struct {
    char sbdf[32];
    unsigned int segment;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;
    unsigned int pciSubsystemId;
    unsigned int busWidth;
    float pciMaxSpeed;
    float pciCurSpeed;
    unsigned int pciMaxWidth;
    unsigned int pciCurWidth;
    unsigned int pciMaxGen;
    unsigned int pciCurGen;
    int rsvd[6];
} MtmlPciInfo;

typedef struct {
    unsigned int virtCap : 1;
    unsigned int virtRole : 3;
    unsigned int mpcCap : 1;
    unsigned int mpcType : 3;
    unsigned int mtLinkCap : 1;
    unsigned int rsvd : 23;
    unsigned int rsvd2 : 32;
} MtmlDeviceProperty;

#define MOST 16

static MtmlLibrary library;
static MtmlSystem system_of_it = {&library};
static MtmlDevice devices[MOST];
static MtmlGpu gpus[MOST];
static MtmlMemory memories[MOST];

static unsigned int count(void)
{
    unsigned int told = (unsigned int)number(-1, "devices", 0);
    return told < MOST ? told : MOST;
}

static MtmlReturn check(const MtmlDevice *device, const char *call)
{
    if (!device || !device->alive)
        return INVALID_ARGUMENT;
    return (MtmlReturn)trouble(device->board, call);
}

#define BEGIN(device, call, out)                                                                                          \
    do {                                                                                                                  \
        MtmlReturn status = check(device, call);                                                                          \
        if (status)                                                                                                       \
            return status;                                                                                                \
        if (!(out))                                                                                                       \
            return INVALID_ARGUMENT;                                                                                      \
    } while (0)

static MtmlReturn text(char *out, unsigned int length, const char *told, const char *otherwise)
{
    if (!told)
        told = otherwise;
    if (!told)
        return NOT_SUPPORTED;
    if (strlen(told) >= length)
        return INSUFFICIENT_SIZE;
    strcpy(out, told);
    return SUCCESS;
}

MtmlReturn mtmlLibraryInit(MtmlLibrary **out)
{
    const char *all = find(0, "init.ret");
    int status = trouble(-1, "init");
    if (!status && all)
        status = atoi(all);
    if (status)
        return (MtmlReturn)status;
    library.open++;
    *out = &library;
    return SUCCESS;
}

MtmlReturn mtmlLibraryShutDown(MtmlLibrary *lib)
{
    int i;
    if (lib != &library || !library.open)
        return INVALID_ARGUMENT;
    if (--library.open == 0)
        for (i = 0; i < MOST; i++)
            devices[i].alive = 0;
    return SUCCESS;
}

const char *mtmlErrorString(MtmlReturn result)
{
    return result ? "an error" : "no error";
}

MtmlReturn mtmlLibraryCountDevice(const MtmlLibrary *lib, unsigned int *out)
{
    const char *all = find(0, "count.ret");
    if (lib != &library || !library.open || !out)
        return INVALID_ARGUMENT;
    if (all)
        return (MtmlReturn)atoi(all);
    *out = count();
    return SUCCESS;
}

MtmlReturn mtmlLibraryInitDeviceByIndex(const MtmlLibrary *lib, unsigned int index, MtmlDevice **out)
{
    int status;
    if (lib != &library || !library.open || !out)
        return INVALID_ARGUMENT;
    if (index >= count())
        return NOT_FOUND;
    if ((status = trouble((int)index, "device")))
        return (MtmlReturn)status;
    devices[index].board = (int)index;
    devices[index].alive = 1;
    *out = &devices[index];
    return SUCCESS;
}

MtmlReturn mtmlLibraryInitSystem(const MtmlLibrary *lib, MtmlSystem **out)
{
    if (lib != &library || !library.open || !out)
        return INVALID_ARGUMENT;
    *out = &system_of_it;
    return SUCCESS;
}

MtmlReturn mtmlSystemGetDriverVersion(const MtmlSystem *sys, char *out, unsigned int length)
{
    const char *all = find(0, "driver.ret");
    if (sys != &system_of_it || !out)
        return INVALID_ARGUMENT;
    return all ? (MtmlReturn)atoi(all) : text(out, length, find(-1, "driver"), NULL);
}

MtmlReturn mtmlDeviceGetName(const MtmlDevice *device, char *out, unsigned int length)
{
    BEGIN(device, "name", out);
    return text(out, length, find(device->board, "name"), "MTT S5000");
}

MtmlReturn mtmlDeviceGetUUID(const MtmlDevice *device, char *out, unsigned int length)
{
    char uuid[48];
    BEGIN(device, "uuid", out);
    snprintf(uuid, sizeof uuid, "00000000-0000-4000-8000-0000000000b%d", device->board + 1);
    return text(out, length, find(device->board, "uuid"), uuid);
}

MtmlReturn mtmlDeviceGetMtBiosVersion(const MtmlDevice *device, char *out, unsigned int length)
{
    BEGIN(device, "bios", out);
    return text(out, length, find(device->board, "bios"), "4.3.41");
}

MtmlReturn mtmlDeviceGetPciInfo(const MtmlDevice *device, MtmlPciInfo *out)
{
    BEGIN(device, "pci", out);
    memset(out, 0xA5, sizeof *out);
    memset(out->sbdf, 0, sizeof out->sbdf);
    snprintf(out->sbdf, sizeof out->sbdf, "00000000:%02x:00.0", 0x18 + 0x12 * device->board);
    return find(device->board, "pci") ? text(out->sbdf, sizeof out->sbdf, find(device->board, "pci"), NULL) : SUCCESS;
}

MtmlReturn mtmlDeviceGetProperty(const MtmlDevice *device, MtmlDeviceProperty *out)
{
    BEGIN(device, "property", out);
    memset(out, 0, sizeof *out);
    out->virtCap = 1;
    out->virtRole = (unsigned int)number(device->board, "role", 0);
    out->mpcCap = 1;
    out->mpcType = (unsigned int)number(device->board, "mpc", 0);
    out->mtLinkCap = 1;
    return SUCCESS;
}

MtmlReturn mtmlDeviceCountMpcInstances(const MtmlDevice *device, unsigned int *out)
{
    BEGIN(device, "instances", out);
    if (number(device->board, "mpc", 0) != 1)
        return NOT_SUPPORTED;
    *out = (unsigned int)number(device->board, "instances", 1);
    return SUCCESS;
}

MtmlReturn mtmlDeviceGetMpcParentDevice(const MtmlDevice *device, MtmlDevice **out)
{
    BEGIN(device, "parent", out);
    if (number(device->board, "mpc", 0) != 2)
        return NOT_SUPPORTED;
    return mtmlLibraryInitDeviceByIndex(&library, (unsigned int)number(device->board, "parent", 0), out);
}

#ifndef FAKE_NO_POWER
MtmlReturn mtmlDeviceGetPowerUsage(const MtmlDevice *device, unsigned int *out)
{
    BEGIN(device, "power", out);
    *out = (unsigned int)number(device->board, "power", 0);
    return SUCCESS;
}
#endif

MtmlReturn mtmlDeviceInitGpu(const MtmlDevice *device, MtmlGpu **out)
{
    BEGIN(device, "gpu", out);
    gpus[device->board].device = device;
    *out = &gpus[device->board];
    return SUCCESS;
}

MtmlReturn mtmlDeviceInitMemory(const MtmlDevice *device, MtmlMemory **out)
{
    BEGIN(device, "memory", out);
    memories[device->board].device = device;
    *out = &memories[device->board];
    return SUCCESS;
}

#define READING(name, part, type, what)                                                                                   \
    MtmlReturn name(const part *one, type *out)                                                                           \
    {                                                                                                                     \
        BEGIN(one ? one->device : NULL, what, out);                                                                       \
        *out = (type)number(one->device->board, what, 0);                                                                 \
        return SUCCESS;                                                                                                   \
    }

READING(mtmlGpuGetUtilization, MtmlGpu, unsigned int, "utilisation")
READING(mtmlGpuGetTemperature, MtmlGpu, int, "temperature")
READING(mtmlGpuGetClock, MtmlGpu, unsigned int, "clock")
READING(mtmlMemoryGetTotal, MtmlMemory, unsigned long long, "total")
READING(mtmlMemoryGetUsed, MtmlMemory, unsigned long long, "used")

LAYOUT(SIZE(MtmlPciInfo), AT(MtmlPciInfo, segment), AT(MtmlPciInfo, pciSubsystemId), AT(MtmlPciInfo, pciMaxSpeed),
       AT(MtmlPciInfo, pciCurGen), AT(MtmlPciInfo, rsvd), SIZE(MtmlDeviceProperty))
