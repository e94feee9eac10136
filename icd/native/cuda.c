/* The engine `cuda`: commands as one CUDA Graph, which is built and updated here, and launched in
 * cuda_launches.c. */
#include "cuda.h"
#include "../../loader/base/native/untraced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Milliseconds for launches that are not made yet; then the graph is built anew. */
enum { UPDATE_WAITS = 20 };

static struct {
    pthread_mutex_t lock;
    fl_cuda *first;
    fl_add_pending *add;
    fl_tell *tell;
} unfinished = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(unfinished.lock)

CUresult fl_cuda_enter(const fl_cuda_device *device) {
    return CU(device, cuCtxPushCurrent_v2)(device->context);
}

void fl_cuda_leave(const fl_cuda_device *device) {
    CUcontext old;
    CU(device, cuCtxPopCurrent_v2)(&old);
}

/* The sets of a longer pattern. */
static CUresult add_sets(const fl_cuda_device *d, const fl_cuda_node *n, CUgraph graph) {
    CUDA_MEMSET_NODE_PARAMS fill = n->fill;
    CUresult code = CUDA_SUCCESS;
    CUgraphNode node;
    for (size_t at = 0; at < fill.pitch && code == CUDA_SUCCESS; at += sizeof fill.value) {
        fill.dst = n->fill.dst + at;
        memcpy(&fill.value, n->pattern + at, sizeof fill.value);
        code = CU(d, cuGraphAddMemsetNode)(&node, graph, NULL, 0, &fill, n->device->context);
    }
    return code;
}

static CUresult add_parts(const fl_cuda_device *d, const fl_cuda_node *n, CUgraph graph) {
    CUDA_KERNEL_NODE_PARAMS launch = n->launch;
    CUresult code = CUDA_SUCCESS;
    CUgraphNode node;
    for (uint32_t i = 0; i < n->part_count && code == CUDA_SUCCESS; i++) {
        launch.func = n->parts[i].function;
        launch.gridDimX = n->parts[i].grid[0];
        launch.gridDimY = n->parts[i].grid[1];
        launch.gridDimZ = n->parts[i].grid[2];
        code = CU(d, cuGraphAddKernelNode_v2)(&node, graph, NULL, 0, &launch);
    }
    return code;
}

static CUresult make_inner(const fl_cuda_device *d, const fl_cuda_node *n, CUgraph *made) {
    CUresult code = CU(d, cuGraphCreate)(made, 0);
    if (code == CUDA_SUCCESS)
        code = n->kind == FL_NODE_PARTS ? add_parts(d, n, *made) : add_sets(d, n, *made);
    if (code != CUDA_SUCCESS && *made)
        CU(d, cuGraphDestroy)(*made);
    return code;
}

static CUresult add_inner(const fl_cuda_device *d, CUgraph graph, const fl_cuda_node *n,
                          const CUgraphNode *before, size_t count, CUgraphNode *made) {
    CUgraph inner = NULL;
    CUresult code = make_inner(d, n, &inner);
    if (code != CUDA_SUCCESS)
        return code;
    code = CU(d, cuGraphAddChildGraphNode)(made, graph, before, count, inner);
    CU(d, cuGraphDestroy)(inner);
    return code;
}

static CUresult set_inner(const fl_cuda *g, CUgraphNode node, const fl_cuda_node *n) {
    const fl_cuda_device *d = g->device;
    CUgraph inner = NULL;
    CUresult code = make_inner(d, n, &inner);
    if (code != CUDA_SUCCESS)
        return code;
    code = CU(d, cuGraphExecChildGraphNodeSetParams)(g->executable, node, inner);
    CU(d, cuGraphDestroy)(inner);
    return code;
}

static CUresult add_node(const fl_cuda_device *d, CUgraph graph, const fl_cuda_node *n,
                         const CUgraphNode *before, size_t count, CUgraphNode *made) {
    switch (n->kind) {
    case FL_NODE_LAUNCH:
        return CU(d, cuGraphAddKernelNode_v2)(made, graph, before, count, &n->launch);
    case FL_NODE_COPY:
        return CU(d, cuGraphAddMemcpyNode)(made, graph, before, count, &n->copy,
                                           n->device->context);
    case FL_NODE_FILL:
        return CU(d, cuGraphAddMemsetNode)(made, graph, before, count, &n->fill,
                                           n->device->context);
    case FL_NODE_FILLS:
    case FL_NODE_PARTS: return add_inner(d, graph, n, before, count, made);
    default: return CUDA_SUCCESS;
    }
}

/* A launch after the only node that it comes after, which nothing else comes after: it is on its
 * device when that one ends, or before, and waits there for its results. One edge at a time, since
 * drivers take the kind of the first for all. */
static CUresult add_early(const fl_cuda_device *d, CUgraph graph, const fl_cuda_node *n,
                          CUgraphNode before, CUgraphNode *made) {
    static const CUgraphEdgeData edge = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                         .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUresult code = add_node(d, graph, n, NULL, 0, made);
    return code == CUDA_SUCCESS ? CU(d, cuGraphAddDependencies_v2)(graph, &before, made, &edge, 1)
                                : code;
}

/* Add a command after the nodes `list`, the only one of which is `only`. */
static CUresult add_command(fl_cuda *g, CUgraph graph, uint32_t number, const CUgraphNode *list,
                            size_t count, const struct fl_cuda_made *only,
                            struct fl_cuda_made *made) {
    fl_cuda_node n;
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    bool fine =
        fl_describe_node(g->functions, &g->cells, &g->commands[number], &n) == FL_CUDA_FINE;
    bool waits = fine && n.kind == FL_NODE_LAUNCH && n.waits;
    bool early = g->starts_early && waits && only && only->waits && only->followers == 1 &&
                 only->device == n.device;
    if (fine && early)
        code = add_early(g->device, graph, &n, *list, &made->node);
    else if (fine)
        code = add_node(g->device, graph, &n, list, count, &made->node);
    made->kind = n.kind;
    made->device = n.device;
    made->is_fixed = n.is_fixed;
    made->waits = waits;
    made->is_early = early;
    free(n.values);
    return code;
}

/* Add all commands to a graph. They become `nodes`, of which the followers are known if launches
 * may start early. */
static CUresult add_all(fl_cuda *g, CUgraph graph, struct fl_cuda_made *nodes) {
    CUgraphNode *list = malloc((g->first_before[g->count] + 1) * sizeof *list);
    CUresult code = list ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->count && code == CUDA_SUCCESS; i++) {
        const uint32_t *before = &g->before[g->first_before[i]];
        size_t count = g->first_before[i + 1] - g->first_before[i];
        for (size_t k = 0; k < count; k++)
            list[k] = nodes[before[k]].node;
        code =
            add_command(g, graph, i, list, count, count == 1 ? &nodes[*before] : NULL, &nodes[i]);
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
    g->starts_early = false;
    return build(g);
}

CUresult fl_build_cuda_loop(fl_cuda *g, CUdeviceptr word) {
    struct fl_cuda_made *nodes = calloc(g->count + 1, sizeof *nodes);
    CUgraphNode *last = malloc((g->count + 1) * sizeof *last);
    CUgraph body;
    size_t count = 0;
    CUresult code =
        nodes && last ? fl_begin_loop(g->device, &g->loop, word, &body) : CUDA_ERROR_OUT_OF_MEMORY;
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

/* The words of the cells, in each device's memory and here. */
static CUresult make_words(fl_cuda *g) {
    const fl_cuda_functions *fs = g->functions;
    if (!fl_list_cuda_cells(&g->cells, fs, g->commands, g->count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!g->cells.count)
        return CUDA_SUCCESS;
    g->words = calloc(g->cells.count, sizeof *g->words);
    g->cells.words = calloc(g->device_count, sizeof *g->cells.words);
    if (!g->words || !g->cells.words)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < g->cells.count; i++)
        if (fl_word_of_cell(fs, &g->cells, i, &g->words[i]) != FL_CUDA_FINE)
            return CUDA_ERROR_INVALID_VALUE;
    CUresult code = CUDA_SUCCESS;
    for (uint32_t i = 0; i < g->device_count && code == CUDA_SUCCESS; i++) {
        const fl_cuda_device *d = g->devices[i];
        if ((code = fl_cuda_enter(d)) != CUDA_SUCCESS)
            break;
        code = CU(d, cuMemAlloc_v2)(&g->cells.words[i], g->cells.count * sizeof *g->words);
        fl_cuda_leave(d);
    }
    return code;
}

static void drop_words(fl_cuda *g) {
    for (uint32_t i = 0; g->cells.words && i < g->device_count; i++) {
        const fl_cuda_device *d = g->devices[i];
        if (!g->cells.words[i] || fl_cuda_enter(d) != CUDA_SUCCESS)
            continue;
        CU(d, cuMemFree_v2)(g->cells.words[i]);
        fl_cuda_leave(d);
    }
}

CUresult fl_cuda_lost(const fl_cuda *g) {
    CUresult lost = CUDA_SUCCESS;
    for (uint32_t i = 0; i < g->device_count && lost == CUDA_SUCCESS; i++)
        lost = g->devices[i]->lost;
    return lost;
}

static fl_cuda **place_in_unfinished(const fl_cuda *g) {
    fl_cuda **at = &unfinished.first;
    while (*at && *at != g)
        at = &(*at)->next_unfinished;
    return at;
}

int fl_cuda_has_ended(const fl_cuda *g) {
    FL_HOLD(unfinished.lock);
    bool is_listed = *place_in_unfinished(g) != NULL;
    return !is_listed;
}

void fl_tell_cuda_ends(fl_add_pending *add, fl_tell *tell) {
    FL_HOLD(unfinished.lock);
    unfinished.add = add;
    unfinished.tell = tell;
}

static int tell_untraced(void *unused) {
    (void)unused;
    pthread_mutex_lock(&unfinished.lock);
    fl_tell *tell = unfinished.tell;
    pthread_mutex_unlock(&unfinished.lock);
    PyThreadState *thread = tell ? fl_stop_tracing() : NULL;
    if (tell)
        tell(NULL);
    fl_trace_again(thread);
    return 0;
}

void fl_destroy_cuda(fl_cuda *g) {
    const fl_cuda_device *d = g->device;
    if (!fl_cuda_lost(g) && fl_cuda_enter(d) == CUDA_SUCCESS) {
        drop_graph(g);
        fl_drop_loop(d, &g->loop);
        fl_free_jobs(g, true);
        fl_cuda_leave(d);
        drop_words(g);
    }
    fl_free_jobs(g, false);
    pthread_mutex_lock(&unfinished.lock);
    fl_cuda **at = place_in_unfinished(g);
    if (*at) {
        *at = g->next_unfinished;
        if (unfinished.add)   /* if Python takes no more calls, the next graph looks */
            unfinished.add(tell_untraced, NULL);
    }
    pthread_mutex_unlock(&unfinished.lock);
    fl_forget_cuda_cells(&g->cells);
    free(g->words);
    free(g->sent);
    pthread_mutex_destroy(&g->running);
    pthread_mutex_destroy(&g->ending);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->changed);
    free(g->first_before);
    free(g->before);
    free(g->devices);
    free(g->nodes);
    free(g);
}

static void *copied(const void *array, size_t size) {
    void *made = malloc(size + 1);
    return made ? memcpy(made, array, size) : NULL;
}

fl_cuda *fl_new_cuda(fl_cuda_device *device, void *context, const fl_cuda_functions *functions,
                     const fl_command *commands, uint32_t count, const uint32_t *first_before,
                     const uint32_t *before, int starts_early, int in_order, int beside,
                     const char *title, int *code) {
    fl_cuda *g = calloc(1, sizeof *g);
    *code = CUDA_ERROR_OUT_OF_MEMORY;
    if (!g)
        return NULL;
    *g = (fl_cuda){.device = device,
                   .context = context,
                   .functions = functions,
                   .count = count,
                   .commands = commands,
                   .starts_early = starts_early,
                   .has_no_loop = functions->device_count > 1,
                   .in_order = in_order,
                   .beside = beside};
    g->nodes = calloc(count ? count : 1, sizeof *g->nodes);
    g->first_before = copied(first_before, (count + 1) * sizeof *first_before);
    g->before = copied(before, first_before[count] * sizeof *before);
    g->devices = copied(functions->devices, functions->device_count * sizeof *g->devices);
    g->device_count = g->devices ? functions->device_count : 0;
    snprintf(g->title, sizeof g->title, "%s", title);
    pthread_mutex_init(&g->running, NULL);
    pthread_mutex_init(&g->ending, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    if (g->nodes && g->first_before && g->before && g->devices)
        *code = fl_cuda_enter(device);
    if (*code == CUDA_SUCCESS) {
        *code = make_words(g);
        if (*code == CUDA_SUCCESS)
            *code = build_either(g);
        fl_cuda_leave(device);
    }
    if (*code == CUDA_SUCCESS)
        return g;
    fl_destroy_cuda(g);
    return NULL;
}

uint32_t fl_cuda_early(const fl_cuda *g) { return g->early; }

/* --- updates --- */

/* Wait until all launches that were enqueued are made, since an update must not reach them: CUDA
 * keeps what a launch was made with. They may wait for the program itself, so not for ever. The
 * caller has the lock. */
static bool all_launched(fl_cuda *g) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += UPDATE_WAITS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int code = 0;
    while (g->unlaunched && !code)
        code = pthread_cond_timedwait(&g->changed, &g->lock, &until);
    return !g->unlaunched;
}

static CUresult set_node(fl_cuda *g, CUgraphNode node, const fl_cuda_node *n) {
    const fl_cuda_device *d = g->device;
    switch (n->kind) {
    case FL_NODE_LAUNCH:
        return CU(d, cuGraphExecKernelNodeSetParams_v2)(g->executable, node, &n->launch);
    case FL_NODE_COPY:
        return CU(d, cuGraphExecMemcpyNodeSetParams)(g->executable, node, &n->copy,
                                                     n->device->context);
    case FL_NODE_FILL:
        return CU(d, cuGraphExecMemsetNodeSetParams)(g->executable, node, &n->fill,
                                                     n->device->context);
    case FL_NODE_FILLS:
    case FL_NODE_PARTS: return set_inner(g, node, n);
    default: return CUDA_SUCCESS;
    }
}

int fl_update_cuda(void *cuda, uint32_t command, int relaunched) {
    fl_cuda *g = cuda;
    struct fl_cuda_made *old = &g->nodes[command];
    fl_cuda_node made;
    (void)relaunched;
    if (fl_describe_node(g->functions, &g->cells, &g->commands[command], &made) != FL_CUDA_FINE ||
        made.kind != old->kind || made.device != old->device) {
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
        if (g->cells.list[i].cell == cell &&
            fl_word_of_cell(g->functions, &g->cells, i, &g->words[i]) != FL_CUDA_FINE)
            return FL_BUILD_ANEW;
    for (uint32_t i = 0; i < g->count && code == CL_SUCCESS; i++)
        if (g->nodes[i].is_fixed && fl_has_cell(g->commands[i].arguments, cell))
            code = fl_update_cuda(g, i, 0);
    return code;
}

int fl_release_cuda(fl_cuda *g) {
    fl_close_lane(g);
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
        fl_destroy_cuda(g);
    return is_left;
}
