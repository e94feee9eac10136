/* The functions of an OpenCL layer (CL/cl_layer.h), for libraries without Python. */
#include "opencl_layer.h"

#include "../../loader/base/native/native.h"

#include "layer_entries.h"

#include <stdlib.h>

const fl_thunks *fl_cl_thunks(void); /* generated: thunks_cl.c */

/* Tables are arrays of pointers here. The loader's may be shorter than ours. It may have NULL where
 * its system has no such function: there our table leads to a stub. */
cl_int clInitLayer(cl_uint num_entries, void *const *target_dispatch, cl_uint *num_entries_ret,
                   void *const **layer_dispatch_ret) {
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
