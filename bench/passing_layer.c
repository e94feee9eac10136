/* An OpenCL layer that passes clRetainContext on to the next table, and does nothing else. */
#include <stddef.h>

#include "opencl_abi.h"

static void *table[FL_SLOTS];
static fn_clRetainContext *next;

static cl_int pass(cl_context context) { return next(context); }

cl_int clGetLayerInfo(cl_uint name, size_t size, void *into, size_t *size_ret) {
    (void)name, (void)size;
    *(cl_uint *)into = 100; /* CL_LAYER_API_VERSION */
    if (size_ret)
        *size_ret = sizeof(cl_uint);
    return CL_SUCCESS;
}

cl_int clInitLayer(cl_uint count, void *const *target, cl_uint *count_ret, void *const **layer) {
    (void)count;
    next = (fn_clRetainContext *)target[SLOT_clRetainContext];
    table[SLOT_clRetainContext] = (void *)pass;
    *count_ret = FL_SLOTS, *layer = table;
    return CL_SUCCESS;
}
