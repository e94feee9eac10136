/* An OpenCL layer with knobs. It says on stderr when it is started and ended, and which calls it
 * sees. */
#include <stdio.h>
#include <string.h>

#include "opencl_abi.h"

#ifndef LAYER
#define LAYER "layer"
#endif
#ifndef GENERATION
#define GENERATION 3 /* 1: clInitLayer, 2: clInitLayerWithProperties and clDeinitLayer, 3: both */
#endif
#ifndef API_VERSION
#define API_VERSION 100
#endif
#ifndef CODE
#define CODE 0 /* what it answers when it is started */
#endif
#ifndef ENTRIES
#define ENTRIES 2 /* of its table */
#endif

#define EXPORTED __attribute__((visibility("default")))

static void *const *next;
static void *table[FL_SLOTS];

static cl_int ids(cl_uint room, cl_platform_id *into, cl_uint *count) {
    fprintf(stderr, "%s clGetPlatformIDs\n", LAYER);
    return ((fn_clGetPlatformIDs *)next[0])(room, into, count);
}

static cl_int finish(cl_command_queue queue) {
    fprintf(stderr, "%s clFinish\n", LAYER);
    return ((fn_clFinish *)next[SLOT_clFinish])(queue);
}

EXPORTED cl_int clGetLayerInfo(cl_uint name, size_t size, void *into, size_t *size_ret) {
    cl_uint version = API_VERSION;
    const void *value = name == 0x4240 ? (void *)&version : LAYER;
    size_t length = name == 0x4240 ? sizeof version : sizeof LAYER;
    if ((name != 0x4240 && name != 0x4241) || (into && size < length))
        return CL_INVALID_VALUE;
    if (into)
        memcpy(into, value, length);
    if (size_ret)
        *size_ret = length;
    return CL_SUCCESS;
}

__attribute__((unused)) static cl_int init(const char *how, cl_uint count, void *const *target,
                                           cl_uint *count_ret, void *const **layer_ret) {
    fprintf(stderr, "%s %s %u\n", LAYER, how, count);
    for (cl_uint i = 0; i < count; i++)
        if (!target[i])
            fprintf(stderr, "NULL in slot %u\n", i);
    next = target;
    table[0] = (void *)ids;
    table[SLOT_clFinish] = (void *)finish;
    *count_ret = ENTRIES;
    *layer_ret = table;
    return CODE;
}

#if GENERATION & 1
EXPORTED cl_int clInitLayer(cl_uint count, void *const *target, cl_uint *count_ret,
                            void *const **layer_ret) {
    return init("clInitLayer", count, target, count_ret, layer_ret);
}
#endif
#if GENERATION & 2
EXPORTED cl_int clInitLayerWithProperties(cl_uint count, void *const *target, cl_uint *count_ret,
                                          void *const **layer_ret,
                                          const cl_properties *properties) {
    return properties ? CL_INVALID_VALUE
                      : init("clInitLayerWithProperties", count, target, count_ret, layer_ret);
}

EXPORTED cl_int clDeinitLayer(void) {
    fprintf(stderr, "%s clDeinitLayer\n", LAYER);
    return CL_SUCCESS;
}
#endif
