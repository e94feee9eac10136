/* The engine `direct`: what it runs, what an update changes, and what is alive until a queue has
 * run it. The work-group function is one of this file. The mock driver maps buffers that lie in
 * host memory, and keeps native kernels until the test runs them. */
#define _GNU_SOURCE
#include "direct.h"
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#define SIZE 64
enum { MOST = 8 };

static struct {
    void (*function)(void *);
    unsigned char arguments[64];
    cl_event event;
} pending[MOST];
static int pending_count;

static void *map(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                 size_t offset, size_t size, cl_uint count, const cl_event *list, cl_event *event,
                 cl_int *code) {
    unsigned char *host = NULL;
    (void)queue, (void)blocking, (void)flags, (void)size, (void)count, (void)list, (void)event;
    *code = CL(buffer, clGetMemObjectInfo)(buffer, CL_MEM_HOST_PTR, sizeof host, &host, NULL);
    return host ? host + offset : NULL;
}

static cl_int unmap(cl_command_queue queue, cl_mem buffer, void *pointer, cl_uint count,
                    const cl_event *list, cl_event *event) {
    (void)queue, (void)buffer, (void)pointer, (void)count, (void)list, (void)event;
    return CL_OUT_OF_RESOURCES;   /* so that nobody waits for it */
}

static cl_int native(cl_command_queue queue, void *function, void *arguments, size_t size,
                     cl_uint mem_count, const cl_mem *mems, const void **places, cl_uint count,
                     const cl_event *list, cl_event *event) {
    cl_context context;
    (void)list;
    CHECK(mem_count == 0 && !mems && !places && size <= sizeof pending->arguments &&
          pending_count < MOST && event);
    CHECK((count == 0) == (list == NULL));
    OK(CL(queue, clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof context, &context, NULL));
    pending[pending_count].function = (void (*)(void *))function;
    memcpy(pending[pending_count].arguments, arguments, size);
    pending[pending_count].event = *event = mock_pending(context);
    CL(*event, clRetainEvent)(*event);
    pending_count++;
    return CL_SUCCESS;
}

/* The queue runs everything that it has. */
static void run_pending(void) {
    for (int i = 0; i < pending_count; i++) {
        pending[i].function(pending[i].arguments);
        mock_complete(pending[i].event, CL_COMPLETE);
        release_event(pending[i].event);
    }
    pending_count = 0;
}

/* a[group] = value + b[group], with local memory in between. */
static void step(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    float *a = *(float **)arguments[0], *b = *(float **)arguments[1],
          *own = *(float **)arguments[3];
    CHECK(y == 0 && z == 0 && context[6] == 4 && (uintptr_t)own % 128 == 0);
    own[0] = *(float *)arguments[2];
    if (a)
        a[context[3] + x] = own[0] + (b ? b[context[3] + x] : 0);
}

typedef struct direct {
    fl_recording *recording;
    fl_command commands[2];
    fl_group_function function;
    fl_direct_device device;
    fl_direct *made;
    cl_mem a, b;
    float host_a[SIZE], host_b[SIZE];
    fl_cell *cell;   /* of the value, if it is a Parameter */
    fl_value row;
} direct;

static float parameter;
enum { NUMBER = 9 };

static const uint8_t spaces[] = {FL_SPACE_MEMORY, FL_SPACE_MEMORY, FL_SPACE_VALUE};
static const uint32_t sizes[] = {8, 8, 4};
static const uint64_t automatic[] = {sizeof(float)};

static void record(world *w, direct *d, bool is_parameter) {
    const size_t offset = 1, global = 16, local = 4;
    mock_put_slot(w->m, SLOT_clEnqueueMapBuffer, (void *)map);
    mock_put_slot(w->m, SLOT_clEnqueueUnmapMemObject, (void *)unmap);
    mock_put_slot(w->m, SLOT_clEnqueueNativeKernel, (void *)native);
    d->a = mock_buffer(w->context, sizeof d->host_a, d->host_a);
    d->b = mock_buffer(w->context, sizeof d->host_b, d->host_b);
    d->recording = begin(w);
    set_arguments(w, w->kernel, d->a, d->b, 1);
    if (is_parameter)
        OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof parameter, &parameter));
    OK(CL(w->queue, clEnqueueNDRangeKernel)(w->queue, w->kernel, 1, &offset, &global, &local, 0,
                                            NULL, NULL));
    OK(CL(w->queue, clEnqueueCopyBuffer)(w->queue, d->a, d->b, 0, 128, 64, 0, NULL, NULL));
    end(w, d->recording);
    for (uint32_t i = 0; i < 2; i++)
        d->commands[i] = *command(d->recording, i);
    const fl_command *c = &d->commands[0];
    d->commands[0].arguments =
        fl_change_arguments(c->arguments, fl_argument_count(c->arguments), NULL, 0);
    d->function = (fl_group_function){.kernel = c->kernel,
                                      .function = (void *)step,
                                      .spaces = spaces,
                                      .sizes = sizes,
                                      .automatic = automatic,
                                      .argument_count = 3,
                                      .automatic_count = 1,
                                      .most_items = 64};
    d->device =
        (fl_direct_device){.queue = w->queue, .most_items = {64, 64, 64}, .local_memory = 1024};
}

/* The launch's value has a cell of its own. */
static void bind(direct *d) {
    fl_cell *recorded;
    fl_cell_look look;
    EQUAL(fl_find_cells(d->commands, 2, &recorded, 1), 1);
    fl_look_at_cell(recorded, &look);
    d->cell = fl_new_cell(look.id, look.conversion, look.size, look.bytes);
    d->row = (fl_value){.cell = d->cell};
    OK(fl_bind_arguments(&d->commands[0], &d->cell, 1));
}

static void make_with(world *w, direct *d, bool is_parameter) {
    int code;
    uint8_t reasons[2];
    memset(d, 0, sizeof *d);
    record(w, d, is_parameter);
    if (is_parameter)
        bind(d);
    EQUAL(fl_direct_check(&d->device, &d->function, 1, d->commands, 2, reasons), 0);
    d->made = fl_new_direct(&d->device, &d->function, 1, d->commands, 2, 0, NULL, &code);
    CHECK(d->made);
    OK(code);
}

static void make(world *w, direct *d) { make_with(w, d, false); }

static void make_parameter(world *w, direct *d) {
    parameter = 1;
    OK(fl_know_parameter(&parameter, NUMBER, FL_AS_FLOAT, sizeof parameter));
    make_with(w, d, true);
    fl_forget_parameter(NUMBER);
}

static void finish(world *w, direct *d) {
    if (d->made)
        fl_release_direct(d->made);
    run_pending();
    fl_release_direct_scripts();
    fl_release_arguments(d->commands[0].arguments);
    fl_release_cell(d->cell);
    EQUAL(mock_references(d->a), 2);   /* ours, and the recording's */
    drop(w, d->recording);
    CL(d->a, clReleaseMemObject)(d->a);
    CL(d->b, clReleaseMemObject)(d->b);
    mock_put_back_slots(w->m);
}

static void enqueue_direct(world *w, direct *d, uint32_t times, cl_event *event) {
    uint32_t failed;
    OK(fl_enqueue_direct(d->made, (void *const *)&w->queue, 1, times, 0, NULL, (void **)event,
                         &failed));
}

static void set_value(direct *d, float value) {
    OK(fl_set_argument(&d->commands[0], 2, FL_ARG_VALUE, sizeof value, &value));
    OK(fl_update_direct(d->made, 0, false));
}

SCENARIO(direct_runs) {
    direct d;
    cl_event e;
    make(w, &d);
    d.host_b[2] = 10;
    OK(fl_run_direct(d.made, 1));
    CHECK(d.host_a[0] == 0 && d.host_a[1] == 1 && d.host_a[2] == 11 && d.host_a[4] == 1 &&
          d.host_a[5] == 0);
    CHECK(d.host_b[32] == 0 && d.host_b[33] == 1 && d.host_b[34] == 11);
    enqueue_direct(w, &d, 2, &e);
    CHECK(d.host_a[2] == 11 && pending_count == 1);
    d.host_b[2] = 20;
    run_pending();
    CHECK(d.host_a[2] == 21);
    uint32_t times[2], shared[2];
    uint64_t groups[2];
    EQUAL(fl_direct_times(d.made, times, shared, groups), 0);
    OK(fl_run_direct(d.made, 1));
    EQUAL(fl_direct_times(d.made, times, shared, groups), 1);
    CHECK(groups[0] == 4 && groups[1] == 1 && times[0] < UINT32_MAX && shared[0] == times[0]);
    release_event(e);
    finish(w, &d);
}

static void special_step(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    step(arguments, context, x, y, z);
    (*(float **)arguments[0])[context[3] + x] += 100;
}

/* Which special functions there could be is written down. What there is runs, and the generic one
 * elsewhere. */
SCENARIO(direct_special) {
    direct d;
    uint8_t reasons[2];
    int code;
    make(w, &d);
    const struct fl_special *found = d.function.specials;
    CHECK(d.function.special_count == 1 && found->local[0] == 4 && found->local[1] == 1 &&
          found->local[2] == 1);
    CHECK(!found->no_offset && found->small_grid && !found->function);
    d.function.specials[0].function = (void *)special_step;
    fl_direct *made = fl_new_direct(&d.device, &d.function, 1, d.commands, 2, 0, NULL, &code);
    CHECK(made);
    OK(fl_run_direct(made, 1));
    CHECK(d.host_a[1] == 101 && d.host_a[4] == 101);
    d.commands[0].n[0] = 0;
    OK(fl_update_direct(made, 0, false));
    OK(fl_run_direct(made, 1));
    EQUAL(d.host_a[0], 1);
    d.commands[0].n[3] = FL_SMALL + 1;
    EQUAL(fl_direct_check(&d.device, &d.function, 1, d.commands, 2, reasons), 0);
    EQUAL(d.function.special_count, 2);
    CHECK(found[1].no_offset && !found[1].small_grid);
    for (uint32_t i = 1; i <= 9; i++) {   /* of more it takes no note */
        d.commands[0].n[3] = d.commands[0].n[6] = i;
        EQUAL(fl_direct_check(&d.device, &d.function, 1, d.commands, 2, reasons), 0);
    }
    EQUAL(d.function.special_count, 8);
    fl_release_direct(made);
    finish(w, &d);
}

static void wait_long(void) {
    for (volatile int i = 0; i < 1000000; i++)
        ;
}

static void late_special_step(void **arguments, const size_t *context, size_t x, size_t y,
                              size_t z) {
    wait_long();
    special_step(arguments, context, x, y, z);
}

static void late_step(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    wait_long();
    step(arguments, context, x, y, z);
}

/* The faster one of the special function and the one for any size is called, also after an
 * update. */
SCENARIO(direct_faster_function) {
    direct d;
    int code;
    make(w, &d);
    EQUAL(d.function.special_count, 1);
    for (int special = 0; special < 2; special++) {
        float result = special ? 101 : 1;
        d.function.specials[0].function = (void *)(special ? special_step : late_special_step);
        d.function.function = (void *)(special ? late_step : step);
        fl_direct *made = fl_new_direct(&d.device, &d.function, 1, d.commands, 2, 0, NULL, &code);
        CHECK(made);
        OK(fl_run_direct(made, 12));
        for (int update = 0; update < 2; update++) {
            memset(d.host_a, 0, sizeof d.host_a);
            OK(fl_run_direct(made, 1));
            CHECK(d.host_a[1] == result && d.host_a[4] == result);
            OK(fl_update_direct(made, 0, false));
        }
        fl_release_direct(made);
    }
    finish(w, &d);
}

/* More shapes of launches than an image keeps in common, also in a copy, and an update of one that
 * others have, too. */
SCENARIO(direct_many_shapes) {
    enum { SHAPES = 12, COUNT = 2 * SHAPES };
    direct d;
    int code;
    make(w, &d);
    fl_command commands[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        commands[i] = d.commands[0];
        commands[i].n[0] = i % SHAPES;
        commands[i].n[3] = 4;
    }
    fl_direct *made = fl_new_direct(&d.device, &d.function, 1, commands, COUNT, 0, NULL, &code);
    CHECK(made);
    OK(fl_run_direct(made, 1));
    for (uint32_t i = 0; i < SHAPES; i++)
        EQUAL(d.host_a[i], 1);
    uint32_t failed;
    OK(fl_enqueue_direct(made, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
    commands[0].n[0] = 30;
    commands[SHAPES - 1].n[0] = 31;
    OK(fl_update_direct(made, 0, false));   /* of a copy */
    OK(fl_update_direct(made, SHAPES - 1, false));
    memset(d.host_a, 0, sizeof d.host_a);
    OK(fl_run_direct(made, 1));
    for (uint32_t i = 0; i < SHAPES; i++)   /* the other launch of that shape has it as before */
        EQUAL(d.host_a[i], 1);
    CHECK(d.host_a[30] == 1 && d.host_a[31] == 1 && d.host_a[SHAPES] == 0);
    memset(d.host_a, 0, sizeof d.host_a);
    run_pending();
    CHECK(d.host_a[0] == 1 && d.host_a[30] == 0);
    fl_release_direct(made);
    finish(w, &d);
}

static atomic_uint runs_of_group[4];

static void count_group(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    CHECK(arguments && context[6] == 4 && y == 0 && z == 0);
    atomic_fetch_add(&runs_of_group[x], 1);
}

/* Run it until nothing is measured any more. The answer is how often that was. */
static uint32_t learn(fl_direct *made) {
    uint32_t times[64], shared[64], passes = 0;
    uint64_t groups[64];
    while (!fl_direct_times(made, times, shared, groups)) {
        OK(fl_run_direct(made, 1));
        CHECK(++passes < 100);   /* some lack threads, which the system has to wake */
    }
    return passes;
}

/* Several threads run the groups of a launch, and launches of one level: each group once. */
SCENARIO(thread_direct_pool) {
    const uint32_t levels[] = {0, 0};
    direct d;
    int code;
    make(w, &d);
    d.function.function = (void *)count_group;
    d.function.automatic_count = 0;
    d.device.thread_limits = (fl_thread_limits){.threads = 3, .least = 0, .percent = UINT32_MAX};
    fl_command commands[] = {d.commands[0], d.commands[0]};
    for (int is_level = 0; is_level < 2; is_level++) {
        uint32_t times[2], shared[2], threads, before = atomic_load(&runs_of_group[0]);
        uint64_t groups[2];
        fl_direct *made = fl_new_direct(&d.device, &d.function, 1, commands, 2, 0,
                                        is_level ? levels : NULL, &code);
        CHECK(made);
        OK(fl_run_direct(made, 3));
        EQUAL(fl_direct_times(made, times, shared, groups), 0); /* it is still to be run together */
        OK(fl_run_direct(made, 7));   /* by two threads, and then by three */
        EQUAL(fl_direct_times(made, times, shared, groups), 0);
        uint32_t passes = 10 + learn(made);
        EQUAL(fl_direct_times(made, times, shared, groups), 1);
        CHECK(fl_direct_shared(made, &threads) == 2 && threads == 3);
        CHECK(shared[0] != UINT32_MAX && groups[1] == 0);   /* no estimate: it was tried */
        OK(fl_update_direct(made, 1, 0));
        OK(fl_run_direct(made, 200 - passes));
        EQUAL(fl_direct_shared(made, &threads), 2);
        for (int i = 0; i < 4; i++)
            EQUAL(atomic_load(&runs_of_group[i]), before + 400);
        fl_release_direct(made);
    }
    finish(w, &d);
}

/* 2, 4 and more threads are tried, up to the limit, and no more once so many are not faster. */
SCENARIO(thread_direct_counts) {
    static const struct {
        uint32_t most, percent, passes, threads;
    } cases[] = {{6, UINT32_MAX, 19, 6}, {4, UINT32_MAX, 14, 4}, {2, UINT32_MAX, 9, 2},
                 {6, 0, 9, 0},           {1, UINT32_MAX, 4, 0}};
    direct d;
    int code;
    make(w, &d);
    d.function.function = (void *)count_group;
    d.function.automatic_count = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t times[1], shared[1], threads;
        uint64_t groups[1];
        d.device.thread_limits = (fl_thread_limits){cases[i].most, 0, cases[i].percent};
        fl_direct *made = fl_new_direct(&d.device, &d.function, 1, d.commands, 1, 0, NULL, &code);
        CHECK(made);
        OK(fl_run_direct(made, cases[i].passes - 1));
        EQUAL(fl_direct_times(made, times, shared, groups), 0);
        CHECK(learn(made) > 0);
        EQUAL(fl_direct_shared(made, &threads), (uint32_t)(cases[i].threads > 0));
        EQUAL(threads, cases[i].threads);
        fl_release_direct(made);
    }
    finish(w, &d);
}

/* Launches of one function and size are run together or not, all of them: one that was interrupted
 * decides nothing alone. */
SCENARIO(thread_direct_pool_by_kind) {
    direct d;
    int code;
    make(w, &d);
    d.function.function = (void *)count_group;
    d.function.automatic_count = 0;
    d.device.thread_limits = (fl_thread_limits){.threads = 2, .least = 0, .percent = 100};
    fl_command commands[64];
    for (int i = 0; i < 64; i++)
        commands[i] = d.commands[0];
    for (int turn = 0; turn < 8; turn++) {
        fl_direct *made = fl_new_direct(&d.device, &d.function, 1, commands, 64, 0, NULL, &code);
        CHECK(made);
        learn(made);
        OK(fl_run_direct(made, 1));
        uint32_t threads, shared = fl_direct_shared(made, &threads);
        CHECK(shared == 0 || shared == 64);
        fl_release_direct(made);
    }
    finish(w, &d);
}

static pthread_t runner;
static atomic_int helped, meetings;

/* A group that takes 10 µs: another thread has time to take one, and the launch is a short one. */
static void note_thread(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    struct timespec begin, now;
    CHECK(arguments && context && x < 4 && y == 0 && z == 0);
    atomic_fetch_add(&helped, !pthread_equal(pthread_self(), runner));
    __real_clock_gettime(CLOCK_MONOTONIC, &begin);
    do
        __real_clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec == begin.tv_sec && now.tv_nsec - begin.tv_nsec < 10000);
}

/* One that is to be run together, and is short. */
static fl_direct *learn_short(direct *d) {
    uint32_t times[1], shared[1], threads;
    uint64_t groups[1];
    int code;
    fl_direct *made = fl_new_direct(&d->device, &d->function, 1, d->commands, 1, 0, NULL, &code);
    CHECK(made);
    learn(made);
    CHECK(fl_direct_shared(made, &threads) == 1 && threads == 2);
    EQUAL(fl_direct_times(made, times, shared, groups), 1);
    if (times[0] < FL_SHORT)
        return made;
    fl_release_direct(made);   /* it was interrupted */
    return learn_short(d);
}

/* A short launch does not wake threads, unless there was one shortly before. */
SCENARIO(thread_direct_pool_asleep) {
    direct d;
    runner = pthread_self();
    make(w, &d);
    d.function.function = (void *)note_thread;
    d.function.automatic_count = 0;
    d.device.thread_limits = (fl_thread_limits){.threads = 2, .least = 0, .percent = UINT32_MAX};
    fl_direct *made = learn_short(&d);
    for (int alone = 0, turn = 0; alone < 100; turn++) {   /* the thread goes to sleep meanwhile */
        int before = atomic_load(&helped);
        clock_jumps(1000000000);
        OK(fl_run_direct(made, 1));
        alone = atomic_load(&helped) == before ? alone + 1 : 0;
        CHECK(turn < 100000);
    }
    fl_release_direct(made);
    finish(w, &d);
}

enum { RUNNERS = 4, TURNS = 100 };
static atomic_uint runs_of[RUNNERS][4];

#define COUNT_OF(runner)                                                                           \
    static void count_of_##runner(void **arguments, const size_t *context, size_t x, size_t y,     \
                                  size_t z) {                                                      \
        CHECK(arguments && context[6] == 4 && y == 0 && z == 0);                                   \
        atomic_fetch_add(&runs_of[runner][x], 1);                                                  \
    }
COUNT_OF(0)
COUNT_OF(1)
COUNT_OF(2)
COUNT_OF(3)
static void *const counters[] = {(void *)count_of_0, (void *)count_of_1, (void *)count_of_2,
                                 (void *)count_of_3};

struct runner_of {
    fl_direct *made;
    int number;
};

/* When a run returns, each group of its launches has run once, and none will run again. */
static void *run_often(void *self) {
    struct runner_of *r = self;
    uint32_t runs = atomic_load(&runs_of[r->number][0]);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        OK(fl_run_direct(r->made, 1 + turn % 3));
        runs += 2 * (1 + turn % 3);
        for (int i = 0; i < 4; i++)
            EQUAL(atomic_load(&runs_of[r->number][i]), runs);
    }
    return NULL;
}

/* Runs at the same time have a team each, and share the threads. */
SCENARIO(thread_direct_teams) {
    const uint32_t levels[] = {0, 0};
    fl_group_function functions[RUNNERS];
    struct runner_of runners[RUNNERS];
    pthread_t threads[RUNNERS];
    direct d;
    int code;
    make(w, &d);
    d.function.automatic_count = 0;
    d.device.thread_limits = (fl_thread_limits){.threads = 8, .least = 0, .percent = UINT32_MAX};
    fl_command commands[] = {d.commands[0], d.commands[0]};
    for (int i = 0; i < RUNNERS; i++) {
        functions[i] = d.function;
        functions[i].function = counters[i];
        runners[i].number = i;
        runners[i].made = fl_new_direct(&d.device, &functions[i], 1, commands, 2, 0,
                                        i % 2 ? levels : NULL, &code);
        CHECK(runners[i].made);
    }
    for (int i = 0; i < RUNNERS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_often, &runners[i]) == 0);
    for (int i = 0; i < RUNNERS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < RUNNERS; i++)
        fl_release_direct(runners[i].made);
    finish(w, &d);
}

static void note_processor(void **arguments, const size_t *context, size_t x, size_t y, size_t z) {
    CHECK(arguments && context && x < 4 && y == 0 && z == 0);
    cpu_set_t its, own, both;
    if (pthread_equal(pthread_self(), runner))
        return;
    CHECK(pthread_getaffinity_np(runner, sizeof its, &its) == 0);
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof own, &own) == 0);
    CPU_AND(&both, &its, &own);
    atomic_fetch_add(&helped, 1);
    atomic_fetch_add(&meetings, CPU_COUNT(&both) > 0);
}

/* Replays by a thread that moves from one of two processors to the other. */
static void *run_here_and_there(void *made) {
    cpu_set_t all, one;
    int processors[2], found = 0;
    runner = pthread_self();
    CHECK(pthread_getaffinity_np(runner, sizeof all, &all) == 0);
    for (int i = 0; i < CPU_SETSIZE && found < 2; i++)
        if (CPU_ISSET((size_t)i, &all))
            processors[found++] = i;
    learn(made);   /* on any processor */
    atomic_store(&helped, 0);
    atomic_store(&meetings, 0);
    for (int turn = 0; turn < 40; turn++) {
        CPU_ZERO(&one);
        CPU_SET((size_t)processors[turn / 2 % found], &one);
        CHECK(pthread_setaffinity_np(runner, sizeof one, &one) == 0);
        OK(fl_run_direct(made, 3));
    }
    return NULL;
}

/* A thread that helps is kept off the processor of the thread that it helps, but for a moment. */
SCENARIO(thread_direct_pool_kept_off) {
    cpu_set_t all, two;
    direct d;
    int code;
    pthread_t thread;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&two);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET((size_t)i, &all))
            CPU_SET((size_t)i, &two);
    if (CPU_COUNT(&two) < 2)
        return;
    CHECK(sched_setaffinity(0, sizeof two, &two) == 0);
    make(w, &d);
    d.function.function = (void *)note_processor;
    d.function.automatic_count = 0;
    d.device.thread_limits = (fl_thread_limits){.threads = 2, .least = 0, .percent = UINT32_MAX};
    fl_direct *made = fl_new_direct(&d.device, &d.function, 1, d.commands, 1, 1, NULL, &code);
    CHECK(made);
    CHECK(pthread_create(&thread, NULL, run_here_and_there, made) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    uint32_t threads;
    EQUAL(fl_direct_shared(made, &threads), 1);
    CHECK(2 * atomic_load(&meetings) <= atomic_load(&helped));
    fl_release_direct(made);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    finish(w, &d);
}

/* An update is for the next enqueue: what a queue has runs as it was. */
SCENARIO(direct_updated_in_flight) {
    direct d;
    make(w, &d);
    for (int i = 1; i < MOST; i++) {
        set_value(&d, (float)i);
        enqueue_direct(w, &d, 1, NULL);
    }
    for (int i = 1; i < MOST; i++) {
        pending[i - 1].function(pending[i - 1].arguments);
        CHECK(d.host_a[1] == (float)i);
    }
    run_pending();
    set_value(&d, 100);
    set_value(&d, 200);
    OK(fl_run_direct(d.made, 1));
    CHECK(d.host_a[1] == 200);
    enqueue_direct(w, &d, 1, NULL);
    set_value(&d, 300);   /* in the place of an image that has ended */
    run_pending();
    CHECK(d.host_a[1] == 200);
    finish(w, &d);
}

/* A Parameter's number goes with each enqueue, also if the command changes in between. */
static void set_cell(direct *d, float value) {
    fl_cell_look look;
    fl_look_at_cell(d->cell, &look);
    memcpy(look.bytes, &value, sizeof value);
    OK(fl_set_cell_of_direct(d->made, d->cell));
}

SCENARIO(direct_parameter) {
    direct d;
    make_parameter(w, &d);
    OK(fl_run_direct(d.made, 1));
    CHECK(d.host_a[1] == 1);
    for (int i = 2; i < MOST; i++) {
        set_cell(&d, (float)i);
        enqueue_direct(w, &d, 1, NULL);
        if (i == 4) {
            d.commands[0].n[0] = 2;   /* the offset: from now on another image */
            OK(fl_update_direct(d.made, 0, false));
        }
    }
    for (int i = 2; i < MOST; i++) {
        d.host_a[1] = d.host_a[2] = 0;
        pending[i - 2].function(pending[i - 2].arguments);
        CHECK(d.host_a[1] == (i <= 4 ? (float)i : 0) && d.host_a[2] == (float)i);
    }
    run_pending();
    OK(fl_run_direct(d.made, 1));
    CHECK(d.host_a[2] == MOST - 1);
    finish(w, &d);
}

/* A number for each of several times, in the queue at once. What never runs is freed, too. */
SCENARIO(direct_series) {
    direct d;
    float numbers[2][3] = {{2, 3, 4}, {50, 60, 70}};
    make_parameter(w, &d);
    for (int i = 0; i < 2; i++) {
        d.row.series = numbers[i];
        OK(fl_take_series_direct(d.made, &d.row, 1, 3));
        enqueue_direct(w, &d, 3, NULL);
        memset(numbers[i], 0, sizeof numbers[i]);
    }
    set_cell(&d, 5);
    enqueue_direct(w, &d, 2, NULL);
    EQUAL(pending_count, 3);
    const float last[] = {4, 70, 5};
    for (int i = 0; i < 3; i++) {
        pending[i].function(pending[i].arguments);
        CHECK(d.host_a[1] == last[i]);
    }
    run_pending();
    d.row.series = numbers[0];
    for (int n = 0; n < 2; n++) {
        memory_fails(n, false);
        CHECK(fl_take_series_direct(d.made, &d.row, 1, 3) != CL_SUCCESS);
        CHECK(memory_has_failed());
    }
    OK(fl_take_series_direct(d.made, &d.row, 1, 3));
    enqueue_direct(w, &d, 3, NULL);
    mock_complete(pending[0].event, CL_OUT_OF_RESOURCES);   /* what it waited for has failed */
    release_event(pending[0].event);
    pending_count = 0;
    OK(fl_take_series_direct(d.made, &d.row, 1, 3));        /* and nobody enqueues it */
    finish(w, &d);
}

/* Runs in the caller's thread that end when a word is not 0, or is. */
SCENARIO(direct_until) {
    direct d;
    float numbers[] = {0, 0, 7, 0};
    uint32_t ran = 9, stopped = 9;
    make_parameter(w, &d);
    const size_t word = sizeof(float);
    OK(fl_run_direct_until(d.made, 0, d.a, word, 1, 0, &ran, &stopped));
    CHECK(ran == 0 && !stopped);
    d.row.series = numbers;
    OK(fl_take_series_direct(d.made, &d.row, 1, 4));
    OK(fl_run_direct_until(d.made, 4, d.a, word, 1, 0, &ran, &stopped));
    CHECK(ran == 3 && stopped && d.host_a[1] == 7);
    OK(fl_run_direct_until(d.made, 4, d.a, word, 0, 0, &ran,
                           &stopped)); /* the same values from the beginning */
    CHECK(ran == 1 && stopped && d.host_a[1] == 0);
    OK(fl_run_direct_until(d.made, 4, d.a, word, 0, 1, &ran, &stopped));   /* it is so already */
    CHECK(ran == 0 && stopped);
    OK(fl_take_series_direct(d.made, NULL, 0, 0));
    set_cell(&d, 0);
    OK(fl_run_direct_until(d.made, 5, d.a, word, 1, 0, &ran, &stopped));
    CHECK(ran == 5 && !stopped);
    EQUAL(fl_run_direct_until(d.made, 5, d.a, sizeof d.host_a - 2, 1, 0, &ran, &stopped),
          FL_BUILD_ANEW);
    EQUAL(fl_run_direct_until(d.made, 5, d.a, SIZE_MAX - 2, 1, 0, &ran, &stopped), FL_BUILD_ANEW);
    finish(w, &d);
}

/* Another buffer, none, and the same again: each is alive for as long as an image has its address.
 */
SCENARIO(direct_other_buffers) {
    direct d;
    make(w, &d);
    float host[SIZE] = {0};
    cl_mem other = mock_buffer(w->context, sizeof host, host), none = NULL;
    OK(fl_set_argument(&d.commands[0], 0, FL_ARG_MEM, sizeof other, &other));
    OK(fl_update_direct(d.made, 0, false));
    enqueue_direct(w, &d, 1, NULL);
    OK(fl_set_argument(&d.commands[0], 0, FL_ARG_VALUE, sizeof none, &none));
    OK(fl_update_direct(d.made, 0, false));
    OK(fl_run_direct(d.made, 1));
    CHECK(host[1] == 0 && mock_references(other) > 1);
    run_pending();
    CHECK(host[1] == 1);
    for (int i = 0; i < 40; i++) {   /* so many buffers that images let go of the earlier ones */
        float more[SIZE];
        cl_mem another = mock_buffer(w->context, sizeof more, more);
        OK(fl_set_argument(&d.commands[0], 0, FL_ARG_MEM, sizeof another, &another));
        CL(another, clReleaseMemObject)(another);
        OK(fl_update_direct(d.made, 0, false));
    }
    EQUAL(mock_references(other), 1);
    CL(other, clReleaseMemObject)(other);
    OK(fl_set_argument(&d.commands[0], 0, FL_ARG_MEM, sizeof d.a, &d.a));
    OK(fl_update_direct(d.made, 0, false));
    finish(w, &d);
}

SCENARIO(direct_released_in_flight) {
    direct d;
    make(w, &d);
    enqueue_direct(w, &d, 1, NULL);
    set_value(&d, 5);
    enqueue_direct(w, &d, 1, NULL);
    fl_release_direct(d.made);
    d.made = NULL;
    CHECK(mock_references(d.a) > 2);
    run_pending();
    CHECK(d.host_a[1] == 5);
    finish(w, &d);
}

/* What is odd is refused, and nothing is kept of it. */
SCENARIO(direct_refuses) {
    direct d;
    uint8_t reasons[2];
    make(w, &d);
#define REFUSED_WITH(REASON, CHANGE)                                                              \
    do {                                                                                          \
        fl_command before[2] = {d.commands[0], d.commands[1]};                                    \
        CHANGE;                                                                                   \
        EQUAL(fl_direct_check(&d.device, &d.function, 1, d.commands, 2, reasons), 1);             \
        EQUAL(reasons[0] ? reasons[0] : reasons[1], REASON);                                      \
        memcpy(d.commands, before, sizeof before);                                                \
    } while (0)
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[0].n[3] = 0);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[0].n[3] = 17);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[0].n[6] = 0);
    REFUSED_WITH(FL_DIRECT_RANGE, (d.commands[0].n[3] = 128, d.commands[0].n[6] = 128));
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[0].n[0] = SIZE_MAX);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[0].work_dim = 4);
    REFUSED_WITH(FL_DIRECT_LOCAL_SIZE, d.commands[0].has_local = 0);
    REFUSED_WITH(FL_DIRECT_KERNEL, d.commands[0].kernel = w->kernel);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[1].n[6] = 0);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[1].n[6] = 129);
    REFUSED_WITH(FL_DIRECT_RANGE, d.commands[1].n[0] = SIZE_MAX);
    REFUSED_WITH(FL_DIRECT_RANGE,
                 (d.commands[1].target = d.commands[1].source, d.commands[1].n[3] = 32));
#undef REFUSED_WITH
    d.function.function = NULL;
    EQUAL(fl_direct_check(&d.device, &d.function, 1, d.commands, 2, reasons), 1);
    d.function.function = (void *)step;
    mock_fail(SLOT_clGetMemObjectInfo, 0, CL_OUT_OF_RESOURCES);
    CHECK(fl_direct_check(&d.device, &d.function, 1, d.commands, 2, reasons) > 0);
    CHECK(mock_has_failed());
    finish(w, &d);
}

/* Without memory nothing is made, and nothing is left over. */
SCENARIO(direct_no_memory) {
    direct d;
    int code = CL_SUCCESS;
    make(w, &d);
    for (int n = 0;; n++) {
        memory_fails(n, false);
        fl_direct *another = fl_new_direct(&d.device, &d.function, 1, d.commands, 2, 1,
                                           (const uint32_t[]){0, 1}, &code);
        bool failed = memory_has_failed();
        CHECK(failed == !another);
        if (!failed) {
            fl_release_direct(another);
            break;
        }
        EQUAL(code, CL_OUT_OF_HOST_MEMORY);
    }
    enqueue_direct(w, &d, 1, NULL);
    memory_fails(0, true);
    EQUAL(fl_update_direct(d.made, 0, false), CL_OUT_OF_HOST_MEMORY);
    CHECK(memory_has_failed());
    finish(w, &d);
}
