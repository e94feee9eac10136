/* Replays in a CUDA stream that OpenCL's queue does not know of.
 *
 * Replays that follow each other on an in-order queue are in order in the stream of their device.
 * So OpenCL's queue, where a barrier takes 8 µs, is left out of it. Each of their graphs has an
 * open lane on the queue then: everything in the queue comes before the first of these replays.
 * Any other call on the queue closes the lanes first: barriers in the queue wait for the last
 * replay of each. To see such calls, functions of ours stand for the driver's own in its table,
 * from the first lane on. */
#include "cuda.h"

#include <stdlib.h>

/* A driver's table, and its own functions where ours stand for them. */
typedef struct fenced {
    void **table;
    void *own[FL_SLOTS];
    bool is_whole;
} fenced;

enum { MOST_TABLES = 16 };
static fenced *tables[MOST_TABLES];
static uint32_t table_count;   /* grows under the lock */

static struct {
    pthread_mutex_t lock;      /* before the lock of a graph */
    fl_cuda *first;            /* the graphs that have a lane */
    atomic_uint count;
    bool forbidden;
} lanes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The threads that would end the replays do not exist in a child. */
static void forget_in_child(void) {
    pthread_mutex_init(&lanes.lock, NULL);
    lanes.first = NULL;
    atomic_store(&lanes.count, 0);
}
__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forget_in_child);
}

static fenced *find_table(void *const *table) {
    uint32_t count = __atomic_load_n(&table_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count; i++)
        if (tables[i]->table == table)
            return tables[i];
    return NULL;
}

void *fl_own_call(cl_command_queue queue, int slot) {
    return find_table(fl_table_of(queue))->own[slot];
}

/* The place of a queue's first lane in the list; it leads to NULL if there is none. */
static fl_cuda **place_of(cl_command_queue queue) {
    fl_cuda **at = &lanes.first;
    while (*at && (*at)->lane != queue)
        at = &(*at)->next_lane;
    return at;
}

/* The caller has the lock. What the queue is given next comes after the replays. */
static void close_lane(fl_cuda **at) {
    fl_cuda *g = *at;
    cl_command_queue queue = g->lane;
    fn_clEnqueueBarrierWithWaitList *put = (fn_clEnqueueBarrierWithWaitList *)fl_own_call(
        queue, SLOT_clEnqueueBarrierWithWaitList);
    pthread_mutex_lock(&g->lock);
    cl_event end = fl_last_end(g);
    g->lane = NULL;
    pthread_mutex_unlock(&g->lock);
    *at = g->next_lane;
    if (end && put(queue, 1, &end, NULL) != CL_SUCCESS)
        CALL(fl_table_of(end), clWaitForEvents)(1, &end);
    if (end)
        CALL(fl_table_of(end), clReleaseEvent)(end);
    atomic_fetch_sub(&lanes.count, 1);   /* from now on calls do not wait for the lock */
}

/* Close a queue's lanes. The caller has the lock, and releases the queue so often. */
static uint32_t close_lanes(cl_command_queue queue) {
    uint32_t closed = 0;
    for (fl_cuda **at = place_of(queue); *at; at = place_of(queue), closed++)
        close_lane(at);
    return closed;
}

/* The driver's own functions, for a call on the queue. */
static void **fence(cl_command_queue queue) {
    uint32_t closed = 0;
    if (atomic_load(&lanes.count)) {
        pthread_mutex_lock(&lanes.lock);
        closed = close_lanes(queue);
        pthread_mutex_unlock(&lanes.lock);
    }
    fenced *own = find_table(fl_table_of(queue));
    for (; closed; closed--)   /* the program's call has a reference */
        CALL(fl_table_of(queue), clReleaseCommandQueue)(queue);
    return own->own;
}

#include "fenced_calls.h"

bool fl_finish_lanes(cl_command_queue queue) {
    for (uint32_t number = 0;; number++) {
        cl_event end = NULL;
        uint64_t launch = 0;
        pthread_mutex_lock(&lanes.lock);
        fl_cuda *g = *place_of(queue);
        for (uint32_t i = number; g && i; g = g->next_lane, i -= g && g->lane == queue)
            ;
        if (g)
            end = fl_begin_end(g, NULL, &launch);
        pthread_mutex_unlock(&lanes.lock);
        if (!g)
            return number;
        if (end) {
            fl_end_launches(g, launch);
            CALL(fl_table_of(end), clWaitForEvents)(1, &end);
            CALL(fl_table_of(end), clReleaseEvent)(end);
        }
    }
}

/* Complete the event here if it is that of the last replay in a lane. */
static void end_replay(cl_event wanted) {
    uint64_t launch = 0;
    pthread_mutex_lock(&lanes.lock);
    fl_cuda *g = lanes.first;
    for (cl_event end; g; g = g->next_lane) {
        end = fl_begin_end(g, wanted, &launch);
        if (end)
            CALL(fl_table_of(end), clReleaseEvent)(end);
        if (launch)
            break;
    }
    pthread_mutex_unlock(&lanes.lock);
    if (g)
        fl_end_launches(g, launch);
}

/* The lane stays open. What comes before it may not have ended yet. */
static cl_int fenced_clFinish(cl_command_queue command_queue) {
    fl_finish_lanes(command_queue);
    return ((fn_clFinish *)fl_own_call(command_queue, SLOT_clFinish))(command_queue);
}

/* NVIDIA's driver says CL_SUCCESS of a failed user event, which a replay may end with. */
static cl_int wait_for_events(cl_uint count, const cl_event *list) {
    if (!count || !list || !list[0])
        return CL_INVALID_VALUE;
    void **own = find_table(fl_table_of(list[0]))->own;
    if (atomic_load(&lanes.count))
        end_replay(list[count - 1]);
    cl_int code = CALL(own, clWaitForEvents)(count, list);
    for (cl_uint i = 0; i < count && code == CL_SUCCESS && atomic_load(&fl_cuda_failures); i++)
        if (fl_has_failed(list[i]))
            code = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    return code;
}

/* The caller has the lock. */
static fenced *watch(void **table) {
    static const struct {
        int slot;
        void *function;
    } ours[] = {FL_FENCES{SLOT_clFinish, (void *)fenced_clFinish},
              {SLOT_clWaitForEvents, (void *)wait_for_events}};
    fl_mapping known = {0};
    fenced *made = table_count < MOST_TABLES ? calloc(1, sizeof *made) : NULL;
    if (!made)
        return NULL;
    made->table = table;
    tables[table_count] = made;   /* before the first call comes through ours */
    __atomic_store_n(&table_count, table_count + 1, __ATOMIC_RELEASE);
    made->is_whole = true;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        made->is_whole &=
            fl_underlay(table, ours[i].slot, ours[i].function, &made->own[ours[i].slot], &known);
    return made;
}

/* Clients of an ICD 2 driver may come through another table. */
static bool can_watch(cl_command_queue queue) {
    void **table = fl_table_of(queue);
    if (queue->dispatch[0] == FL_ICD2_TAG)
        return false;
    fenced *found = find_table(table);
    if (!found)
        found = watch(table);
    return found && found->is_whole && !lanes.forbidden;
}

/* The caller has the lock, and has retained the queue. */
static void add_lane(fl_cuda *g, cl_command_queue queue, bool shares) {
    pthread_mutex_lock(&g->lock);
    g->lane = queue;
    g->shares_lane = shares;
    pthread_mutex_unlock(&g->lock);
    g->next_lane = lanes.first;
    lanes.first = g;
    atomic_fetch_add(&lanes.count, 1);
}

bool fl_open_lane(fl_cuda *g, cl_command_queue queue) {
    CALL(fl_table_of(queue), clRetainCommandQueue)(queue);
    pthread_mutex_lock(&lanes.lock);
    bool opens = !g->lane && can_watch(queue);
    uint32_t left = close_lanes(queue) + !opens;
    if (opens)
        add_lane(g, queue, false);
    pthread_mutex_unlock(&lanes.lock);
    for (; left; left--)
        CALL(fl_table_of(queue), clReleaseCommandQueue)(queue);
    return opens;
}

/* Whether another graph's replays in the queue's lane are all launched, and stay so: it shares. */
static bool shares_with(fl_cuda *g, fl_cuda *other) {
    pthread_mutex_lock(&other->lock);
    bool shares = other->device == g->device && !other->unlaunched;
    other->shares_lane |= shares;
    pthread_mutex_unlock(&other->lock);
    return shares;
}

bool fl_share_lane(fl_cuda *g, cl_command_queue queue) {
    if (!atomic_load(&lanes.count))
        return false;
    pthread_mutex_lock(&lanes.lock);
    bool shares = !g->lane && *place_of(queue);
    for (fl_cuda *other = lanes.first; other && shares; other = other->next_lane)
        shares = other->lane != queue || shares_with(g, other);
    if (shares) {
        CALL(fl_table_of(queue), clRetainCommandQueue)(queue);
        add_lane(g, queue, true);
    }
    pthread_mutex_unlock(&lanes.lock);
    return shares;
}

/* Close the lane of a graph, NULL: of any. False: it has none. */
static bool close_one(const fl_cuda *g, bool forbids) {
    cl_command_queue queue = NULL;
    pthread_mutex_lock(&lanes.lock);
    lanes.forbidden |= forbids;
    fl_cuda **at = &lanes.first;
    while (g && *at && *at != g)
        at = &(*at)->next_lane;
    if (*at) {
        queue = (*at)->lane;
        close_lane(at);
    }
    pthread_mutex_unlock(&lanes.lock);
    if (queue)
        CALL(fl_table_of(queue), clReleaseCommandQueue)(queue);
    return queue;
}

void fl_close_lane(fl_cuda *g) { close_one(g, false); }

void fl_forbid_lanes(void) {
    while (close_one(NULL, true))
        ;
}
