/* Arrays, and the texture and surface objects on them, which kernels of modules.c take. */
#include "modules.h"

CUresult cuArray3DCreate_v2(CUarray *to, const CUDA_ARRAY3D_DESCRIPTOR *d) {
    static const size_t sizes[33] = {[1] = 1, [2] = 2,  [3] = 4,  [8] = 1,
                                     [9] = 2, [10] = 4, [16] = 2, [32] = 4};
    BEGIN;
    NEED_CONTEXT;
    size_t layers = d->Flags & CUDA_ARRAY3D_LAYERED ? d->Depth : 1,
           most = d->Depth ? 16384 : 131072;
    if (!d->Width || !layers || d->Format > 32 || !sizes[d->Format] ||
        (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    if (d->Width > most || d->Height > most || d->Depth > most)
        return CUDA_ERROR_INVALID_VALUE;
    CUarray made = calloc(1, sizeof *made);
    made->about = *d;
    made->pitch = d->Width * d->NumChannels * sizes[d->Format];
    made->rows = d->Height ? d->Height : 1;
    made->bytes = malloc(made->pitch * made->rows * (d->Depth ? d->Depth : 1));
    *to = made;
    return CUDA_SUCCESS;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *about, CUarray array) {
    BEGIN;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    *about = array->about;
    return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray array) {
    BEGIN;
    fake_drain();
    free(array->bytes);
    free(array);
    return CUDA_SUCCESS;
}

/* An object is the address of its array: the kernels here read integers by whole coordinates. */
static CUresult object_of(uint64_t *to, const CUDA_RESOURCE_DESC *from, uint32_t flags) {
    CUarray array = (CUarray)(uintptr_t)from->res[0];
    if (from->resType != CU_RESOURCE_TYPE_ARRAY || !array || from->flags ||
        (array->about.Flags & flags) != flags)
        return CUDA_ERROR_INVALID_VALUE;
    *to = (uint64_t)(uintptr_t)array;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *to, const CUDA_RESOURCE_DESC *from,
                           const CUDA_TEXTURE_DESC *how, const CUDA_RESOURCE_VIEW_DESC *view) {
    BEGIN;
    bool fits = how->filterMode <= CU_TR_FILTER_MODE_LINEAR && !view;
    for (int d = 0; d < DIMENSIONS; d++)
        fits = fits && how->addressMode[d] <= CU_TR_ADDRESS_MODE_BORDER;
    return fits ? object_of(to, from, 0) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTexObjectDestroy(CUtexObject object) {
    BEGIN;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuSurfObjectCreate(CUsurfObject *to, const CUDA_RESOURCE_DESC *from) {
    BEGIN;
    return object_of(to, from, CUDA_ARRAY3D_SURFACE_LDST);
}

CUresult cuSurfObjectDestroy(CUsurfObject object) {
    BEGIN;
    return object ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
