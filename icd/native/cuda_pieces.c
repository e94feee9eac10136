/* Pieces of CUDA's memory, which OpenCL can import. */
#include "cuda_buffers.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

pthread_mutex_t fl_shared_lock = PTHREAD_MUTEX_INITIALIZER;
FL_FREE_IN_CHILD(fl_shared_lock)

static CUresult map_memory(fl_piece *p, size_t size) {
    const fl_cuda_device *d = p->device;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->number}};
    CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity = 0;
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
            code = CU(d, cuMemSetAccess)(p->address, p->mapped, &access, 1);
            if (code == CUDA_SUCCESS)
                return code;
            CU(d, cuMemUnmap)(p->address, p->mapped);
        }
        CU(d, cuMemAddressFree)(p->address, p->mapped);
    }
    CU(d, cuMemRelease)(p->handle);
    return code;
}

fl_piece *fl_new_piece(const fl_cuda_device *device, size_t size) {
    fl_piece *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = device;
    p->users = 1;
    p->descriptor = -1;
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
    if (p->descriptor >= 0)
        close(p->descriptor);
    if (fl_cuda_enter(d) == CUDA_SUCCESS) {
        CU(d, cuMemUnmap)(p->address, p->mapped);
        CU(d, cuMemAddressFree)(p->address, p->mapped);
        CU(d, cuMemRelease)(p->handle);
        fl_cuda_leave(d);
    }
    free(p);
}

int fl_export_piece(fl_piece *p, bool is_open) {
    const fl_cuda_device *d = p->device;
    int made = -1;
    pthread_mutex_lock(&fl_shared_lock);
    int kept = p->descriptor;
    pthread_mutex_unlock(&fl_shared_lock);
    if (kept >= 0)
        return fcntl(kept, F_DUPFD_CLOEXEC, 0);
    if (CU(d, cuMemExportToShareableHandle)(
            &made, p->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return -1;
    kept = is_open ? fcntl(made, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_lock(&fl_shared_lock);
    if (p->descriptor < 0) {
        p->descriptor = kept;
        kept = -1;
    }
    pthread_mutex_unlock(&fl_shared_lock);
    if (kept >= 0) /* another thread was faster */
        close(kept);
    return made;
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
