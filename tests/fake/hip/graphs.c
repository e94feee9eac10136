/* Graphs, where HIP differs from CUDA: nodes are made of HIP's structs. */
#include "fake_hip.h"

#define NODE (CUgraphNode *)node, (CUgraph)graph, (const CUgraphNode *)before, count
/* HIP's nodes have no context. The driver of ../cuda wants one, and does not look at it. */
#define CONTEXT ((CUcontext)1)

hipError_t hipGraphClone(hipGraph_t *clone, hipGraph_t graph) {
    HIP_BEGIN;
    *clone = (hipGraph_t)fake_copy_graph((CUgraph)graph);
    return hipSuccess;
}

hipError_t hipGraphAddKernelNode(hipGraphNode_t *node, hipGraph_t graph,
                                 const hipGraphNode_t *before, size_t count,
                                 const hipKernelNodeParams *given) {
    CUDA_KERNEL_NODE_PARAMS made;
    void *room[MOST_PARAMETERS];
    HIP_BEGIN;
    return hip_end(hip_launch_of(&made, given, room) ? cuGraphAddKernelNode_v2(NODE, &made)
                                                     : hipErrorInvalidValue);
}

hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams *given) {
    CUDA_KERNEL_NODE_PARAMS made;
    void *room[MOST_PARAMETERS];
    HIP_BEGIN;
    bool fits = hip_launch_of(&made, given, room);
    return hip_end(
        fits ? cuGraphExecKernelNodeSetParams_v2((CUgraphExec)executable, (CUgraphNode)node, &made)
             : hipErrorInvalidValue);
}

hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams *given) {
    CUDA_KERNEL_NODE_PARAMS made;
    void *room[MOST_PARAMETERS];
    HIP_BEGIN;
    return hip_end(hip_launch_of(&made, given, room)
                       ? cuGraphKernelNodeSetParams_v2((CUgraphNode)node, &made)
                       : hipErrorInvalidValue);
}

static hipError_t add_copy(hipGraphNode_t *node, hipGraph_t graph, const hipGraphNode_t *before,
                           size_t count, const CUDA_MEMCPY3D *copy, bool fits) {
    return hip_end(fits ? cuGraphAddMemcpyNode(NODE, copy, CONTEXT) : hipErrorInvalidValue);
}

static hipError_t set_copy(hipGraphExec_t executable, hipGraphNode_t node,
                           const CUDA_MEMCPY3D *copy, bool fits) {
    return hip_end(fits ? cuGraphExecMemcpyNodeSetParams((CUgraphExec)executable, (CUgraphNode)node,
                                                         copy, CONTEXT)
                        : hipErrorInvalidValue);
}

hipError_t hipGraphAddMemcpyNode(hipGraphNode_t *node, hipGraph_t graph,
                                 const hipGraphNode_t *before, size_t count,
                                 const hipMemcpy3DParms *given) {
    CUDA_MEMCPY3D copy;
    HIP_BEGIN;
    bool fits = hip_copy_of(&copy, given);
    return add_copy(node, graph, before, count, &copy, fits);
}

hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t *node, hipGraph_t graph,
                                   const hipGraphNode_t *before, size_t count, void *to,
                                   const void *from, size_t size, hipMemcpyKind kind) {
    CUDA_MEMCPY3D copy;
    HIP_BEGIN;
    bool fits = hip_line_of(&copy, to, from, size, kind);
    return add_copy(node, graph, before, count, &copy, fits);
}

hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           hipMemcpy3DParms *given) {
    CUDA_MEMCPY3D copy;
    HIP_BEGIN;
    bool fits = hip_copy_of(&copy, given);
    return set_copy(executable, node, &copy, fits);
}

hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t executable, hipGraphNode_t node,
                                             void *to, const void *from, size_t size,
                                             hipMemcpyKind kind) {
    CUDA_MEMCPY3D copy;
    HIP_BEGIN;
    bool fits = hip_line_of(&copy, to, from, size, kind);
    return set_copy(executable, node, &copy, fits);
}

static CUDA_MEMSET_NODE_PARAMS fill_of(const hipMemsetParams *g) {
    return (CUDA_MEMSET_NODE_PARAMS){
        (CUdeviceptr)(uintptr_t)g->dst, g->pitch, g->value, g->elementSize, g->width, g->height};
}

static bool is_fill(const CUDA_MEMSET_NODE_PARAMS *fill) {
    uint32_t size = fill->elementSize;
    return fill->dst && (size == 1 || size == 2 || size == 4) &&
           (fill->height <= 1 || fill->pitch >= fill->width * size);
}

hipError_t hipGraphAddMemsetNode(hipGraphNode_t *node, hipGraph_t graph,
                                 const hipGraphNode_t *before, size_t count,
                                 const hipMemsetParams *given) {
    HIP_BEGIN;
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(given);
    return hip_end(is_fill(&fill) ? cuGraphAddMemsetNode(NODE, &fill, CONTEXT)
                                  : hipErrorInvalidValue);
}

hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipMemsetParams *given) {
    HIP_BEGIN;
    CUDA_MEMSET_NODE_PARAMS fill = fill_of(given);
    return hip_end(is_fill(&fill) ? cuGraphExecMemsetNodeSetParams(
                                        (CUgraphExec)executable, (CUgraphNode)node, &fill, CONTEXT)
                                  : hipErrorInvalidValue);
}

hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t *executable, hipGraph_t graph,
                                        hip_flags64 flags) {
    HIP_BEGIN;
    bool fits = flags == 0 || flags == 1 || flags == 8;
    return hip_end(
        fits ? cuGraphInstantiateWithFlags((CUgraphExec *)executable, (CUgraph)graph, flags)
             : hipErrorInvalidValue);
}

hipError_t hipGraphExecUpdate(hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t *node,
                              hipGraphExecUpdateResult *result) {
    HIP_BEGIN;
    *node = NULL;
    *result = fake_replace_graph((CUgraphExec)executable, (CUgraph)graph)
                  ? hipGraphExecUpdateSuccess
                  : hipGraphExecUpdateErrorTopologyChanged;
    return hip_end(*result == hipGraphExecUpdateSuccess ? hipSuccess
                                                        : hipErrorGraphExecUpdateFailure);
}

#if FAKE_HIP >= 503
hipError_t hipGraphNodeSetEnabled(hipGraphExec_t executable, hipGraphNode_t node,
                                  uint32_t enabled) {
    HIP_BEGIN;
    return hip_end(fake_enable((CUgraphExec)executable, (CUgraphNode)node, enabled)
                       ? hipSuccess
                       : hipErrorInvalidValue);
}
#endif

/* --- captures: no kinds of edges --- */

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus *status,
                                      hip_flags64 *id, hipGraph_t *graph,
                                      const hipGraphNode_t **nodes, size_t *count) {
    HIP_BEGIN;
    cuuint64_t number = 0;
    CUresult code = cuStreamGetCaptureInfo_v3((CUstream)stream, status, &number, (CUgraph *)graph,
                                              (const CUgraphNode **)nodes, NULL, count);
    if (id)
        *id = number;
    return hip_end((int)code);
}

hipError_t hipStreamUpdateCaptureDependencies(hipStream_t stream, hipGraphNode_t *nodes,
                                              size_t count, uint32_t flags) {
    HIP_BEGIN;
    return hip_end((int)cuStreamUpdateCaptureDependencies_v2((CUstream)stream, (CUgraphNode *)nodes,
                                                             NULL, count, flags));
}
