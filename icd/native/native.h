/* The native part of fairlead.icd: tables, capture and replay. No Python in here: it runs without
 * the GIL, in any thread, and after the interpreter has ended. The `….cdef.h` files are the part
 * of it that Python calls.
 *
 * Terms: an object is anything that OpenCL hands out; its word 0 leads to a dispatch table (SPEC
 * cl_khr_icd). */
#ifndef FL_NATIVE_H
#define FL_NATIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arrays.h"
#include "clock.h"
#include "locks.h"
#include "threads.h"
#include "memory.h"
#include "opencl_abi.h"

#include "operations.cdef.h"

#include "native.cdef.h"
#include "command_buffer.cdef.h"
#include "engines.cdef.h"
#include "operations.h"

#define FL_ICD2_TAG                                                                                \
    ((void *)(sizeof(void *) == 8 ? (intptr_t)0x4F50454E434C3331 : (intptr_t)0x434C3331))

/* The function in a slot of a table, with its type: CALL(table, clFinish)(queue). */
#define CALL(table, name) ((fn_##name *)(table)[SLOT_##name])

/* For a thread that looks again and again: the other one of its core is the faster for it. */
static inline void fl_pause(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* retained_objects.c: a set of objects that are retained once each for as long as the set lives. */
typedef enum {
    FL_KEEP_MEM,
    FL_KEEP_KERNEL,
    FL_KEEP_EVENT,
    FL_KEEP_SAMPLER,
    FL_KEEP_QUEUE,
    FL_KEEP_CONTEXT
} fl_kind;
typedef struct fl_keep {
    struct fl_kept {
        void *object;
        fl_kind kind;
    } *entries;                /* in the order in which they came */
    uint32_t count, room;
    uint32_t *places; /* open addressing by object: number of the entry + 1, 0 where free */
    uint32_t capacity;
    bool has_parts; /* there is a memory object that is a part of or made from another one */
} fl_keep;
bool fl_keep_has(const fl_keep *keep, const void *object);
/* 1: it is new and was retained (unless `owned`, when the caller's reference is taken over); 0:
 * already there; negative: the code of what went wrong, and nothing was retained. */
int fl_keep_add(fl_keep *keep, void *object, fl_kind kind, bool owned);
/* The same for a memory object, after what it is a part of or made from: not every driver keeps
 * that. */
int fl_keep_add_memory(fl_keep *keep, cl_mem mem);
/* The object's place in the order in which they came; it is there. */
uint32_t fl_keep_index(const fl_keep *keep, const void *object);
void fl_keep_release(fl_keep *keep);

/* patch.c: the function in a slot of a driver's table, our stub where there is none. */
void *fl_slot(void *const *table, int slot);

#define IN_SLOT(table, name) ((fn_##name *)fl_slot(table, SLOT_##name))

/* patch.c: slots of a driver's own table, exchanged while somebody needs to see the calls. `known`
 * is what the kernel's list of mappings said last, {0} at first. So it is read once for several
 * slots, and not kept for longer. */
typedef struct fl_mapping {
    uintptr_t low, high;
    int protection;
} fl_mapping;
int fl_patch(void **table, int slot, void *replacement, fl_mapping *known);
unsigned fl_unpatch(void **table, int slot, fl_mapping *known);
/* Several slots, or none if one cannot be written. The answer of the second: how many users of the
 * first slot are left. */
typedef struct fl_watched {
    int slot;
    void *function;
    bool stays_empty;   /* where the driver has no function, which a recording looks for */
} fl_watched;
int fl_patch_all(void **table, const fl_watched *rows, int count, fl_mapping *known);
unsigned fl_unpatch_all(void **table, const fl_watched *rows, int count, fl_mapping *known);
void *fl_patched(const void *object, int slot);
/* The driver's own function for an object, whoever watches it: DRIVER(queue, clFinish)(queue). */
#define DRIVER(object, name) ((fn_##name *)fl_patched(object, SLOT_##name))
bool fl_is_patched(const void *object, int slot);
bool fl_underlay(void **table, int slot, void *function, void **below, fl_mapping *known);

/* events.c: what watches clWaitForEvents, for a recording or for helping.c. */
cl_int fl_wait_for_events(cl_uint count, const cl_event *list);

/* helping.c: a replay on `queue` has these events of in-order queues of ours, in the order of the
 * enqueues; `end`, or NULL, is the event of the replay's end. */
void fl_offer_help(const void *program, void *queue, uint32_t own_count, void *const *own,
                   void *end);
/* Wait for such events before an event that ends a replay. The caller has the driver's wait. */
void fl_help_event(void *end);
/* An event is the end of all that is on a queue now. */
void fl_note_end(void *queue, void *end);
/* The same for several events, if no other thread has the driver's wait. */
void fl_help_waits(uint32_t number, void *const *events);

/* recording.c: a memory object became a kernel's argument in this thread; recordings that do not
 * keep it yet tell their observers. */
void fl_tell_memory(cl_mem memory);

/* The same for a Parameter, by its number: they keep it. */
void fl_tell_parameter(uint64_t id);

/* cells.c: what a Parameter is at present, in a recording or in a command-buffer. A memory object
 * in it is retained. */
struct fl_cell {
    atomic_uint users;
    uint16_t conversion;   /* enum fl_conversion */
    bool watched;          /* a rewrite is proven for this value: with another one, all is built
                              anew */
    uint64_t id;           /* the Parameter's number, never used again */
    size_t size;
    unsigned char bytes[];
};
fl_cell *fl_retain_cell(fl_cell *cell);
cl_mem fl_object_of(const fl_cell *cell);
/* Whether an argument of a list, which may be NULL, is a Parameter's. */
bool fl_has_cell(const fl_arguments *list, const fl_cell *cell);
/* The cells of these rows take the value that their series have for a turn. The caller has the
 * buffer. */
int fl_take_next(fl_buffer *buffer, const fl_value *values, uint32_t count, uint32_t turn);
/* The same for those that alternate. */
int fl_take_turn(fl_buffer *buffer, const fl_value *values, uint32_t count, uint32_t turn);
/* Whether an engine takes so many of these values with its next enqueue or run. Transfers are
 * changed one by one. */
bool fl_takes_all(const fl_route *route, const fl_value *values, uint32_t count, uint32_t times);
/* The cell of the Parameter that a kernel's argument is being set to (a reference), and its number;
 * NULL if it is none. */
fl_cell *fl_cell_for(const void *kernel, size_t size, const void *value, uint64_t *id);
/* Whether memory is that of a Parameter's number. */
bool fl_is_parameter(const void *value);
/* freeze.c: of an argument without bytes, what it stands for, if it stands for a Parameter. */
void fl_replace_stand_in(size_t *size, const void **value);

/* held_events.c: while this thread enqueues what may fail by its wait list, on a driver that
 * `holds_events` says so of. Then every command has an event, and drops it so. */
extern _Thread_local bool fl_holds_events;
/* enqueue.c: while this thread enqueues, the event of the buffer's last enqueue, if that was on the
 * same queue. So many references to it are ours alone. An engine may return it once more, without
 * another reference. */
extern _Thread_local struct fl_repeated {
    void *event;
    uint32_t references;
} fl_repeated;
void fl_drop_event(void *event);   /* at once, or hold it */
bool fl_has_ended(void *event);
bool fl_has_failed(void *event);

/* enqueue.c: fl_enqueue, if the caller has the buffer. */
int fl_enqueue_all(const fl_route *route, uint32_t times, uint32_t wait_count,
                   void *const *wait_list, void **event, uint32_t *failed);
/* One of several enqueues that follow each other without a look at anything in between. The caller
 * has the buffer. */
int fl_enqueue_step(const fl_route *route, bool is_first, bool is_last, uint32_t wait_count,
                    void *const *wait_list, void **event, uint32_t *failed);

/* freeze.c: what clSetKernelArg put into which kernel while a block records. */
int fl_watch_arguments(void **table, fl_mapping *known);
void fl_unwatch_arguments(void **table, fl_mapping *known);

/* svm.c: allocations that a graph uses are freed when the graph is dropped, not before. */
typedef struct fl_pins {
    const void **pointers;
    uint32_t count, capacity;
} fl_pins;
int fl_watch_svm(void **table, fl_mapping *known);
void fl_unwatch_svm(void **table, fl_mapping *known);
bool fl_list(fl_pins *list, const void *pointer);
bool fl_pin(fl_pins *pins, const void *pointer);
void fl_unpin_all(fl_pins *pins);
void fl_free_with_pins(cl_context context, void *pointer);

/* argument_lists.c: what one launch's arguments were. `value` is a copy of `size` bytes, the
 * pointer itself for SVM, NULL for local memory. */
typedef struct fl_argument {
    uint8_t kind;   /* enum fl_argument_kind; FL_ARG_UNSEEN: as it is in the copied kernel */
    uint32_t
        size; /* no device takes more; a graph may have a list for each of a million launches */
    const void *value;
    fl_cell *cell;  /* where the value lies if it is a Parameter's, a reference; else NULL */
} fl_argument;

struct fl_arguments {
    atomic_uint users;
    uint32_t count;
    bool holds; /* it has a reference to each of its objects; those of a capture are kept by the
                   recording */
    uint64_t hash;
    fl_argument list[];
};

bool fl_same_argument(const fl_argument *a, const fl_argument *b);
bool fl_same_list(const fl_arguments *a, const fl_arguments *b);   /* of equal counts */
/* A list in one piece of memory: the values lie behind it. It holds no objects but cells. */
fl_arguments *fl_new_list(const fl_argument *arguments, uint32_t count);
uint32_t fl_size_in_list(size_t size);
/* The same, and it holds its objects. */
fl_arguments *fl_new_holding_list(const fl_argument *arguments, uint32_t count);
/* A reference to what an argument is, if it is an object. */
void fl_retain_object(uint8_t kind, void *object);
void fl_release_object(uint8_t kind, void *object);

/* argument_kinds.c: what the source declares an argument as, where the driver has kept it. */
enum fl_declared {
    FL_NOT_ASKED,
    FL_DECLARED_MEMORY,
    FL_DECLARED_LOCAL_MEMORY,
    FL_DECLARED_VALUE,
    FL_DECLARED_SAMPLER,
    FL_DECLARED_UNKNOWN,
};
uint8_t fl_declaration(cl_kernel kernel, cl_uint index);   /* enum fl_declared */
/* What an argument with the value `object` is (enum fl_argument_kind). */
uint8_t fl_kind_by(uint8_t declared, cl_kernel kernel, void *object);

/* freeze.c: frozen launches. */
cl_kernel fl_copy_kernel(cl_kernel kernel, bool *with_arguments);
/* Freeze a launch: *kernel becomes a copy of it that nobody else has, kept by `keep`; *arguments
 * are those of this moment (the caller owns a reference). Its memory objects and samplers are kept,
 * its SVM pointers are pinned. After CL_SUCCESS the launch is refused all the same if *reason says
 * so. */
cl_int fl_freeze(cl_kernel *kernel, fl_arguments **arguments, bool allow_unseen, fl_keep *keep,
                 fl_pins *pins, enum fl_reason *reason);

/* sequence_kernels.c: the kernels of a sequence, and what has to be set on them before each
 * launch. */
typedef struct fl_set { /* small: a replay reads them all, past what the driver has left of the
                           caches */
    union {
        const void *value;
        unsigned char bytes[8];
    };
    cl_uint size, index : 30, svm : 1, inside : 1;   /* `inside`: the value is `bytes` */
} fl_set;
typedef struct fl_launch { /* what a replay reads of a step, in one line of the caches and in their
                              order */
    cl_kernel kernel;          /* NULL where the step launches none */
    uint32_t first_set;        /* there is room for its sets up to the next one's first */
    uint32_t set_count : 28, work_dim : 2, has_offset : 1, has_local : 1;
    size_t global[3], local[3];
} fl_launch;
struct fl_prepared {
    fl_keep copied; /* the kernels that commands name, or may; `kernels` are the program's own
                       copies, in the same order */
    cl_kernel *kernels;
    uint32_t *last_step; /* by kernel: the last step that launches it, UINT32_MAX if none does */
    uint32_t *kernel_of;       /* by step; UINT32_MAX where the step launches none */
    uint32_t *next, *prior;    /* by step: the next that launches the same kernel, the first again
                                  after the last; and the one before */
    fl_launch *launches;       /* by step, and one more */
    fl_set *sets;
    bool ready;                /* the kernels are as the last step leaves them */
    bool stale;                /* but for cells, which have changed since */
};
cl_int fl_prepare(fl_sequence *sequence);
/* What turns the arguments `before` (NULL: nothing is known) into `after` is written to `sets`, or
 * only counted if that is NULL. */
uint32_t fl_differences(const fl_arguments *before, const fl_arguments *after, fl_set *sets);

#endif
