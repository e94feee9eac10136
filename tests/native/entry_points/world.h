/* What the scenarios of the reference adapter's entry points in C share: a mock driver, and what
 * Python would have made of it. */
#ifndef WORLD_H
#define WORLD_H

#include "mock.h"
#undef CL   /* calls.h calls a driver by its struct */
#include "calls.h"
#include "no_memory.h"

enum { ADAPTER = 3, SIZE = 1024, MOST = 1 << 20 };

typedef struct world {
    mock *driver_of_all;
    void *functions[FL_SLOTS], **table;
    fl_driver driver;
    fl_usm_device memory;
    fl_context context;
    fl_queue queue;
    fl_kernel kernel;
    unsigned busy;
    fl_kept_argument kept[8];
    cl_program program;
    cl_mem buffers[2];
    uintptr_t device_h, context_h, queue_h, kernel_h, a, b;   /* handles */
} world;

/* A world with an in-order queue, a kernel "step:mlvv" and two buffers. It uses SVM. */
void begin_world(world *w);
/* Nothing of it lives any more, and nobody holds its handles. */
void end_world(world *w);

/* A handle with one reference, or FL_FIXED ones. */
uintptr_t new_handle(unsigned kind, int32_t references, uintptr_t a, uintptr_t b, uintptr_t c,
                     uintptr_t d);
void end_handle(uintptr_t handle);
void release_event(uintptr_t event);
/* The numbers of a handle that ends first come back later. */
void describe_buffer(world *w, unsigned number);

/* How often Python was asked for a release, and for a wait; and what it answers to a wait. */
int asked_to_release(void);
int asked_to_wait(void);
void python_waits(int32_t code);
/* How often the driver's waits in steps were begun. They are over at once, or never. */
int begun_waits(void);
void waits_last(bool last);

#define TO_PYTHON(call) EQUAL(call, FL_TO_PYTHON)
#define NO_WAITS 0, NULL
/* A function of the driver is another one from now on. */
#define PUT(w, name, function) ((w)->functions[SLOT_##name] = (void *)(fn_##name *)(function))

/* gpu.c */
void gpu_appends(world *w);
void gpu_late_edges(world *w);
void gpu_late_edges_start_early(world *w);
void gpu_early_starts(world *w);
void gpu_updates(world *w);
void gpu_updates_undone(world *w);
void gpu_updates_refused(world *w);
void gpu_enqueues(world *w);
void thread_gpu(world *w);

#endif
