/* The native part of fairlead.icd: tables, capture and replay. No Python in here: it runs without the GIL, in any thread, and
 * after the interpreter has ended. `native.cdef.h` is the part of it that Python calls.
 *
 * Terms: an object is anything that OpenCL hands out; its word 0 leads to a dispatch table (SPEC cl_khr_icd). */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opencl_abi.h"

#include "native.cdef.h"

#define FL_ICD2_TAG ((void *)(sizeof(void *) == 8 ? (intptr_t)0x4F50454E434C3331 : (intptr_t)0x434C3331))

/* The function in a slot of a table, with its type: CALL(table, clFinish)(queue). */
#define CALL(table, name) ((fn_##name *)(table)[SLOT_##name])

/* keep.c: a set of objects that are retained once each for as long as the set lives. */
typedef enum { FL_KEEP_MEM, FL_KEEP_KERNEL, FL_KEEP_EVENT, FL_KEEP_SAMPLER, FL_KEEP_QUEUE, FL_KEEP_CONTEXT } fl_kind;
typedef struct fl_keep {
    struct fl_kept {
        void *object;
        fl_kind kind;
    } *entries;                /* in the order in which they came */
    uint32_t count, room;
    uint32_t *places;          /* open addressing by object: number of the entry + 1, 0 where free */
    uint32_t capacity;
} fl_keep;
bool fl_keep_has(const fl_keep *keep, const void *object);
/* 1: it is new and was retained (unless `owned`, when the caller's reference is taken over); 0: already there; -1: no memory. */
int fl_keep_add(fl_keep *keep, void *object, fl_kind kind, bool owned);
void fl_keep_release(fl_keep *keep);

/* patch.c: slots of a driver's own table, exchanged while somebody needs to see the calls. */
int fl_patch(void **table, int slot, void *replacement);
unsigned fl_unpatch(void **table, int slot);
void *fl_patched(const void *object, int slot);

/* arguments.c: what clSetKernelArg put into which kernel while a block records. */
typedef enum { FL_ARG_UNSEEN, FL_ARG_VALUE, FL_ARG_MEM, FL_ARG_SAMPLER, FL_ARG_SVM } fl_arg_kind;
int fl_watch_arguments(void **table);
void fl_unwatch_arguments(void **table);

/* svm.c: allocations that a graph uses are freed when the graph is dropped, not before. */
typedef struct fl_pins {
    const void **pointers;
    uint32_t count, capacity;
} fl_pins;
int fl_watch_svm(void **table);
void fl_unwatch_svm(void **table);
bool fl_list(fl_pins *list, const void *pointer);
bool fl_pin(fl_pins *pins, const void *pointer);
void fl_unpin_all(fl_pins *pins);
void fl_free_with_pins(fl_pins *pins, cl_context context, void *pointer);

/* arguments.c: a kernel with the arguments that `kernel` has now, frozen (the caller owns the reference). Its memory objects are
 * kept, those not kept before are listed in `fresh`, its SVM pointers are pinned. NULL: *reason says why. */
cl_kernel fl_freeze(cl_kernel kernel, bool allow_unseen, fl_keep *keep, fl_pins *pins, fl_pins *fresh, enum fl_reason *reason);

#endif
