/* What a library defines to be an OpenCL layer; opencl_layer.c does the rest. */
#ifndef FL_OPENCL_LAYER_H
#define FL_OPENCL_LAYER_H

#include "../../loader/base/native/layer.h"

/* CL_LAYER_NAME. */
extern const char fl_layer_name[];
/* Whether anybody asked for it. If not, it is not in the program's way. */
bool fl_layer_is_wanted(void);
/* Set the handlers of a layer. */
void fl_begin_layer(fl_layer *layer);

#endif
