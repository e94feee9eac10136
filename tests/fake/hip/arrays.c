/* Arrays, textures and surfaces of HIP. Their structs are CUDA's under other names. An object is
 * the address of the pixels, so kernels of OpenCL C read and write them as memory. */
#include "fake_hip.h"

hipError_t hipArray3DCreate(hipArray_t *to, const HIP_ARRAY3D_DESCRIPTOR *about) {
    HIP_BEGIN;
    if (about->Flags & CUDA_ARRAY3D_LAYERED)
        return hip_end(hipErrorNotSupported);
    return hip_end((int)cuArray3DCreate_v2((CUarray *)to, (const CUDA_ARRAY3D_DESCRIPTOR *)about));
}

hipError_t hipTexObjectCreate(hipTextureObject_t *to, const HIP_RESOURCE_DESC *from,
                              const HIP_TEXTURE_DESC *how, const HIP_RESOURCE_VIEW_DESC *view) {
    CUtexObject made = 0;
    HIP_BEGIN;
    int code = cuTexObjectCreate(&made, (const CUDA_RESOURCE_DESC *)from,
                                 (const CUDA_TEXTURE_DESC *)how,
                                 (const CUDA_RESOURCE_VIEW_DESC *)view);
    if (!code)
        *to = (hipTextureObject_t)((CUarray)(uintptr_t)made)->bytes;
    return hip_end(code);
}

#if FAKE_HIP < 600   /* the header has no `extern "C"` there */
#define hipCreateSurfaceObject _Z22hipCreateSurfaceObjectPP13__hip_surfacePK15hipResourceDesc
#define hipDestroySurfaceObject _Z23hipDestroySurfaceObjectP13__hip_surface
hipError_t hipCreateSurfaceObject(hipSurfaceObject_t *, const hipResourceDesc *);
hipError_t hipDestroySurfaceObject(hipSurfaceObject_t);
#endif

/* The struct of surfaces is shorter than that of textures, and begins like it. */
hipError_t hipCreateSurfaceObject(hipSurfaceObject_t *to, const hipResourceDesc *from) {
    CUsurfObject made = 0;
    hipError_t begun = hip_begin("hipCreateSurfaceObject");
    if (begun)
        return hip_end((int)begun);
    CUDA_RESOURCE_DESC given = {.resType = from->resType, .res = {from->res[0]}};
    int code = cuSurfObjectCreate(&made, &given);
    if (!code)
        *to = (hipSurfaceObject_t)((CUarray)(uintptr_t)made)->bytes;
    return hip_end(code);
}

hipError_t hipDestroySurfaceObject(hipSurfaceObject_t object) {
    hipError_t begun = hip_begin("hipDestroySurfaceObject");
    return hip_end(begun ? (int)begun : (int)cuSurfObjectDestroy((CUsurfObject)(uintptr_t)object));
}
