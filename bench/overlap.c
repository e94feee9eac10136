/* What a driver overlaps at most: two chains of kernels of one work-group, run in every pattern
 * that a C program has. bench/overlap.py compiles it and calls `prepare` once and `run` for each.
 *
 * A kernel computes x = 5 x + k, so that an order that is not kept gives another number. */
#include "opencl_abi.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { CHAINS = 2, COUNT = 64, ITEMS = 64 };

#define CL(object, name) ((fn_##name *)((object)->dispatch[SLOT_##name]))

/* How the chains are run. What is not set is the plain case: one in-order queue, one thread feeds
 * the chains in turns and waits in clFinish, nothing is flushed. */
enum {
    OUT_OF_ORDER = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, /* events order each chain */
    TWO_QUEUES = 2,       /* a queue for each chain */
    SUB_DEVICES = 4,      /* a queue to a half of the device for each chain */
    TWO_THREADS = 8,      /* each feeds its chain and waits for it */
    CHAIN_BY_CHAIN = 16,  /* the first chain is fed before the second */
    FLUSH_EACH = 32,      /* after every launch */
    FLUSH_FIRST = 64,     /* after the first launch of each chain, and at the end */
    POLL = 128,           /* ask for the state of the last events until they are complete */
    TWO_WAIT = 256,       /* one thread feeds, two wait */
    GATED = 512,          /* all commands wait for a user event, which is then completed */
    NATIVE = 1024,        /* native kernels, C functions of this file */
    LEVELS = 2048,        /* one out-of-order queue with a barrier after each pair */
    WAIT_THIRD = 4096,    /* a third queue, out of order, waits for the last events */
    FIRST_WAITS = 8192,   /* the first queue, out of order, waits for the other one */
    CALLER_RUNS = 16384,  /* the first queue, in order, waits for the other one, and is finished */
    MARKER_FIRST = 32768, /* with it: the other queue waits for a marker in the first one */
    FIRST_FLUSHED = 1 << 16, /* the first queue is flushed as well as the other one */
    OTHER_FINISHED = 1 << 17, /* meanwhile a second thread finishes the other queue */
    PROGRAM_HELPS = 1 << 18, /* with WAIT_THIRD: the program waits for both ends before the third
                                queue; with OTHER_FINISHED a second thread does */
};

static const struct pattern {
    const char *name;
    unsigned how;
} PATTERNS[] = {
    {"one in-order queue", 0},
    {"one in-order queue, flushed after each launch", FLUSH_EACH},
    {"one out-of-order queue, events", OUT_OF_ORDER},
    {"one out-of-order queue, events, flushed after each launch", OUT_OF_ORDER | FLUSH_EACH},
    {"one out-of-order queue, events, polled", OUT_OF_ORDER | POLL},
    {"one out-of-order queue, barriers", OUT_OF_ORDER | LEVELS},
    {"two in-order queues, one thread", TWO_QUEUES},
    {"two in-order queues, one thread, chain by chain", TWO_QUEUES | CHAIN_BY_CHAIN},
    {"two in-order queues, one thread, flushed after each launch", TWO_QUEUES | FLUSH_EACH},
    {"two in-order queues, one thread, flushed first and last", TWO_QUEUES | FLUSH_FIRST},
    {"two in-order queues, one thread, polled", TWO_QUEUES | FLUSH_FIRST | POLL},
    {"two in-order queues, one thread, two threads wait", TWO_QUEUES | TWO_WAIT},
    {"two in-order queues, one thread, a third queue waits", TWO_QUEUES | WAIT_THIRD},
    {"an out-of-order and an in-order queue, the first waits", TWO_QUEUES | FIRST_WAITS},
    {"caller runs: the first in-order queue waits", TWO_QUEUES | CALLER_RUNS},
    {"caller runs, behind a marker", TWO_QUEUES | CALLER_RUNS | MARKER_FIRST},
    {"caller runs, behind a marker, first queue flushed",
     TWO_QUEUES | CALLER_RUNS | MARKER_FIRST | FIRST_FLUSHED},
    {"caller runs, behind a marker, other chain fed first",
     TWO_QUEUES | CALLER_RUNS | MARKER_FIRST | CHAIN_BY_CHAIN},
    {"caller runs, behind a marker, a thread finishes the other queue",
     TWO_QUEUES | CALLER_RUNS | MARKER_FIRST | OTHER_FINISHED},
    {"caller runs, behind a marker, sub-devices",
     SUB_DEVICES | TWO_QUEUES | CALLER_RUNS | MARKER_FIRST},
    {"caller runs, behind a marker, first queue out of order",
     TWO_QUEUES | FIRST_WAITS | CALLER_RUNS | MARKER_FIRST},
    {"a third queue waits, the program waits for both ends before",
     TWO_QUEUES | WAIT_THIRD | PROGRAM_HELPS},
    {"a third queue waits, a thread of ours waits for both ends",
     TWO_QUEUES | WAIT_THIRD | PROGRAM_HELPS | OTHER_FINISHED},
    {"two in-order queues behind a user event", TWO_QUEUES | GATED},
    {"two in-order queues, two threads", TWO_QUEUES | TWO_THREADS},
    {"two in-order queues, two threads, flushed after each launch",
     TWO_QUEUES | TWO_THREADS | FLUSH_EACH},
    {"two out-of-order queues, events, one thread", TWO_QUEUES | OUT_OF_ORDER},
    {"two sub-devices, one thread", SUB_DEVICES | TWO_QUEUES},
    {"two sub-devices, one thread, flushed after each launch",
     SUB_DEVICES | TWO_QUEUES | FLUSH_EACH},
    {"two sub-devices, one thread, polled", SUB_DEVICES | TWO_QUEUES | FLUSH_FIRST | POLL},
    {"two sub-devices, two threads", SUB_DEVICES | TWO_QUEUES | TWO_THREADS},
    {"native kernels, one in-order queue", NATIVE},
    {"native kernels, two in-order queues, one thread", NATIVE | TWO_QUEUES},
    {"native kernels, two in-order queues, two threads", NATIVE | TWO_QUEUES | TWO_THREADS},
};

static const char SOURCE[] =
    "kernel void advance(global uint *x, uint k, uint turns) {\n"
    "    size_t i = get_global_id(0);\n"
    "    float sum = x[i];\n"
    "    for (uint t = 0; t < turns; t++)\n"
    "        sum = sum * 0.75f + 1.0f;\n"
    "    x[i] = x[i] * 5u + k + (sum < 0.0f);\n" /* which it never is */
    "}\n";

typedef struct chain {
    cl_command_queue queue;
    cl_kernel kernel;
    cl_mem memory;
    cl_event last, gate;
    unsigned how;
    cl_uint turns;
    cl_int code;
    uint32_t x[ITEMS]; /* of native kernels */
} chain;

typedef struct native_step {
    uint32_t *x, k, turns;
} native_step;

static cl_context whole, halves;
static cl_device_id device, parts[CHAINS];
static cl_program program_of_whole, program_of_halves;

/* They are never released: one driver hangs if an out-of-order queue ends with its last command. */
static cl_command_queue queues[sizeof PATTERNS / sizeof *PATTERNS][CHAINS], third;

static void run_native(void *argument) {
    native_step step;
    memcpy(&step, argument, sizeof step);
    float sum = (float)step.x[0];
    for (uint32_t t = 0; t < step.turns; t++)
        sum = sum * 0.75f + 1.0f;
    for (int i = 0; i < ITEMS; i++)
        step.x[i] = step.x[i] * 5 + step.k + (sum < 0.0f);
}

static cl_program build(cl_context context, cl_uint count, const cl_device_id *devices,
                        cl_int *code) {
    const char *source = SOURCE;
    cl_program made = CL(context, clCreateProgramWithSource)(context, 1, &source, NULL, code);
    if (!*code)
        *code = CL(made, clBuildProgram)(made, count, devices, NULL, NULL, NULL);
    return made;
}

/* Returns an error code. A device that has no halves runs the other patterns. */
int prepare(cl_context context, cl_device_id its_device) {
    cl_device_partition_property halved[] = {CL_DEVICE_PARTITION_BY_COUNTS, 1, 1, 0, 0};
    cl_int code;
    whole = context;
    device = its_device;
    program_of_whole = build(context, 1, &device, &code);
    if (!code)
        third = CL(context, clCreateCommandQueue)(context, device, OUT_OF_ORDER, &code);
    if (code || CL(device, clCreateSubDevices)(device, halved, CHAINS, parts, NULL))
        return code;
    halves = CL(device, clCreateContext)(NULL, CHAINS, parts, NULL, NULL, &code);
    if (!code)
        program_of_halves = build(halves, CHAINS, parts, &code);
    return code;
}

int pattern_count(void) {
    return sizeof PATTERNS / sizeof *PATTERNS;
}

const char *pattern_name(int number) {
    return PATTERNS[number].name;
}

/* Whether the device can run it. */
int has_pattern(int number) {
    cl_device_exec_capabilities can = 0;
    unsigned how = PATTERNS[number].how;
    CL(device, clGetDeviceInfo)(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof can, &can, NULL);
    return (!(how & SUB_DEVICES) || halves) && (!(how & NATIVE) || can & CL_EXEC_NATIVE_KERNEL);
}

static void launch(chain *c, cl_uint k) {
    size_t size = ITEMS;
    cl_event *wait = c->last ? &c->last : c->gate && !k ? &c->gate : NULL, made = NULL;
    int wants = (c->how & (OUT_OF_ORDER | LEVELS)) == OUT_OF_ORDER
                || (c->how & (POLL | WAIT_THIRD | FIRST_WAITS | CALLER_RUNS) && k == COUNT - 1);
    cl_event *into = wants ? &made : NULL;
    if (c->how & NATIVE) {
        native_step step = {c->x, k, c->turns};
        c->code |= CL(c->queue, clEnqueueNativeKernel)(c->queue, (void *)run_native, &step,
                                                       sizeof step, 0, NULL, NULL, wait != NULL,
                                                       wait, into);
    } else {
        c->code |= CL(c->kernel, clSetKernelArg)(c->kernel, 1, sizeof k, &k);
        c->code |= CL(c->queue, clEnqueueNDRangeKernel)(c->queue, c->kernel, 1, NULL, &size, &size,
                                                        wait != NULL, wait, into);
    }
    if (c->last)
        CL(c->last, clReleaseEvent)(c->last);
    c->last = made;
    if (c->how & FLUSH_EACH || (c->how & FLUSH_FIRST && (!k || k == COUNT - 1)))
        c->code |= CL(c->queue, clFlush)(c->queue);
}

static void finish(chain *c) {
    cl_int state = c->how & POLL ? 1 : 0;
    c->code |= CL(c->queue, clFlush)(c->queue);
    while (state > CL_COMPLETE && !c->code) {
        c->code |= CL(c->last, clGetEventInfo)(c->last, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                               sizeof state, &state, NULL);
        sched_yield();
    }
    c->code |= state | CL(c->queue, clFinish)(c->queue);
}

static void *feed_and_finish(void *argument) {
    chain *c = argument;
    for (cl_uint k = 0; k < COUNT && c->how & TWO_THREADS; k++)
        launch(c, k);
    finish(c);
    return NULL;
}

static void feed(chain *chains, unsigned how) {
    int by_chain = how & CHAIN_BY_CHAIN, last_first = how & CALLER_RUNS && by_chain;
    for (cl_uint n = 0; n < COUNT * CHAINS; n++) {
        cl_uint which = by_chain ? n / COUNT : n % CHAINS;
        launch(&chains[last_first ? CHAINS - 1 - which : which],
               by_chain ? n % COUNT : n / CHAINS);
        if (how & LEVELS && n % CHAINS)
            chains->code |= CL(chains->queue, clEnqueueBarrier)(chains->queue);
    }
}

static void *finish_other(void *argument) {
    chain *c = argument;
    CL(c->queue, clFinish)(c->queue);
    return NULL;
}

/* Both chains, one after the other: of one queue each. */
static void *wait_for_both(void *argument) {
    chain *chains = argument;
    for (int i = 0; i < CHAINS; i++)
        CL(chains[i].last, clWaitForEvents)(1, &chains[i].last);
    return NULL;
}

/* One queue gets a barrier after the ends of both chains, and is finished: what a graph that uses
 * queues of its own, and ends in the caller's queue, does. */
static void wait_in_one(chain *chains, unsigned how) {
    cl_event ends[CHAINS] = {chains[0].last, chains[1].last};
    cl_command_queue in = how & WAIT_THIRD ? third : chains[0].queue;
    int runs = (how & (CALLER_RUNS | FIRST_WAITS)) == CALLER_RUNS; /* in its own order */
    pthread_t helper;
    for (int i = runs && !(how & FIRST_FLUSHED); i < CHAINS; i++)
        chains->code |= CL(chains[i].queue, clFlush)(chains[i].queue);
    chains->code |=
        CL(in, clEnqueueBarrierWithWaitList)(in, CHAINS - runs, ends + runs, NULL);
    if (how & PROGRAM_HELPS && !(how & OTHER_FINISHED))
        wait_for_both(chains);
    void *(*work)(void *) = how & PROGRAM_HELPS ? wait_for_both : finish_other;
    int threaded = how & OTHER_FINISHED
                   && !pthread_create(&helper, NULL, work, &chains[how & PROGRAM_HELPS ? 0 : 1]);
    chains->code |= CL(in, clFinish)(in);
    if (threaded)
        pthread_join(helper, NULL);
}

/* The other queue waits for what was in the first one before. */
static void put_marker(chain *chains) {
    cl_command_queue first = chains[0].queue;
    chains->code |= CL(first, clEnqueueMarkerWithWaitList)(first, 0, NULL, &chains[1].gate)
                    | CL(first, clFlush)(first);
}

/* The chains on their queues, from the first launch to the end of the last. */
static int execute(chain *chains, unsigned how) {
    pthread_t helper;
    if (how & MARKER_FIRST)
        put_marker(chains);
    if (!(how & TWO_THREADS))
        feed(chains, how);
    if (how & GATED)
        chains->code |= CL(chains->gate, clSetUserEventStatus)(chains->gate, CL_COMPLETE);
    if (how & (WAIT_THIRD | FIRST_WAITS | CALLER_RUNS))
        wait_in_one(chains, how);
    if (how & (TWO_THREADS | TWO_WAIT)) {
        if (pthread_create(&helper, NULL, feed_and_finish, &chains[1]))
            return -1;
        feed_and_finish(&chains[0]);
        pthread_join(helper, NULL);
    } else {
        for (int i = 0; i < CHAINS; i++)
            finish(&chains[i]);
    }
    return chains[0].code | chains[1].code;
}

/* What both chains must compute. */
static int is_right(const chain *c) {
    uint32_t found[ITEMS], expected = 0;
    memcpy(found, c->x, sizeof found);
    for (uint32_t k = 0; k < COUNT; k++)
        expected = expected * 5 + k;
    if (!(c->how & NATIVE)
        && CL(c->queue, clEnqueueReadBuffer)(c->queue, c->memory, 1, 0, sizeof found, found, 0,
                                             NULL, NULL))
        return 0;
    for (int i = 0; i < ITEMS; i++)
        if (found[i] != expected)
            return 0;
    return 1;
}

static void make(chain *c, const chain *first, int number, cl_command_queue *queue, unsigned how,
                 cl_uint turns) {
    cl_context context = how & SUB_DEVICES ? halves : whole;
    cl_program program = how & SUB_DEVICES ? program_of_halves : program_of_whole;
    cl_device_id on = how & SUB_DEVICES ? parts[number] : device;
    cl_int code[4] = {0};
    if (how & FIRST_WAITS && !number)
        how |= OUT_OF_ORDER;
    *c = (chain){.how = how, .turns = turns, .gate = first->gate};
    if (number && !(how & TWO_QUEUES))
        *queue = first->queue;
    else if (!*queue)
        *queue = CL(context, clCreateCommandQueue)(context, on, how & OUT_OF_ORDER, code);
    c->queue = *queue;
    if (!number && how & GATED)
        c->gate = CL(context, clCreateUserEvent)(context, code + 1);
    c->memory = CL(context, clCreateBuffer)(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                            sizeof c->x, c->x, code + 2);
    c->kernel = CL(program, clCreateKernel)(program, "advance", code + 3);
    c->code = code[0] | code[1] | code[2] | code[3];
    if (!c->code)
        c->code = CL(c->kernel, clSetKernelArg)(c->kernel, 0, sizeof c->memory, &c->memory)
                  | CL(c->kernel, clSetKernelArg)(c->kernel, 2, sizeof turns, &turns);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Returns the microseconds of a launch; below 0 if a call failed or the order was not kept. */
double run(int number, cl_uint turns) {
    unsigned how = PATTERNS[number].how;
    chain chains[CHAINS] = {0};
    for (int i = 0; i < CHAINS; i++)
        make(&chains[i], &chains[0], i, &queues[number][i], how, turns);
    double begin = now();
    int code = chains[0].code | chains[1].code ? -1 : execute(chains, how);
    double took = now() - begin;
    for (int i = 0; i < CHAINS && !code; i++)
        code = !is_right(&chains[i]);
    for (int i = 0; i < CHAINS; i++) {
        if (chains[i].last)
            CL(chains[i].last, clReleaseEvent)(chains[i].last);
        if (chains[i].kernel)
            CL(chains[i].kernel, clReleaseKernel)(chains[i].kernel);
        if (chains[i].memory)
            CL(chains[i].memory, clReleaseMemObject)(chains[i].memory);
    }
    cl_event gate = chains[how & MARKER_FIRST ? 1 : 0].gate;
    if (gate)
        CL(gate, clReleaseEvent)(gate);
    return code ? -1 : took / (COUNT * CHAINS);
}
