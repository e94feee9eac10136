/* Stream capture. A stream in a capture gives its work to the capture's graph, behind the nodes
 * that the stream has reached (`ends`). A stream joins by waiting for an event that was recorded in
 * the capture. */
#include "fake.h"

typedef struct capture {
    int references;
    CUgraph graph;
    CUstream first;
    bool own, invalid, over;
} capture;

struct member {
    capture *capture;
    CUstream stream;
    member *next;   /* of the streams of all captures */
    CUgraphNode *ends;
    size_t count;
};

static member *members;   /* tests capture in one thread at a time */

static void set_ends(member *one, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *made = malloc(sizeof *made * (count + 1));
    one->count = 0;
    for (size_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t j = 0; j < one->count; j++)
            known = known || made[j] == nodes[i];
        if (!known)
            made[one->count++] = nodes[i];
    }
    free(one->ends);
    one->ends = made;
}

static void add_ends(member *one, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *all = malloc(sizeof *all * (one->count + count + 1));
    memcpy(all, one->ends, sizeof *all * one->count);
    memcpy(all + one->count, nodes, sizeof *all * count);
    set_ends(one, all, one->count + count);
    free(all);
}

static member *new_member(capture *joined, const CUgraphNode *ends, size_t count) {
    member *made = calloc(1, sizeof *made);
    made->capture = joined;
    joined->references++;
    set_ends(made, ends, count);
    return made;
}

void fake_drop_member(member *one) {
    if (!one)
        return;
    if (!--one->capture->references)
        free(one->capture);
    free(one->ends);
    free(one);
}

static void enter(CUstream stream, member *one) {
    one->stream = stream;
    one->next = members;
    members = *fake_member_of(stream) = one;
}

CUresult fake_refuse_capture(CUstream stream) {
    (*fake_member_of(stream))->capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_capture(CUstream stream, adder *add, const void *what) {
    member *one = *fake_member_of(stream);
    CUgraphNode node;
    if (one->capture->invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    CUresult code = add(&node, one->capture->graph, one->ends, one->count, what);
    if (!code)
        set_ends(one, &node, 1);
    return code;
}

CUresult fake_capture_record(CUevent event, CUstream stream) {
    member *one = *fake_member_of(stream), **place = fake_place_of(event);
    fake_drop_member(*place);
    *place = new_member(one->capture, one->ends, one->count);
    return CUDA_SUCCESS;
}

CUresult fake_capture_wait(CUstream stream, CUevent event) {
    member *place = *fake_place_of(event), *one = *fake_member_of(stream);
    if (!place) {
        one->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (place->capture->over)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (!one) {
        enter(stream, new_member(place->capture, place->ends, place->count));
        return CUDA_SUCCESS;
    }
    if (one->capture != place->capture) {
        one->capture->invalid = place->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    add_ends(one, place->ends, place->count);
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *after, size_t count,
                      CUstreamCaptureMode mode) {
    capture *made = calloc(1, sizeof *made);
    made->own = !graph;
    made->graph = graph;
    made->first = stream;
    if (!stream || *fake_member_of(stream) || mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        free(made);
        return stream ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    if (made->own)
        cuGraphCreate(&made->graph, 0);
    enter(stream, new_member(made, after, count));
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
    BEGIN;
    return begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                     const CUgraphEdgeData *data, size_t count,
                                     CUstreamCaptureMode mode) {
    BEGIN;
    return graph && !data ? begin(stream, graph, after, count, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the stream that ends the capture has all that another stream of it has. */
static bool is_joined(const member *last, const member *other) {
    for (size_t i = 0; i < other->count; i++) {
        bool found = false;
        for (size_t j = 0; j < last->count; j++)
            found = found || fake_comes_after(last->ends[j], other->ends[i]);
        if (!found)
            return false;
    }
    return true;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    BEGIN;
    member *one = stream ? *fake_member_of(stream) : NULL;
    *graph = NULL;
    if (!one)
        return CUDA_ERROR_ILLEGAL_STATE;
    capture *ended = one->capture;
    if (ended->first != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    CUresult code = ended->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    for (member *other = members; other; other = other->next)
        if (other->capture == ended && !code && !is_joined(one, other))
            code = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    ended->over = true;
    if (!code)
        *graph = ended->graph;
    else if (ended->own)
        cuGraphDestroy(ended->graph);
    ended->references++;
    for (member **at = &members; *at;) {
        member *other = *at;
        if (other->capture != ended) {
            at = &other->next;
            continue;
        }
        *at = other->next;
        *fake_member_of(other->stream) = NULL;
        fake_drop_member(other);
    }
    if (!--ended->references)
        free(ended);
    return code;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                   CUgraph *graph, const CUgraphNode **nodes,
                                   const CUgraphEdgeData **data, size_t *count) {
    BEGIN;
    member *one = stream ? *fake_member_of(stream) : NULL;
    *status = !one                    ? CU_STREAM_CAPTURE_STATUS_NONE
              : one->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id)
        *id = one ? (uintptr_t)one->capture : 0;
    if (graph)
        *graph = one ? one->capture->graph : NULL;
    if (nodes)
        *nodes = one ? one->ends : NULL;
    if (data)
        *data = NULL;
    if (count)
        *count = one ? one->count : 0;
    return CUDA_SUCCESS;
}

CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes,
                                              const CUgraphEdgeData *data, size_t count,
                                              uint32_t flags) {
    BEGIN;
    member *one = stream ? *fake_member_of(stream) : NULL;
    if (!one)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (data || flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags)
        set_ends(one, nodes, count);
    else
        add_ends(one, nodes, count);
    return CUDA_SUCCESS;
}
