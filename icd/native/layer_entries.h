/* What every OpenCL layer exports besides clInitLayer (CL/cl_layer.h). Included once in a library,
 * behind fl_layer_name, which is CL_LAYER_NAME. */
#include "../../loader/base/native/answer.h"

#define FL_LAYER_EXPORT __attribute__((visibility("default")))

FL_LAYER_EXPORT cl_int clInitLayer(cl_uint num_entries, void *const *target_dispatch,
                                   cl_uint *num_entries_ret, void *const **layer_dispatch_ret);

FL_LAYER_EXPORT cl_int clGetLayerInfo(cl_uint param_name, size_t param_value_size,
                                      void *param_value, size_t *param_value_size_ret) {
    enum { API_VERSION = 0x4240, NAME = 0x4241 };
    static const cl_uint version = 100; /* CL_LAYER_API_VERSION_100 */
    if (param_name == API_VERSION)
        return fl_answer(&version, sizeof version, param_value_size, param_value,
                         param_value_size_ret);
    return param_name == NAME ? fl_answer(fl_layer_name, strlen(fl_layer_name) + 1,
                                          param_value_size, param_value, param_value_size_ret)
                              : CL_INVALID_VALUE;
}

FL_LAYER_EXPORT cl_int clInitLayerWithProperties(cl_uint num_entries, void *const *target_dispatch,
                                                 cl_uint *num_entries_ret,
                                                 void *const **layer_dispatch_ret,
                                                 const uint64_t *properties) {
    if (properties && *properties) /* none is defined */
        return CL_INVALID_PROPERTY;
    return clInitLayer(num_entries, target_dispatch, num_entries_ret, layer_dispatch_ret);
}

/* The loader is at its end, and with it its drivers may be: nothing calls them from now on. */
FL_LAYER_EXPORT cl_int clDeinitLayer(void) { return CL_SUCCESS; }
