/* What the files of HIP's driver for tests share. hip.c says what it is. */
#pragma once
#include "../cuda/modules.h"
#include "hip_abi.h"
#include "hip_functions.h"

/* The layouts and numbers of the profile. */
#if FAKE_HIP < 600
typedef HIP_MEMCPY3D_5 rows;
typedef hipMemAllocationProp_52 allocation_kind;
typedef hipPointerAttribute_t_5 pointer_attributes;
enum {
    NO_DEVICE = hipErrorInvalidDevice,
    HOST_MEMORY = hipMemoryTypeHost_5,
    DEVICE_MEMORY = hipMemoryTypeDevice_5,
    MANAGED_MEMORY = hipMemoryTypeDevice_5
};
#else
typedef HIP_MEMCPY3D rows;
typedef hipMemAllocationProp allocation_kind;
typedef hipPointerAttribute_t pointer_attributes;
enum {
    NO_DEVICE = hipErrorNoDevice,
    HOST_MEMORY = hipMemoryTypeHost,
    DEVICE_MEMORY = hipMemoryTypeDevice,
    MANAGED_MEMORY = hipMemoryTypeManaged
};
#endif

/* Counts a call. Returns the code that a test has set for it, or that of a machine without a
 * device. */
hipError_t hip_begin(const char *name);
/* Returns HIP's code for one of CUDA's, and remembers it as the last error of this thread. */
hipError_t hip_end(int code);

#define HIP_BEGIN                                \
    do {                                         \
        hipError_t found = hip_begin(__func__);  \
        if (found)                               \
            return hip_end((int)found);          \
    } while (0)

/* Fills in a copy of CUDA's. Returns whether the kind is one of HIP's. The kind is in `reserved0`:
 * it may not change. */
bool hip_copy_of(CUDA_MEMCPY3D *made, const hipMemcpy3DParms *given);
bool hip_line_of(CUDA_MEMCPY3D *made, void *to, const void *from, size_t size, hipMemcpyKind kind);
/* Fills in a launch of CUDA's. `room` is for the addresses of arguments that are in one buffer.
 * Returns whether the arguments are valid. */
bool hip_launch_of(CUDA_KERNEL_NODE_PARAMS *made, const hipKernelNodeParams *given,
                   void *room[MOST_PARAMETERS]);
