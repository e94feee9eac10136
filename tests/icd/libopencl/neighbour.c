/* A poor OpenCL loader: it takes the ICD 2 platform of the driver that NEIGHBOUR_DRIVER names over.
 * Its table ends before OpenCL 3.1, and goes when it is unloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#define FL_DEFINE_STUBS
#include "opencl_abi.h"

#define EXPORTED __attribute__((visibility("default")))

enum { BYTES = 4096 };

static void **table;
static cl_platform_id platform;

EXPORTED cl_int clGetPlatformIDs(cl_uint room, cl_platform_id *into, cl_uint *count) {
    void *driver = dlopen(getenv("NEIGHBOUR_DRIVER"), RTLD_NOW);
    void *(*extension)(const char *) =
        (void *(*)(const char *))dlsym(driver, "clGetExtensionFunctionAddress");
    cl_int (*ids)(cl_uint, cl_platform_id *, cl_uint *) =
        (cl_int (*)(cl_uint, cl_platform_id *, cl_uint *))extension("clIcdGetPlatformIDsKHR");
    void *(*function)(cl_platform_id, const char *) =
        (void *(*)(cl_platform_id, const char *))extension("clIcdGetFunctionAddressForPlatformKHR");
    cl_int (*set)(cl_platform_id, void *) =
        (cl_int (*)(cl_platform_id, void *))extension("clIcdSetPlatformDispatchDataKHR");
    static const struct { int slot; const char *name;
    } known[] = {{SLOT_clGetPlatformInfo, "clGetPlatformInfo"},
                 {SLOT_clGetDeviceIDs, "clGetDeviceIDs"},
                 {SLOT_clCreateContext, "clCreateContext"},
                 {SLOT_clReleaseContext, "clReleaseContext"},
                 {SLOT_clFinish, "clFinish"},
                 {SLOT_clCreateCommandQueue, "clCreateCommandQueue"},
                 {SLOT_clReleaseCommandQueue, "clReleaseCommandQueue"}};
    ids(1, &platform, count);
    table = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < SLOT_clGetKernelSuggestedLocalWorkSize; i++)
        table[i] = fl_stubs[i];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        table[known[i].slot] = function(platform, known[i].name);
    if (room)
        into[0] = platform;
    return set(platform, table);
}

EXPORTED cl_int clGetDeviceIDs(cl_platform_id of, cl_device_type type, cl_uint room,
                               cl_device_id *into, cl_uint *count) {
    return ((fn_clGetDeviceIDs *)table[SLOT_clGetDeviceIDs])(of, type, room, into, count);
}

__attribute__((destructor)) static void unload(void) {
    if (table)
        munmap(table, BYTES);
}
