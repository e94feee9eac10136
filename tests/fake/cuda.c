/* A CUDA driver for tests, without a GPU. Its device memory is the process's own, and its graphs really run: nodes in the order in which they were
 * added, after a check that each comes after the ones it names. A kernel is a function of this file, which a module must name as `.entry`.
 *
 * fake_cuda_fail(name, code) makes a function fail from then on, fake_cuda_calls(name) says how often one was called, and fake_cuda_import is how
 * an OpenCL driver of the same process imports the memory. fake_cuda_hold(1) lets nothing end until fake_cuda_hold(0). FAKE_CUDA_DEVICES is the number of devices, 1 if it is not set. */
#define _GNU_SOURCE
#include "cuda_abi.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = 64, GRANULARITY = 65536 };

static struct {
    char name[64];
    int calls, code;
} functions[MOST];

static int *entry(const char *name, int **code) {
    int i = 0;
    while (i < MOST - 1 && functions[i].name[0] && strcmp(functions[i].name, name) != 0)
        i++;
    strncpy(functions[i].name, name, sizeof functions[i].name - 1);
    *code = &functions[i].code;
    return &functions[i].calls;
}

static int called(const char *name) {
    int *code;
    ++*entry(name, &code);
    return *code;
}

void fake_cuda_fail(const char *name, int code) {
    int *place;
    entry(name, &place);
    *place = code;
}

int fake_cuda_calls(const char *name) {
    int *code;
    return *entry(name, &code);
}

#define BEGIN                     \
    do {                          \
        int code = called(__func__); \
        if (code)                 \
            return code;          \
    } while (0)

CUresult cuInit(uint32_t flags) {
    BEGIN;
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    BEGIN;
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    const char *given = getenv("FAKE_CUDA_DEVICES");
    BEGIN;
    *count = given ? atoi(given) : 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    BEGIN;
    *device = ordinal;
    return CUDA_SUCCESS;
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
    (void)device;
    BEGIN;
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : attribute != CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    (void)device;
    BEGIN;
    *bytes = (size_t)1 << 30;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    BEGIN;
    *context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static __thread CUcontext stack[MOST];
static __thread int depth;

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    BEGIN;
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

/* --- modules --- */

typedef struct kernel {
    const char *name;
    void (*run)(void **parameters, uint32_t items);
} kernel;

static void run_scale(void **p, uint32_t items) {   /* global int *y, int factor, int summand */
    int *y = *(int **)p[0], factor = *(int *)p[1], summand = *(int *)p[2];
    for (uint32_t i = 0; i < items; i++)
        y[i] = (int)((uint32_t)y[i] * (uint32_t)factor + (uint32_t)summand);
}

static void run_total(void **p, uint32_t items) {   /* global int *to, global const int *from */
    int *to = *(int **)p[0], *from = *(int **)p[1];
    for (uint32_t i = 0; i < items; i++)
        to[i] = (int)((uint32_t)to[i] * 3u + (uint32_t)from[i]);
}

static const kernel kernels[] = {{"scale", run_scale}, {"total", run_total}};

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, uint32_t count, CUjit_option *options, void **values) {
    (void)count, (void)options, (void)values;
    BEGIN;
    *module = (CUmodule)strdup(image);
    return strstr(image, ".ptr .shared") ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    BEGIN;
    free(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    char wanted[128];
    BEGIN;
    snprintf(wanted, sizeof wanted, ".entry %s(", name);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name) && strstr((const char *)module, wanted)) {
            *function = (CUfunction)(uintptr_t)&kernels[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    (void)attribute, (void)function;
    BEGIN;
    *value = 1024;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, uint32_t flags) {
    (void)flags;
    BEGIN;
    *stream = (CUstream)(uintptr_t)1;
    return depth ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static pthread_mutex_t device = PTHREAD_MUTEX_INITIALIZER;

/* Nothing ends on the device until it is let go. */
void fake_cuda_hold(int held) { held ? pthread_mutex_lock(&device) : pthread_mutex_unlock(&device); }

CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    BEGIN;
    pthread_mutex_lock(&device);
    pthread_mutex_unlock(&device);
    return CUDA_SUCCESS;
}

/* --- memory --- */

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *kind, CUmemAllocationGranularity_flags option) {
    (void)kind, (void)option;
    BEGIN;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *kind, uint64_t flags) {
    (void)flags;
    BEGIN;
    *handle = size;
    return size % GRANULARITY || kind->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_INVALID_VALUE
                                                                                                      : CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    (void)handle;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr wanted, uint64_t flags) {
    (void)alignment, (void)wanted, (void)flags;
    BEGIN;
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return memory == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    BEGIN;
    munmap((void *)(uintptr_t)address, size);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, uint64_t flags) {
    (void)address, (void)size, (void)offset, (void)handle, (void)flags;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    (void)address, (void)size;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count) {
    (void)address, (void)size, (void)access, (void)count;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, uint64_t flags) {
    (void)handle, (void)type, (void)flags;
    BEGIN;
    *(int *)shareable = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *(int *)shareable < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    BEGIN;
    memcpy((void *)(uintptr_t)to, from, size);
    return CUDA_SUCCESS;
}

/* The OpenCL driver's clCreateBuffer, with CL_MEM_USE_HOST_PTR: its devices are this process's CPU. */
void *fake_cuda_import(void *context, uint64_t flags, uint64_t address, int descriptor, size_t size, int32_t *code) {
    void *(*create)(void *, uint64_t, size_t, void *, int32_t *) = (void *(*)(void *, uint64_t, size_t, void *, int32_t *))(*(void ***)context)[14];
    *code = called(__func__);
    if (*code) {
        close(descriptor);
        return NULL;
    }
    close(descriptor);   /* it belongs to OpenCL */
    return create(context, flags | 8, size, (void *)(uintptr_t)address, code);
}

/* --- graphs --- */

struct fl_CUgraphNode {
    enum { LAUNCH, COPY, FILL } kind;
    CUDA_KERNEL_NODE_PARAMS launch;
    void *values[8];
    unsigned char bytes[8][16];
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUgraph graph;
};

struct fl_CUgraph {
    CUgraphNode nodes[4096];
    size_t count;
};

struct fl_CUgraphExec {
    CUgraph graph;
};

CUresult cuGraphCreate(CUgraph *graph, uint32_t flags) {
    (void)flags;
    BEGIN;
    *graph = calloc(1, sizeof **graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    BEGIN;
    for (size_t i = 0; i < graph->count; i++)
        free(graph->nodes[i]);
    free(graph);
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!before[i] || before[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    if (graph->count == sizeof graph->nodes / sizeof *graph->nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *node = calloc(1, sizeof **node);
    (*node)->graph = graph;
    graph->nodes[graph->count++] = *node;
    return CUDA_SUCCESS;
}

/* A node has its own copy of the parameters: as many as the caller gives, up to the first that is NULL. */
static void set_launch(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *launch) {
    int count = !strcmp(((const kernel *)launch->func)->name, "scale") ? 3 : 2;
    node->kind = LAUNCH;
    node->launch = *launch;
    for (int i = 0; i < count; i++) {
        memcpy(node->bytes[i], launch->kernelParams[i], i && count == 3 ? 4 : 8);
        node->values[i] = node->bytes[i];
    }
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *launch) {
    BEGIN;
    CUresult code = add(node, graph, before, count);
    if (code == CUDA_SUCCESS)
        set_launch(*node, launch);
    return code;
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count, const CUDA_MEMCPY3D *copy,
                              CUcontext context) {
    (void)context;
    BEGIN;
    CUresult code = add(node, graph, before, count);
    if (code == CUDA_SUCCESS) {
        (*node)->kind = COPY;
        (*node)->copy = *copy;
    }
    return code;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count, const CUDA_MEMSET_NODE_PARAMS *fill,
                              CUcontext context) {
    (void)context;
    BEGIN;
    CUresult code = add(node, graph, before, count);
    if (code == CUDA_SUCCESS) {
        (*node)->kind = FILL;
        (*node)->fill = *fill;
    }
    return code;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, uint64_t flags) {
    (void)flags;
    BEGIN;
    *executable = calloc(1, sizeof **executable);
    (*executable)->graph = graph;
    return CUDA_SUCCESS;
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    (void)executable, (void)stream;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    BEGIN;
    free(executable);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *launch) {
    (void)executable;
    BEGIN;
    set_launch(node, launch);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context) {
    (void)executable, (void)context;
    BEGIN;
    node->copy = *copy;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context) {
    (void)executable, (void)context;
    BEGIN;
    node->fill = *fill;
    return CUDA_SUCCESS;
}

static void run_launch(CUgraphNode n) {
    const CUDA_KERNEL_NODE_PARAMS *l = &n->launch;
    uint32_t items = l->gridDimX * l->gridDimY * l->gridDimZ * l->blockDimX * l->blockDimY * l->blockDimZ;
    ((const kernel *)l->func)->run(n->values, items);
}

static void run_copy(const CUDA_MEMCPY3D *c) {
    for (size_t z = 0; z < c->Depth; z++)
        for (size_t y = 0; y < c->Height; y++)
            memmove((char *)(uintptr_t)c->dstDevice + (z * c->dstHeight + y) * c->dstPitch,
                    (char *)(uintptr_t)c->srcDevice + (z * c->srcHeight + y) * c->srcPitch, c->WidthInBytes);
}

static void run_fill(const CUDA_MEMSET_NODE_PARAMS *f) {
    for (size_t i = 0; i < f->width; i++)
        memcpy((char *)(uintptr_t)f->dst + i * f->elementSize, &f->value, f->elementSize);
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    (void)stream;
    BEGIN;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    for (size_t i = 0; i < executable->graph->count; i++) {
        CUgraphNode n = executable->graph->nodes[i];
        switch (n->kind) {
        case LAUNCH: run_launch(n); break;
        case COPY: run_copy(&n->copy); break;
        case FILL: run_fill(&n->fill); break;
        }
    }
    return CUDA_SUCCESS;
}
