/* The engine `cuda`: commands as one CUDA Graph, which is launched as a whole.
 *
 * The GPU takes 140 µs to change between OpenCL's context and CUDA's, so all commands of a graph run on CUDA's side. A replay that is waited for
 * finishes the queue, launches the graph and waits, in the caller's thread. Any other one is ordered by events of OpenCL's: a thread of the
 * graph's waits for what comes before it, launches, waits, and completes a user event for which the queue waits. So nothing that the program
 * enqueues afterwards comes too early, and nothing blocks it. */
#include "cuda.h"

#include "waits.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MEASURED = 8 };        /* replays that are timed */
enum { UPDATE_WAITS = 20 };   /* milliseconds for launches that are not made yet; then the graph is built anew */

typedef struct job {
    struct job *next;
    cl_event before, end;     /* references; `end` is a user event */
    uint32_t times, held_count;
    cl_mem *held;             /* references: what the words have the addresses of */
    uint64_t words[];         /* of the cells */
} job;

struct fl_cuda {
    fl_cuda_device *device;
    cl_context context;
    const fl_cuda_function *functions;
    uint32_t function_count, count;
    const fl_command *commands;
    uint32_t *first_before, *before;
    struct made {
        enum fl_cuda_kind kind;
        CUgraphNode node;
        uint32_t followers;
        bool is_fixed, is_early, is_small;   /* `is_small`: the next launch may start early */
    } *nodes;
    fl_cuda_cells cells;
    uint64_t *words;          /* what the cells are for the next launch that is enqueued */
    CUgraph graph;
    CUgraphExec executable;
    uint32_t early_threads, early;   /* up to how many threads the launch has after which one may start early, and how many do */
    pthread_mutex_t running;  /* of launches, which last as long as the GPU, and of their times; nobody with it takes `lock` */
    fl_cuda_loop loop;
    bool has_no_loop;         /* the driver refuses it */
    uint64_t *sent;           /* what the device has of the cells; NULL: nothing */
    uint64_t taken[MEASURED]; /* by the first replays, in ns */
    uint32_t timed;
    pthread_mutex_t lock;     /* of what follows */
    pthread_cond_t changed;
    job *first, **last;
    bool has_thread, closing;
    fl_cuda *next_unfinished; /* of those that were released before they ended */
};

static struct {
    pthread_mutex_t lock;
    fl_cuda *first;
} unfinished = {.lock = PTHREAD_MUTEX_INITIALIZER};

CUresult fl_cuda_enter(const fl_cuda_device *device) { return CU(device, cuCtxPushCurrent_v2)(device->context); }

void fl_cuda_leave(const fl_cuda_device *device) {
    CUcontext old;
    CU(device, cuCtxPopCurrent_v2)(&old);
}

/* --- what is built --- */

static CUresult add_node(const fl_cuda_device *d, CUgraph graph, const fl_cuda_node *n, const CUgraphNode *before, size_t count,
                         CUgraphNode *made) {
    switch (n->kind) {
    case FL_NODE_LAUNCH: return CU(d, cuGraphAddKernelNode_v2)(made, graph, before, count, &n->launch);
    case FL_NODE_COPY: return CU(d, cuGraphAddMemcpyNode)(made, graph, before, count, &n->copy, d->context);
    case FL_NODE_FILL: return CU(d, cuGraphAddMemsetNode)(made, graph, before, count, &n->fill, d->context);
    default: return CUDA_SUCCESS;
    }
}

/* A launch after the only node that it comes after, which nothing else comes after: when all groups of that one have begun it is on the
 * device already. It waits there for the other's end. One edge at a time, since drivers take the kind of the first for all. */
static CUresult add_early(const fl_cuda_device *d, CUgraph graph, const fl_cuda_node *n, CUgraphNode before, CUgraphNode *made) {
    static const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUresult code = add_node(d, graph, n, NULL, 0, made);
    return code == CUDA_SUCCESS ? CU(d, cuGraphAddDependencies_v2)(graph, &before, made, &edge, 1) : code;
}

static uint64_t threads_of(const CUDA_KERNEL_NODE_PARAMS *l) {
    return (uint64_t)l->gridDimX * l->gridDimY * l->gridDimZ * l->blockDimX * l->blockDimY * l->blockDimZ;
}

/* Add a command after the nodes `list`, the only one of which is `only`. */
static CUresult add_command(fl_cuda *g, CUgraph graph, uint32_t number, const CUgraphNode *list, size_t count, const struct made *only,
                            struct made *made) {
    fl_cuda_node n;
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    bool fine = fl_describe_node(g->functions, g->function_count, &g->cells, &g->commands[number], &n) == FL_CUDA_FINE;
    bool early = only && only->is_small && only->followers == 1 && n.kind == FL_NODE_LAUNCH && n.waits;
    if (fine && early)
        code = add_early(g->device, graph, &n, *list, &made->node);
    else if (fine)
        code = add_node(g->device, graph, &n, list, count, &made->node);
    made->kind = n.kind;
    made->is_fixed = n.is_fixed;
    made->is_small = n.kind == FL_NODE_LAUNCH && n.waits && threads_of(&n.launch) <= g->early_threads;
    made->is_early = early;
    free(n.values);
    return code;
}

/* Add all commands to a graph. They become `nodes`, of which the followers are known if launches may start early. */
static CUresult add_all(fl_cuda *g, CUgraph graph, struct made *nodes) {
    CUgraphNode *list = malloc((g->first_before[g->count] + 1) * sizeof *list);
    CUresult code = list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->count && code == CUDA_SUCCESS; i++) {
        const uint32_t *before = &g->before[g->first_before[i]];
        size_t count = g->first_before[i + 1] - g->first_before[i];
        for (size_t k = 0; k < count; k++)
            list[k] = nodes[before[k]].node;
        code = add_command(g, graph, i, list, count, count == 1 ? &nodes[*before] : NULL, &nodes[i]);
    }
    free(list);
    return code;
}

static CUresult build(fl_cuda *g) {
    const fl_cuda_device *d = g->device;
    CUresult code = CU(d, cuGraphCreate)(&g->graph, 0);
    if (code == CUDA_SUCCESS)
        code = add_all(g, g->graph, g->nodes);
    g->early = 0;
    for (uint32_t i = 0; i < g->count; i++)
        g->early += g->nodes[i].is_early;
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphInstantiateWithFlags)(&g->executable, g->graph, 0);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphUpload)(g->executable, d->stream);
    return code;
}

static void drop_graph(fl_cuda *g) {
    const fl_cuda_device *d = g->device;
    if (g->executable)
        CU(d, cuGraphExecDestroy)(g->executable);
    if (g->graph)
        CU(d, cuGraphDestroy)(g->graph);
    g->executable = NULL;
    g->graph = NULL;
}

/* Where the driver refuses early launches there are none. */
static CUresult build_either(fl_cuda *g) {
    for (uint32_t k = 0; k < g->first_before[g->count]; k++)
        g->nodes[g->before[k]].followers++;
    CUresult code = build(g);
    if (code == CUDA_SUCCESS || !g->early)
        return code;
    drop_graph(g);
    g->early_threads = 0;
    return build(g);
}

/* The same commands as a loop. None starts early in it, and each was a node already. */
static CUresult build_loop(fl_cuda *g, CUdeviceptr word) {
    struct made *nodes = calloc(g->count + 1, sizeof *nodes);
    CUgraphNode *last = malloc((g->count + 1) * sizeof *last);
    CUgraph body;
    size_t count = 0;
    CUresult code = nodes && last ? fl_begin_loop(g->device, &g->loop, word, &body) : CUDA_ERROR_OUT_OF_MEMORY;
    if (code == CUDA_SUCCESS)
        code = add_all(g, body, nodes);
    for (uint32_t i = 0; i < g->count && code == CUDA_SUCCESS; i++)
        if (nodes[i].node && !g->nodes[i].followers)
            last[count++] = nodes[i].node;
    if (code == CUDA_SUCCESS)
        code = fl_end_loop(g->device, &g->loop, body, last, count);
    free(nodes);
    free(last);
    if (code != CUDA_SUCCESS)
        fl_drop_loop(g->device, &g->loop);
    return code;
}

/* The words of the cells, in the device's memory and here. */
static CUresult make_words(fl_cuda *g) {
    if (!fl_list_cuda_cells(&g->cells, g->functions, g->function_count, g->commands, g->count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!g->cells.count)
        return CUDA_SUCCESS;
    g->words = calloc(g->cells.count, sizeof *g->words);
    if (!g->words)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->cells.count; i++)
        if (fl_word_of_cell(g->cells.list[i], &g->words[i]) != FL_CUDA_FINE)
            return CUDA_ERROR_INVALID_VALUE;
    return CU(g->device, cuMemAlloc_v2)(&g->cells.words, g->cells.count * sizeof *g->words);
}

static fl_cuda **place_in_unfinished(const fl_cuda *g) {
    fl_cuda **at = &unfinished.first;
    while (*at && *at != g)
        at = &(*at)->next_unfinished;
    return at;
}

int fl_cuda_has_ended(const fl_cuda *g) {
    pthread_mutex_lock(&unfinished.lock);
    bool is_listed = *place_in_unfinished(g) != NULL;
    pthread_mutex_unlock(&unfinished.lock);
    return !is_listed;
}

static void destroy(fl_cuda *g) {
    const fl_cuda_device *d = g->device;
    if (!d->lost && fl_cuda_enter(d) == CUDA_SUCCESS) {
        drop_graph(g);
        fl_drop_loop(d, &g->loop);
        if (g->cells.words)
            CU(d, cuMemFree_v2)(g->cells.words);
        fl_cuda_leave(d);
    }
    pthread_mutex_lock(&unfinished.lock);
    fl_cuda **at = place_in_unfinished(g);
    if (*at)
        *at = g->next_unfinished;
    pthread_mutex_unlock(&unfinished.lock);
    fl_forget_cuda_cells(&g->cells);
    free(g->words);
    free(g->sent);
    pthread_mutex_destroy(&g->running);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g->first_before);
    free(g->before);
    free(g->nodes);
    free(g);
}

static uint32_t *copied(const uint32_t *numbers, uint32_t count) {
    uint32_t *made = malloc((count + 1) * sizeof *made);
    return made ? memcpy(made, numbers, count * sizeof *made) : NULL;
}

fl_cuda *fl_new_cuda(fl_cuda_device *device, void *context, const fl_cuda_function *functions, uint32_t function_count,
                     const fl_command *commands, uint32_t count, const uint32_t *first_before, const uint32_t *before, uint32_t early_threads,
                     int *code) {
    fl_cuda *g = calloc(1, sizeof *g);
    *code = CUDA_ERROR_OUT_OF_MEMORY;
    if (!g)
        return NULL;
    *g = (fl_cuda){.device = device, .context = context, .functions = functions, .function_count = function_count, .count = count,
                   .commands = commands, .early_threads = early_threads};
    g->nodes = calloc(count ? count : 1, sizeof *g->nodes);
    g->first_before = copied(first_before, count + 1);
    g->before = copied(before, first_before[count]);
    g->last = &g->first;
    pthread_mutex_init(&g->running, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    if (g->nodes && g->first_before && g->before)
        *code = fl_cuda_enter(device);
    if (*code == CUDA_SUCCESS) {
        *code = make_words(g);
        if (*code == CUDA_SUCCESS)
            *code = build_either(g);
        fl_cuda_leave(device);
    }
    if (*code == CUDA_SUCCESS)
        return g;
    destroy(g);
    return NULL;
}

uint32_t fl_cuda_early(const fl_cuda *g) { return g->early; }

/* --- launches --- */

/* Codes after which the context cannot be used: a kernel failed. */
static bool is_deadly(CUresult code) { return code >= CUDA_ERROR_ILLEGAL_ADDRESS && code < CUDA_ERROR_NOT_PERMITTED; }

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* The next launches load these words. No launch runs. */
static CUresult send(fl_cuda *g, const uint64_t *words) {
    const fl_cuda_device *d = g->device;
    size_t size = g->cells.count * sizeof *words;
    if (!size || (g->sent && !memcmp(g->sent, words, size)))
        return CUDA_SUCCESS;
    if (!g->sent && !(g->sent = malloc(size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(g->sent, words, size);
    CUresult code = CU(d, cuMemcpyAsync)(g->cells.words, (CUdeviceptr)(uintptr_t)g->sent, size, d->stream);
    if (code != CUDA_SUCCESS) {
        free(g->sent);
        g->sent = NULL;
    }
    return code;
}

/* Launch and wait. The caller has `running`, so that nobody updates or launches it meanwhile. */
static CUresult launch_here(fl_cuda *g, uint32_t times, const uint64_t *words) {
    fl_cuda_device *d = g->device;
    if (d->lost)
        return d->lost;
    CUresult code = fl_cuda_enter(d);
    if (code != CUDA_SUCCESS)
        return code;
    uint64_t begin = now();
    code = send(g, words);
    for (uint32_t i = 0; i < times && code == CUDA_SUCCESS; i++)
        code = CU(d, cuGraphLaunch)(g->executable, d->stream);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    fl_cuda_leave(d);
    if (g->timed < MEASURED && times)
        g->taken[g->timed++] = (now() - begin) / times;
    code = code == CUDA_SUCCESS ? end : code;
    if (is_deadly(code))
        d->lost = code;
    return code;
}

static cl_int launch(fl_cuda *g, uint32_t times, const uint64_t *words) {
    pthread_mutex_lock(&g->running);
    CUresult code = launch_here(g, times, words);
    pthread_mutex_unlock(&g->running);
    return code == CUDA_SUCCESS ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

int fl_run_cuda(void *cuda, uint32_t times) {
    fl_cuda *g = cuda;
    return launch(g, times, g->words);
}

/* Run it so often without a look, and look at the word. The context is current. */
static CUresult run_and_look(fl_cuda *g, uint32_t times, CUdeviceptr word, bool wanted, uint32_t *ran, uint32_t *stopped) {
    const fl_cuda_device *d = g->device;
    uint32_t value = 0;
    CUresult code = times ? CU(d, cuGraphLaunch)(g->executable, d->stream) : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS)
        code = CU(d, cuMemcpyAsync)((CUdeviceptr)(uintptr_t)&value, word, sizeof value, d->stream);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    *ran = times;
    *stopped = (value != 0) == wanted;
    return code == CUDA_SUCCESS ? end : code;
}

static bool has_loop(fl_cuda *g, CUdeviceptr word) {
    if (g->loop.executable && g->loop.word == word)
        return true;
    fl_drop_loop(g->device, &g->loop);
    g->has_no_loop |= build_loop(g, word) != CUDA_SUCCESS;
    return !g->has_no_loop;
}

int fl_run_cuda_until(void *cuda, uint32_t times, void *flag, size_t offset, int wanted, uint32_t *ran, uint32_t *stopped) {
    fl_cuda *g = cuda;
    fl_cuda_device *d = g->device;
    CUdeviceptr word = fl_cuda_address(flag);
    *ran = *stopped = 0;
    if (!word || (word += offset) % sizeof(uint32_t) || d->lost || g->has_no_loop || fl_cuda_enter(d) != CUDA_SUCCESS)
        return FL_BUILD_ANEW;
    pthread_mutex_lock(&g->running);
    bool can = times < 2 || has_loop(g, word);
    CUresult code = can ? send(g, g->words) : CUDA_SUCCESS;
    if (can && code == CUDA_SUCCESS)
        code = times < 2 ? run_and_look(g, times, word, wanted, ran, stopped) : fl_run_loop(d, &g->loop, times, wanted, ran, stopped);
    pthread_mutex_unlock(&g->running);
    fl_cuda_leave(d);
    if (is_deadly(code))
        d->lost = code;
    return !can ? FL_BUILD_ANEW : code == CUDA_SUCCESS ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

/* Values that differ from turn to turn come one by one. */
int fl_take_series_cuda(void *cuda, const fl_value *values, uint32_t count, uint32_t times) {
    (void)cuda, (void)times;
    for (const fl_value *v = values; v < values + count; v++)
        if (v->series)
            return CL_INVALID_OPERATION;
    return CL_SUCCESS;
}

/* A launch of what the cells are now. */
static job *new_job(const fl_cuda *g, uint32_t times) {
    uint32_t count = g->cells.count;
    job *j = calloc(1, sizeof *j + count * (sizeof *j->words + sizeof *j->held));
    if (!j)
        return NULL;
    j->times = times;
    j->held = (cl_mem *)(j->words + count);
    for (uint32_t i = 0; i < count; i++) {
        const fl_cell *cell = g->cells.list[i];
        j->words[i] = g->words[i];
        if (cell->conversion == FL_AS_MEMORY) {   /* the program may set the Parameter to another one and release it */
            cl_mem object = j->held[j->held_count++] = fl_object_of(cell);
            CALL(fl_table_of(object), clRetainMemObject)(object);
        }
    }
    return j;
}

static void drop(job *j) {
    for (uint32_t i = 0; i < j->held_count; i++)
        CALL(fl_table_of(j->held[i]), clReleaseMemObject)(j->held[i]);
    if (j->end)
        CALL(fl_table_of(j->end), clReleaseEvent)(j->end);
    if (j->before)
        CALL(fl_table_of(j->before), clReleaseEvent)(j->before);
    free(j);
}

static void complete(job *j, cl_int status) {
    CALL(fl_table_of(j->end), clSetUserEventStatus)(j->end, status);
    drop(j);
}

/* The graph's thread. It ends when the graph is released and nothing is left to do. */
static void *work(void *cuda) {
    fl_cuda *g = cuda;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        while (!g->first && !g->closing)
            pthread_cond_wait(&g->changed, &g->lock);
        job *j = g->first;
        if (!j)
            break;
        pthread_mutex_unlock(&g->lock);
        cl_int code = CALL(fl_table_of(j->before), clWaitForEvents)(1, &j->before);
        if (code == CL_SUCCESS)
            code = launch(g, j->times, j->words);
        pthread_mutex_lock(&g->lock);
        g->first = j->next;
        if (!g->first)
            g->last = &g->first;
        pthread_mutex_unlock(&g->lock);
        complete(j, code);
        pthread_mutex_lock(&g->lock);
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    destroy(g);
    return NULL;
}

/* Give the graph's thread a job. */
static bool give(fl_cuda *g, job *j) {
    pthread_t thread;
    pthread_attr_t detached;
    pthread_mutex_lock(&g->lock);
    if (!g->has_thread) {
        pthread_attr_init(&detached);
        pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
        g->has_thread = pthread_create(&thread, &detached, work, g) == 0;
        pthread_attr_destroy(&detached);
    }
    bool given = g->has_thread;
    if (given) {
        *g->last = j;
        g->last = &j->next;
        pthread_cond_broadcast(&g->changed);
    }
    pthread_mutex_unlock(&g->lock);
    return given;
}

int fl_enqueue_cuda(void *cuda, void *const *lanes, uint32_t lane_count, uint32_t times, uint32_t wait_count, void *const *wait_list,
                    void **event, uint32_t *failed) {
    fl_cuda *g = cuda;
    cl_command_queue queue = *lanes;
    void **table = fl_table_of(queue);
    cl_event end = NULL;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    (void)lane_count;
    *failed = UINT32_MAX;
    if (g->device->lost)
        return FL_BUILD_ANEW;
    job *j = new_job(g, times);
    if (!j)
        return code;
    j->end = CALL(table, clCreateUserEvent)(g->context, &code);
    if (j->end)
        code = CALL(table, clEnqueueBarrierWithWaitList)(queue, wait_count, (const cl_event *)wait_list, &j->before);
    if (!j->before) {
        drop(j);
        return code;
    }
    code = CALL(table, clEnqueueBarrierWithWaitList)(queue, 1, &j->end, event ? &end : NULL);
    CALL(table, clFlush)(queue);
    if (code != CL_SUCCESS) {
        complete(j, code);
        return code;
    }
    if (!give(g, j)) {
        complete(j, CL_OUT_OF_RESOURCES);
        if (end)
            CALL(table, clReleaseEvent)(end);
        return CL_OUT_OF_HOST_MEMORY;
    }
    if (event)
        *event = end;
    return CL_SUCCESS;
}

/* --- updates --- */

/* Wait until all launches that were enqueued are made, since an update must not reach them. They may wait for the program itself, so not for
 * ever. The caller has the lock. */
static bool all_launched(fl_cuda *g) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += UPDATE_WAITS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int code = 0;
    while (g->first && !code)
        code = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    return !g->first;
}

static CUresult set_node(fl_cuda *g, CUgraphNode node, const fl_cuda_node *n) {
    const fl_cuda_device *d = g->device;
    switch (n->kind) {
    case FL_NODE_LAUNCH: return CU(d, cuGraphExecKernelNodeSetParams_v2)(g->executable, node, &n->launch);
    case FL_NODE_COPY: return CU(d, cuGraphExecMemcpyNodeSetParams)(g->executable, node, &n->copy, d->context);
    case FL_NODE_FILL: return CU(d, cuGraphExecMemsetNodeSetParams)(g->executable, node, &n->fill, d->context);
    default: return CUDA_SUCCESS;
    }
}

int fl_update_cuda(void *cuda, uint32_t command, int relaunched) {
    fl_cuda *g = cuda;
    struct made *old = &g->nodes[command];
    fl_cuda_node made;
    (void)relaunched;
    if (fl_describe_node(g->functions, g->function_count, &g->cells, &g->commands[command], &made) != FL_CUDA_FINE ||
        made.kind != old->kind) {
        free(made.values);
        return FL_BUILD_ANEW;
    }
    pthread_mutex_lock(&g->lock);
    CUresult code = all_launched(g) ? fl_cuda_enter(g->device) : CUDA_ERROR_NOT_READY;
    if (code == CUDA_SUCCESS) {
        pthread_mutex_lock(&g->running);
        code = set_node(g, old->node, &made);
        fl_drop_loop(g->device, &g->loop);   /* it is built of the commands again */
        pthread_mutex_unlock(&g->running);
        fl_cuda_leave(g->device);
    }
    pthread_mutex_unlock(&g->lock);
    old->is_fixed = made.is_fixed;
    free(made.values);
    return code == CUDA_SUCCESS ? CL_SUCCESS : FL_BUILD_ANEW;
}

int fl_set_cell_of_cuda(void *cuda, const fl_cell *cell) {
    fl_cuda *g = cuda;
    int code = CL_SUCCESS;
    for (uint32_t i = 0; i < g->cells.count; i++)
        if (g->cells.list[i] == cell && fl_word_of_cell(cell, &g->words[i]) != FL_CUDA_FINE)
            return FL_BUILD_ANEW;
    for (uint32_t i = 0; i < g->count && code == CL_SUCCESS; i++)
        if (g->nodes[i].is_fixed && fl_has_cell(g->commands[i].arguments, cell))
            code = fl_update_cuda(g, i, 0);
    return code;
}

static int in_order(const void *a, const void *b) {
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return first < second ? -1 : first > second;
}

uint64_t fl_cuda_taken(fl_cuda *g) {
    uint64_t taken[MEASURED], median = 0;
    if (pthread_mutex_trylock(&g->running))
        return 0; /* nobody waits for a replay here */
    if (g->timed == MEASURED) {
        memcpy(taken, g->taken, sizeof taken);
        qsort(taken, MEASURED, sizeof *taken, in_order);
        median = taken[MEASURED / 2];
    }
    pthread_mutex_unlock(&g->running);
    return median;
}

int fl_release_cuda(fl_cuda *g) {
    pthread_mutex_lock(&g->lock);
    bool has_thread = g->has_thread, is_left = g->first != NULL;
    if (is_left) {
        pthread_mutex_lock(&unfinished.lock);
        g->next_unfinished = unfinished.first;
        unfinished.first = g;
        pthread_mutex_unlock(&unfinished.lock);
    }
    g->closing = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (!has_thread)
        destroy(g);
    return is_left;
}
