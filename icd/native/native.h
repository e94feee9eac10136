/* The native part of fairlead.icd: tables, capture and replay. No Python in here: it runs without the GIL, in any thread, and
 * after the interpreter has ended. `native.cdef.h` is the part of it that Python calls.
 *
 * Terms: an object is anything that OpenCL hands out; its word 0 leads to a dispatch table (SPEC cl_khr_icd). `original` is the
 * driver's own table, guarded or not; a recording table is ours, and `original` with some slots exchanged. */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opencl_abi.h"
#include "native.cdef.h"

/* The function in a slot, with its type: CALL(table, clFinish)(queue). */
#define CALL(table, name) ((fn_##name *)(table)[SLOT_##name])

#endif
