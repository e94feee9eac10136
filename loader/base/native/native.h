#ifndef FL_LOADER_NATIVE_H
#define FL_LOADER_NATIVE_H

#include "clock.h"
#include "layer.h"
#include "locks.h"
#include "memory.h"
#include "native.cdef.h"

int fl_log_begin(fl_call *call);
void fl_log_end(fl_call *call);
void fl_dump_call(const fl_call *call);
/* A log's memory is chunks of FL_LOG_CHUNK bytes, of zeros. Records lie in one each. */
enum { FL_LOG_CHUNK = 1 << 18 };
/* Another chunk by mmap; NULL if there is none. */
typedef uint64_t *fl_log_memory(void);
/* Take the memory of an empty log from elsewhere, and count the calls without room there. */
void fl_log_into(fl_log *log, fl_log_memory *memory);
void fl_count_lost_at(fl_log *log, uint64_t *lost);
/* Append a record that is not a call: `kind` is FL_…, `call` the call that it belongs to. */
void fl_log_note(fl_log *log, uint32_t kind, const fl_call *call, const uint64_t *values,
                 uint32_t count);

#endif
