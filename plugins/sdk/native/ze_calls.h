/* Entry points of the Level Zero driver without Python.
 *
 * A function fl_ze... answers a call of ze..., or returns FL_TO_PYTHON. Then nothing has changed,
 * and Python makes the whole call (calls.h). The first number of a handle is the address of its
 * struct: fl_ze_kernel, fl_ze_list, fl_ze_queue or fl_ze_event. Level Zero does not allow two
 * threads in calls with the same kernel or list. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "operations.cdef.h"
#include "../../../icd/native/native.cdef.h"
#include "../../../icd/native/command_buffer.cdef.h"
#include "../../../icd/native/busy.h"
#include "calls.cdef.h"
#include "ze_types.h"
#include "ze_calls.cdef.h"

enum { FL_TO_PYTHON = INT32_MIN };

extern const fl_sdk_functions *fl_sdk;
extern const fl_functions *fl_ze_icd;

/* What an argument is: where the driver does not tell, eight bytes may be an address. */
static inline uint8_t fl_ze_kind(const fl_ze_kernel *kernel, uint32_t index, size_t size,
                                 uintptr_t value) {
    uint8_t kind = kernel->kinds[index];
    bool is_plain = kind == FL_ZE_UNKNOWN && value && size != sizeof(void *);
    return is_plain ? FL_ZE_VALUE : kind;
}

/* Locks an event until fl_ze_end_signal. False, with nothing changed: Python signals it. */
bool fl_ze_begin_signal(fl_ze_event *event, uintptr_t *before);
/* `cl`: what signals it, NULL if that could not be enqueued. */
void fl_ze_end_signal(fl_ze_event *event, uintptr_t before, void *cl);

/* The struct behind a handle, NULL for none. */
static inline void *fl_ze_struct(uint32_t driver, uintptr_t handle, unsigned kind) {
    const uintptr_t *words = fl_sdk->words(FL_ZE_DRIVERS + driver, handle, kind);
    return words ? (void *)words[0] : NULL;
}
