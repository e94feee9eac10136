/* Entry points of the reference adapter without Python.
 *
 * A function fl_ur... answers a call of ur..., or returns FL_TO_PYTHON. Then nothing has changed,
 * and Python makes the whole call: it explains errors, and does all that is rare. So a function
 * here gives every argument that it does not expect to Python, and everything that the driver
 * refuses.
 *
 * The four numbers of a handle (Object.describe_to_c) are:
 *
 * | queue | the cl_command_queue | fl_queue | fl_gpu_queue of CUDA and HIP | |
 * | kernel | the cl_kernel | fl_kernel | | fl_answers |
 * | memory object | the cl_mem | the cl_context | whether it is a buffer | its size |
 * | event | the cl_event | fl_driver | fl_queue | see FL_COMMAND |
 * | context | the cl_context | fl_context | | fl_answers |
 * | command-buffer | fl_launches of the reference adapter | fl_gpu_graph | | fl_answers |
 * | command of CUDA and HIP | | fl_gpu_command | fl_gpu_graph, if C has made it | |
 * | device, platform | OpenCL's handle | fl_driver of a device | fl_device_memory of a root device
 * | fl_answers |
 *
 * 0 instead of an address means that only Python knows the object. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../../icd/native/waits.h"
#include "opencl_abi.h"
#include "ur_types.h"
#include "handles.h"
#include "calls.cdef.h"
#include "launches.cdef.h"
#include "ur_calls.h"

enum { FL_TO_PYTHON = INT32_MIN };
enum { CL_OBJECT, STRUCT, THIRD, FOURTH };   /* the numbers of a handle */

/* A function of the driver, through the layers that trace it. */
#define CL(driver, name) ((fn_##name *)(*(void *const *const *)(driver)->table)[SLOT_##name])

/* Python's entry points, which the generated C sets. */
typedef struct fl_python {
    fl_counting_body *release[64];           /* by the kind of handles */
    int32_t (*wait)(uint32_t adapter, uint32_t count, const uintptr_t *events);
} fl_python;
extern fl_python fl_in_python;

extern const fl_waits *fl_icd_waits;   /* launches.c */
extern const void *fl_icd;

/* Lets the GIL go if this thread has it, because drivers wait for each other's threads. */
void *fl_let_gil_go(void);
void fl_take_gil(void *state);

/* The last reference to an object. */
static inline void fl_let_go(uint32_t adapter, uintptr_t handle, unsigned kind) {
    if (fl_remove_reference((struct handle *)handle, 2, FL_GONE) < 2)
        fl_entry_release(adapter, handle, kind, fl_in_python.release[kind]);
}

/* The struct in a number of a handle, with a reference to the handle. NULL: no such handle. */
static inline void *fl_hold_struct(uint32_t adapter, uintptr_t handle, unsigned kind) {
    struct handle *found = fl_find(handle, adapter, kind);
    if (!found || !fl_add_reference(found))
        return NULL;
    if (found->words[STRUCT])
        return (void *)found->words[STRUCT];
    fl_let_go(adapter, handle, kind);
    return NULL;
}

/* Whether this thread may wait in a driver: in no callback, and where no signal has to end it. */
bool fl_waits_here(void);
/* The end of an event that level_zero.c has made. */
void fl_lz_end_event(const uintptr_t *words);

/* fl_sdk_functions */
int32_t fl_wait_in_order(const fl_driver *driver, void *event);
void fl_retain_event(const fl_driver *driver, void *event);

/* --- queues.c: a call that enqueues a command --- */

enum { FL_WAITS = 16 };
typedef struct fl_enqueue {
    uint32_t adapter;
    uintptr_t handle;                        /* of the queue */
    fl_queue *queue;
    cl_command_queue cl;
    uintptr_t *out, event;                   /* the caller's, and the reserved handle */
    cl_event made, *wanted;
    cl_uint count;
    const cl_event *list;
    bool blocks, waits, brief;               /* `blocks`: in the driver's function */
    bool turn, late;                         /* `late`: it may be complete after the call */
    bool alone;                              /* all before it is complete */
    uint64_t before;
    uint32_t held;
    uintptr_t handles[FL_WAITS];
    cl_event waits_for[FL_WAITS];
} fl_enqueue;

/* The last arguments of an entry point that enqueues. */
#define FL_ENDS numEventsInWaitList, phEventWaitList, phEvent

typedef enum { FL_NO_BLOCK, FL_BLOCKING, FL_BLOCKING_WRITE } fl_blocking;
/* Checks the queue and the wait list. False: Python makes the call. */
bool fl_begin_enqueue(fl_enqueue *e, uint32_t adapter, uintptr_t queue, fl_blocking blocking,
                      uint32_t count, const uintptr_t *list, uintptr_t *out);
/* Says how many bytes a command moves. A few are moved before Ctrl-C could matter. */
void fl_set_size(fl_enqueue *e, size_t size);
/* Says what a launch is, by a number. */
void fl_set_launch(fl_enqueue *e, uint64_t key);
/* What the entry point returns after the driver's function has returned `code`. */
int32_t fl_end_enqueue(fl_enqueue *e, cl_int code, uint32_t command);
/* Gives the call to Python before the driver's function was called. */
int32_t fl_leave_enqueue(fl_enqueue *e);

/* --- allocations.c: where some bytes lie --- */

/* Whether C has allocated anything in a context that was not freed. */
bool fl_has_memory(uintptr_t context);

typedef enum { FL_NOWHERE, FL_IN_MEMORY, FL_UNKNOWN_PLACE } fl_place;
/* In no allocation, all in one of the context, or only Python knows. */
fl_place fl_locate(const fl_context *context, uintptr_t address, size_t size);

/* --- progress.c: how far a queue is --- */

static inline uint64_t fl_load(const uint64_t *number) {
    return __atomic_load_n(number, __ATOMIC_SEQ_CST);
}

/* All before this place are complete. */
void fl_note_finished(fl_queue *queue, uint64_t place);
/* Counts a command. Returns how many are complete when it is, if the queue is in order. Another
 * thread that counts meanwhile may have enqueued after it. */
uint64_t fl_count_one(fl_queue *queue, uint64_t before);
/* Whether all commands of a context's queues are known to be complete. */
bool fl_all_finished(uintptr_t context);
/* Whether only this queue can see what a blocking write has not done yet. */
bool fl_may_be_late(const fl_queue *queue);

/* Of the main thread: begins a launch, and returns whether it will be over soon. */
bool fl_begin_launch(fl_queue *queue, uint64_t key, uint64_t place);
/* Whether the command at a place is a launch that will be over soon. */
bool fl_ends_soon(fl_queue *queue, uint64_t place);
/* The command at a place is complete. */
void fl_note_launch(fl_queue *queue, uint64_t place);

/* --- kept answers (answers.c) --- */

int32_t fl_kept(uint32_t adapter, uint32_t query, unsigned kind, uintptr_t handle,
                uintptr_t second, uint32_t name, size_t size, uintptr_t value, size_t *size_ret);
void fl_keep(uint32_t adapter, uint32_t query, unsigned kind, uintptr_t handle, uintptr_t second,
             uint32_t name, uintptr_t value, size_t size);

/* --- appends of launches (appends.c, gpu_appends.c) --- */

typedef struct fl_append {
    uint32_t dim;
    const size_t *offset, *size, *local;
    const ur_exp_kernel_arg_properties_t *rows;
    uint32_t count, point_count;
    const uint32_t *points;
    uintptr_t *command;        /* where its handle is written to, NULL if it gets none */
} fl_append;

/* Returns the sync-point, 0 for Python. `number` is that of the kernel's handle. */
uint32_t fl_append_to_gpu_graph(uint32_t adapter, fl_gpu_graph *graph, uint64_t number,
                                const fl_append *one);
