/* Recording: for the length of a block a queue's dispatch pointer leads to a recording table.
 *
 * A recording table is a copy of the driver's, with the queue's commands exchanged for functions that append to the recording, and
 * those that cannot be captured for functions that refuse. Any client's loader jumps into it by the ICD rules. The tables lie in a
 * pool that is never freed: a thread may still be on its way into one when the block has ended, and is then sent on to the driver.
 *
 * Only the thread that began the block records, so a recording needs no lock; calls of other threads are refused. */
#include "native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TABLES 256
#define MOST_QUEUES 64

/* An event that was handed out for a command: a real user event, complete from the start, that we know as a sync-point. */
typedef struct sync_point {
    cl_event event;
    uint32_t node;
} sync_point;

typedef struct queue_state {
    cl_command_queue queue;
    void **original;            /* word 0 as it was */
    void **table;               /* the driver's table for calls of our own */
    struct recording_table *recording_table;
    bool in_order;
    uint32_t *open, open_count, open_capacity;   /* what a later barrier or marker has to wait for */
    uint32_t barrier;           /* the last barrier of an out-of-order queue, the last command of an in-order one; NONE */
    uint32_t host_waits_seen;   /* how many of the recording's host waits this queue's commands already come after */
} queue_state;

struct fl_recording {
    pthread_t thread;
    atomic_bool active;
    queue_state queues[MOST_QUEUES];
    uint32_t queue_count;
    cl_context context;
    void **table;
    void **watched[2];          /* the driver's own table, and with ICD 2 also the one that a loader gave it: a client may use either */
    int watched_count;
    int allow_unseen;
    fl_observer *observer;
    void *cookie;
    int (*holds_gil)(void);
    bool watches_svm;

    fl_command *commands;
    uint32_t command_count, command_capacity;
    uint32_t *deps, dep_count, dep_capacity;
    uint32_t *host_waits, host_wait_count, host_wait_capacity;   /* nodes that the host waited for: later commands follow them */
    sync_point *points;          /* open addressing by event, while the block lasts */
    uint32_t point_count, point_capacity;
    void **pending;              /* events from before the block that had not completed */
    uint32_t pending_count, pending_capacity;
    fl_keep keep;
    fl_pins pins;
    struct fl_recording *next;   /* the list of active recordings */
};

typedef struct recording_table {
    void *slots[FL_SLOTS];
    void **original;
    _Atomic(fl_recording *) recording;   /* NULL: the block has ended */
    uint32_t queue;
    bool used;
} recording_table;

static recording_table pool[MOST_TABLES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;   /* the pool, and the list of active recordings */
static fl_recording *recordings;
static void *recording_slots[FL_SLOTS];                    /* what a recording table has where it differs from the driver's */

#define NONE UINT32_MAX

static recording_table *table_in_pool(const void *dispatch) {
    uintptr_t at = (uintptr_t)dispatch - (uintptr_t)pool;
    return at < sizeof pool ? &pool[at / sizeof *pool] : NULL;
}

/* An ICD 2 driver's own table need hold no more than the tags; then word 1 leads to the loader's data, which in every loader begins
 * with a full table. */
void **fl_table_of(const void *object) {
    const fl_object *o = object;
    void **table = __atomic_load_n(&o->dispatch, __ATOMIC_ACQUIRE);
    recording_table *ours = table_in_pool(table);
    if (ours)
        table = ours->original;
    return table[0] == FL_ICD2_TAG && o->dispatch_data ? o->dispatch_data : table;
}

int fl_is_captured(void *queue) {
    recording_table *ours = table_in_pool(__atomic_load_n(&((fl_object *)queue)->dispatch, __ATOMIC_ACQUIRE));
    return ours && atomic_load(&ours->recording);
}

/* --- growing arrays --- */

static bool reserve(void **array, uint32_t *capacity, uint32_t wanted, size_t size) {
    if (wanted <= *capacity)
        return true;
    uint32_t more = *capacity ? *capacity : 64;
    while (more < wanted)
        more *= 2;
    void *larger = realloc(*array, more * size);
    if (!larger)
        return false;
    *array = larger;
    *capacity = more;
    return true;
}

#define RESERVE(array, capacity, wanted) reserve((void **)&(array), &(capacity), (wanted), sizeof *(array))

static bool push(uint32_t **array, uint32_t *count, uint32_t *capacity, uint32_t value) {
    if (!reserve((void **)array, capacity, *count + 1, sizeof value))
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
static uint32_t node_of(const fl_recording *r, const void *event) {
    if (!r->point_capacity)
        return NONE;
    sync_point *point = point_of(r->points, r->point_capacity, event);
    return point->event ? point->node : NONE;
}

static bool grow_points(fl_recording *r) {
    uint32_t capacity = r->point_capacity ? r->point_capacity * 2 : 128;
    sync_point *points = calloc(capacity, sizeof *points);
    if (!points)
        return false;
    for (uint32_t i = 0; i < r->point_capacity; i++)
        if (r->points[i].event)
            *point_of(points, capacity, r->points[i].event) = r->points[i];
    free(r->points);
    r->points = points;
    r->point_capacity = capacity;
    return true;
}

/* A completed user event for `node`. The recording holds a reference while the block lasts, so that the address stays its own. */
static cl_int hand_out(fl_recording *r, uint32_t node, cl_event *event) {
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    if (r->point_count * 2 >= r->point_capacity && !grow_points(r))
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
    *point_of(r->points, r->point_capacity, made) = (sync_point){made, node};
    r->point_count++;
    *event = made;
    return CL_SUCCESS;
}

static void forget_points(fl_recording *r) {
    for (uint32_t i = 0; i < r->point_capacity; i++)
        if (r->points[i].event)
            CALL(r->table, clReleaseEvent)(r->points[i].event);
    free(r->points);
    r->points = NULL;
    r->point_count = r->point_capacity = 0;
}

/* --- a call on a captured queue --- */

/* Who a call belongs to. recording == NULL: the block ended while the call was on its way, so it goes on to `table`. */
typedef struct call {
    fl_recording *recording;
    queue_state *queue;
    uint32_t queue_index;
    void **table;
    cl_int refused;    /* CL_SUCCESS: record it */
} call;

static cl_int refuse(fl_recording *r, int slot, enum fl_reason reason) {
    r->observer(r->cookie, 'r', (uint32_t)slot * 16 + reason, NULL, 0);
    return CL_INVALID_OPERATION;
}

static call enter(cl_command_queue queue, int slot) {
    recording_table *ours = table_in_pool(__atomic_load_n(&queue->dispatch, __ATOMIC_ACQUIRE));
    fl_recording *r = ours ? atomic_load_explicit(&ours->recording, memory_order_acquire) : NULL;
    call c = {.recording = r, .table = fl_table_of(queue)};
    if (!r)
        return c;
    c.queue_index = ours->queue;
    c.queue = &r->queues[ours->queue];
    c.refused = pthread_equal(r->thread, pthread_self()) ? CL_SUCCESS : refuse(r, slot, FL_OTHER_THREAD);
    return c;
}

/* The recording, among the active ones, that knows an event; NULL if none does. */
static fl_recording *owner_of(const void *event) {
    pthread_mutex_lock(&lock);
    fl_recording *r = recordings;
    while (r && (!pthread_equal(r->thread, pthread_self()) || node_of(r, event) == NONE))
        r = r->next;
    pthread_mutex_unlock(&lock);
    return r;
}

/* An event that this recording did not hand out. If it has completed it orders nothing; else every replay waits for it. */
static cl_int depend_on_outside(fl_recording *r, int slot, cl_event event) {
    cl_int status = CL_COMPLETE, code;
    cl_context context = NULL;
    void **table = fl_table_of(event);
    if (owner_of(event))
        return refuse(r, slot, FL_FOREIGN_EVENT);
    code = CALL(table, clGetEventInfo)(event, CL_EVENT_CONTEXT, sizeof context, &context, NULL);
    if (code == CL_SUCCESS && context != r->context)
        return refuse(r, slot, FL_FOREIGN_EVENT);
    if (code == CL_SUCCESS)
        code = CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    if (code != CL_SUCCESS)
        return code;
    if (status < 0)
        return refuse(r, slot, FL_FAILED_EVENT);
    if (status == CL_COMPLETE || fl_keep_has(&r->keep, event))
        return CL_SUCCESS;
    if (!RESERVE(r->pending, r->pending_capacity, r->pending_count + 1) ||
        fl_keep_add(&r->keep, event, FL_KEEP_EVENT, false) < 0)
        return CL_OUT_OF_HOST_MEMORY;
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
static cl_int add_dependencies(call *c, int slot, uint32_t first, bool waits_for_all, cl_uint count, const cl_event *list) {
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
        uint32_t node = list[i] ? node_of(r, list[i]) : NONE;
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

/* What later commands of the queue wait for, now that `node` is there. `waits_for_all`: a barrier or marker without a wait list. */
static bool advance(queue_state *queue, uint16_t op, bool waits_for_all, uint32_t node) {
    if (queue->in_order) {
        queue->barrier = node;
        return true;
    }
    if (waits_for_all)
        queue->open_count = 0;   /* whoever waits for this node waits for all of them */
    if (op == FL_BARRIER)
        queue->barrier = node;   /* all later commands do; those before it stay open unless it waited for them */
    if (op == FL_BARRIER && waits_for_all)
        return true;
    return push(&queue->open, &queue->open_count, &queue->open_capacity, node);
}

/* Let the queue's next command come after what the host has waited for meanwhile. An out-of-order queue needs a barrier for that. */
static cl_int follow_host_waits(call *c, uint32_t *first) {
    fl_recording *r = c->recording;
    queue_state *queue = c->queue;
    if (queue->host_waits_seen == r->host_wait_count)
        return CL_SUCCESS;
    uint32_t node = r->command_count;
    if (!queue->in_order && !RESERVE(r->commands, r->command_capacity, node + 2))
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
    r->commands[r->command_count++] = (fl_command){
        .op = FL_BARRIER, .queue = (uint16_t)c->queue_index, .first_dep = *first, .dep_count = r->dep_count - *first};
    queue->barrier = node;
    *first = r->dep_count;
    r->observer(r->cookie, 'n', FL_BARRIER, NULL, 0);
    return CL_SUCCESS;
}

/* Append a command. Nothing of it stays if any part fails. */
static cl_int append(call *c, int slot, fl_command command, cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    fl_recording *r = c->recording;
    uint32_t first = r->dep_count, pending = r->pending_count;
    bool waits_for_all = (command.op == FL_MARKER || command.op == FL_BARRIER) && wait_count == 0;
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    if (command.host && r->observer(r->cookie, 'h', command.op, command.host, command.host_size))
        return refuse(r, slot, FL_HOST_MEMORY);
    if (follow_host_waits(c, &first) != CL_SUCCESS) {
        free(command.pattern);
        return code;
    }
    uint32_t node = r->command_count;
    if (RESERVE(r->commands, r->command_capacity, node + 1))
        code = add_dependencies(c, slot, first, waits_for_all, wait_count, wait_list);
    if (code == CL_SUCCESS && event)
        code = hand_out(r, node, event);
    if (code == CL_SUCCESS && !advance(c->queue, command.op, waits_for_all, node))
        code = CL_OUT_OF_HOST_MEMORY;
    if (code != CL_SUCCESS) {
        r->dep_count = first;
        r->pending_count = pending;
        free(command.pattern);
        return code;
    }
    command.queue = (uint16_t)c->queue_index;
    command.first_dep = first;
    command.dep_count = r->dep_count - first;
    r->commands[r->command_count++] = command;
    r->observer(r->cookie, 'n', command.op, NULL, 0);
    return CL_SUCCESS;
}

/* A memory object made with CL_MEM_USE_HOST_PTR lives in the program's memory, which has to be kept as well. */
static bool host_memory_kept(fl_recording *r, cl_mem mem) {
    void **table = fl_table_of(mem);
    cl_mem_flags flags = 0;
    void *host = NULL;
    size_t size = 0;
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (!(flags & CL_MEM_USE_HOST_PTR))
        return true;
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_HOST_PTR, sizeof host, &host, NULL);
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_SIZE, sizeof size, &size, NULL);
    return !host || r->observer(r->cookie, 'm', 0, host, size) == 0;
}

static cl_int keep_mem(call *c, int slot, cl_mem mem) {
    int added = mem ? fl_keep_add(&c->recording->keep, mem, FL_KEEP_MEM, false) : -1;
    if (added < 0)
        return mem ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_MEM_OBJECT;
    return added && !host_memory_kept(c->recording, mem) ? refuse(c->recording, slot, FL_HOST_MEMORY) : CL_SUCCESS;
}

static cl_int keep_both(call *c, int slot, cl_mem source, cl_mem target) {
    cl_int code = keep_mem(c, slot, source);
    return code == CL_SUCCESS ? keep_mem(c, slot, target) : code;
}

static bool set_pattern(fl_command *command, const void *pattern, size_t size) {
    command->pattern = pattern && size ? malloc(size) : NULL;
    command->pattern_size = size;
    if (command->pattern)
        memcpy(command->pattern, pattern, size);
    return command->pattern != NULL;
}

/* Begins every recording function: sends late calls on to the driver, and answers refused ones. */
#define ENTER(name, ...)                                                                     \
    call c = enter(command_queue, SLOT_##name);                                              \
    if (!c.recording)                                                                        \
        return CALL(c.table, name)(__VA_ARGS__);                                             \
    if (c.refused)                                                                           \
        return c.refused

#define WAITS num_events_in_wait_list, event_wait_list, event

static cl_int record_kernel(call *c, int slot, cl_kernel kernel, fl_command command, cl_uint wait_count, const cl_event *wait_list,
                            cl_event *event) {
    fl_recording *r = c->recording;
    enum fl_reason reason;
    if (!kernel)
        return CL_INVALID_KERNEL;
    fl_pins fresh = {0};   /* memory objects that this launch is the first to use */
    cl_kernel frozen = fl_freeze(kernel, r->allow_unseen, &r->keep, &r->pins, &fresh, &reason);
    bool kept = true;
    for (uint32_t i = 0; kept && i < fresh.count; i++)
        kept = host_memory_kept(r, (cl_mem)fresh.pointers[i]);
    free(fresh.pointers);
    if (!frozen)
        return reason == FL_NO_MEMORY ? CL_OUT_OF_HOST_MEMORY : refuse(r, slot, reason);
    int added = fl_keep_add(&r->keep, frozen, FL_KEEP_KERNEL, true);
    if (added <= 0)   /* already there, or no memory: the reference is not taken over */
        CALL(fl_table_of(frozen), clReleaseKernel)(frozen);
    if (added < 0)
        return CL_OUT_OF_HOST_MEMORY;
    if (!kept)
        return refuse(r, slot, FL_HOST_MEMORY);
    command.op = FL_KERNEL;
    command.kernel = frozen;
    return append(c, slot, command, wait_count, wait_list, event);
}

static cl_int record_clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim,
                                            const size_t *offset, const size_t *global, const size_t *local,
                                            cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueNDRangeKernel, command_queue, kernel, work_dim, offset, global, local, WAITS);
    fl_command command = {.work_dim = work_dim, .has_offset = offset != NULL, .has_local = local != NULL};
    if (work_dim < 1 || work_dim > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (!global)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint i = 0; i < work_dim; i++) {
        command.n[i] = offset ? offset[i] : 0;
        command.n[3 + i] = global[i];
        command.n[6 + i] = local ? local[i] : 0;
    }
    return record_kernel(&c, SLOT_clEnqueueNDRangeKernel, kernel, command, WAITS);
}

static cl_int record_clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel, cl_uint num_events_in_wait_list,
                                   const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueTask, command_queue, kernel, WAITS);
    fl_command command = {.work_dim = 1, .has_local = 1, .n = {0, 0, 0, 1, 0, 0, 1}};   /* SPEC: one work-item */
    return record_kernel(&c, SLOT_clEnqueueTask, kernel, command, WAITS);
}

static cl_int record_clEnqueueCopyBuffer(cl_command_queue command_queue, cl_mem source, cl_mem target, size_t source_offset,
                                         size_t target_offset, size_t size, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyBuffer, command_queue, source, target, source_offset, target_offset, size, WAITS);
    fl_command command = {.op = FL_COPY, .source = source, .target = target, .n = {source_offset, target_offset, size}};
    cl_int code = keep_both(&c, SLOT_clEnqueueCopyBuffer, source, target);
    return code == CL_SUCCESS ? append(&c, SLOT_clEnqueueCopyBuffer, command, WAITS) : code;
}

static fl_command rect(uint16_t op, const size_t *first, const size_t *second, const size_t *region, size_t a, size_t b, size_t x,
                       size_t y) {
    fl_command command = {.op = op, .n = {[9] = a, b, x, y}};
    for (int i = 0; i < 3; i++) {
        command.n[i] = first[i];
        command.n[3 + i] = second[i];
        command.n[6 + i] = region[i];
    }
    return command;
}

static cl_int record_clEnqueueCopyBufferRect(cl_command_queue command_queue, cl_mem source, cl_mem target,
                                             const size_t *source_origin, const size_t *target_origin, const size_t *region,
                                             size_t source_row, size_t source_slice, size_t target_row, size_t target_slice,
                                             cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyBufferRect, command_queue, source, target, source_origin, target_origin, region, source_row, source_slice,
          target_row, target_slice, WAITS);
    if (!source_origin || !target_origin || !region)
        return CL_INVALID_VALUE;
    fl_command command =
        rect(FL_COPY_RECT, source_origin, target_origin, region, source_row, source_slice, target_row, target_slice);
    command.source = source;
    command.target = target;
    cl_int code = keep_both(&c, SLOT_clEnqueueCopyBufferRect, source, target);
    return code == CL_SUCCESS ? append(&c, SLOT_clEnqueueCopyBufferRect, command, WAITS) : code;
}

static cl_int record_clEnqueueFillBuffer(cl_command_queue command_queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                                         size_t offset, size_t size, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueFillBuffer, command_queue, buffer, pattern, pattern_size, offset, size, WAITS);
    fl_command command = {.op = FL_FILL, .target = buffer, .n = {offset, size}};
    cl_int code = keep_mem(&c, SLOT_clEnqueueFillBuffer, buffer);
    if (code != CL_SUCCESS)
        return code;
    if (!set_pattern(&command, pattern, pattern_size))
        return CL_INVALID_VALUE;
    return append(&c, SLOT_clEnqueueFillBuffer, command, WAITS);
}

/* Reads and writes. The host memory is used when the graph runs: the observer is asked to keep it alive. */
static cl_int record_transfer(call *c, int slot, fl_command command, cl_mem buffer, cl_bool blocking, const void *host, size_t size,
                              cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    if (blocking)
        return refuse(c->recording, slot, FL_BLOCKING);
    if (!host)
        return CL_INVALID_VALUE;
    cl_int code = keep_mem(c, slot, buffer);
    if (code != CL_SUCCESS)
        return code;
    command.source = command.target = buffer;
    command.host = (void *)host;
    command.host_size = size;
    return append(c, slot, command, wait_count, wait_list, event);
}

static cl_int record_clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                                         void *host, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                         cl_event *event) {
    ENTER(clEnqueueReadBuffer, command_queue, buffer, blocking, offset, size, host, WAITS);
    fl_command command = {.op = FL_READ, .n = {offset, size}};
    return record_transfer(&c, SLOT_clEnqueueReadBuffer, command, buffer, blocking, host, size, WAITS);
}

static cl_int record_clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                                          const void *host, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                          cl_event *event) {
    ENTER(clEnqueueWriteBuffer, command_queue, buffer, blocking, offset, size, host, WAITS);
    fl_command command = {.op = FL_WRITE, .n = {offset, size}};
    return record_transfer(&c, SLOT_clEnqueueWriteBuffer, command, buffer, blocking, host, size, WAITS);
}

/* How far host memory is used by a rect: up to the last byte of its last row (SPEC clEnqueueReadBufferRect). */
static size_t host_extent(const size_t *origin, const size_t *region, size_t row, size_t slice) {
    row = row ? row : region[0];
    slice = slice ? slice : region[1] * row;
    return (origin[2] + region[2] - 1) * slice + (origin[1] + region[1] - 1) * row + origin[0] + region[0];
}

static cl_int record_clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, const size_t *origin,
                                             const size_t *host_origin, const size_t *region, size_t row, size_t slice,
                                             size_t host_row, size_t host_slice, void *host, cl_uint num_events_in_wait_list,
                                             const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueReadBufferRect, command_queue, buffer, blocking, origin, host_origin, region, row, slice, host_row, host_slice,
          host, WAITS);
    if (!origin || !host_origin || !region)
        return CL_INVALID_VALUE;
    fl_command command = rect(FL_READ_RECT, origin, host_origin, region, row, slice, host_row, host_slice);
    size_t extent = host_extent(host_origin, region, host_row, host_slice);
    return record_transfer(&c, SLOT_clEnqueueReadBufferRect, command, buffer, blocking, host, extent, WAITS);
}

static cl_int record_clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, const size_t *origin,
                                              const size_t *host_origin, const size_t *region, size_t row, size_t slice,
                                              size_t host_row, size_t host_slice, const void *host,
                                              cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueWriteBufferRect, command_queue, buffer, blocking, origin, host_origin, region, row, slice, host_row, host_slice,
          host, WAITS);
    if (!origin || !host_origin || !region)
        return CL_INVALID_VALUE;
    fl_command command = rect(FL_WRITE_RECT, origin, host_origin, region, row, slice, host_row, host_slice);
    size_t extent = host_extent(host_origin, region, host_row, host_slice);
    return record_transfer(&c, SLOT_clEnqueueWriteBufferRect, command, buffer, blocking, host, extent, WAITS);
}

/* SVM and host memory share one address space: an end of the copy that is no SVM allocation is host memory, and somebody has to
 * keep it alive. The observer is asked about both; for SVM it answers from the pins' side, so only the pin is needed here. */
static cl_int record_clEnqueueSVMMemcpy(cl_command_queue command_queue, cl_bool blocking, void *target, const void *source,
                                        size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                        cl_event *event) {
    ENTER(clEnqueueSVMMemcpy, command_queue, blocking, target, source, size, WAITS);
    fl_recording *r = c.recording;
    fl_command command = {.op = FL_SVM_COPY, .source = (void *)source, .target = target, .n = {size}};
    if (blocking)
        return refuse(r, SLOT_clEnqueueSVMMemcpy, FL_BLOCKING);
    if (!target || !source)
        return CL_INVALID_VALUE;
    r->observer(r->cookie, 's', FL_SVM_COPY, target, size);
    r->observer(r->cookie, 's', FL_SVM_COPY, (void *)source, size);
    if (!fl_pin(&r->pins, target) || !fl_pin(&r->pins, source))
        return CL_OUT_OF_HOST_MEMORY;
    return append(&c, SLOT_clEnqueueSVMMemcpy, command, WAITS);
}

static cl_int record_clEnqueueSVMMemFill(cl_command_queue command_queue, void *pointer, const void *pattern, size_t pattern_size,
                                         size_t size, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                         cl_event *event) {
    ENTER(clEnqueueSVMMemFill, command_queue, pointer, pattern, pattern_size, size, WAITS);
    fl_recording *r = c.recording;
    fl_command command = {.op = FL_SVM_FILL, .target = pointer, .n = {0, size}};
    if (!pointer || !set_pattern(&command, pattern, pattern_size))
        return CL_INVALID_VALUE;
    r->observer(r->cookie, 's', FL_SVM_FILL, pointer, size);
    if (!fl_pin(&r->pins, pointer)) {
        free(command.pattern);
        return CL_OUT_OF_HOST_MEMORY;
    }
    return append(&c, SLOT_clEnqueueSVMMemFill, command, WAITS);
}

/* The graph owns the allocation from here on: its commands may use it until the graph is dropped. */
static cl_int record_clEnqueueSVMFree(cl_command_queue command_queue, cl_uint count, void **pointers, void *free_function,
                                      void *user_data, cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                      cl_event *event) {
    ENTER(clEnqueueSVMFree, command_queue, count, pointers, free_function, user_data, WAITS);
    if (free_function)
        return refuse(c.recording, SLOT_clEnqueueSVMFree, FL_CANNOT_CAPTURE);
    fl_command command = {.op = FL_MARKER};
    cl_int code = event ? append(&c, SLOT_clEnqueueSVMFree, command, WAITS) : CL_SUCCESS;
    for (cl_uint i = 0; code == CL_SUCCESS && i < count; i++)
        fl_free_with_pins(&c.recording->pins, c.recording->context, pointers[i]);
    return code;
}

static cl_int record_clEnqueueMarkerWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                                 const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueMarkerWithWaitList, command_queue, WAITS);
    return append(&c, SLOT_clEnqueueMarkerWithWaitList, (fl_command){.op = FL_MARKER}, WAITS);
}

static cl_int record_clEnqueueBarrierWithWaitList(cl_command_queue command_queue, cl_uint num_events_in_wait_list,
                                                  const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueBarrierWithWaitList, command_queue, WAITS);
    return append(&c, SLOT_clEnqueueBarrierWithWaitList, (fl_command){.op = FL_BARRIER}, WAITS);
}

static cl_int record_clEnqueueMarker(cl_command_queue command_queue, cl_event *event) {
    ENTER(clEnqueueMarker, command_queue, event);
    return append(&c, SLOT_clEnqueueMarker, (fl_command){.op = FL_MARKER}, 0, NULL, event);
}

static cl_int record_clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint count, const cl_event *list) {
    ENTER(clEnqueueWaitForEvents, command_queue, count, list);
    if (!count || !list)
        return CL_INVALID_VALUE;
    return append(&c, SLOT_clEnqueueWaitForEvents, (fl_command){.op = FL_BARRIER}, count, list, NULL);
}

static cl_int record_clEnqueueBarrier(cl_command_queue command_queue) {
    ENTER(clEnqueueBarrier, command_queue);
    return append(&c, SLOT_clEnqueueBarrier, (fl_command){.op = FL_BARRIER}, 0, NULL, NULL);
}

/* A migration says where data will be wanted; a replay needs only the order that it stands in. */
static cl_int record_clEnqueueMigrateMemObjects(cl_command_queue command_queue, cl_uint count, const cl_mem *objects,
                                                cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                                                const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueMigrateMemObjects, command_queue, count, objects, flags, WAITS);
    return append(&c, SLOT_clEnqueueMigrateMemObjects, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clEnqueueSVMMigrateMem(cl_command_queue command_queue, cl_uint count, const void **pointers,
                                            const size_t *sizes, cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                                            const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueSVMMigrateMem, command_queue, count, pointers, sizes, flags, WAITS);
    return append(&c, SLOT_clEnqueueSVMMigrateMem, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clFlush(cl_command_queue command_queue) {
    ENTER(clFlush, command_queue);
    return CL_SUCCESS;   /* there is nothing to flush: nothing was submitted */
}

static cl_int record_clFinish(cl_command_queue command_queue) {
    ENTER(clFinish, command_queue);
    return refuse(c.recording, SLOT_clFinish, FL_WAITS);
}

/* --- calls on events, seen through the driver's own table --- */

/* A wait for captured events. A client that cleans up holds the GIL and wants nothing but its memory back, which the graph keeps.
 * Another wait is refused, unless the observer knows it for housekeeping: then later commands come after the events waited for. */
static cl_int wait_captured(fl_recording *r, cl_uint count, const cl_event *list) {
    if (r->holds_gil && r->holds_gil())
        return CL_SUCCESS;
    if (r->observer(r->cookie, 'w', SLOT_clWaitForEvents, NULL, 0))
        return refuse(r, SLOT_clWaitForEvents, FL_WAITS);
    for (cl_uint i = 0; i < count; i++) {
        uint32_t node = list[i] ? node_of(r, list[i]) : NONE;
        if (node != NONE && !push(&r->host_waits, &r->host_wait_count, &r->host_wait_capacity, node))
            return CL_OUT_OF_HOST_MEMORY;
    }
    return CL_SUCCESS;
}

static cl_int watched_clWaitForEvents(cl_uint count, const cl_event *list) {
    if (!count || !list || !list[0])
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        fl_recording *r = list[i] ? owner_of(list[i]) : NULL;
        if (r)
            return wait_captured(r, count, list);
    }
    return ((fn_clWaitForEvents *)fl_patched(list[0], SLOT_clWaitForEvents))(count, list);
}

static cl_int watched_clSetEventCallback(cl_event event, cl_int status, void *notify, void *user_data) {
    fl_recording *r = owner_of(event);
    if (r)
        return refuse(r, SLOT_clSetEventCallback, FL_CALLBACK);
    return ((fn_clSetEventCallback *)fl_patched(event, SLOT_clSetEventCallback))(event, status, notify, user_data);
}

/* --- what is refused: generated, since all of them are alike --- */

static cl_int refuse_call(cl_command_queue command_queue, int slot, void ***table) {
    call c = enter(command_queue, slot);
    *table = c.recording ? NULL : c.table;
    if (!c.recording)
        return CL_SUCCESS;
    return c.refused ? c.refused : refuse(c.recording, slot, FL_CANNOT_CAPTURE);
}
#include "refusals.h"

static void fill_recording_slots(void) {
#define RECORD(name) recording_slots[SLOT_##name] = (void *)(fn_##name *)record_##name
    RECORD(clEnqueueNDRangeKernel);
    RECORD(clEnqueueTask);
    RECORD(clEnqueueCopyBuffer);
    RECORD(clEnqueueCopyBufferRect);
    RECORD(clEnqueueFillBuffer);
    RECORD(clEnqueueReadBuffer);
    RECORD(clEnqueueWriteBuffer);
    RECORD(clEnqueueReadBufferRect);
    RECORD(clEnqueueWriteBufferRect);
    RECORD(clEnqueueSVMMemcpy);
    RECORD(clEnqueueSVMMemFill);
    RECORD(clEnqueueSVMFree);
    RECORD(clEnqueueMarkerWithWaitList);
    RECORD(clEnqueueBarrierWithWaitList);
    RECORD(clEnqueueMarker);
    RECORD(clEnqueueWaitForEvents);
    RECORD(clEnqueueBarrier);
    RECORD(clEnqueueMigrateMemObjects);
    RECORD(clEnqueueSVMMigrateMem);
    RECORD(clFlush);
    RECORD(clFinish);
#undef RECORD
    FL_FILL_REFUSALS(recording_slots)
}

/* --- beginning and ending a block --- */

static recording_table *take_table(fl_recording *r, uint32_t index) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_recording_slots);
    queue_state *queue = &r->queues[index];
    for (int i = 0; i < MOST_TABLES; i++) {
        recording_table *t = &pool[i];
        if (t->used)
            continue;
        t->used = true;
        t->original = queue->original;
        t->queue = index;
        for (int slot = 0; slot < FL_SLOTS; slot++) {
            void *of_driver = queue->table[slot] && queue->table[slot] != FL_ICD2_TAG ? queue->table[slot] : fl_stubs[slot];
            t->slots[slot] = recording_slots[slot] ? recording_slots[slot] : of_driver;
        }
        t->slots[0] = fl_stubs[0];   /* no tag: ICD 2 loaders too have to come through this table */
        atomic_store_explicit(&t->recording, r, memory_order_release);
        return t;
    }
    return NULL;
}

static cl_int exchange(fl_recording *r, cl_command_queue queue, uint32_t index) {
    queue_state *state = &r->queues[index];
    cl_command_queue_properties properties = 0;
    *state = (queue_state){.queue = queue, .original = queue->dispatch, .table = fl_table_of(queue), .barrier = NONE};
    cl_int code = CALL(state->table, clGetCommandQueueInfo)(queue, CL_QUEUE_PROPERTIES, sizeof properties, &properties, NULL);
    if (code != CL_SUCCESS)
        return code;
    state->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    pthread_mutex_lock(&lock);
    recording_table *t = fl_is_captured(queue) ? NULL : take_table(r, index);
    state->recording_table = t;
    if (t)
        __atomic_store_n(&queue->dispatch, t->slots, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return t ? CL_SUCCESS : CL_INVALID_OPERATION;
}

static int watch(fl_recording *r, void **table) {
    int code = fl_watch_arguments(table);
    if (code != CL_SUCCESS)
        return code;
    if ((code = fl_patch(table, SLOT_clWaitForEvents, (void *)watched_clWaitForEvents)) != CL_SUCCESS)
        goto arguments;
    if ((code = fl_patch(table, SLOT_clSetEventCallback, (void *)watched_clSetEventCallback)) != CL_SUCCESS)
        goto waits;
    if ((code = fl_watch_svm(table)) == CL_SUCCESS)
        return CL_SUCCESS;
    fl_unpatch(table, SLOT_clSetEventCallback);
waits:
    fl_unpatch(table, SLOT_clWaitForEvents);
arguments:
    fl_unwatch_arguments(table);
    return code;
}

static void unwatch(const fl_recording *r, bool svm_too) {
    for (int i = 0; i < r->watched_count; i++) {
        fl_unpatch(r->watched[i], SLOT_clSetEventCallback);
        fl_unpatch(r->watched[i], SLOT_clWaitForEvents);
        fl_unwatch_arguments(r->watched[i]);
        if (svm_too)
            fl_unwatch_svm(r->watched[i]);
    }
}

static void restore(fl_recording *r) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < r->queue_count; i++) {
        queue_state *queue = &r->queues[i];
        if (!queue->recording_table)
            continue;
        __atomic_store_n(&queue->queue->dispatch, queue->original, __ATOMIC_RELEASE);
        atomic_store_explicit(&queue->recording_table->recording, NULL, memory_order_release);
        queue->recording_table->used = false;
        queue->recording_table = NULL;
    }
    for (fl_recording **at = &recordings; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    pthread_mutex_unlock(&lock);
}

/* Begin a block. All queues are of one context. NULL: *code says why, and nothing has changed. */
fl_recording *fl_begin(void *const *queues, uint32_t count, void *context, int allow_unseen, fl_observer *observer, void *cookie,
                       int (*holds_gil)(void), int *code) {
    fl_recording *r = count && count <= MOST_QUEUES ? calloc(1, sizeof *r) : NULL;
    *code = CL_OUT_OF_HOST_MEMORY;
    if (!r)
        return NULL;
    r->thread = pthread_self();
    r->context = context;
    r->table = fl_table_of(context);
    r->allow_unseen = allow_unseen;
    r->observer = observer;
    r->cookie = cookie;
    r->holds_gil = holds_gil;
    void **tables[2] = {((fl_object *)context)->dispatch, ((fl_object *)context)->dispatch_data};
    int table_count = tables[0][0] == FL_ICD2_TAG && tables[1] ? 2 : 1;
    *code = fl_keep_add(&r->keep, context, FL_KEEP_CONTEXT, false) < 0 ? CL_OUT_OF_HOST_MEMORY : CL_SUCCESS;
    for (uint32_t i = 0; *code == CL_SUCCESS && i < count; i++)
        if (fl_keep_add(&r->keep, queues[i], FL_KEEP_QUEUE, false) < 0)
            *code = CL_OUT_OF_HOST_MEMORY;
    while (*code == CL_SUCCESS && r->watched_count < table_count)
        if ((*code = watch(r, tables[r->watched_count])) == CL_SUCCESS) {
            r->watched[r->watched_count] = tables[r->watched_count];
            r->watched_count++;
        }
    if (*code == CL_SUCCESS) {
        pthread_mutex_lock(&lock);
        r->next = recordings;
        recordings = r;
        pthread_mutex_unlock(&lock);
        r->watches_svm = true;
    }
    for (uint32_t i = 0; *code == CL_SUCCESS && i < count; i++) {
        r->queue_count++;
        *code = exchange(r, queues[i], i);
    }
    if (*code == CL_SUCCESS) {
        atomic_store(&r->active, true);
        return r;
    }
    restore(r);
    unwatch(r, true);
    fl_keep_release(&r->keep);
    free(r);
    return NULL;
}

/* End the block: every pointer is as it was. SVM stays watched for as long as commands use it. */
void fl_end(fl_recording *r) {
    if (!atomic_exchange(&r->active, false))
        return;
    restore(r);
    bool pinned = r->pins.count > 0;
    unwatch(r, !pinned);
    r->watches_svm = pinned;
    forget_points(r);
    for (uint32_t i = 0; i < r->queue_count; i++)
        free(r->queues[i].open);
}

/* Drop the recording and everything that it kept alive. */
void fl_drop(fl_recording *r) {
    fl_end(r);
    fl_unpin_all(&r->pins);
    for (int i = 0; r->watches_svm && i < r->watched_count; i++)
        fl_unwatch_svm(r->watched[i]);
    for (uint32_t i = 0; i < r->command_count; i++)
        free(r->commands[i].pattern);
    fl_keep_release(&r->keep);
    free(r->commands);
    free(r->deps);
    free(r->pending);
    free(r->host_waits);
    free(r);
}

const fl_command *fl_commands(const fl_recording *r, uint32_t *count) {
    *count = r->command_count;
    return r->commands;
}

const uint32_t *fl_deps(const fl_recording *r, uint32_t *count) {
    *count = r->dep_count;
    return r->deps;
}

void *const *fl_pending(const fl_recording *r, uint32_t *count) {
    *count = r->pending_count;
    return r->pending;
}

/* How many objects the recording keeps alive. */
uint32_t fl_kept(const fl_recording *r) {
    return r->keep.count;
}

/* How many SVM pointers it pins. */
uint32_t fl_pinned(const fl_recording *r) {
    return r->pins.count;
}
