/* Memory, copies and streams, where HIP differs from CUDA. */
#include "fake_hip.h"

#include <sched.h>

static CUdeviceptr number(const void *address) { return (CUdeviceptr)(uintptr_t)address; }

static hipError_t allocate(void **to, size_t size, CUresult code) {
    if (!size)
        *to = NULL;   /* of no bytes: no memory, and no error */
    return size ? hip_end((int)code) : hipSuccess;
}

hipError_t hipMalloc(void **to, size_t size) {
    HIP_BEGIN;
    return allocate(to, size, size ? cuMemAlloc_v2((CUdeviceptr *)to, size) : CUDA_SUCCESS);
}

hipError_t hipHostMalloc(void **to, size_t size, uint32_t flags) {
    HIP_BEGIN;
    return allocate(to, size, size ? cuMemHostAlloc(to, size, flags) : CUDA_SUCCESS);
}

hipError_t hipHostFree(void *memory) {
    HIP_BEGIN;
    return memory ? hip_end(cuMemFreeHost(memory)) : hipSuccess;
}

/* --- what an address is --- */

static int ask(void *answer, CUpointer_attribute attribute, const void *address) {
    return cuPointerGetAttribute(answer, attribute, number(address));
}

static uint32_t memory_type(const void *address) {
    uint32_t type = 0, managed = 0;
    ask(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    ask(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
    return type == CU_MEMORYTYPE_HOST ? HOST_MEMORY : managed ? MANAGED_MEMORY : DEVICE_MEMORY;
}

hipError_t hipPointerGetAttribute(void *data, hipPointer_attribute attribute,
                                  hipDeviceptr_t address) {
    HIP_BEGIN;
    int code = ask(data, attribute, address);
    if (!code && attribute == HIP_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(uint32_t *)data = memory_type(address);
    return hip_end(code);
}

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, const void *address) {
    pointer_attributes made = {0};
    uint64_t base = 0;
    HIP_BEGIN;
    bool known = !ask(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    if (known) {
        uint32_t type = memory_type(address);
        memcpy(&made, &type, sizeof type);   /* the first field, whose name differs */
        ask(&made.device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
        ask(&made.isManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
        made.devicePointer = (void *)(uintptr_t)address;
        made.hostPointer = type == DEVICE_MEMORY && !made.isManaged ? NULL : made.devicePointer;
    }
    memcpy(attributes, &made, sizeof made);
    /* HIP 6 says that it is not registered. */
    return known || FAKE_HIP >= 600 ? hipSuccess : hip_end(hipErrorInvalidValue);
}

hipError_t hipMemGetAddressRange(hipDeviceptr_t *base, size_t *size, hipDeviceptr_t address) {
    HIP_BEGIN;
    int code = ask(base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    ask(size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    return hip_end(code ? hipErrorNotFound : hipSuccess);
}

/* --- copies --- */

static size_t pixel_of(hipArray_t array) {
    CUarray a = (CUarray)array;
    return a ? a->pitch / a->about.Width : 1;
}

static CUmemorytype type_of(hipArray_t array) {
    return array ? CU_MEMORYTYPE_ARRAY : CU_MEMORYTYPE_DEVICE;
}

/* Positions in an array, and widths of copies with one, are in pixels. */
bool hip_copy_of(CUDA_MEMCPY3D *made, const hipMemcpy3DParms *g) {
    size_t from = pixel_of(g->srcArray), to = pixel_of(g->dstArray);
    *made = (CUDA_MEMCPY3D){.srcMemoryType = type_of(g->srcArray),
                            .srcArray = (CUarray)g->srcArray,
                            .srcDevice = number(g->srcPtr.ptr),
                            .srcPitch = g->srcPtr.pitch,
                            .srcHeight = g->srcPtr.ysize,
                            .srcXInBytes = g->srcPos.x * from,
                            .srcY = g->srcPos.y,
                            .srcZ = g->srcPos.z,
                            .dstMemoryType = type_of(g->dstArray),
                            .dstArray = (CUarray)g->dstArray,
                            .dstDevice = number(g->dstPtr.ptr),
                            .dstPitch = g->dstPtr.pitch,
                            .dstHeight = g->dstPtr.ysize,
                            .dstXInBytes = g->dstPos.x * to,
                            .dstY = g->dstPos.y,
                            .dstZ = g->dstPos.z,
                            .WidthInBytes = g->extent.width * (from > to ? from : to),
                            .Height = g->extent.height,
                            .Depth = g->extent.depth,
                            .reserved0 = (void *)(uintptr_t)g->kind};
    bool same = !g->srcArray || !g->dstArray || from == to;
    return same && g->kind <= hipMemcpyDefault;
}

bool hip_line_of(CUDA_MEMCPY3D *made, void *to, const void *from, size_t size, hipMemcpyKind kind) {
    hipMemcpy3DParms given = {.srcPtr = {(void *)(uintptr_t)from, size, size, 1},
                              .dstPtr = {to, size, size, 1},
                              .extent = {size, 1, 1},
                              .kind = kind};
    return hip_copy_of(made, &given) && size && to != from;
}

hipError_t hipMemcpyAsync(void *to, const void *from, size_t size, hipMemcpyKind kind,
                          hipStream_t stream) {
    HIP_BEGIN;
    return hip_end(kind > hipMemcpyDefault
                       ? hipErrorInvalidMemcpyDirection
                       : cuMemcpyAsync(number(to), number(from), size, (CUstream)stream));
}

hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms *given, hipStream_t stream) {
    CUDA_MEMCPY3D copy;
    HIP_BEGIN;
    return hip_end(hip_copy_of(&copy, given) ? cuMemcpy3DAsync_v2(&copy, (CUstream)stream)
                                             : hipErrorInvalidMemcpyDirection);
}

hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D *given, hipStream_t stream) {
    const rows *g = (const rows *)given;
    HIP_BEGIN;
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = number(g->srcMemoryType == HOST_MEMORY ? g->srcHost : g->srcDevice),
        .srcPitch = g->srcPitch,
        .srcHeight = g->srcHeight,
        .srcXInBytes = g->srcXInBytes,
        .srcY = g->srcY,
        .srcZ = g->srcZ,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = number(g->dstMemoryType == HOST_MEMORY ? g->dstHost : g->dstDevice),
        .dstPitch = g->dstPitch,
        .dstHeight = g->dstHeight,
        .dstXInBytes = g->dstXInBytes,
        .dstY = g->dstY,
        .dstZ = g->dstZ,
        .WidthInBytes = g->WidthInBytes,
        .Height = g->Height,
        .Depth = g->Depth};
    return hip_end(cuMemcpy3DAsync_v2(&copy, (CUstream)stream));
}

hipError_t hipMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                            hipStream_t stream) {
    HIP_BEGIN;
    return hip_end(
        cuMemsetD2D8Async(number(to), pitch, (uint8_t)value, width, height, (CUstream)stream));
}

static CUmemLocation place_of(int device) {
    return (CUmemLocation){
        device == hipCpuDeviceId ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
}

hipError_t hipMemPrefetchAsync(const void *address, size_t size, int device, hipStream_t stream) {
    HIP_BEGIN;
    return hip_end(
        cuMemPrefetchAsync_v2(number(address), size, place_of(device), 0, (CUstream)stream));
}

hipError_t hipMemAdvise(const void *address, size_t size, hipMemoryAdvise advice, int device) {
    HIP_BEGIN;
    return hip_end(cuMemAdvise_v2(number(address), size, advice, place_of(device)));
}

/* --- memory that is mapped to addresses --- */

static CUmemAllocationProp kind_of(const hipMemAllocationProp *given) {
    const allocation_kind *g = (const allocation_kind *)given;
    return (CUmemAllocationProp){.type = g->type,
                                 .requestedHandleTypes = g->requestedHandleType,
                                 .location = {g->location.type, g->location.id}};
}

static bool is_pinned(const CUmemAllocationProp *kind) {
    return kind->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           kind->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

hipError_t hipMemGetAllocationGranularity(size_t *granularity, const hipMemAllocationProp *given,
                                          hipMemAllocationGranularity_flags option) {
    HIP_BEGIN;
    CUmemAllocationProp kind = kind_of(given);
    return hip_end(is_pinned(&kind) ? cuMemGetAllocationGranularity(granularity, &kind, option)
                                    : hipErrorInvalidValue);
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *handle, size_t size,
                        const hipMemAllocationProp *given, hip_flags64 flags) {
    HIP_BEGIN;
    CUmemAllocationProp kind = kind_of(given);
    return hip_end(is_pinned(&kind)
                       ? cuMemCreate((CUmemGenericAllocationHandle *)handle, size, &kind, flags)
                       : hipErrorInvalidValue);
}

/* --- other processes --- */

hipError_t hipIpcGetMemHandle(hipIpcMemHandle_t *handle, void *memory) {
    HIP_BEGIN;
    return hip_end((int)cuIpcGetMemHandle((CUipcMemHandle *)handle, number(memory)));
}

hipError_t hipIpcOpenMemHandle(void **memory, hipIpcMemHandle_t given, uint32_t flags) {
    CUipcMemHandle handle;
    HIP_BEGIN;
    memcpy(&handle, &given, sizeof handle);
    bool fits = flags == (FAKE_HIP >= 600);   /* hipIpcMemLazyEnablePeerAccess */
    return hip_end(fits ? (int)cuIpcOpenMemHandle_v2((CUdeviceptr *)memory, handle, 0)
                        : hipErrorInvalidValue);
}

hipError_t hipIpcOpenEventHandle(hipEvent_t *event, hipIpcEventHandle_t given) {
    CUipcEventHandle handle;
    HIP_BEGIN;
    memcpy(&handle, &given, sizeof handle);
    return hip_end((int)cuIpcOpenEventHandle((CUevent *)event, handle));
}

/* --- streams --- */

hipError_t hipStreamSynchronize(hipStream_t stream) {
    HIP_BEGIN;
    if (!stream)
        fake_drain();
    return hip_end(cuStreamSynchronize((CUstream)stream));
}

hipError_t hipStreamQuery(hipStream_t stream) {
    HIP_BEGIN;
    return hip_end(stream            ? cuStreamQuery((CUstream)stream)
                   : fake_all_idle() ? CUDA_SUCCESS
                                     : CUDA_ERROR_NOT_READY);
}

#if FAKE_HIP >= 600
hipError_t hipStreamGetDevice(hipStream_t stream, hipDevice_t *device) {
    CUcontext context = NULL;
    HIP_BEGIN;
    int code = cuStreamGetCtx((CUstream)stream, &context);
    *device = (int)(uintptr_t)context - 1;
    return hip_end(code);
}
#endif

typedef struct callback {
    void (*function)(hipStream_t, hipError_t, void *);
    hipStream_t stream;
    void *data;
} callback;

static void call(void *data) {
    callback *one = data;
    one->function(one->stream, hipSuccess, one->data);
}

static CUresult run_callback(void *data) {
    fake_call_host(call, data);
    return CUDA_SUCCESS;
}

hipError_t hipStreamAddCallback(hipStream_t stream, hipStreamCallback_t function, void *data,
                                uint32_t flags) {
    HIP_BEGIN;
    callback one = {(void (*)(hipStream_t, hipError_t, void *))function, stream, data};
    return hip_end(flags || !function
                       ? hipErrorInvalidValue
                       : fake_push((CUstream)stream, run_callback, &one, sizeof one));
}

/* A number in memory that a stream waits for, or writes. */
typedef struct value {
    void *at;
    uint64_t value, mask;
    uint32_t flags, bits;
} value;

static bool has_come(const value *v) {
    uint64_t now = v->bits == 64 ? __atomic_load_n((uint64_t *)v->at, __ATOMIC_ACQUIRE)
                                 : __atomic_load_n((uint32_t *)v->at, __ATOMIC_ACQUIRE);
    switch (v->flags) {
    case hipStreamWaitValueGte:
        return v->bits == 64 ? (int64_t)((now & v->mask) - v->value) >= 0
                             : (int32_t)(uint32_t)((now & v->mask) - v->value) >= 0;
    case hipStreamWaitValueEq: return (now & v->mask) == v->value;
    case hipStreamWaitValueAnd: return (now & v->mask & v->value) != 0;
    default: return ~((now & v->mask) | v->value) << (64 - v->bits);
    }
}

static CUresult run_wait(void *data) {
    while (!has_come(data))
        sched_yield();
    return CUDA_SUCCESS;
}

static CUresult run_write(void *data) {
    value *v = data;
    if (v->bits == 64)
        __atomic_store_n((uint64_t *)v->at, v->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)v->at, (uint32_t)v->value, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

static hipError_t push_value(hipStream_t stream, CUresult (*run)(void *), value one) {
    bool fits = one.at && one.flags <= hipStreamWaitValueNor;
    return hip_end(fits ? fake_push((CUstream)stream, run, &one, sizeof one)
                        : hipErrorInvalidValue);
}

hipError_t hipStreamWaitValue32(hipStream_t stream, void *at, uint32_t wanted, uint32_t flags,
                                uint32_t mask) {
    HIP_BEGIN;
    return push_value(stream, run_wait, (value){at, wanted, mask, flags, 32});
}

hipError_t hipStreamWaitValue64(hipStream_t stream, void *at, uint64_t wanted, uint32_t flags,
                                uint64_t mask) {
    HIP_BEGIN;
    return push_value(stream, run_wait, (value){at, wanted, mask, flags, 64});
}

hipError_t hipStreamWriteValue32(hipStream_t stream, void *at, uint32_t written, uint32_t flags) {
    HIP_BEGIN;
    return push_value(stream, run_write, (value){at, written, 0, flags, 32});
}

hipError_t hipStreamWriteValue64(hipStream_t stream, void *at, uint64_t written, uint32_t flags) {
    HIP_BEGIN;
    return push_value(stream, run_write, (value){at, written, 0, flags, 64});
}
