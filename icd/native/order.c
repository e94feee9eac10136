/* Order: what a recorded command comes after, by the rules of its queue and of the events that it
 * waits for.
 *
 * An in-order queue is a path. In an out-of-order queue a command comes after the last barrier and
 * after its wait list; a barrier or marker without a wait list comes after everything before it
 * (SPEC clEnqueueBarrierWithWaitList, clEnqueueMarkerWithWaitList). */
#define FL_DEFINE_OPERATION_SLOTS
#include "recording.h"

#include <stdlib.h>

static bool push(uint32_t **array, uint32_t *count, uint32_t *capacity, uint32_t value) {
    if (!FL_RESERVE(*array, *capacity, *count + 1))
        return false;
    (*array)[(*count)++] = value;
    return true;
}

/* --- events handed out in the block --- */

static sync_point *point_of(sync_point *points, uint32_t capacity, const void *event) {
    uint32_t at = (uint32_t)(((uintptr_t)event >> 4) * 2654435761u) & (capacity - 1);
    while (points[at].event && points[at].event != event)
        at = (at + 1) & (capacity - 1);
    return &points[at];
}

/* The node that an event of this recording stands for, or NONE. */
uint32_t fl_node_of(const fl_recording *r, const void *event) {
    if (!r->point_capacity)
        return NONE;
    sync_point *point = point_of(r->points, r->point_capacity, event);
    return point->event ? point->node : NONE;
}

static cl_uint references(const fl_recording *r, cl_event event) {
    cl_uint count = 0;
    CALL(r->table, clGetEventInfo)(event, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL);
    return count;
}

/* Put the points into a table of this capacity. Those whose event only we refer to are let go:
 * nobody can name it any more. */
static bool move_points(fl_recording *r, uint32_t capacity) {
    sync_point *points = calloc(capacity, sizeof *points);
    if (!points)
        return false;
    for (uint32_t i = 0; i < r->point_capacity; i++) {
        cl_event event = r->points[i].event;
        if (event && r->counts_references && references(r, event) == 1) {
            CALL(r->table, clReleaseEvent)(event);
            r->point_count--;
        } else if (event)
            *point_of(points, capacity, event) = r->points[i];
    }
    free(r->points);
    r->points = points;
    r->point_capacity = capacity;
    return true;
}

/* Room for one more. A program drops most events at once, so a table seldom grows. */
static bool make_room_for_point(fl_recording *r) {
    if (r->point_count * 2 < r->point_capacity)
        return true;
    if (r->point_capacity &&
        (!move_points(r, r->point_capacity) || r->point_count * 4 <= r->point_capacity))
        return r->point_count * 2 < r->point_capacity;
    return move_points(r, r->point_capacity ? r->point_capacity * 2 : 128);
}

/* A completed user event for `node`. The recording holds a reference while the block lasts, so that
 * the address stays its own. */
static cl_int hand_out(fl_recording *r, uint32_t node, cl_event *event) {
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    if (!make_room_for_point(r))
        return code;
    cl_event made = CALL(r->table, clCreateUserEvent)(r->context, &code);
    if (code != CL_SUCCESS)
        return code;
    code = CALL(r->table, clSetUserEventStatus)(made, CL_COMPLETE);
    if (code == CL_SUCCESS)
        code = CALL(r->table, clRetainEvent)(made);
    if (code != CL_SUCCESS) {
        CALL(r->table, clReleaseEvent)(made);
        return code;
    }
    if (!r->has_points) /* it has the caller's reference and ours: the driver counts them as it
                           should */
        r->counts_references = references(r, made) == 2;
    r->has_points = true;
    *point_of(r->points, r->point_capacity, made) = (sync_point){made, node};
    r->point_count++;
    *event = made;
    return CL_SUCCESS;
}

void fl_forget_events(fl_recording *r) {
    for (uint32_t i = 0; i < r->point_capacity; i++)
        if (r->points[i].event)
            CALL(r->table, clReleaseEvent)(r->points[i].event);
    free(r->points);
    r->points = NULL;
    r->point_count = r->point_capacity = 0;
}

/* An event that this recording did not hand out. If it has completed it orders nothing; else every
 * replay waits for it. */
static cl_int depend_on_outside(fl_recording *r, int slot, cl_event event) {
    cl_context context = NULL;
    void **table = fl_table_of(event);
    if (fl_owner_of(event))
        return fl_refuse(r, slot, FL_FOREIGN_EVENT);
    cl_int code =
        CALL(table, clGetEventInfo)(event, CL_EVENT_CONTEXT, sizeof context, &context, NULL);
    if (code != CL_SUCCESS)
        return code;
    if (context != r->context)
        return fl_refuse(r, slot, FL_FOREIGN_EVENT);
    cl_int status = fl_status_of(event);
    if (status < 0)
        return fl_refuse(r, slot, FL_FAILED_EVENT);
    if (status == CL_COMPLETE || fl_keep_has(&r->keep, event))
        return CL_SUCCESS;
    if (!FL_RESERVE(r->pending, r->pending_capacity, r->pending_count + 1))
        return CL_OUT_OF_HOST_MEMORY;
    int added = fl_keep_add(&r->keep, event, FL_KEEP_EVENT, false);
    if (added < 0)
        return added;
    r->pending[r->pending_count++] = event;
    return CL_SUCCESS;
}

/* Add a dependency of the command that is being made, once. */
static bool depend(fl_recording *r, uint32_t first, uint32_t node) {
    for (uint32_t i = first; i < r->dep_count && i < first + 16; i++)
        if (r->deps[i] == node)
            return true;
    return push(&r->deps, &r->dep_count, &r->dep_capacity, node);
}

/* What a command waits for, by the rules of SPEC "Event objects" and of its queue. */
static cl_int add_dependencies(call *c, int slot, uint32_t first, bool waits_for_all, cl_uint count,
                               const cl_event *list) {
    fl_recording *r = c->recording;
    if (!count != !list)
        return CL_INVALID_EVENT_WAIT_LIST;
    bool enough = true;
    if (c->queue->barrier != NONE)
        enough = depend(r, first, c->queue->barrier);
    if (waits_for_all)
        for (uint32_t i = 0; enough && i < c->queue->open_count; i++)
            enough = depend(r, first, c->queue->open[i]);
    for (cl_uint i = 0; enough && i < count; i++) {
        uint32_t node = list[i] ? fl_node_of(r, list[i]) : NONE;
        cl_int code = CL_SUCCESS;
        if (!list[i])
            code = CL_INVALID_EVENT_WAIT_LIST;
        else if (node != NONE)
            enough = depend(r, first, node);
        else
            code = depend_on_outside(r, slot, list[i]);
        if (code != CL_SUCCESS)
            return code;
    }
    return enough ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* What later commands of the queue wait for, now that `node` is there. `waits_for_all`: a barrier
 * or marker without a wait list. */
static void advance(queue_state *queue, uint16_t op, bool waits_for_all, uint32_t node) {
    if (queue->in_order) {
        queue->barrier = node;
        return;
    }
    if (waits_for_all)
        queue->open_count = 0;   /* whoever waits for this node waits for all of them */
    if (op == FL_BARRIER)
        queue->barrier =
            node; /* all later commands do; those before it stay open unless it waited for them */
    if (op != FL_BARRIER || !waits_for_all)
        queue->open[queue->open_count++] = node;   /* room for it was made before */
}

/* Let the queue's next command come after what the host has waited for meanwhile. An out-of-order
 * queue needs a barrier for that. */
static cl_int follow_host_waits(call *c, uint32_t *first) {
    fl_recording *r = c->recording;
    queue_state *queue = c->queue;
    if (queue->host_waits_seen == r->host_wait_count)
        return CL_SUCCESS;
    uint32_t node = r->command_count;
    if (!queue->in_order && !FL_RESERVE(r->commands, r->command_capacity, node + 2))
        return CL_OUT_OF_HOST_MEMORY;
    if (!queue->in_order && queue->barrier != NONE && !depend(r, *first, queue->barrier))
        return CL_OUT_OF_HOST_MEMORY;
    for (uint32_t i = queue->host_waits_seen; i < r->host_wait_count; i++) {
        uint32_t waited = r->host_waits[i];
        bool implied = queue->in_order && &r->queues[r->commands[waited].queue] == queue;
        if (!implied && !depend(r, *first, waited))
            return CL_OUT_OF_HOST_MEMORY;
    }
    queue->host_waits_seen = r->host_wait_count;
    if (queue->in_order)
        return CL_SUCCESS;
    r->commands[r->command_count++] = (fl_command){.op = FL_BARRIER,
                                                   .queue = (uint16_t)c->queue_index,
                                                   .first_dep = *first,
                                                   .dep_count = r->dep_count - *first};
    queue->barrier = node;
    *first = r->dep_count;
    r->observer(r->cookie, FL_ASK_ADDED, FL_BARRIER, NULL, 0);
    return CL_SUCCESS;
}

/* What a command owns. */
static void forget(fl_command *command) {
    free(command->pattern);
    fl_release_arguments(command->arguments);
}

/* Append a command. Nothing of it stays if any part fails, but an outside event that it named is
 * waited for all the same. The event is made last of all: nothing that comes after it can fail. */
cl_int fl_append(call *c, int slot, fl_command command, cl_uint wait_count,
                 const cl_event *wait_list, cl_event *event) {
    fl_recording *r = c->recording;
    queue_state *queue = c->queue;
    uint32_t first = r->dep_count, host_waits_seen = queue->host_waits_seen;
    bool waits_for_all = (command.op == FL_MARKER || command.op == FL_BARRIER) && wait_count == 0;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    int replayed_by = operation_slots[command.op];
    if (fl_slot(queue->table, replayed_by) == fl_stubs[replayed_by]) {
        forget(&command);
        return CL_INVALID_OPERATION;
    }
    if (command.host &&
        r->observer(r->cookie, FL_ASK_HOST, command.op, command.host, command.host_size))
        return fl_refuse(r, slot, FL_HOST_MEMORY);
    if (follow_host_waits(c, &first) != CL_SUCCESS) {
        forget(&command);
        return code;
    }
    uint32_t node = r->command_count;
    if (FL_RESERVE(r->commands, r->command_capacity, node + 1))
        code = add_dependencies(c, slot, first, waits_for_all, wait_count, wait_list);
    if (code == CL_SUCCESS && !FL_RESERVE(queue->open, queue->open_capacity, queue->open_count + 1))
        code = CL_OUT_OF_HOST_MEMORY;
    if (code == CL_SUCCESS && event)
        code = hand_out(r, node, event);
    if (code != CL_SUCCESS) {
        r->dep_count = first;
        if (queue->in_order)
            queue->host_waits_seen = host_waits_seen; /* the next command has to follow them; out of
                                                         order there is a barrier */
        forget(&command);
        return code;
    }
    advance(queue, command.op, waits_for_all, node);
    command.queue = (uint16_t)c->queue_index;
    command.first_dep = first;
    command.dep_count = r->dep_count - first;
    r->commands[r->command_count++] = command;
    r->observer(r->cookie, FL_ASK_ADDED, command.op, NULL, r->keep.count - r->told);
    r->told = r->keep.count;
    return CL_SUCCESS;
}

/* The host has waited for a node: every later command of any queue comes after it. */
bool fl_follow(fl_recording *r, uint32_t node) {
    return push(&r->host_waits, &r->host_wait_count, &r->host_wait_capacity, node);
}
