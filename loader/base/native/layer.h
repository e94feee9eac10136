/* Layers: tables whose entries call a handler before and after they forward a call to the next
 * table.
 *
 * An entry is a *thunk*. It stores which slot of which layer was called, and jumps to a *body*.
 * All layers and all functions of the same signature share a body. The body puts the arguments
 * into an array, calls `before`, calls the same slot of the next table, and calls `after`.
 * Traces, validation and tables answered in Python differ only in their handlers. build.py
 * generates thunks and bodies from the ABI data.
 *
 * C has no closures, so each layer has thunks of its own. They are compiled once, and linked once
 * for each layer that an API can have at a time. */
#ifndef FL_LAYER_H
#define FL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_log;

#include "layer.cdef.h"

/* Which function was called. A thunk sets it for its body. */
typedef struct fl_entry {
    fl_layer *layer;
    uint32_t slot;
} fl_entry;

/* Convert an argument to a word. A value larger than a word is given by its address. */
#define FL_POINTER(x) ((uint64_t)(uintptr_t)(x))
#define FL_NUMBER(x) ((uint64_t)(x))
#define FL_FLOAT(x) (((union { float f; uint32_t bits; }){.f = (x)}).bits)

#endif
