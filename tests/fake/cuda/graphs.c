/* Graphs. An executable has copies of the nodes, and so has each launch. Of the nodes that can run
 * the one that was added last runs first. */
#include "fake.h"

struct fl_CUgraphNode {
    enum { EMPTY, LAUNCH, COPY, FILL, HOST, RECORD, WAIT, CHILD, WHILE, CALL } kind;
    launch launch;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_HOST_NODE_PARAMS host;
    job call;
    CUevent event;
    record *record;   /* of a launch */
    CUgraph child, graph;   /* `child` is the body of a loop, too */
    struct condition *condition;
    bool off, early;   /* `early`: its edge is a programmatic one */
    size_t index, count, *before;
};

/* A handle of CUDA's is the address of one. It lives as long as the process. */
struct condition {
    uint32_t first, value;
};

struct fl_CUgraph {
    CUgraphNode *nodes;
    size_t count;
};

struct fl_CUgraphExec {
    CUgraph graph;
    CUevent last;   /* of the last launch: a launch comes after the one before it */
};

CUgraph fake_copy_graph(const CUgraph graph) {
    CUgraph made = calloc(1, sizeof *made);
    made->count = graph->count;
    made->nodes = calloc(graph->count + 1, sizeof *made->nodes);
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode one = made->nodes[i] = malloc(sizeof *one);
        *one = *graph->nodes[i];
        one->before = memcpy(malloc(sizeof *one->before * (one->count + 1)), one->before,
                             sizeof *one->before * one->count);
        if (one->kind == LAUNCH)
            one->launch = fake_copy_launch(&one->launch);
        if (one->kind == CALL)
            one->call.data = memcpy(malloc(one->call.size), one->call.data, one->call.size);
        if (one->child)
            one->child = fake_copy_graph(one->child);
    }
    return made;
}

static void drop_graph(CUgraph graph) {
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode one = graph->nodes[i];
        if (one->kind == LAUNCH)
            fake_drop_launch(&one->launch);
        if (one->kind == CALL)
            free((void *)one->call.data);
        if (one->child)
            drop_graph(one->child);
        free(one->before);
        free(one);
    }
    free(graph->nodes);
    free(graph);
}

CUresult cuGraphCreate(CUgraph *graph, uint32_t flags) {
    BEGIN;
    *graph = calloc(1, sizeof **graph);
    return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    BEGIN;
    drop_graph(graph);
    return CUDA_SUCCESS;
}

static CUresult add(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                    CUgraphNode one) {
    CUgraphNode made = malloc(sizeof *made);
    *made = *one;
    made->graph = graph;
    made->index = graph->count;
    made->count = count;
    made->before = calloc(count + 1, sizeof *made->before);
    for (size_t i = 0; i < count; i++) {
        if (!before[i] || before[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t j = 0; j < i; j++)
            if (before[j] == before[i])
                return CUDA_ERROR_INVALID_VALUE;
        made->before[i] = before[i]->index;
    }
    graph->nodes = realloc(graph->nodes, sizeof *graph->nodes * (graph->count + 1));
    *node = graph->nodes[graph->count++] = made;
    return CUDA_SUCCESS;
}

#define ADD(...) add(node, graph, before, count, &(struct fl_CUgraphNode){__VA_ARGS__})

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                             size_t count) {
    BEGIN;
    return ADD(.kind = EMPTY);
}

static bool waits(CUgraphNode one) {
    return one->kind == LAUNCH && fake_mentions(&one->launch, "griddepcontrol.wait;");
}

/* As drivers do: the data of the first edge is that of all. */
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count) {
    BEGIN;
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node = to[i];
        bool early = data && data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        if (node->graph != graph || from[i]->graph != graph ||
            (early && (data->from_port != 1 || !waits(from[i]) || !waits(node))))
            return CUDA_ERROR_INVALID_VALUE;
        node->before = realloc(node->before, sizeof *node->before * (node->count + 2));
        node->before[node->count++] = from[i]->index;
        node->early = early;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                      const CUgraphEdgeData *data, size_t count) {
    BEGIN;
    for (size_t i = 0; i < count; i++) {
        CUgraphNode node = to[i];
        bool early = data && data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
        size_t place = 0;
        while (place < node->count && node->before[place] != from[i]->index)
            place++;
        if (node->graph != graph || place == node->count || node->early != early)
            return CUDA_ERROR_INVALID_VALUE;
        memmove(&node->before[place], &node->before[place + 1],
                sizeof *node->before * (--node->count - place));
        node->early = false;
    }
    return CUDA_SUCCESS;
}

/* How many edges of a graph are programmatic, and between which nodes there are edges: "0>1 0>2 ",
 * for tests. */
size_t fake_cuda_edges(CUgraph graph, char *text, size_t room) {
    size_t early = 0;
    *text = 0;
    for (size_t i = 0; i < graph->count; i++) {
        early += graph->nodes[i]->early;
        for (size_t b = 0; b < graph->nodes[i]->count; b++)
            snprintf(text + strlen(text), room - strlen(text), "%zu>%zu ",
                     graph->nodes[i]->before[b], i);
    }
    return early;
}

/* A node has its own copy of the parameters. */
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t count, const CUDA_KERNEL_NODE_PARAMS *given) {
    BEGIN;
    launch one;
    CUresult code = fake_make_launch(&one, given);
    return code ? code : ADD(.kind = LAUNCH, .launch = one);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_MEMCPY3D *copy, CUcontext context) {
    BEGIN;
    return context ? ADD(.kind = COPY, .copy = *copy) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, const CUDA_MEMSET_NODE_PARAMS *fill,
                              CUcontext context) {
    BEGIN;
    if (!context || fill->dst % fill->elementSize ||
        !fake_may_use(fill->dst, (int)(uintptr_t)context - 1))
        return CUDA_ERROR_INVALID_VALUE;
    return ADD(.kind = FILL, .fill = *fill);
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                            size_t count, const CUDA_HOST_NODE_PARAMS *host) {
    BEGIN;
    return ADD(.kind = HOST, .host = *host);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                   size_t count, CUevent event) {
    BEGIN;
    return ADD(.kind = RECORD, .event = event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                 size_t count, CUevent event) {
    BEGIN;
    return ADD(.kind = WAIT, .event = event);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                  size_t count, CUgraph child) {
    BEGIN;
    return child && child != graph ? ADD(.kind = CHILD, .child = fake_copy_graph(child))
                                   : CUDA_ERROR_INVALID_VALUE;
}

/* --- what captures add --- */

CUresult fake_add_call(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                       const void *what) {
    job one = *(const job *)what;
    one.data = memcpy(malloc(one.size), one.data, one.size);
    return ADD(.kind = CALL, .call = one);
}

CUresult fake_add_launch(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                         const void *what) {
    return ADD(.kind = LAUNCH, .launch = *(const launch *)what);
}

CUresult fake_add_child(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                        const void *what) {
    return ADD(.kind = CHILD, .child = fake_copy_graph((CUgraph)what));
}

bool fake_comes_after(CUgraphNode node, CUgraphNode other) {
    bool found = node == other;
    for (size_t i = 0; !found && i < node->count; i++)
        found = fake_comes_after(node->graph->nodes[node->before[i]], other);
    return found;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    BEGIN;
    for (size_t i = 0; nodes && i < graph->count && i < *count; i++)
        nodes[i] = graph->nodes[i];
    *count = graph->count;
    return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, uint32_t flags) {
    (void)flags;
    BEGIN;
    FILE *file = fopen(path, "w");
    if (!file)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    for (size_t i = 0; i < graph->count; i++) {
        fprintf(file, "n%zu [label=\"%d\"];\n", i, (int)graph->nodes[i]->kind);
        for (size_t b = 0; b < graph->nodes[i]->count; b++)
            fprintf(file, "n%zu -> n%zu;\n", graph->nodes[i]->before[b], i);
    }
    fprintf(file, "}\n");
    fclose(file);
    return CUDA_SUCCESS;
}

CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph,
                                        CUcontext context, uint32_t value, uint32_t flags) {
    BEGIN;
    struct condition *made = calloc(1, sizeof *made);
    made->first = value;
    *handle = (uintptr_t)made;
    return graph && context && flags == CU_GRAPH_COND_ASSIGN_DEFAULT ? CUDA_SUCCESS
                                                                     : CUDA_ERROR_INVALID_VALUE;
}

void fake_set_condition(uint64_t handle, uint32_t value) {
    ((struct condition *)(uintptr_t)handle)->value = value;
}

CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                           const CUgraphEdgeData *data, size_t count, CUgraphNodeParams *params) {
    BEGIN;
    CUDA_CONDITIONAL_NODE_PARAMS *given = (void *)params->reserved1;
    if (params->type != CU_GRAPH_NODE_TYPE_CONDITIONAL || given->type != CU_GRAPH_COND_TYPE_WHILE ||
        given->size != 1 || data)
        return CUDA_ERROR_NOT_SUPPORTED;
    CUresult code = ADD(.kind = WHILE, .child = calloc(1, sizeof *graph),
                        .condition = (void *)(uintptr_t)given->handle);
    given->phGraph_out = &(*node)->child;
    return code;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, uint64_t flags) {
    (void)flags;
    BEGIN;
    *executable = calloc(1, sizeof **executable);
    (*executable)->graph = fake_copy_graph(graph);
    return cuEventCreate(&(*executable)->last, CU_EVENT_DISABLE_TIMING);
}

CUresult cuGraphUpload(CUgraphExec executable, CUstream stream) {
    (void)executable, (void)stream;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
    BEGIN;
    drop_graph(executable->graph);
    cuEventDestroy_v2(executable->last);
    free(executable);
    return CUDA_SUCCESS;
}

/* --- updates --- */

/* The executable's copy of a node, NULL if it is of another kind. */
static CUgraphNode own(CUgraphExec executable, CUgraphNode node, int kind) {
    CUgraphNode found =
        node->index < executable->graph->count ? executable->graph->nodes[node->index] : NULL;
    return found && (int)found->kind == kind ? found : NULL;
}

static CUresult set_launch(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given) {
    launch one;
    CUresult code = node ? fake_make_launch(&one, given) : CUDA_ERROR_INVALID_VALUE;
    if (code)
        return code;
    if (!fake_is_of_same_device(&one, &node->launch))
        return fake_drop_launch(&one), CUDA_ERROR_INVALID_VALUE;
    fake_drop_launch(&node->launch);
    node->launch = one;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *given) {
    BEGIN;
    return set_launch(own(executable, node, LAUNCH), given);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *given) {
    BEGIN;
    return set_launch(node->kind == LAUNCH ? node : NULL, given);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMCPY3D *copy, CUcontext context) {
    (void)context;
    BEGIN;
    CUgraphNode found = own(executable, node, COPY);
    bool fits = found && found->copy.reserved0 == copy->reserved0;
    if (fits)
        found->copy = *copy;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context) {
    BEGIN;
    CUgraphNode found = own(executable, node, FILL);
    bool fits = found && fake_may_use(fill->dst, (int)(uintptr_t)context - 1);
    if (fits)
        found->fill = *fill;
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                            CUgraph child) {
    BEGIN;
    CUgraphNode found = own(executable, node, CHILD);
    if (!found || found->child->count != child->count)
        return CUDA_ERROR_INVALID_VALUE;
    drop_graph(found->child);
    found->child = fake_copy_graph(child);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec executable, CUgraphNode node,
                                            CUevent event) {
    BEGIN;
    CUgraphNode found = own(executable, node, RECORD);
    if (found)
        found->event = event;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec executable, CUgraphNode node, CUevent event) {
    BEGIN;
    CUgraphNode found = own(executable, node, WAIT);
    if (found)
        found->event = event;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool fake_replace_graph(CUgraphExec executable, CUgraph graph) {
    CUgraph old = executable->graph;
    bool same = old->count == graph->count;
    for (size_t i = 0; same && i < old->count; i++) {
        CUgraphNode a = old->nodes[i], b = graph->nodes[i];
        same = a->kind == b->kind && a->count == b->count &&
               !memcmp(a->before, b->before, sizeof *a->before * a->count);
    }
    if (same) {
        executable->graph = fake_copy_graph(graph);
        drop_graph(old);
    }
    return same;
}

bool fake_enable(CUgraphExec executable, CUgraphNode node, bool enabled) {
    CUgraphNode found =
        node->index < executable->graph->count ? executable->graph->nodes[node->index] : NULL;
    bool can = found && (found->kind == LAUNCH || found->kind == COPY || found->kind == FILL);
    if (can)
        found->off = !enabled;
    return can;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec executable, CUgraphNode node, uint32_t enabled) {
    BEGIN;
    return fake_enable(executable, node, enabled) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- launches --- */

static CUresult run_node(CUgraphNode one);

static CUresult run_graph(CUgraph graph) {
    bool *done = calloc(graph->count + 1, sizeof *done);
    CUresult code = CUDA_SUCCESS;
    for (size_t left = graph->count; left; left--) {
        size_t next = graph->count;
        for (size_t i = 0; i < graph->count; i++) {
            bool can = !done[i];
            for (size_t b = 0; can && b < graph->nodes[i]->count; b++)
                can = done[graph->nodes[i]->before[b]];
            next = can ? i : next;
        }
        done[next] = true;
        CUresult found = run_node(graph->nodes[next]);
        code = code ? code : found;
    }
    free(done);
    return code;
}

static CUresult run_loop(CUgraphNode one) {
    CUresult code = CUDA_SUCCESS;
    while (one->condition->value && !code)
        code = run_graph(one->child);
    return code;
}

static CUresult run_node(CUgraphNode one) {
    if (one->off)
        return CUDA_SUCCESS;
    switch (one->kind) {
    case EMPTY: break;
    case LAUNCH: return fake_run_launch(&one->launch);
    case COPY: fake_copy(&one->copy); break;
    case FILL: fake_fill(&one->fill); break;
    case HOST: fake_call_host((void (*)(void *))one->host.fn, one->host.userData); break;
    case RECORD: fake_complete(one->record); break;
    case WAIT: fake_wait_for(one->record); break;
    case CHILD: return run_graph(one->child);
    case WHILE: return run_loop(one);
    case CALL: return one->call.run((void *)one->call.data);
    }
    return CUDA_SUCCESS;
}

/* Events are pending from the launch on, and a node waits for what its event is at the launch. */
static void take_events(CUgraph graph) {
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->kind == WAIT)
            graph->nodes[i]->record = fake_record_of(graph->nodes[i]->event);
    for (size_t i = 0; i < graph->count; i++) {
        if (graph->nodes[i]->kind == RECORD)
            graph->nodes[i]->record = fake_new_record(graph->nodes[i]->event);
        if (graph->nodes[i]->child)
            take_events(graph->nodes[i]->child);
    }
}

/* Each launch of a graph begins with their first values. */
static void reset_conditions(CUgraph graph) {
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode one = graph->nodes[i];
        if (one->condition)
            one->condition->value = one->condition->first;
        if (one->child)
            reset_conditions(one->child);
    }
}

typedef struct pending {
    CUgraph graph;
    record *before, *after;
} pending;

static CUresult run(void *data) {
    pending *one = data;
    fake_wait_for(one->before);
    reset_conditions(one->graph);
    CUresult code = run_graph(one->graph);
    drop_graph(one->graph);
    fake_complete(one->after);
    return code;
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
    BEGIN;
    NEED_CONTEXT;
    if (stream && *fake_member_of(stream))
        return fake_refuse_capture(stream);
    CUgraph graph = fake_copy_graph(executable->graph);
    take_events(graph);
    pending one = {graph, fake_record_of(executable->last), fake_new_record(executable->last)};
    return fake_push(stream, run, &one, sizeof one);
}
