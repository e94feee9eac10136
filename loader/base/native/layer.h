/* Layers: tables whose entries hand each call to a handler before and after they forward it to the next table.
 *
 * An entry (a *thunk*, generated from the ABI data by build.py) puts its arguments into an array, asks `before`, calls the same slot
 * of the next table, tells `after`. Tracing, validation and tables answered in Python are nothing but different handlers.
 *
 * C has no closures, so a thunk exists FL_LAYERS times, once for each layer that an API can have at a time. */
#ifndef FL_LAYER_H
#define FL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FL_LAYERS 16

struct fl_log;

#include "layer.cdef.h"

/* Argument -> word. What is passed by value and larger than a word is handed over by its address. */
#define FL_POINTER(x) ((uint64_t)(uintptr_t)(x))
#define FL_NUMBER(x) ((uint64_t)(x))
#define FL_FLOAT(x) (((union { float f; uint32_t bits; }){.f = (x)}).bits)

#endif
