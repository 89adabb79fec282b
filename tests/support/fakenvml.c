/* A stand-in for libnvidia-ml.so.1: what it says stands in `fakenvml.conf` beside it, lines of key=value.
 *
 * The file is looked at on each call. As with the real library, the GPUs are counted when NVML is initialised, and a
 * handle stands for one GPU for ever: if that GPU is marked lost, or is no longer in the file, it is lost.
 * Compiled with -DOLD it lacks what old drivers lack. What the keys are: fakenvml.py, which writes them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
       DRIVER_NOT_LOADED = 9,
       TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { LINES = 8192, GPUS = 64, SLOTS = 8, XID_CRITICAL = 8 };

typedef struct { int gpu, slot; char uuid[96]; } Device;
typedef struct { Device *parent; int slot; } Instance;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned sms, copy, dec, enc, jpeg, ofa, gi_slices, ci_slices; unsigned long long memory; } Attributes;
typedef struct { Device *device; unsigned id, profile, start, size; } InstanceInfo;
typedef struct { Device *device; unsigned long long type, data; unsigned gi, ci; } Event;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } Process;

static char *text, *keys[LINES], *values[LINES];
static int lines, initialised, counted, registered[GPUS];
static long delivered;
static Device *boards;

static void look(void) {
    static struct stat last;
    static char path[4096];
    struct stat now;
    Dl_info self;
    if (!path[0] && dladdr((void *)look, &self)) {
        char copy[4096];
        snprintf(copy, sizeof copy, "%s", self.dli_fname);
        snprintf(path, sizeof path, "%.4000s/fakenvml.conf", dirname(copy));
    }
    if (stat(path, &now) || (now.st_ino == last.st_ino && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec
                             && now.st_mtim.tv_sec == last.st_mtim.tv_sec && now.st_size == last.st_size))
        return;
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    char *fresh = calloc(1, now.st_size + 1), *rest = fresh, *line;
    if (fread(fresh, 1, now.st_size, file) != (size_t)now.st_size)
        fresh[0] = 0;
    fclose(file);
    for (lines = 0; lines < LINES && (line = strsep(&rest, "\n"));) {
        char *equals = strchr(line, '=');
        if (equals) {
            *equals = 0;
            keys[lines] = line;
            values[lines++] = equals + 1;
        }
    }
    free(text);
    text = fresh;
    last = now;
}

static const char *get(const char *format, ...) {
    char key[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    for (int i = 0; i < lines; i++)
        if (!strcmp(keys[i], key))
            return values[i];
    return NULL;
}

static long number(const char *value, long otherwise) { return value ? strtol(value, NULL, 0) : otherwise; }

static int put(char *to, unsigned size, const char *value) {
    if (!value)
        return NOT_SUPPORTED;
    snprintf(to, size, "%s", value);
    return SUCCESS;
}

/* What a call is told to do instead: `fault.<function>`, or `fault.any` for all of them. */
static int fault(const char *function, int gpu, long *calls) {
    look();
    long delay = number(get("delay.%s", function), 0); /* milliseconds */
    if (delay)
        nanosleep(&(struct timespec){delay / 1000, delay % 1000 * 1000000}, NULL);
    const char *told = get("fault.%s", function);
    if (!told) {
        function = "any";
        told = get("fault.any");
    }
    if (!told || (gpu >= 0 && number(get("fault.%s.gpu", function), gpu) != gpu))
        return SUCCESS;
    if (++*calls <= number(get("fault.%s.after", function), 0))
        return SUCCESS;
    while (!strcmp(told, "hang"))
        pause();
    return number(told, 999);
}

#define FAULT(gpu)                                  \
    do {                                            \
        static long calls;                          \
        int told = fault(__func__, (gpu), &calls);  \
        if (told)                                   \
            return told;                            \
    } while (0)

/* The handle's GPU in the file of now, or an error (below 0). */
static int board(const Device *device) {
    if (!initialised)
        return -UNINITIALIZED;
    if (!device)
        return -INVALID_ARGUMENT;
    for (int i = 0; i < number(get("count"), 0); i++) {
        const char *uuid = get("gpu.%d.uuid", i);
        if (uuid && !strcmp(uuid, boards[device->gpu].uuid))
            return get("gpu.%d.lost", i) ? -GPU_IS_LOST : i;
    }
    return -GPU_IS_LOST;
}

#define BOARD(device)              \
    FAULT((device) ? (device)->gpu : -1); \
    int gpu = board(device);       \
    if (gpu < 0)                   \
        return -gpu

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    FAULT(-1);
    if (get("driver.absent"))
        return DRIVER_NOT_LOADED;
    if (get("chatty")) {
        puts("{\"id\": 1, \"result\": \"nonsense\"}");
        fflush(stdout);
    }
    counted = number(get("count"), 0);
    boards = calloc(GPUS, sizeof *boards); /* the old ones stay: somebody may still hold them */
    for (int i = 0; i < counted; i++) {
        boards[i] = (Device){i, -1, ""};
        put(boards[i].uuid, sizeof boards[i].uuid, get("gpu.%d.uuid", i));
    }
    delivered = number(get("events"), 0);
    memset(registered, 0, sizeof registered);
    initialised = 1;
    return SUCCESS;
}

int nvmlShutdown(void) {
    FAULT(-1);
    initialised = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NOT_FOUND: return "Not Found";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) {
    FAULT(-1);
    return put(to, size, get("driver"));
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    FAULT(-1);
    *count = counted;
    return initialised ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    FAULT((int)index);
    if ((int)index >= counted)
        return INVALID_ARGUMENT;
    int found = board(&boards[index]);
    *device = &boards[index];
    return found < 0 ? -found : SUCCESS;
}

int nvmlDeviceGetUUID(Device *device, char *to, unsigned size) {
    BOARD(device);
    return put(to, size, device->slot < 0 ? get("gpu.%d.uuid", gpu) : get("gpu.%d.mig.%d.uuid", gpu, device->slot));
}

int nvmlDeviceGetName(Device *device, char *to, unsigned size) {
    BOARD(device);
    return put(to, size, device->slot < 0 ? get("gpu.%d.name", gpu) : get("gpu.%d.mig.%d.name", gpu, device->slot));
}

int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) {
    BOARD(device);
    *minor = number(get("gpu.%d.minor", gpu), gpu);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    BOARD(device);
    *memory = (Memory){(unsigned long long)number(get("gpu.%d.memory", gpu), 0) << 20, 0, 0};
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(Device *device, Pci *pci) {
    BOARD(device);
    memset(pci, 0, sizeof *pci);
    return put(pci->bus_id, sizeof pci->bus_id, get("gpu.%d.pci", gpu));
}

int nvmlDeviceGetCudaComputeCapability(Device *device, int *major, int *minor) {
    BOARD(device);
    return sscanf(get("gpu.%d.capability", gpu), "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetTopologyCommonAncestor(Device *device, Device *other, int *level) {
    BOARD(device);
    int there = board(other);
    if (there < 0)
        return -there;
    const char *said = get("topology.%d.%d", gpu < there ? gpu : there, gpu < there ? there : gpu);
    *level = number(said, 0);
    return said ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, int *active) {
    BOARD(device);
    *active = get("gpu.%d.link.%u", gpu, link) != NULL;
    return *active ? SUCCESS : link < 18 ? NOT_SUPPORTED : INVALID_ARGUMENT;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device *device, unsigned link, Pci *pci) {
    BOARD(device);
    memset(pci, 0, sizeof *pci);
    return put(pci->bus_id, sizeof pci->bus_id, get("gpu.%d.link.%u", gpu, link));
}

int nvmlDeviceGetSupportedEventTypes(Device *device, unsigned long long *types) {
    BOARD(device);
    *types = XID_CRITICAL | 1 | 2;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set) {
    FAULT(-1);
    *set = registered;
    return SUCCESS;
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *set) {
    (void)set;
    BOARD(device);
    registered[device->gpu] = (types & XID_CRITICAL) != 0;
    return SUCCESS;
}

#ifndef OLD
/* As many as the file says; the caller asks with room for none first. */
static int processes(const char *said, unsigned *room, Process *found) {
    unsigned there = number(said, 0), fits = *room;
    *room = there;
    if (there > fits)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < there; i++)
        found[i] = (Process){1000 + i, 1 << 20, -1, -1};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *room, Process *found) {
    BOARD(device);
    return processes(get("gpu.%d.processes", gpu), room, found);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *device, unsigned *room, Process *found) {
    BOARD(device);
    return processes(get("gpu.%d.mps", gpu), room, found);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(Device *device, unsigned link, int *type) {
    BOARD(device);
    const char *said = get("gpu.%d.link.%u.type", gpu, link);
    *type = number(said, 0);
    return said ? SUCCESS : NOT_SUPPORTED;
}

/* An event as the file writes it: index of the GPU (-1 = nobody knows), XID, GI, CI (-1 = none). */
static int happen(const char *said, Event *event) {
    int gpu = -1, xid = 0, gi = -1, ci = -1;
    sscanf(said, "%d %d %d %d", &gpu, &xid, &gi, &ci);
    if (gpu >= 0 && !registered[gpu])
        return 0;
    *event = (Event){gpu < 0 ? NULL : &boards[gpu], XID_CRITICAL, xid, gi, ci};
    return 1;
}

int nvmlEventSetWait_v2(void *set, Event *event, unsigned timeout) {
    (void)set;
    for (unsigned waited = 0;; waited += 5) {
        FAULT(-1);
        const char *storm = get("storm");
        if (storm && happen(storm, event))
            return SUCCESS;
        while (delivered < number(get("events"), 0))
            if (happen(get("event.%ld", delivered++), event))
                return SUCCESS;
        if (waited >= timeout)
            return TIMEOUT;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}

int nvmlDeviceGetMigMode(Device *device, unsigned *current, unsigned *pending) {
    BOARD(device);
    const char *said = get("gpu.%d.mig", gpu);
    *current = *pending = number(said, 0);
    return said ? SUCCESS : NOT_SUPPORTED;
}

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
    BOARD(device);
    *count = SLOTS;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned slot, Device **mig) {
    BOARD(device);
    if (slot >= SLOTS)
        return INVALID_ARGUMENT;
    if (!get("gpu.%d.mig.%u.uuid", gpu, slot))
        return NOT_FOUND;
    static Device children[GPUS][SLOTS];
    children[device->gpu][slot] = (Device){device->gpu, slot, ""};
    *mig = &children[device->gpu][slot];
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
    BOARD(device);
    *id = number(get("gpu.%d.mig.%d.gi", gpu, device->slot), 0);
    return SUCCESS;
}

int nvmlDeviceGetComputeInstanceId(Device *device, unsigned *id) {
    BOARD(device);
    *id = number(get("gpu.%d.mig.%d.ci", gpu, device->slot), 0);
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
    BOARD(device);
    memset(attributes, 0, sizeof *attributes);
    attributes->gi_slices = number(get("gpu.%d.mig.%d.slices", gpu, device->slot), 0);
    attributes->ci_slices = number(get("gpu.%d.mig.%d.compute", gpu, device->slot), 0);
    attributes->memory = number(get("gpu.%d.mig.%d.memory", gpu, device->slot), 0);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceById(Device *device, unsigned id, Instance **instance) {
    BOARD(device);
    for (int slot = 0; slot < SLOTS; slot++)
        if (number(get("gpu.%d.mig.%d.gi", gpu, slot), -1) == (long)id) {
            static Instance instances[GPUS][SLOTS];
            instances[device->gpu][slot] = (Instance){device, slot};
            *instance = &instances[device->gpu][slot];
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlGpuInstanceGetInfo(Instance *instance, InstanceInfo *info) {
    BOARD(instance->parent);
    memset(info, 0, sizeof *info);
    info->device = instance->parent;
    info->start = number(get("gpu.%d.mig.%d.start", gpu, instance->slot), 0);
    return SUCCESS;
}
#endif
