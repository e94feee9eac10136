/* Loops in CUDA: a node that repeats commands until a word is as wanted. The host is not asked
 * between two turns.
 *
 * The commands are the body of a WHILE node. Its last node is a kernel of ours, which counts the
 * turn, looks at the word, and says whether there is another one. */
#include "cuda.h"

#include <string.h>

/* What that kernel has to know, and what it tells, in the device's memory. */
typedef struct state {
    uint32_t times, wanted, ran, stopped;
} state;

/* Its parameters: the condition of the node, the state, and the word. */
static const char turn_text[] =
    ".version 7.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);\n"
    ".visible .entry fl_turn(.param .u64 condition, .param .u64 state, .param .u64 word)\n"
    "{\n"
    "\t.reg .pred %last, %set, %other;\n"
    "\t.reg .b32 %times, %wanted, %ran, %value, %again;\n"
    "\t.reg .b64 %condition, %state, %word;\n"
    "\tld.param.u64 %condition, [condition];\n"
    "\tld.param.u64 %state, [state];\n"
    "\tld.param.u64 %word, [word];\n"
    "\tld.global.v2.u32 {%times, %wanted}, [%state];\n"
    "\tld.global.u32 %ran, [%state+8];\n"
    "\tld.volatile.global.u32 %value, [%word];\n"
    "\tadd.u32 %ran, %ran, 1;\n"
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the kernels of all devices */
FL_FREE_IN_CHILD(lock)

/* The kernel on a device, compiled once. */
static CUresult find_turn(fl_cuda_device *d) {
    CUresult code = CUDA_SUCCESS;
    CUmodule module;
    CUfunction function;
    FL_HOLD(lock);
    if (!d->turn) {
        code = CU(d, cuModuleLoadDataEx)(&module, turn_text, 0, NULL, NULL);
        if (code == CUDA_SUCCESS)
            code = CU(d, cuModuleGetFunction)(&function, module, "fl_turn");
        if (code == CUDA_SUCCESS)
            d->turn = function;
    }
    return code;
}

CUresult fl_begin_loop(fl_cuda_device *d, fl_cuda_loop *loop, CUdeviceptr word, CUgraph *body) {
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    CUDA_CONDITIONAL_NODE_PARAMS given = {
        .type = CU_GRAPH_COND_TYPE_WHILE, .size = 1, .ctx = d->context};
    CUgraphNode node;
    *loop = (fl_cuda_loop){.word = word};
    CUresult code = find_turn(d);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuMemAlloc_v2)(&loop->state, sizeof(state));
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphCreate)(&loop->graph, 0);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphConditionalHandleCreate)(&loop->condition, loop->graph, d->context, 1,
                                                     CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (code != CUDA_SUCCESS)
        return code;
    given.handle = loop->condition;
    memcpy(params.reserved1, &given, sizeof given);
    code = CU(d, cuGraphAddNode_v2)(&node, loop->graph, NULL, NULL, 0, &params);
    memcpy(&given, params.reserved1, sizeof given);
    if (code == CUDA_SUCCESS)
        *body = given.phGraph_out[0];
    return code;
}

CUresult fl_end_loop(const fl_cuda_device *d, fl_cuda_loop *loop, CUgraph body,
                     const CUgraphNode *last, size_t count) {
    void *values[] = {&loop->condition, &loop->state, &loop->word};
    CUDA_KERNEL_NODE_PARAMS turn = {.func = d->turn,
                                    .gridDimX = 1,
                                    .gridDimY = 1,
                                    .gridDimZ = 1,
                                    .blockDimX = 1,
                                    .blockDimY = 1,
                                    .blockDimZ = 1,
                                    .kernelParams = values};
    CUgraphNode node;
    CUresult code = CU(d, cuGraphAddKernelNode_v2)(&node, body, last, count, &turn);
    return code == CUDA_SUCCESS
               ? CU(d, cuGraphInstantiateWithFlags)(&loop->executable, loop->graph, 0)
               : code;
}

CUresult fl_run_loop(const fl_cuda_device *d, const fl_cuda_loop *loop, uint32_t times, bool wanted,
                     uint32_t *ran, uint32_t *stopped) {
    state now = {.times = times, .wanted = wanted};
    CUdeviceptr here = (CUdeviceptr)(uintptr_t)&now;
    CUresult code = CU(d, cuMemcpyAsync)(loop->state, here, sizeof now, d->stream);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuGraphLaunch)(loop->executable, d->stream);
    if (code == CUDA_SUCCESS)
        code = CU(d, cuMemcpyAsync)(here, loop->state, sizeof now, d->stream);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    *ran = now.ran;
    *stopped = now.stopped;
    return code == CUDA_SUCCESS ? end : code;
}

void fl_drop_loop(const fl_cuda_device *d, fl_cuda_loop *loop) {
    if (loop->executable)
        CU(d, cuGraphExecDestroy)(loop->executable);
    if (loop->graph)
        CU(d, cuGraphDestroy)(loop->graph);
    if (loop->state)
        CU(d, cuMemFree_v2)(loop->state);
    *loop = (fl_cuda_loop){0};
}
