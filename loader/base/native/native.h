#ifndef FL_LOADER_NATIVE_H
#define FL_LOADER_NATIVE_H

#include "layer.h"
#include "memory.h"
#include "native.cdef.h"

int fl_log_begin(fl_call *call);
void fl_log_end(fl_call *call);
/* Append a record that is no call: `kind` is FL_…, `call` the call that it belongs to. */
void fl_log_note(fl_log *log, uint32_t kind, const fl_call *call, const uint64_t *values,
                 uint32_t count);

#endif
