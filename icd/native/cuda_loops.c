/* Loops and choices in CUDA: a node that repeats commands until a word is as wanted, or runs them
 * only if it is not. The host is not asked.
 *
 * The commands are the body of a WHILE node or of an IF node. Its last node is a kernel of ours,
 * which counts the turn, looks at the word, and says whether there is another one. The same kernel
 * is before an IF node, where it counts nothing. */
#include "cuda.h"

#include <string.h>

/* What that kernel has to know, and what it tells, in the device's memory. */
typedef struct state {
    uint32_t times, wanted, ran, stopped;
} state;

/* Its parameters: the condition of the node, the state, the word, and how many turns it counts. */
static const char turn_text[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);\n"
    ".visible .entry fl_turn(.param .u64 condition, .param .u64 state, .param .u64 word, .param "
    ".u32 turns)\n"
    "{\n"
    "\t.reg .pred %last, %set, %other;\n"
    "\t.reg .b32 %times, %wanted, %ran, %value, %again, %turns;\n"
    "\t.reg .b64 %condition, %state, %word;\n"
    "\tld.param.u64 %condition, [condition];\n"
    "\tld.param.u64 %state, [state];\n"
    "\tld.param.u64 %word, [word];\n"
    "\tld.param.u32 %turns, [turns];\n"
    "\tld.global.v2.u32 {%times, %wanted}, [%state];\n"
    "\tld.global.u32 %ran, [%state+8];\n"
    "\tld.volatile.global.u32 %value, [%word];\n"
    "\tadd.u32 %ran, %ran, %turns;\n"
    "\tst.global.u32 [%state+8], %ran;\n"
    "\tsetp.ge.u32 %last, %ran, %times;\n"
    "\tsetp.ne.u32 %set, %value, 0;\n"
    "\tselp.u32 %value, 1, 0, %set;\n"
    "\tsetp.ne.u32 %other, %value, %wanted;\n"
    "\tselp.u32 %value, 0, 1, %other;\n"
    "\tst.global.u32 [%state+12], %value;\n"
    "\tselp.u32 %again, 1, 0, %other;\n"
    "\tselp.u32 %again, 0, %again, %last;\n"
    "\t{\n"
    "\t.param .b64 to;\n"
    "\t.param .b32 what;\n"
    "\tst.param.b64 [to], %condition;\n"
    "\tst.param.b32 [what], %again;\n"
    "\tcall.uni cudaGraphSetConditional, (to, what);\n"
    "\t}\n"
    "\tret;\n"
    "}\n";

const char *fl_turn_text(void) { return turn_text; }

/* The kernel on a device, compiled once. */
static CUresult find_turn(fl_cuda_device *d) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult code = CUDA_SUCCESS;
    CUmodule module;
    CUfunction function;
    pthread_mutex_lock(&lock);
    if (!d->turn) {
        code = CU(d, cuModuleLoadDataEx)(&module, turn_text, 0, NULL, NULL);
        if (code == CUDA_SUCCESS)
            code = CU(d, cuModuleGetFunction)(&function, module, "fl_turn");
        if (code == CUDA_SUCCESS)
            d->turn = function;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

static CUresult add_turn(const fl_cuda_device *d, fl_cuda_loop *loop, CUgraph graph,
                         const CUgraphNode *last, size_t count, uint32_t turns, CUgraphNode *node) {
    void *values[] = {&loop->condition, &loop->state, &loop->word, &turns};
    CUDA_KERNEL_NODE_PARAMS turn = {.func = d->turn,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = values};
    return CU(d, cuGraphAddKernelNode_v2)(node, graph, last, count, &turn);
}

CUresult fl_begin_loop(fl_cuda_device *d, fl_cuda_loop *loop, CUdeviceptr word, bool is_choice,
                       CUgraph *body) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUDA_CONDITIONAL_NODE_PARAMS given = {.type = is_choice ? CU_GRAPH_COND_TYPE_IF
                                                            : CU_GRAPH_COND_TYPE_WHILE,
                                          .size = 1,
                                          .ctx = d->context};
    CUgraphNode look, node;
    *loop = (fl_cuda_loop){.word = word};
    CUresult code = find_turn(d);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuMemHostAlloc)(&loop->host, sizeof(state),
                                     CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (is_choice)   /* whose state is looked at twice: copies would take longer */
        loop->state = (CUdeviceptr)(uintptr_t)loop->host;
    else if (code == CUDA_SUCCESS)
        code = CU(d, cuMemAlloc_v2)(&loop->state, sizeof(state));
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphCreate)(&loop->graph, 0);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphConditionalHandleCreate)(&loop->condition, loop->graph, d->context,
                                                     !is_choice, CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (code == CUDA_SUCCESS && is_choice)
        code = add_turn(d, loop, loop->graph, NULL, 0, 0, &look);
    if (code != CUDA_SUCCESS)
        return code;
    given.handle = loop->condition;
    memcpy(params.reserved1, &given, sizeof given);
    code = CU(d, cuGraphAddNode_v2)(&node, loop->graph, is_choice ? &look : NULL, NULL, is_choice,
                                    &params);
    memcpy(&given, params.reserved1, sizeof given);
    if (code == CUDA_SUCCESS)
        *body = given.phGraph_out[0];
    return code;
}

CUresult fl_end_loop(const fl_cuda_device *d, fl_cuda_loop *loop, CUgraph body,
                     const CUgraphNode *last, size_t count) {
    CUgraphNode node;
    CUresult code = add_turn(d, loop, body, last, count, 1, &node);
    return code == CUDA_SUCCESS
               ? CU(d, cuGraphInstantiateWithFlags)(&loop->executable, loop->graph, 0)
               : code;
}

CUresult fl_run_loop(const fl_cuda_device *d, const fl_cuda_loop *loop, uint32_t times, bool wanted,
                     uint32_t *ran, uint32_t *stopped) {
    volatile state *now = loop->host;
    CUdeviceptr here = (CUdeviceptr)(uintptr_t)loop->host;
    bool copies = loop->state != here;
    *now = (state){.times = times, .wanted = wanted};
    CUresult code =
        copies ? CU(d, cuMemcpyAsync)(loop->state, here, sizeof *now, d->stream) : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphLaunch)(loop->executable, d->stream);
    if (code == CUDA_SUCCESS && copies)
        code = CU(d, cuMemcpyAsync)(here, loop->state, sizeof *now, d->stream);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    *ran = now->ran;
    *stopped = now->stopped;
    return code == CUDA_SUCCESS ? end : code;
}

void fl_drop_loop(const fl_cuda_device *d, fl_cuda_loop *loop) {
    if (loop->executable)
        CU(d, cuGraphExecDestroy)(loop->executable);
    if (loop->graph)
        CU(d, cuGraphDestroy)(loop->graph);
    if (loop->state && loop->state != (CUdeviceptr)(uintptr_t)loop->host)
        CU(d, cuMemFree_v2)(loop->state);
    if (loop->host)
        CU(d, cuMemFreeHost)(loop->host);
    *loop = (fl_cuda_loop){0};
}
