/* Replays in a CUDA stream that OpenCL's queue does not know of.
 *
 * Replays of a graph that follow each other on an in-order queue are in order in their stream. So
 * OpenCL's queue, where a barrier takes 8 µs, is left out of it. The queue has an open lane then:
 * everything in it comes before the first of these replays. Any other call on the queue closes the
 * lane first: a barrier in the queue waits for the last replay. To see such calls, functions of
 * ours stand for the driver's own in its table, from the first lane on. */
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

/* The place of a queue's lane in the list; it leads to NULL if there is none. */
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

/* The driver's own functions, for a call on the queue. */
static void **fence(cl_command_queue queue) {
    bool closes = false;
    if (atomic_load(&lanes.count)) {
        pthread_mutex_lock(&lanes.lock);
        fl_cuda **at = place_of(queue);
        closes = *at;
        if (closes)
            close_lane(at);
        pthread_mutex_unlock(&lanes.lock);
    }
    fenced *own = find_table(fl_table_of(queue));
    if (closes)   /* the program's call has a reference */
        CALL(fl_table_of(queue), clReleaseCommandQueue)(queue);
    return own->own;
}

#include "fenced_calls.h"

bool fl_finish_lane(cl_command_queue queue) {
    const fl_cuda_device *device = NULL;
    cl_event end = NULL;
    pthread_mutex_lock(&lanes.lock);
    fl_cuda *g = *place_of(queue);
    if (g) {
        pthread_mutex_lock(&g->lock);
        end = fl_last_end(g);
        device = g->unlaunched ? NULL : g->device;
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&lanes.lock);
    if (end && device && fl_cuda_enter(device) == CUDA_SUCCESS) {   /* the fastest wait */
        CU(device, cuStreamSynchronize)(device->stream);
        fl_cuda_leave(device);
    }
    if (end) {
        CALL(fl_table_of(end), clWaitForEvents)(1, &end);
        CALL(fl_table_of(end), clReleaseEvent)(end);
    }
    return g;
}

/* The lane stays open. What comes before it may not have ended yet. */
static cl_int fenced_clFinish(cl_command_queue command_queue) {
    fl_finish_lane(command_queue);
    return ((fn_clFinish *)fl_own_call(command_queue, SLOT_clFinish))(command_queue);
}

/* NVIDIA's driver says CL_SUCCESS of a failed user event, which a replay may end with. */
static cl_int wait_for_events(cl_uint count, const cl_event *list) {
    if (!count || !list || !list[0])
        return CL_INVALID_VALUE;
    void **own = find_table(fl_table_of(list[0]))->own;
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

bool fl_open_lane(fl_cuda *g, cl_command_queue queue) {
    CALL(fl_table_of(queue), clRetainCommandQueue)(queue);
    pthread_mutex_lock(&lanes.lock);
    fl_cuda **other = place_of(queue);
    bool has_other = *other, opens = !g->lane && can_watch(queue);
    if (has_other)
        close_lane(other);
    if (opens) {
        pthread_mutex_lock(&g->lock);
        g->lane = queue;
        pthread_mutex_unlock(&g->lock);
        g->next_lane = lanes.first;
        lanes.first = g;
        atomic_fetch_add(&lanes.count, 1);
    }
    pthread_mutex_unlock(&lanes.lock);
    for (int left = has_other + !opens; left; left--)
        CALL(fl_table_of(queue), clReleaseCommandQueue)(queue);
    return opens;
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
