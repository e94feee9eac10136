/* Runs scenarios: `harness` all of them, `harness NAME…` those of these names, and where a name
 * ends with _ all that begin so; each with every variant of the mock driver. What is wrong is said
 * and ends the process. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- files: the linker sends fopen here (--wrap) --- */

static atomic_int opened;

FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode) {
    atomic_fetch_add(&opened, 1);
    return __real_fopen(path, mode);
}

int files_opened(void) { return atomic_load(&opened); }

/* --- the time of the code under test: the linker sends clock_gettime here --- */

static _Atomic int64_t ahead;

int __wrap_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time) {
    int code = __real_clock_gettime(clock, time);
    int64_t all = time->tv_nsec + atomic_load(&ahead);
    time->tv_sec += all / 1000000000;
    time->tv_nsec = all % 1000000000;
    return code;
}

void clock_jumps(int64_t ns) { atomic_fetch_add(&ahead, ns); }

/* --- waits of the code under test: the linker sends sched_yield here, too --- */

static atomic_int yields;

int __wrap_sched_yield(void);

int __wrap_sched_yield(void) {
    atomic_fetch_add(&yields, 1);
    return __real_sched_yield();
}

int harness_yields(void) { return atomic_load(&yields); }

/* --- the observer --- */

atomic_int harness_holds_gil;
int harness_gil(void) { return atomic_load(&harness_holds_gil); }

int harness_observe(void *cookie, int what, uint32_t detail, void *address, size_t size) {
    trace *t = cookie;
    switch (what) {
    case FL_ASK_ADDED: atomic_fetch_add(&t->nodes, 1); return 0;
    case FL_ASK_SVM: atomic_fetch_add(&t->svms, 1); return 0;
    case FL_ASK_PASSED: atomic_fetch_add(&t->passes, 1); return 0;
    case FL_ASK_PARAMETER: return 0;
    case FL_ASK_UNCAPTURED: atomic_fetch_add(&t->uncaptured, 1); return 0;
    case FL_ASK_HOST:
        atomic_fetch_add(&t->hosts, 1);
        t->host = address;
        t->host_size = size;
        return atomic_load(&t->no_host);
    case FL_ASK_HOST_OF_MEMORY:
        atomic_fetch_add(&t->mems, 1);
        t->host = address;
        t->host_size = size;
        return atomic_load(&t->no_mem);
    case FL_ASK_WAIT: atomic_fetch_add(&t->waits, 1); return atomic_load(&t->no_wait);
    case FL_ASK_REFUSED:
        atomic_fetch_add(&t->refusals, 1);
        atomic_store(&t->slot, (int)detail);
        atomic_store(&t->reason, (int)size);
        return 0;
    }
    DIE("the observer was asked %d", what);
}

void refused(world *w, int code, int slot, enum fl_reason reason) {
    EQUAL(code, CL_INVALID_OPERATION);
    EQUAL(atomic_exchange(&w->trace.refusals, 0), 1);
    EQUAL(w->trace.slot, slot);
    EQUAL(w->trace.reason, reason);
}

/* --- the world --- */

world *world_new(mock_variant variant, int number) {
    world *w = __real_calloc(1, sizeof *w);
    w->variant = variant;
    w->m = mock_open(variant, number);
    w->context = mock_context(w->m);
    w->queue = mock_queue(w->context, false);
    w->free_queue = mock_queue(w->context, true);
    w->a = mock_buffer(w->context, 1024, NULL);
    w->b = mock_buffer(w->context, 1024, NULL);
    w->program = mock_program(w->context);
    w->kernel = make_kernel(w, "step:mmv");
    return w;
}

void world_end(world *w) {
    CL(w->kernel, clReleaseKernel)(w->kernel);
    mock_release_program(w->program);
    CL(w->a, clReleaseMemObject)(w->a);
    CL(w->b, clReleaseMemObject)(w->b);
    CL(w->queue, clReleaseCommandQueue)(w->queue);
    CL(w->free_queue, clReleaseCommandQueue)(w->free_queue);
    CL(w->context, clReleaseContext)(w->context);
    CHECK(fl_forgotten_kernels());
    CHECK(mock_close(w->m));
    atomic_store(&harness_holds_gil, 0);
    free(w);
}

fl_recording *try_begin(world *w, const cl_command_queue *queues, uint32_t count, int *code) {
    return fl_begin((void *const *)queues, count, w->context, false, harness_observe, &w->trace,
                    harness_gil, code);
}

fl_recording *begin_on(world *w, const cl_command_queue *queues, uint32_t count,
                       bool allow_unseen) {
    int code;
    fl_recording *r = fl_begin((void *const *)queues, count, w->context, allow_unseen,
                               harness_observe, &w->trace, harness_gil, &code);
    OK(code);
    CHECK(r != NULL);
    for (uint32_t i = 0; i < count; i++)
        CHECK(fl_is_captured(queues[i]));
    return r;
}

fl_recording *begin(world *w) { return begin_on(w, &w->queue, 1, false); }
fl_recording *begin_free(world *w) { return begin_on(w, &w->free_queue, 1, false); }

void end(world *w, fl_recording *r) {
    fl_end(r);
    CHECK(!fl_is_captured(w->queue));
    CHECK(!fl_is_captured(w->free_queue));
}

void drop(world *w, fl_recording *r) {
    fl_drop(r);
    CHECK(mock_is_untouched(w->m));
}

uint32_t count_of(const fl_recording *r) {
    uint32_t count;
    fl_commands(r, &count);
    return count;
}

const fl_command *command(const fl_recording *r, uint32_t number) {
    uint32_t count;
    const fl_command *commands = fl_commands(r, &count);
    if (number >= count)
        DIE("there are %u commands, no number %u", count, number);
    return &commands[number];
}

bool waits_for(const fl_recording *r, uint32_t number, const uint32_t *nodes) {
    const fl_command *c = command(r, number);
    uint32_t all, wanted = 0;
    const uint32_t *deps = fl_deps(r, &all);
    for (; nodes[wanted] != NONE; wanted++) {
        bool found = false;
        for (uint32_t i = 0; i < c->dep_count; i++)
            found |= deps[c->first_dep + i] == nodes[wanted];
        if (!found)
            return false;
    }
    return c->first_dep + c->dep_count <= all && c->dep_count == wanted;
}

/* --- short forms --- */

cl_kernel make_kernel(world *w, const char *name) {
    cl_int code;
    cl_kernel kernel = CL(w->program, clCreateKernel)(w->program, name, &code);
    OK(code);
    return kernel;
}

void set_arguments(world *w, cl_kernel kernel, cl_mem a, cl_mem b, float value) {
    OK(CL(kernel, clSetKernelArg)(kernel, 0, sizeof a, &a));
    OK(CL(kernel, clSetKernelArg)(kernel, 1, sizeof b, &b));
    OK(CL(kernel, clSetKernelArg)(kernel, 2, sizeof value, &value));
}

cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_uint count, const cl_event *list,
              cl_event *event) {
    const size_t global = 64;
    return CL(queue, clEnqueueNDRangeKernel)(queue, kernel, 1, NULL, &global, NULL, count, list,
                                             event);
}

cl_int marker(cl_command_queue queue, cl_uint count, const cl_event *list, cl_event *event) {
    return CL(queue, clEnqueueMarkerWithWaitList)(queue, count, list, event);
}

cl_int fill(cl_command_queue queue, cl_mem buffer, cl_event *event) {
    const unsigned char zero[4] = {0};
    return CL(queue, clEnqueueFillBuffer)(queue, buffer, zero, sizeof zero, 0, 64, 0, NULL, event);
}

void release_event(cl_event event) { OK(CL(event, clReleaseEvent)(event)); }

/* --- main --- */

static const struct {
    const char *name;
    scenario *run;
} scenarios[] = {
#define ROW(name) {#name, name},
    SCENARIOS(ROW)
#undef ROW
};

static bool is_meant(const char *name, const char *asked) {
    size_t length = strlen(asked);
    return length && asked[length - 1] == '_' ? strncmp(name, asked, length) == 0
                                              : strcmp(name, asked) == 0;
}

int main(int count, char **names) {
    int ran = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        bool wanted = count == 1;
        for (int k = 1; k < count; k++)
            wanted |= is_meant(scenarios[i].name, names[k]);
        for (mock_variant variant = 0; wanted && variant < MOCK_VARIANTS; variant++, ran++) {
            printf("%s %s\n", scenarios[i].name, mock_variant_name(variant));
            fflush(stdout);
            world *w = world_new(variant, 0);
            scenarios[i].run(w);
            world_end(w);
        }
    }
    if (!ran)
        fprintf(stderr, "no scenario has such a name\n");
    return ran ? 0 : 2;
}
