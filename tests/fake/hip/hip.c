/* HIP's driver for tests, without a GPU: the driver of ../cuda under HIP's names. FAKE_HIP is its
 * profile: 502 is HIP 5.2, 604 is HIP 6.4. They differ in functions, layouts and numbers. What is
 * the same function as CUDA's is generated (tests/helpers/hip.py), the rest is in this folder.
 *
 * All knobs are those of ../cuda/driver.c, with HIP's names: fake_cuda_fail("hipMalloc", 2),
 * FAKE_CUDA_FAIL=hipMalloc=2. FAKE_HIP_IMAGES=0 is a GPU without images.
 * FAKE_CUDA_DEVICES=0 is a machine without a GPU: HIP 5.2 says 101,
 * HIP 6.4 says 100.
 *
 * A module is OpenCL C text, or a code object (ELF) with such text behind its last byte. */
#include "fake_hip.h"

#include <elf.h>

static __thread int last_error;

hipError_t hip_end(int code) {
    if (code == CUDA_ERROR_INVALID_PTX)
        code = hipErrorInvalidImage;
    else if (code == CUDA_ERROR_NOT_PERMITTED)   /* HIP does not say what happens */
        code = hipErrorNotSupported;
    if (code)
        last_error = code;
    return code;
}

hipError_t hip_begin(const char *name) {
    static const char *const without_device[] = {"hipDriverGetVersion", "hipGetDeviceCount",
                                                 "hipGetLastError"};
    int code = fake_called(name);
    if (code)
        return code;
    for (size_t i = 0; i < sizeof without_device / sizeof *without_device; i++)
        if (!strcmp(name, without_device[i]))
            return hipSuccess;
    if (!fake_device_count())
        return NO_DEVICE;
    if (!fake_has_context())
        fake_set_context((CUcontext)1);
    return hipSuccess;
}

static CUcontext context_of(int device) { return (CUcontext)(uintptr_t)(device + 1); }

/* --- devices --- */

hipError_t hipDriverGetVersion(int *version) {
    HIP_BEGIN;
    *version = FAKE_HIP / 100 * 10000000 + FAKE_HIP % 100 * 100000;
    return hipSuccess;
}

hipError_t hipGetDeviceCount(int *count) {
    HIP_BEGIN;
    *count = fake_device_count();
    return *count ? hipSuccess : hip_end(hipErrorNoDevice);
}

hipError_t hipGetLastError(void) {
    int found = last_error;
    HIP_BEGIN;
    last_error = hipSuccess;
    return found;
}

hipError_t hipSetDevice(int device) {
    HIP_BEGIN;
    if (device < 0 || device >= fake_device_count())
        return hip_end(hipErrorInvalidDevice);
    fake_set_context(context_of(device));
    return hipSuccess;
}

static int current_device(void) {
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    return (int)(uintptr_t)context - 1;
}

hipError_t hipGetDevice(int *device) {
    HIP_BEGIN;
    *device = current_device();
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device) {
    static const struct {
        hipDeviceAttribute_t hip;
        CUdevice_attribute cuda;
    } known[] = {HIP_ATTRIBUTES};
    HIP_BEGIN;
    if (attribute == hipDeviceAttributeImageSupport) {
        const char *wanted = getenv("FAKE_HIP_IMAGES");
        *value = !wanted || strcmp(wanted, "0");
        return hipSuccess;
    }
    if (FAKE_HIP < 600 && attribute > hipDeviceAttributeMemoryPoolsSupported)
        return hip_end(hipErrorInvalidValue);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].hip == attribute) {
            int code = cuDeviceGetAttribute(value, known[i].cuda, device);
            *value = attribute == hipDeviceAttributeWarpSize ? 64 : *value;
            return hip_end(code);
        }
    return hip_end(hipErrorInvalidValue);
}

#define PROPERTIES                                                               \
    HIP_BEGIN;                                                                   \
    if (device < 0 || device >= fake_device_count())                             \
        return hip_end(hipErrorInvalidDevice);                                   \
    memset(properties, 0, sizeof *properties);                                   \
    snprintf(properties->name, sizeof properties->name, "Fake GPU %d", device);  \
    strcpy(properties->gcnArchName, "gfx90a:sramecc+:xnack-");                   \
    return hipSuccess

hipError_t hipGetDeviceProperties(hipDeviceProp_t_5 *properties, int device) { PROPERTIES; }

#if FAKE_HIP >= 600
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t *properties, int device) { PROPERTIES; }
#endif

hipError_t hipDeviceGetP2PAttribute(int *value, hipDeviceP2PAttr attribute, int device, int peer) {
    HIP_BEGIN;
    return attribute > 3 ? hip_end(hipErrorInvalidValue)
                         : hip_end(cuDeviceGetP2PAttribute(value, attribute + 1, device, peer));
}

hipError_t hipDeviceEnablePeerAccess(int peer, uint32_t flags) {
    HIP_BEGIN;
    return hip_end(cuCtxEnablePeerAccess(context_of(peer), flags));
}

hipError_t hipDeviceDisablePeerAccess(int peer) {
    HIP_BEGIN;
    return hip_end(cuCtxDisablePeerAccess(context_of(peer)));
}

hipError_t hipCtxSynchronize(void) {
    HIP_BEGIN;
    return hip_end(hipErrorNotSupported);
}

/* --- modules and launches --- */

/* The text behind a code object, NULL if there is none. */
static const char *text_behind(const void *image) {
    const Elf64_Ehdr *head = image;
    size_t end = sizeof *head, table = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize;
    const Elf64_Phdr *segments = (const Elf64_Phdr *)((const char *)image + head->e_phoff);
    const Elf64_Shdr *sections = (const Elf64_Shdr *)((const char *)image + head->e_shoff);
    end = table > end ? table : end;
    for (int i = 0; i < head->e_phnum; i++)
        end = segments[i].p_offset + segments[i].p_filesz > end
                  ? segments[i].p_offset + segments[i].p_filesz
                  : end;
    for (int i = 0; i < head->e_shnum; i++)
        if (sections[i].sh_type != SHT_NOBITS && sections[i].sh_offset + sections[i].sh_size > end)
            end = sections[i].sh_offset + sections[i].sh_size;
    return head->e_machine == EM_AMDGPU ? (const char *)image + end : NULL;
}

hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, uint32_t count,
                               hipJitOption *options, void **values) {
    (void)count, (void)options, (void)values;   /* HIP ignores them */
    HIP_BEGIN;
    const char *text = memcmp(image, ELFMAG, SELFMAG) ? image : text_behind(image);
    if (!text)
        return hip_end(hipErrorNoBinaryForGpu);
    if (!*text || strstr(text, ".version "))
        return hip_end(hipErrorInvalidImage);
    int code = cuModuleLoadDataEx((CUmodule *)module, text, 0, NULL, NULL);
    if (!code && text != image)   /* what is not hidden follows the arguments */
        (*(CUmodule *)module)->takes_offsets =
            !memmem(image, (size_t)(text - (const char *)image), "hidden_global_offset", 20);
    return hip_end(code);
}

bool hip_launch_of(CUDA_KERNEL_NODE_PARAMS *made, const hipKernelNodeParams *g,
                   void *room[MOST_PARAMETERS]) {
    CUfunction f = g->func;
    void **extra = g->extra;
    *made = (CUDA_KERNEL_NODE_PARAMS){f,
                                      g->gridDim.x,
                                      g->gridDim.y,
                                      g->gridDim.z,
                                      g->blockDim.x,
                                      g->blockDim.y,
                                      g->blockDim.z,
                                      g->sharedMemBytes,
                                      g->kernelParams,
                                      NULL,
                                      NULL,
                                      NULL};
    if (!extra)
        return true;
    size_t size = f && f->count ? f->offsets[f->count - 1] + f->sizes[f->count - 1] : 0;
    if (!f || g->kernelParams || extra[0] != (void *)HIP_LAUNCH_PARAM_BUFFER_POINTER ||
        extra[2] != (void *)HIP_LAUNCH_PARAM_BUFFER_SIZE ||
        extra[4] != (void *)HIP_LAUNCH_PARAM_END || *(size_t *)extra[3] < size)
        return false;
    for (uint32_t i = 0; i < f->count; i++)
        room[i] = (char *)extra[1] + f->offsets[i];
    made->kernelParams = room;
    return true;
}

hipError_t hipModuleLaunchKernel(hipFunction_t f, uint32_t gx, uint32_t gy, uint32_t gz,
                                 uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
                                 hipStream_t stream, void **parameters, void **extra) {
    HIP_BEGIN;
    hipKernelNodeParams given = {{bx, by, bz}, extra, f, {gx, gy, gz}, parameters, shared};
    CUDA_KERNEL_NODE_PARAMS made;
    void *room[MOST_PARAMETERS];
    if (!hip_launch_of(&made, &given, room))
        return hip_end(hipErrorInvalidValue);
    return hip_end(cuLaunchKernel(made.func, gx, gy, gz, bx, by, bz, shared, (CUstream)stream,
                                  made.kernelParams, NULL));
}
