/* Queues and events: what every call that enqueues has in common, barriers, waits, queries. */
#include "calls.h"
#include "counts.cdef.h"
#include "interrupts.cdef.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Functions of every Python, which cffi's headers hide. */
int PyGILState_Check(void);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *state);

/* Milliseconds before Python waits, and looks at signals. Bytes that an idle queue moves at once. */
enum { STEP = 50, BRIEF = 1 << 16 };

fl_python fl_in_python;
static uintptr_t waits_in_steps;   /* 0: the shell has started Python, whose callers have no GIL */
static _Thread_local bool in_callback;

void *fl_let_gil_go(void) {
    return waits_in_steps && PyGILState_Check() ? PyEval_SaveThread() : NULL;
}

void fl_take_gil(void *state) {
    if (state)
        PyEval_RestoreThread(state);
}

void fl_waits_in_steps(uintptr_t thread) { waits_in_steps = thread; }

void fl_in_callback(int32_t runs) { in_callback = runs; }

void *fl_hold_struct(uint32_t adapter, uintptr_t handle, unsigned kind) {
    const uintptr_t *words = fl_hold(adapter, handle, kind);
    if (words && !words[STRUCT]) {
        fl_let_go(adapter, handle, kind);
        return NULL;
    }
    return words ? (void *)words[STRUCT] : NULL;
}

void fl_let_go(uint32_t adapter, uintptr_t handle, unsigned kind) {
    if (!fl_release_if_shared(handle))
        fl_entry_release(adapter, handle, kind, fl_in_python.release[kind]);
}

/* --- how far a queue is --- */

static uint64_t load(const uint64_t *number) { return __atomic_load_n(number, __ATOMIC_SEQ_CST); }

void fl_count(fl_queue *queue) { __atomic_fetch_add(&queue->enqueued, 1, __ATOMIC_SEQ_CST); }

static void note_finished(fl_queue *queue, uint64_t count) {
    uint64_t known = load(&queue->finished);
    while (known < count && !__atomic_compare_exchange_n(&queue->finished, &known, count, false,
                                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
}

/* How many commands are complete when the one that is counted here is, if the queue is in order.
 * Another thread that counts meanwhile may have enqueued after it. */
static uint64_t count(fl_queue *queue, uint64_t before) {
    uint64_t counted = __atomic_fetch_add(&queue->enqueued, 1, __ATOMIC_SEQ_CST);
    return counted == before ? before + 1 : before;
}

/* All queues that were not closed. */
static struct {
    fl_queue *first;
    int32_t unfinished;
    fl_lock lock;
} all;

void fl_add_queue(fl_queue *queue) {
    fl_enter_lock(&all.lock);
    queue->next = all.first;
    all.first = queue;
    fl_leave_lock(&all.lock);
}

void fl_remove_queue(fl_queue *queue) {
    fl_enter_lock(&all.lock);
    fl_queue **at = &all.first;
    while (*at && *at != queue)
        at = &(*at)->next;
    if (*at)
        *at = queue->next;
    fl_leave_lock(&all.lock);
}

void fl_add_unfinished(int32_t count) {
    __atomic_fetch_add(&all.unfinished, count, __ATOMIC_SEQ_CST);
}

bool fl_all_finished(uintptr_t context) {
    bool finished = true;
    fl_enter_lock(&all.lock);
    for (const fl_queue *q = all.first; q && finished; q = q->next)
        finished = q->context->cl != context ||
                   (!q->shared && load(&q->enqueued) == load(&q->finished));
    fl_leave_lock(&all.lock);
    /* A queue that was closed meanwhile is among these. */
    return finished && !__atomic_load_n(&all.unfinished, __ATOMIC_SEQ_CST);
}

/* --- waits --- */

static bool in_steps(void) { return waits_in_steps == (uintptr_t)pthread_self(); }

/* Returns OpenCL's code, or FL_TO_PYTHON for a wait that is not over soon. */
static int32_t wait_in_steps(const fl_driver *driver, void *cl, bool is_queue) {
    struct fl_waiting *waiting = NULL;
    if (*fl_interrupt_due())
        return FL_TO_PYTHON;
    int32_t code = (is_queue ? fl_icd_waits->begin_finish : fl_icd_waits->begin_wait)(cl, driver->turns, &waiting);
    if (!waiting)
        return code;
    code = fl_icd_waits->go_on_waiting(waiting, STEP);
    fl_icd_waits->end_wait(waiting);
    return code > 0 ? FL_TO_PYTHON : code;   /* it is not over */
}

static int32_t wait_for(const fl_driver *driver, cl_event event, bool in_order, bool brief) {
    if (in_callback)
        return FL_TO_PYTHON;
    if (in_steps() && !brief)
        return wait_in_steps(driver, event, false);
    return driver->turns ? fl_icd_waits->wait(event, in_order)
                         : CL(driver, clWaitForEvents)(1, &event);
}

int32_t fl_wait_in_order(const fl_driver *driver, void *event) {
    void *gil = fl_let_gil_go();
    int32_t code = wait_for(driver, event, true, false);
    fl_take_gil(gil);
    return code;
}

static int32_t finish(const fl_queue *queue) {
    const fl_driver *driver = queue->context->driver;
    void *cl = (void *)queue->cl;
    if (in_callback)
        return FL_TO_PYTHON;
    if (in_steps())
        return wait_in_steps(driver, cl, true);
    return driver->turns ? fl_icd_waits->finish(cl, queue->in_order) : CL(driver, clFinish)(cl);
}

int32_t fl_urQueueFinish(uint32_t adapter, uintptr_t hQueue) {
    fl_queue *queue = fl_hold_struct(adapter, hQueue, kind_ur_queue_handle_t);
    if (!queue)
        return FL_TO_PYTHON;
    uint64_t enqueued = load(&queue->enqueued);
    int32_t code = queue->shared || enqueued != load(&queue->finished) ? finish(queue) : 0;
    if (!code)
        note_finished(queue, enqueued);
    fl_let_go(adapter, hQueue, kind_ur_queue_handle_t);
    return code ? FL_TO_PYTHON : 0;
}

int32_t fl_urQueueFlush(uint32_t adapter, uintptr_t hQueue) {
    fl_queue *queue = fl_hold_struct(adapter, hQueue, kind_ur_queue_handle_t);
    if (!queue)
        return FL_TO_PYTHON;
    int32_t code = CL(queue->context->driver, clFlush)((cl_command_queue)queue->cl);
    fl_let_go(adapter, hQueue, kind_ur_queue_handle_t);
    return code ? FL_TO_PYTHON : 0;
}

/* --- events --- */

static cl_int status_of(const fl_driver *driver, uintptr_t event, cl_int *status) {
    return CL(driver, clGetEventInfo)((cl_event)event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                      sizeof *status, status, NULL);
}

/* Of an event that a fl_enqueue has made. */
static void end_event(const uintptr_t *words) {
    CL((const fl_driver *)words[STRUCT], clReleaseEvent)((cl_event)words[CL_OBJECT]);
}

__attribute__((constructor)) static void begin(void) {
    fl_end_by(kind_ur_event_handle_t, end_event);
}

/* Holds an event that did not fail, of a queue that C knows. Returns its numbers, or NULL. */
static const uintptr_t *hold_event(uint32_t adapter, uintptr_t handle, const fl_context *context,
                                   cl_int *status) {
    const uintptr_t *words = fl_hold(adapter, handle, kind_ur_event_handle_t);
    if (!words)
        return NULL;
    const fl_queue *queue = (const fl_queue *)words[THIRD];
    const fl_driver *driver = (const fl_driver *)words[STRUCT];
    bool good = driver && queue && (!context || queue->context->cl == context->cl) &&
                status_of(driver, words[CL_OBJECT], status) == CL_SUCCESS && *status >= 0;
    if (!good)
        fl_let_go(adapter, handle, kind_ur_event_handle_t);
    return good ? words : NULL;
}

static void let_events_go(uint32_t adapter, const uintptr_t *handles, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        fl_let_go(adapter, handles[i], kind_ur_event_handle_t);
}

static int32_t wait_for_all(const uintptr_t *const *events, uint32_t count) {
    for (uint32_t i = 0; count > 1 && i < count; i++) {   /* one may wait for another */
        const fl_queue *queue = (const fl_queue *)events[i][THIRD];
        if (CL(queue->context->driver, clFlush)((cl_command_queue)queue->cl))
            return FL_TO_PYTHON;
    }
    for (uint32_t i = 0; i < count; i++) {
        fl_queue *queue = (fl_queue *)events[i][THIRD];
        if (wait_for(queue->context->driver, (cl_event)events[i][CL_OBJECT], queue->in_order,
                     events[i][FOURTH] & FL_BRIEF))
            return FL_TO_PYTHON;
        if (queue->in_order)
            note_finished(queue, events[i][FOURTH] >> FL_PLACE);
    }
    return 0;
}

int32_t fl_urEventWait(uint32_t adapter, uint32_t numEvents, const uintptr_t *phEventWaitList) {
    const uintptr_t *events[FL_WAITS];
    uint32_t held = 0;
    if (!numEvents || numEvents > FL_WAITS || !phEventWaitList || in_callback)
        return FL_TO_PYTHON;
    for (cl_int status; held < numEvents; held++)
        if (!(events[held] = hold_event(adapter, phEventWaitList[held], NULL, &status)))
            break;
    int32_t code = held == numEvents ? wait_for_all(events, held) : FL_TO_PYTHON;
    let_events_go(adapter, phEventWaitList, held);
    return code;
}

static int32_t give_number(uint64_t number, size_t needed, size_t size, uintptr_t value,
                           size_t *size_ret) {
    if (!value || size < needed)
        return FL_TO_PYTHON;
    memcpy((void *)value, &number, needed);
    if (size_ret)
        *size_ret = needed;
    return 0;
}

/* An adapter's user sees a failure as a status. */
static int32_t give_status(const uintptr_t *words, size_t size, uintptr_t value,
                           size_t *size_ret) {
    cl_int status;
    if (status_of((const fl_driver *)words[STRUCT], words[CL_OBJECT], &status) != CL_SUCCESS)
        return FL_TO_PYTHON;
    return give_number(status < 0 ? UR_EVENT_STATUS_ERROR : (uint32_t)status, sizeof(uint32_t),
                       size, value, size_ret);
}

int32_t fl_urEventGetInfo(uint32_t adapter, uintptr_t hEvent, ur_event_info_t propName,
                          size_t propSize, uintptr_t pPropValue, size_t *pPropSizeRet) {
    const uintptr_t *words = fl_hold(adapter, hEvent, kind_ur_event_handle_t);
    int32_t code = FL_TO_PYTHON;
    if (!words)
        return code;
    if (words[STRUCT] && propName == UR_EVENT_INFO_COMMAND_EXECUTION_STATUS)
        code = give_status(words, propSize, pPropValue, pPropSizeRet);
    else if (words[STRUCT] && propName == UR_EVENT_INFO_REFERENCE_COUNT)
        code = give_number((uint32_t)fl_references(hEvent) - 1, sizeof(uint32_t), propSize,
                           pPropValue, pPropSizeRet);   /* one is this call's */
    fl_let_go(adapter, hEvent, kind_ur_event_handle_t);
    return code;
}

static int32_t give_time(const uintptr_t *words, ur_profiling_info_t name, size_t size,
                         uintptr_t value, size_t *size_ret) {
    static const cl_uint names[] = {CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_SUBMIT,
                                    CL_PROFILING_COMMAND_START, CL_PROFILING_COMMAND_END,
                                    CL_PROFILING_COMMAND_END};
    uint64_t time = 0;
    if ((unsigned)name >= sizeof names / sizeof *names)
        return FL_TO_PYTHON;
    cl_int code = CL((const fl_driver *)words[STRUCT], clGetEventProfilingInfo)(
        (cl_event)words[CL_OBJECT], names[name], sizeof time, &time, NULL);
    return code || !time ? FL_TO_PYTHON : give_number(time, sizeof time, size, value, size_ret);
}

int32_t fl_urEventGetProfilingInfo(uint32_t adapter, uintptr_t hEvent,
                                   ur_profiling_info_t propName, size_t propSize,
                                   uintptr_t pPropValue, size_t *pPropSizeRet) {
    /* Events of Python may be those of several commands. */
    const uintptr_t *words = fl_hold_made(adapter, hEvent, kind_ur_event_handle_t);
    if (!words)
        return FL_TO_PYTHON;
    int32_t code = give_time(words, propName, propSize, pPropValue, pPropSizeRet);
    fl_let_go(adapter, hEvent, kind_ur_event_handle_t);
    return code;
}

/* --- enqueues --- */

static bool hold_waits(fl_enqueue *e, uint32_t count, const uintptr_t *list) {
    if (!list != !count || count > FL_WAITS)
        return false;
    for (cl_int status; e->held < count; e->held++) {
        const uintptr_t *words = hold_event(e->adapter, list[e->held], e->queue->context, &status);
        if (!words)
            return false;
        e->handles[e->held] = list[e->held];
        e->waits_for[e->held] = (cl_event)words[CL_OBJECT];
    }
    e->count = count;
    e->list = count ? e->waits_for : NULL;
    return true;
}

bool fl_begin_enqueue(fl_enqueue *e, uint32_t adapter, uintptr_t queue, bool blocking,
                      uint32_t count, const uintptr_t *list, uintptr_t *out) {
    e->queue = fl_hold_struct(adapter, queue, kind_ur_queue_handle_t);
    if (!e->queue)
        return false;
    const fl_driver *driver = e->queue->context->driver;
    e->adapter = adapter, e->handle = queue, e->out = out;
    e->cl = (cl_command_queue)e->queue->cl;
    e->event = 0, e->made = NULL, e->held = 0, e->brief = false;
    e->waits = blocking && (driver->turns || driver->early || in_steps());
    e->blocks = blocking && !(driver->turns || in_steps());
    e->before = load(&e->queue->enqueued);
    bool ready = !(blocking && in_callback) && hold_waits(e, count, list);
    if (ready && (out || e->waits))
        ready = (e->event = fl_reserve(adapter)) != 0;
    e->wanted = e->event ? &e->made : NULL;
    if (!ready)
        fl_leave_enqueue(e);
    return ready;
}

void fl_set_size(fl_enqueue *e, size_t size) {
    const fl_queue *queue = e->queue;
    e->brief = size <= BRIEF && !e->count && queue->in_order && !queue->shared &&
               load(&queue->finished) == e->before;
}

int32_t fl_leave_enqueue(fl_enqueue *e) {
    fl_give_back(e->adapter, e->event);
    let_events_go(e->adapter, e->handles, e->held);
    fl_let_go(e->adapter, e->handle, kind_ur_queue_handle_t);
    return FL_TO_PYTHON;
}

/* Python goes on with a wait that is not over soon, and explains one that has failed. */
static int32_t complete(fl_enqueue *e) {
    if (!wait_for(e->queue->context->driver, e->made, e->queue->in_order, e->brief))
        return 0;
    return fl_in_python.wait(e->adapter, 1, &e->event);
}

int32_t fl_end_enqueue(fl_enqueue *e, cl_int code, uint32_t command) {
    if (code)
        return fl_leave_enqueue(e);
    uint64_t complete_then = count(e->queue, e->before);
    if (e->event) {
        const uintptr_t words[] = {(uintptr_t)e->made, (uintptr_t)e->queue->context->driver,
                                   (uintptr_t)e->queue,
                                   command | (e->brief ? FL_BRIEF : 0) | complete_then << FL_PLACE};
        fl_begin_made(e->event, e->adapter, kind_ur_event_handle_t, words);
        code = e->waits ? complete(e) : 0;
    }
    if (!code && (e->waits || e->blocks) && e->queue->in_order)
        note_finished(e->queue, complete_then);
    if (!code && e->out)
        *e->out = e->event;
    else if (e->event)
        fl_let_go(e->adapter, e->event, kind_ur_event_handle_t);
    let_events_go(e->adapter, e->handles, e->held);
    fl_let_go(e->adapter, e->handle, kind_ur_queue_handle_t);
    return code;
}

int32_t fl_urEnqueueEventsWait(uint32_t adapter, uintptr_t hQueue, uint32_t numEventsInWaitList,
                               const uintptr_t *phEventWaitList, uintptr_t *phEvent) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, false, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    cl_int code = CL(e.queue->context->driver, clEnqueueMarkerWithWaitList)(e.cl, e.count, e.list,
                                                                            e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_EVENTS_WAIT);
}

int32_t fl_urEnqueueEventsWaitWithBarrier(uint32_t adapter, uintptr_t hQueue,
                                          uint32_t numEventsInWaitList,
                                          const uintptr_t *phEventWaitList, uintptr_t *phEvent) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, false, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    cl_int code = CL(e.queue->context->driver, clEnqueueBarrierWithWaitList)(e.cl, e.count, e.list,
                                                                             e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_EVENTS_WAIT_WITH_BARRIER);
}

int32_t fl_urEnqueueEventsWaitWithBarrierExt(uint32_t adapter, uintptr_t hQueue,
                                             const ur_exp_enqueue_ext_properties_t *pProperties,
                                             uint32_t numEventsInWaitList,
                                             const uintptr_t *phEventWaitList,
                                             uintptr_t *phEvent) {
    if (pProperties)
        return FL_TO_PYTHON;
    return fl_urEnqueueEventsWaitWithBarrier(adapter, hQueue, numEventsInWaitList, phEventWaitList,
                                             phEvent);
}
