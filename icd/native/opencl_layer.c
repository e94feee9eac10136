/* The functions of an OpenCL layer (CL/cl_layer.h), for libraries without Python. */
#include "opencl_layer.h"

#include "../../loader/base/native/native.h"

#include "opencl_abi.h"

#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

const fl_thunks *fl_cl_thunks(void); /* generated: thunks_cl.c */

enum { CL_LAYER_API_VERSION = 0x4240, CL_LAYER_NAME = 0x4241, CL_LAYER_API_VERSION_100 = 100 };

/* The answer to a query: `size` bytes at `value`. */
static int32_t answer(const void *value, size_t size, size_t room, void *into, size_t *size_ret) {
    if (into && room < size)
        return CL_INVALID_VALUE;
    if (into)
        memcpy(into, value, size);
    if (size_ret)
        *size_ret = size;
    return CL_SUCCESS;
}

EXPORT int32_t clGetLayerInfo(uint32_t param_name, size_t param_value_size, void *param_value,
                              size_t *param_value_size_ret) {
    static const uint32_t version = CL_LAYER_API_VERSION_100;
    if (param_name == CL_LAYER_API_VERSION)
        return answer(&version, sizeof version, param_value_size, param_value,
                      param_value_size_ret);
    if (param_name == CL_LAYER_NAME)
        return answer(fl_layer_name, strlen(fl_layer_name) + 1, param_value_size, param_value,
                      param_value_size_ret);
    return CL_INVALID_VALUE;
}

/* Tables are arrays of pointers here. The loader's may be shorter than ours. It may have NULL where
 * its system has no such function: there our table leads to a stub. */
EXPORT int32_t clInitLayer(uint32_t num_entries, void *const *target_dispatch,
                           uint32_t *num_entries_ret, void *const **layer_dispatch_ret) {
    if (!num_entries || !target_dispatch || !num_entries_ret || !layer_dispatch_ret)
        return CL_INVALID_VALUE;
    if (!fl_layer_is_wanted()) {
        *num_entries_ret = num_entries;
        *layer_dispatch_ret = target_dispatch;
        return CL_SUCCESS;
    }
    const fl_thunks *thunks = fl_cl_thunks();
    uint32_t known = num_entries < thunks->slots ? num_entries : thunks->slots;
    void **next = fl_new_table_of(thunks);
    fl_layer *layer = next ? fl_new_layer(thunks, next, 0) : NULL;
    if (!layer) {
        free(next);
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (uint32_t i = 0; i < known; i++)
        if (target_dispatch[i])
            next[i] = target_dispatch[i];
    fl_begin_layer(layer);
    *num_entries_ret = known;
    *layer_dispatch_ret = fl_layer_table(layer);
    return CL_SUCCESS;
}

EXPORT int32_t clInitLayerWithProperties(uint32_t num_entries, void *const *target_dispatch,
                                         uint32_t *num_entries_ret,
                                         void *const **layer_dispatch_ret,
                                         const uint64_t *properties) {
    if (properties && *properties) /* none is defined */
        return CL_INVALID_PROPERTY;
    return clInitLayer(num_entries, target_dispatch, num_entries_ret, layer_dispatch_ret);
}

EXPORT int32_t clDeinitLayer(void) { return CL_SUCCESS; }
