/* What the scenarios share: a world of a driver with one context, the observer that Python is
 * otherwise, and checks. */
#ifndef HARNESS_H
#define HARNESS_H

#include <stdatomic.h>

#include "mock.h"
#include "native.h"
#include "no_memory.h"

/* What a recording asked and told its observer, and what the observer answers. */
typedef struct trace {
    atomic_int nodes, uncaptured, hosts, mems, svms, passes, waits, refusals, slot, reason;
    atomic_bool no_host, no_mem, no_wait;
    bool refused_slots[FL_SLOTS];
    void *host;
    size_t host_size;
} trace;

typedef struct world {
    mock *m;
    mock_variant variant;
    cl_context context;
    cl_command_queue queue, free_queue;   /* in order, out of order */
    cl_mem a, b;
    cl_program program;
    cl_kernel kernel;                     /* two memory objects and a value */
    trace trace;
} world;

extern atomic_int harness_holds_gil;
int harness_gil(void);
int harness_observe(void *cookie, int what, uint32_t detail, void *address, size_t size);

world *world_new(mock_variant variant, int number);
void world_end(world *w);

/* Begin on some queues; what goes wrong ends the test. `begin` also looks that the block is there,
 * `end` that all is as it was. */
fl_recording *begin_on(world *w, const cl_command_queue *queues, uint32_t count, bool allow_unseen);
fl_recording *begin(world *w);
fl_recording *begin_free(world *w);
void end(world *w, fl_recording *r);
void drop(world *w, fl_recording *r);
fl_recording *try_begin(world *w, const cl_command_queue *queues, uint32_t count, int *code);

uint32_t count_of(const fl_recording *r);
const fl_command *command(const fl_recording *r, uint32_t number);
/* Whether a command waits for exactly these nodes; the list ends with NONE. */
#define NONE UINT32_MAX
bool waits_for(const fl_recording *r, uint32_t number, const uint32_t *nodes);
#define WAITS_FOR(r, number, ...) CHECK(waits_for(r, number, (const uint32_t[]){__VA_ARGS__, NONE}))
#define WAITS_FOR_NOTHING(r, number) CHECK(waits_for(r, number, (const uint32_t[]){NONE}))
/* That the last call was refused, once, and why. */
void refused(world *w, int code, int slot, enum fl_reason reason);

cl_kernel make_kernel(world *w, const char *name);
void set_arguments(world *w, cl_kernel kernel, cl_mem a, cl_mem b, float value);
cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_uint count, const cl_event *list,
              cl_event *event);
cl_int marker(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event);
cl_int fill(cl_command_queue queue, cl_mem buffer, cl_event *event);
void release_event(cl_event event);

/* How many files were opened so far: only /proc/self/maps is, by fopen. */
int files_opened(void);

/* From now on, the code under test reads a time that is so much later. */
void clock_jumps(int64_t ns);
int __real_clock_gettime(clockid_t clock, struct timespec *time);

/* How often the code under test gave its turn away so far. Tests do that by __real_sched_yield. */
int harness_yields(void);
int __real_sched_yield(void);

typedef void scenario(world *w);
#define SCENARIO(name) void name(world *w)
#include "scenarios.h"

/* A program that gives up its kernels at the end of its scope. */
#define PROGRAM __attribute__((cleanup(fl_release))) fl_sequence

#endif
