/* Layers: tables whose entries hand each call to a handler before and after they forward it to the next table.
 *
 * An entry is a *thunk*. It says which slot of which layer was called, and jumps to a *body*, which all layers and all functions of
 * the same signature share. The body puts the arguments into an array, asks `before`, calls the same slot of the next table, and tells
 * `after`. Tracing, validation and tables answered in Python differ only in their handlers. build.py generates both from the ABI data.
 *
 * C has no closures, so each layer has thunks of its own. They are compiled once, and linked once for each layer that an API can
 * have at a time. */
#ifndef FL_LAYER_H
#define FL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fl_log;

#include "layer.cdef.h"

/* What was called: set by a thunk for the body that it jumps to. */
typedef struct fl_entry {
    fl_layer *layer;
    uint32_t slot;
} fl_entry;

/* Argument -> word. What is passed by value and larger than a word is handed over by its address. */
#define FL_POINTER(x) ((uint64_t)(uintptr_t)(x))
#define FL_NUMBER(x) ((uint64_t)(x))
#define FL_FLOAT(x) (((union { float f; uint32_t bits; }){.f = (x)}).bits)

#endif
