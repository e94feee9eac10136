/* A CUDA driver for tests, without a GPU: knobs, devices and contexts. Device memory is the
 * process's own (memory.c). Each stream is a thread (streams.c). A module of OpenCL C is built by
 * the OpenCL driver that FAKE_CUDA_OPENCL names; its kernels compute real results there. In PTX
 * only the names of kernels are read, and the kernels are functions of modules.c. Graphs are walked
 * (graphs.c): of the nodes that can run the last one runs first, so a missing edge is seen.
 *
 * fake_cuda_fail(name, code) makes a function fail from then on, fake_cuda_calls(name) says how
 * often one was called, and fake_cuda_import is how an OpenCL driver of the same process imports
 * the memory. fake_cuda_hold(1) lets nothing begin on the device until fake_cuda_hold(0).
 * fake_cuda_isolate(devices) keeps devices, by bits, from reaching others and from being reached.
 * FAKE_CUDA_DEVICES is the number of devices. Without it there is one, or as many as
 * fake_cuda_devices() said. FAKE_CUDA_FAIL is a list such as "cuMemAlloc_v2=2,cuEventCreate=1". */
#include "fake.h"

enum { MOST = 512 };

static struct {
    char name[64];
    int calls, code;
} functions[MOST];

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

static int *entry(const char *name, int **code) {
    int i = 0;
    while (i < MOST - 1 && functions[i].name[0] && strcmp(functions[i].name, name) != 0)
        i++;
    strncpy(functions[i].name, name, sizeof functions[i].name - 1);
    *code = &functions[i].code;
    return &functions[i].calls;
}

void fake_cuda_fail(const char *name, int code) {
    int *place;
    pthread_mutex_lock(&counting);
    entry(name, &place);
    *place = code;
    pthread_mutex_unlock(&counting);
}

__attribute__((constructor)) static void read_failures(void) {
    const char *given = getenv("FAKE_CUDA_FAIL");
    char *rest = NULL, *text = given ? strdup(given) : NULL;
    for (char *one = text ? strtok_r(text, ",", &rest) : NULL; one;
         one = strtok_r(NULL, ",", &rest)) {
        char *code = strchr(one, '=');
        if (code) {
            *code = 0;
            fake_cuda_fail(one, atoi(code + 1));
        }
    }
    free(text);
}

static __thread bool in_host_function;

void fake_call_host(void (*function)(void *), void *data) {
    in_host_function = true;
    function(data);
    in_host_function = false;
}

/* The process that has called cuInit first; the driver refuses in its forks. */
static pid_t initialized;

int fake_called(const char *name) {
    int *code;
    if (in_host_function)
        return CUDA_ERROR_NOT_PERMITTED;
    if (initialized && initialized != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&counting);
    ++*entry(name, &code);
    int found = *code;
    pthread_mutex_unlock(&counting);
    return found;
}

int fake_cuda_calls(const char *name) {
    int *code;
    pthread_mutex_lock(&counting);
    int found = *entry(name, &code);
    pthread_mutex_unlock(&counting);
    return found;
}

CUresult cuInit(uint32_t flags) {
    BEGIN;
    initialized = getpid();
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    BEGIN;
    *version = 99000; /* newer than any compiler: only PTX can be loaded here */
    return CUDA_SUCCESS;
}

static int device_count = 1;

void fake_cuda_devices(int count) {
    device_count = count;
}

int fake_device_count(void) {
    const char *given = getenv("FAKE_CUDA_DEVICES");
    return given ? atoi(given) : device_count;
}

CUresult cuDeviceGetCount(int *count) {
    BEGIN;
    *count = fake_device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    BEGIN;
    *device = ordinal;
    return ordinal >= 0 && ordinal < fake_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    BEGIN;
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    BEGIN;
    memset(uuid, device + 1, sizeof *uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } known[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, MOST_THREADS},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, MOST_SHARED},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, MOST_ASKED},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 64},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 1 << 20},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 8192},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH, 32768},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, 131072},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT, 65536},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH, 16384},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, 32768},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS, 2048},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, 32768},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, 32768},
        {CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS, 2048},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    };
    BEGIN;
    /* What is not listed is a feature that it has. */
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? device + 1 : 1;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].attribute == attribute)
            *value = known[i].value;
    return device >= 0 && device < fake_device_count() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    BEGIN;
    snprintf(text, (size_t)length, "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
}

static uint32_t isolated;

void fake_cuda_isolate(uint32_t devices) { isolated = devices; }

bool fake_reaches(int device, int other) {
    return device == other || !((isolated >> device | isolated >> other) & 1);
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    BEGIN;
    *can = device != peer && fake_reaches(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice device,
                                 CUdevice peer) {
    (void)attribute;
    BEGIN;
    *value = device != peer;
    return device != peer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    BEGIN;
    *bytes = MEMORY;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGIN;
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    (void)device;
    BEGIN;
    return CUDA_SUCCESS;
}

static __thread CUcontext stack[MOST];
static __thread int depth;

bool fake_has_context(void) { return depth > 0; }

int fake_current_device(void) { return depth ? (int)(uintptr_t)stack[depth - 1] - 1 : -1; }

void fake_set_context(CUcontext context) {
    depth = depth ? depth : 1;
    stack[depth - 1] = context;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN;
    if (depth == MOST)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    BEGIN;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    BEGIN;
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    BEGIN;
    NEED_CONTEXT;
    fake_drain();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    BEGIN;
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

/* For each device a bit for each context that it may reach. */
static uint64_t peers[64];

CUresult cuCtxEnablePeerAccess(CUcontext peer, uint32_t flags) {
    uint64_t bit = (uint64_t)1 << (uintptr_t)peer % 64, *mine = &peers[fake_current_device() & 63];
    BEGIN;
    NEED_CONTEXT;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_reaches(fake_current_device(), (int)(uintptr_t)peer - 1))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (*mine & bit)
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    *mine |= bit;
    return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    uint64_t bit = (uint64_t)1 << (uintptr_t)peer % 64, *mine = &peers[fake_current_device() & 63];
    BEGIN;
    if (!(*mine & bit))
        return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
    *mine &= ~bit;
    return CUDA_SUCCESS;
}
