/* What a driver overlaps in a graph whose branches wait for each other. A graph of kernels of one
 * work-group runs in every way to order it: by events between two queues, by events or barriers in
 * an out-of-order queue, and by a program that waits at each join. bench/branches.py compiles this
 * file and calls `prepare` once and `run` for each.
 *
 * Kernel n computes x[n] = n + 5 times the sum of those before it. An order that is not kept gives
 * another number. */
#include "opencl_abi.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MOST = 128, ITEMS = 64, QUEUES = 2 };

#define CL(object, name) ((fn_##name *)((object)->dispatch[SLOT_##name]))

/* How the graph is run. What is not set is the plain case: two in-order queues with events between
 * them, fed and flushed by one thread, which finishes the first queue and then the second. */
enum {
    OUT_OF_ORDER = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, /* one queue, events for all edges */
    ONE_QUEUE = 2,     /* in order, without events */
    LEVELS = 4,        /* with OUT_OF_ORDER: barriers instead of events */
    FLUSH_EVENTS = 8,  /* after each command that the other queue waits for */
    SECOND_FIRST = 16, /* the second queue is finished first */
    TWO_WAIT = 32,     /* a second thread finishes the second queue meanwhile */
    WAIT_EACH = 64,    /* the program waits for each event between the queues, in turn */
    HOST_JOINS = 128,  /* no events: the program finishes its queues after each level */
    TWO_THREADS = 256, /* with it: each thread feeds and finishes a queue, then they meet */
    BEGIN_THIRD = 512, /* a barrier in a third queue, out of order, comes before all */
    END_THIRD = 1024,  /* one comes after the ends, for which the program waits before it */
};

static const struct way {
    const char *name;
    unsigned how;
} WAYS[] = {
    {"one in-order queue", ONE_QUEUE},
    {"one out-of-order queue, events", OUT_OF_ORDER},
    {"one out-of-order queue, barriers", OUT_OF_ORDER | LEVELS},
    {"two in-order queues, events", 0},
    {"two in-order queues, events, each flushed", FLUSH_EVENTS},
    {"two in-order queues, events, second finished first", SECOND_FIRST},
    {"two in-order queues, events, two threads wait", TWO_WAIT},
    {"two in-order queues, events, the program waits for each", WAIT_EACH},
    {"two in-order queues, barriers in a third one, the program waits for both ends",
     BEGIN_THIRD | END_THIRD},
    {"two in-order queues, barriers in a third one, the program waits for each event",
     BEGIN_THIRD | END_THIRD | WAIT_EACH},
    {"two in-order queues, the program finishes both at each join", HOST_JOINS},
    {"two in-order queues, two threads finish one each at each join", HOST_JOINS | TWO_THREADS},
    {"one out-of-order queue, the program finishes it at each join", OUT_OF_ORDER | HOST_JOINS},
};

static const char SOURCE[] =
    "kernel void node(global uint *x, global const uint *first, global const uint *before,\n"
    "                 uint me, uint turns) {\n"
    "    size_t i = get_global_id(0), n = get_global_size(0);\n"
    "    uint total = 0;\n"
    "    for (uint k = first[me]; k < first[me + 1]; k++)\n"
    "        total += x[before[k] * n + i];\n"
    "    float sum = total % 7u;\n"
    "    for (uint t = 0; t < turns; t++)\n"
    "        sum = sum * 0.75f + 1.0f;\n"
    "    x[me * n + i] = total * 5u + me + (sum < 0.0f);\n" /* which it never is */
    "}\n";

typedef struct graph {
    unsigned how;
    uint32_t count;
    const uint32_t *first, *before, *queue_of; /* the last one of two in-order queues */
    uint32_t level[MOST], levels;
    cl_event made[MOST], begin;
    cl_command_queue *queues;
    cl_kernel kernel[QUEUES];
    _Atomic cl_int code;
    atomic_uint arrived;
} graph;

static cl_context context;
static cl_device_id device;
static cl_program program;
static cl_command_queue third;
static cl_command_queue queues[sizeof WAYS / sizeof *WAYS][QUEUES]; /* never released */

/* Returns an error code. */
int prepare(cl_context its_context, cl_device_id its_device) {
    const char *source = SOURCE;
    cl_int code;
    context = its_context;
    device = its_device;
    third = CL(context, clCreateCommandQueue)(context, device, OUT_OF_ORDER, &code);
    if (!code)
        program = CL(context, clCreateProgramWithSource)(context, 1, &source, NULL, &code);
    return code ? code : CL(program, clBuildProgram)(program, 1, &device, NULL, NULL, NULL);
}

int way_count(void) {
    return sizeof WAYS / sizeof *WAYS;
}

const char *way_name(int number) {
    return WAYS[number].name;
}

/* Whether two commands need an event to be in order. */
static int needs_event(const graph *g, uint32_t one, uint32_t other) {
    if (g->how & (HOST_JOINS | LEVELS | ONE_QUEUE))
        return 0;
    return g->how & OUT_OF_ORDER || g->queue_of[one] != g->queue_of[other];
}

/* Whether a command is the first or, by the other direction, the last on its queue. */
static int is_outermost(const graph *g, uint32_t node, int step) {
    for (uint32_t other = node + (uint32_t)step; other < g->count; other += (uint32_t)step)
        if (g->queue_of[other] == g->queue_of[node])
            return 0;
    return 1;
}

static int is_waited_for(const graph *g, uint32_t node) {
    if (g->how & END_THIRD && is_outermost(g, node, 1))
        return 1;
    for (uint32_t later = node + 1; later < g->count; later++)
        for (uint32_t k = g->first[later]; k < g->first[later + 1]; k++)
            if (g->before[k] == node && needs_event(g, node, later))
                return 1;
    return 0;
}

static void launch(graph *g, uint32_t node, int which) {
    cl_command_queue queue = g->queues[which];
    cl_kernel kernel = g->kernel[which];
    cl_event waits[MOST];
    cl_uint number = 0;
    size_t size = ITEMS;
    for (uint32_t k = g->first[node]; k < g->first[node + 1]; k++)
        if (needs_event(g, g->before[k], node))
            waits[number++] = g->made[g->before[k]];
    if (g->begin && is_outermost(g, node, -1))
        waits[number++] = g->begin;
    int signals = is_waited_for(g, node);
    g->code |= CL(kernel, clSetKernelArg)(kernel, 3, sizeof node, &node);
    g->code |= CL(queue, clEnqueueNDRangeKernel)(queue, kernel, 1, NULL, &size, &size, number,
                                                 number ? waits : NULL,
                                                 signals ? &g->made[node] : NULL);
    if (signals && g->how & FLUSH_EVENTS)
        g->code |= CL(queue, clFlush)(queue);
}

static void finish(graph *g, int which) {
    g->code |= CL(g->queues[which], clFinish)(g->queues[which]);
}

/* The commands of a level in turns on the queues of a program that waits at each join. */
static void feed_level(graph *g, uint32_t level, int only) {
    uint32_t place = 0;
    for (uint32_t node = 0; node < g->count; node++)
        if (g->level[node] == level) {
            int which = g->how & OUT_OF_ORDER ? 0 : (int)(place++ % QUEUES);
            if (only < 0 || which == only)
                launch(g, node, which);
        }
}

static void run_joined(graph *g) {
    int used = g->how & OUT_OF_ORDER ? 1 : QUEUES;
    for (uint32_t level = 0; level < g->levels; level++) {
        feed_level(g, level, -1);
        for (int which = used; which-- > 1;)
            g->code |= CL(g->queues[which], clFlush)(g->queues[which]);
        for (int which = 0; which < used; which++)
            finish(g, which);
    }
}

static void run_own(graph *g, int which) {
    for (uint32_t level = 0; level < g->levels; level++) {
        feed_level(g, level, which);
        finish(g, which);
        atomic_fetch_add(&g->arrived, 1);
        for (uint32_t looks = 0; atomic_load(&g->arrived) < QUEUES * (level + 1); looks++)
            if (looks > 10000)
                sched_yield();
    }
}

static void *in_second_thread(void *argument) {
    graph *g = argument;
    if (g->how & TWO_THREADS)
        run_own(g, 1);
    else
        finish(g, 1);
    return NULL;
}

/* The last event of each queue. */
static cl_uint ends(const graph *g, cl_event *list) {
    cl_uint number = 0;
    for (uint32_t n = 0; n < g->count; n++)
        if (is_outermost(g, n, 1))
            list[number++] = g->made[n];
    return number;
}

static void feed(graph *g) {
    cl_event list[QUEUES];
    int one = (g->how & (OUT_OF_ORDER | ONE_QUEUE)) != 0;
    uint32_t level = 0;
    if (g->how & BEGIN_THIRD)
        g->code |= CL(third, clEnqueueBarrierWithWaitList)(third, 0, NULL, &g->begin);
    for (uint32_t n = 0; n < g->count; n++) {
        if (g->how & LEVELS && g->level[n] != level) /* recorded level by level */
            g->code |= CL(g->queues[0], clEnqueueBarrier)(g->queues[0]);
        level = g->level[n];
        launch(g, n, one ? 0 : (int)g->queue_of[n]);
    }
    if (g->how & END_THIRD)
        g->code |= CL(third, clEnqueueBarrierWithWaitList)(third, ends(g, list), list, NULL);
    if (g->how & (BEGIN_THIRD | END_THIRD))
        g->code |= CL(third, clFlush)(third);
    for (int which = one ? 1 : QUEUES; which-- > 0;)
        g->code |= CL(g->queues[which], clFlush)(g->queues[which]);
}

static void execute(graph *g) {
    pthread_t helper;
    int threads = g->how & (TWO_WAIT | TWO_THREADS);
    if (!(g->how & HOST_JOINS))
        feed(g);
    if (threads && pthread_create(&helper, NULL, in_second_thread, g)) {
        g->code = -1;
        return;
    }
    if (g->how & HOST_JOINS && !threads)
        run_joined(g);
    if (g->how & TWO_THREADS)
        run_own(g, 0);
    for (uint32_t n = 0; n < g->count && g->how & WAIT_EACH; n++)
        if (g->made[n])
            g->code |= CL(g->made[n], clWaitForEvents)(1, &g->made[n]);
    if (g->how & END_THIRD) {
        cl_event list[QUEUES];
        for (cl_uint i = 0, number = ends(g, list); i < number; i++)
            g->code |= CL(list[i], clWaitForEvents)(1, &list[i]);
        g->code |= CL(third, clFinish)(third);
    }
    if (g->how & SECOND_FIRST)
        finish(g, 1);
    finish(g, 0);
    if (threads)
        pthread_join(helper, NULL);
    else if (!(g->how & (OUT_OF_ORDER | ONE_QUEUE)))
        finish(g, 1);
}

static int is_right(graph *g, cl_mem memory) {
    uint32_t found[MOST][ITEMS], expected[MOST];
    if (CL(g->queues[0], clEnqueueReadBuffer)(g->queues[0], memory, 1, 0,
                                              g->count * sizeof *found, found, 0, NULL, NULL))
        return 0;
    for (uint32_t n = 0; n < g->count; n++) {
        uint32_t total = 0;
        for (uint32_t k = g->first[n]; k < g->first[n + 1]; k++)
            total += expected[g->before[k]];
        expected[n] = total * 5 + n;
        for (int i = 0; i < ITEMS; i++)
            if (found[n][i] != expected[n])
                return 0;
    }
    return 1;
}

static cl_mem filled(graph *g, size_t size, const void *data) {
    cl_int code;
    cl_mem made = CL(context, clCreateBuffer)(
        context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, size, (void *)data, &code);
    g->code |= code;
    return made;
}

static void make(graph *g, cl_mem *memory, cl_uint turns) {
    static const uint32_t zeros[MOST][ITEMS];
    uint32_t edges = g->first[g->count];
    for (uint32_t n = 0; n < g->count; n++) {
        for (uint32_t k = g->first[n]; k < g->first[n + 1]; k++)
            if (g->level[g->before[k]] >= g->level[n])
                g->level[n] = g->level[g->before[k]] + 1;
        if (g->level[n] >= g->levels)
            g->levels = g->level[n] + 1;
    }
    memory[0] = filled(g, sizeof zeros, zeros);
    memory[1] = filled(g, (g->count + 1) * sizeof *g->first, g->first);
    memory[2] = filled(g, (edges ? edges : 1) * sizeof *g->before, g->before);
    for (int which = 0; which < QUEUES && !g->code; which++) {
        cl_int code = 0;
        if (!g->queues[which])
            g->queues[which] = CL(context, clCreateCommandQueue)(context, device,
                                                                 g->how & OUT_OF_ORDER, &code);
        g->code |= code;
        cl_kernel kernel = CL(program, clCreateKernel)(program, "node", &code);
        g->kernel[which] = kernel;
        g->code |= code;
        for (cl_uint i = 0; i < 3 && !g->code; i++)
            g->code |= CL(kernel, clSetKernelArg)(kernel, i, sizeof *memory, &memory[i]);
        if (!g->code)
            g->code |= CL(kernel, clSetKernelArg)(kernel, 4, sizeof turns, &turns);
    }
}

static void end(graph *g, cl_mem *memory) {
    if (g->begin)
        CL(g->begin, clReleaseEvent)(g->begin);
    for (uint32_t n = 0; n < g->count; n++)
        if (g->made[n])
            CL(g->made[n], clReleaseEvent)(g->made[n]);
    for (int which = 0; which < QUEUES; which++)
        if (g->kernel[which])
            CL(g->kernel[which], clReleaseKernel)(g->kernel[which]);
    for (int i = 0; i < 3; i++)
        if (memory[i])
            CL(memory[i], clReleaseMemObject)(memory[i]);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* Run the graph: those before node n are before[first[n]] up to before[first[n + 1]]. Returns the
 * microseconds of a kernel; below 0 if a call failed or the order was not kept. */
double run(int number, uint32_t count, const uint32_t *first, const uint32_t *before,
           const uint32_t *queue_of, cl_uint turns) {
    graph g = {.how = WAYS[number].how, .count = count, .first = first, .before = before,
               .queue_of = queue_of, .queues = queues[number]};
    cl_mem memory[3] = {NULL};
    if (count > MOST)
        return -1;
    make(&g, memory, turns);
    double begin = now();
    if (!g.code)
        execute(&g);
    double took = now() - begin;
    int right = !g.code && is_right(&g, memory[0]);
    end(&g, memory);
    return right ? took / count : -1;
}
