/* Pieces of CUDA's memory, which OpenCL can import. */
#include "cuda_buffers.h"

#include <stdatomic.h>
#include <stdlib.h>

pthread_mutex_t fl_shared_lock = PTHREAD_MUTEX_INITIALIZER;
FL_FREE_IN_CHILD(fl_shared_lock)

static CUresult map_memory(fl_piece *p, size_t size) {
    const fl_cuda_device *d = p->device;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->number}};
    CUmemAccessDesc access[FL_CUDA_MOST_DEVICES];
    size_t granularity = 0, count = 0;
    for (int32_t i = 0; i < FL_CUDA_MOST_DEVICES; i++)
        if (p->reached_by >> i & 1)
            access[count++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i},
                                                CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult code =
        CU(d, cuMemGetAllocationGranularity)(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code == CUDA_SUCCESS && !granularity)
        code = CUDA_ERROR_NOT_SUPPORTED;
    if (code != CUDA_SUCCESS)
        return code;
    p->mapped = (size + granularity - 1) / granularity * granularity;
    code = CU(d, cuMemCreate)(&p->handle, p->mapped, &kind, 0);
    if (code != CUDA_SUCCESS)
        return code;
    code = CU(d, cuMemAddressReserve)(&p->address, p->mapped, 0, 0, 0);
    if (code == CUDA_SUCCESS) {
        code = CU(d, cuMemMap)(p->address, p->mapped, 0, p->handle, 0);
        if (code == CUDA_SUCCESS) {
            code = CU(d, cuMemSetAccess)(p->address, p->mapped, access, count);
            if (code == CUDA_SUCCESS)
                return code;
            CU(d, cuMemUnmap)(p->address, p->mapped);
        }
        CU(d, cuMemAddressFree)(p->address, p->mapped);
    }
    CU(d, cuMemRelease)(p->handle);
    return code;
}

static void unmap(const fl_piece *p) {
    const fl_cuda_device *d = p->device;
    CU(d, cuMemUnmap)(p->address, p->mapped);
    CU(d, cuMemAddressFree)(p->address, p->mapped);
    CU(d, cuMemRelease)(p->handle);
}

fl_piece *fl_new_piece(const fl_cuda_device *device, uint64_t reached_by, size_t size) {
    fl_piece *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = device;
    p->reached_by = reached_by;
    p->users = 1;
    CUresult taken = fl_cuda_enter(device);
    if (taken == CUDA_SUCCESS) {
        taken = map_memory(p, size);
        fl_cuda_leave(device);
    }
    if (taken == CUDA_SUCCESS)
        return p;
    free(p);
    return NULL;
}

void fl_drop_piece(fl_piece *p) {
    pthread_mutex_lock(&fl_shared_lock);
    bool last = p && !--p->users;
    pthread_mutex_unlock(&fl_shared_lock);
    if (!last)
        return;
    const fl_cuda_device *d = p->device;
    if (fl_cuda_enter(d) == CUDA_SUCCESS) {
        unmap(p);
        fl_cuda_leave(d);
    }
    free(p);
}

static int export_piece(const fl_piece *p) {
    int made = -1;
    CUresult code = CU(p->device, cuMemExportToShareableHandle)(
        &made, p->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return code == CUDA_SUCCESS ? made : -1;
}

/* CUDA takes 600 µs to make a descriptor while the process has no other one, and 40 otherwise. So
 * one of a small piece stays open. */
static void keep_one_open(const fl_cuda_device *device) {
    static atomic_int kept[FL_CUDA_MOST_DEVICES];
    uint32_t number = (uint32_t)device->number;
    fl_piece small = {.device = device, .reached_by = (uint64_t)1 << device->number};
    if (number >= FL_CUDA_MOST_DEVICES || atomic_exchange(&kept[number], true) ||
        map_memory(&small, 1) != CUDA_SUCCESS)
        return;
    export_piece(&small);
    unmap(&small);   /* the descriptor holds it */
}

int fl_export_piece(const fl_piece *p) {
    keep_one_open(p->device);
    return export_piece(p);
}

bool fl_copy_to_cuda(const fl_cuda_device *device, CUdeviceptr to, const void *from, size_t size) {
    if (fl_cuda_enter(device) != CUDA_SUCCESS)
        return false;
    CUresult code = CU(device, cuMemcpyHtoD_v2)(to, from, size);
    if (code == CUDA_SUCCESS)
        code = CU(device, cuStreamSynchronize)(
            NULL); /* SPEC cuMemcpyHtoD: it may return when the source is read */
    fl_cuda_leave(device);
    return code == CUDA_SUCCESS;
}
