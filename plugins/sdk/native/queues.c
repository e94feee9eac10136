/* Queues and events: what every call that enqueues has in common, barriers, waits, queries. */
#include "gpu_launches.h"
#include "interrupts.cdef.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* Functions of every Python, which cffi's headers hide. */
int PyGILState_Check(void);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *state);

/* Milliseconds before Python waits, and looks at signals. Bytes that an idle queue moves at once.
 */
enum { STEP = 50, BRIEF = 1 << 16 };

fl_python fl_in_python;
static uintptr_t main_thread;   /* 0: the shell has started Python, whose callers have no GIL */
static _Thread_local bool in_callback;

void fl_waits_in_steps(uintptr_t thread) { main_thread = thread; }

void fl_in_callback(int32_t runs) { in_callback = runs; }

void *fl_let_gil_go(void) {
    return main_thread && PyGILState_Check() ? PyEval_SaveThread() : NULL;
}

void fl_take_gil(void *state) {
    if (state)
        PyEval_RestoreThread(state);
}

/* --- waits --- */

static bool in_steps(void) { return main_thread == (uintptr_t)pthread_self(); }

bool fl_waits_here(void) { return !in_callback && !in_steps(); }

/* Returns OpenCL's code, or FL_TO_PYTHON for a wait that is not over soon. */
static int32_t wait_in_steps(const fl_driver *driver, void *cl, bool is_queue) {
    struct fl_waiting *waiting = NULL;
    if (*fl_interrupt_due())
        return FL_TO_PYTHON;
    int32_t code = (is_queue ? fl_icd_waits->begin_finish
                             : fl_icd_waits->begin_wait)(cl, driver->turns, &waiting);
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
    return driver->turns ? fl_icd_waits->wait(event, in_order || brief)
                         : CL(driver, clWaitForEvents)(1, &event);
}

int32_t fl_wait_in_order(const fl_driver *driver, void *event) {
    void *gil = fl_let_gil_go();
    int32_t code = wait_for(driver, event, true, false);
    fl_take_gil(gil);
    return code;
}

/* `place`: of the last command. */
static int32_t finish(fl_queue *queue, uint64_t place) {
    const fl_driver *driver = queue->context->driver;
    void *cl = (void *)queue->cl;
    if (in_callback)
        return FL_TO_PYTHON;
    bool steps = in_steps(), soon = steps && !queue->shared && fl_ends_soon(queue, place);
    int32_t code = steps && !soon ? wait_in_steps(driver, cl, true)
                   : driver->turns ? fl_icd_waits->finish(cl, queue->in_order || soon)
                                   : CL(driver, clFinish)(cl);
    if (steps && !code)
        fl_note_launch(queue, place);
    return code;
}

int32_t fl_urQueueFinish(uint32_t adapter, uintptr_t hQueue) {
    fl_queue *queue = fl_hold_struct(adapter, hQueue, kind_ur_queue_handle_t);
    if (!queue)
        return fl_finish_gpu_queue(adapter, hQueue) ? 0 : FL_TO_PYTHON;
    uint64_t enqueued = fl_load(&queue->enqueued);
    int32_t code = queue->shared || enqueued != fl_load(&queue->finished) ? finish(queue, enqueued)
                                                                              : 0;
    if (!code)
        fl_note_finished(queue, enqueued);
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

static int32_t status_of(const uintptr_t *words) {
    return fl_icd_waits->status((void *)words[CL_OBJECT]);
}

void fl_retain_event(const fl_driver *driver, void *event) {
    CL(driver, clRetainEvent)((cl_event)event);
}

/* Of an event that C has made. */
static void end_event(const uintptr_t *words) {
    if (words[FOURTH] & FL_LEVEL_ZERO) {
        fl_lz_end_event(words);
        return;
    }
    CL((const fl_driver *)words[STRUCT], clReleaseEvent)((cl_event)words[CL_OBJECT]);
}

__attribute__((constructor)) static void begin(void) {
    fl_end_by(kind_ur_event_handle_t, end_event);
}

/* Holds an event that did not fail, of a queue that C knows. Returns its numbers, or NULL. */
static const uintptr_t *hold_event(uint32_t adapter, uintptr_t handle, const fl_context *context) {
    const uintptr_t *words = fl_hold(adapter, handle, kind_ur_event_handle_t);
    if (!words)
        return NULL;
    const fl_queue *queue = (const fl_queue *)words[THIRD];
    const fl_driver *driver = (const fl_driver *)words[STRUCT];
    bool good = driver && queue && (!context || queue->context->cl == context->cl) &&
                status_of(words) >= 0;
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
        uint64_t place = events[i][FOURTH] >> FL_PLACE;
        if (queue->in_order || events[i][FOURTH] & FL_ALONE)
            fl_note_finished(queue, place);
        if (in_steps())
            fl_note_launch(queue, place);
    }
    return 0;
}

int32_t fl_urEventWait(uint32_t adapter, uint32_t numEvents, const uintptr_t *phEventWaitList) {
    const uintptr_t *events[FL_WAITS];
    uint32_t held = 0;
    if (!numEvents || numEvents > FL_WAITS || !phEventWaitList || in_callback)
        return FL_TO_PYTHON;
    for (; held < numEvents; held++)
        if (!(events[held] = hold_event(adapter, phEventWaitList[held], NULL)))
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
    int32_t status = status_of(words);
    return give_number(status < 0 ? UR_EVENT_STATUS_ERROR : (uint32_t)status, sizeof(uint32_t),
                       size, value, size_ret);
}

int32_t fl_urEventGetInfo(PARAMETERS_urEventGetInfo) {
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

int32_t fl_urEventGetProfilingInfo(PARAMETERS_urEventGetProfilingInfo) {
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
    for (; e->held < count; e->held++) {
        const uintptr_t *words = hold_event(e->adapter, list[e->held], e->queue->context);
        if (!words)
            return false;
        e->handles[e->held] = list[e->held];
        e->waits_for[e->held] = (cl_event)words[CL_OBJECT];
    }
    e->count = count;
    e->list = count ? e->waits_for : NULL;
    return true;
}

static void decide_how_to_block(fl_enqueue *e, fl_blocking blocking) {
    const fl_driver *driver = e->queue->context->driver;
    bool in_driver = blocking && !in_steps();
    bool plain = in_driver && !e->out && e->queue->in_order && !e->queue->shared;
    e->late = plain && driver->early && blocking == FL_BLOCKING_WRITE && fl_may_be_late(e->queue);
    bool waits = driver->early && !e->late && blocking == FL_BLOCKING_WRITE;
    e->turn = plain && !waits && driver->turns && fl_icd_waits->take_turn();
    e->blocks = in_driver && (!driver->turns || e->turn);
    e->waits = blocking && (!e->blocks || waits);
    e->late = e->late && e->blocks;
}

static void give_turn_back(fl_enqueue *e) {
    if (e->turn)
        fl_icd_waits->give_turn_back();
    e->turn = false;
}

bool fl_begin_enqueue(fl_enqueue *e, uint32_t adapter, uintptr_t queue, fl_blocking blocking,
                      uint32_t count, const uintptr_t *list, uintptr_t *out) {
    e->queue = fl_hold_struct(adapter, queue, kind_ur_queue_handle_t);
    if (!e->queue)
        return false;
    e->adapter = adapter, e->handle = queue, e->out = out;
    e->cl = (cl_command_queue)e->queue->cl;
    e->event = 0, e->made = NULL, e->held = 0;
    e->brief = e->alone = false;
    decide_how_to_block(e, blocking);
    e->before = fl_load(&e->queue->enqueued);
    bool ready = !(blocking && in_callback) && hold_waits(e, count, list);
    if (ready && (out || e->waits))
        ready = (e->event = fl_reserve(adapter)) != 0;
    e->wanted = e->event ? &e->made : NULL;
    if (!ready)
        fl_leave_enqueue(e);
    return ready;
}

static bool is_alone(const fl_enqueue *e) {
    const fl_queue *queue = e->queue;
    return !e->count && !queue->shared && fl_load(&queue->finished) == e->before;
}

void fl_set_size(fl_enqueue *e, size_t size) {
    e->alone = is_alone(e);
    e->brief = e->alone && size <= BRIEF;
}

void fl_set_launch(fl_enqueue *e, uint64_t key) {
    e->alone = is_alone(e);
    e->brief = e->alone && in_steps() && fl_begin_launch(e->queue, key, e->before + 1);
}

int32_t fl_leave_enqueue(fl_enqueue *e) {
    give_turn_back(e);
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

/* A queue that another thread has created meanwhile did not see the write. */
static int32_t note_late(fl_queue *queue, uint64_t place) {
    __atomic_store_n(&queue->late, place, __ATOMIC_SEQ_CST);
    if (fl_may_be_late(queue))
        return 0;
    if (finish(queue, 0))
        return UR_RESULT_ERROR_OUT_OF_RESOURCES;
    fl_note_finished(queue, place);
    return 0;
}

int32_t fl_end_enqueue(fl_enqueue *e, cl_int code, uint32_t command) {
    if (code)
        return fl_leave_enqueue(e);
    give_turn_back(e);
    uint64_t complete_then = fl_count_one(e->queue, e->before);
    e->alone = e->alone && complete_then > e->before;   /* another thread may have been quicker */
    if (e->event) {
        const uintptr_t words[] = {(uintptr_t)e->made, (uintptr_t)e->queue->context->driver,
                                   (uintptr_t)e->queue,
                                   command | (e->brief ? FL_BRIEF : 0) |
                                       (e->alone ? FL_ALONE : 0) | complete_then << FL_PLACE};
        fl_begin_made(e->event, e->adapter, kind_ur_event_handle_t, words);
        code = e->waits ? complete(e) : 0;
    }
    if (e->late)
        code = note_late(e->queue, complete_then);
    else if (!code && (e->waits || e->blocks) && (e->queue->in_order || e->alone))
        fl_note_finished(e->queue, complete_then);
    if (!code && e->out)
        *e->out = e->event;
    else if (e->event)
        fl_let_go(e->adapter, e->event, kind_ur_event_handle_t);
    let_events_go(e->adapter, e->handles, e->held);
    fl_let_go(e->adapter, e->handle, kind_ur_queue_handle_t);
    return code;
}

int32_t fl_urEnqueueEventsWait(PARAMETERS_urEnqueueEventsWait) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    cl_int code = CL(e.queue->context->driver, clEnqueueMarkerWithWaitList)(e.cl, e.count, e.list,
                                                                            e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_EVENTS_WAIT);
}

static cl_int put_barrier(const fl_enqueue *e) {
    const fl_driver *driver = e->queue->context->driver;
    cl_uint count = e->count;
    cl_int code = CL_SUCCESS;
    if (count && driver->splits_barriers && !e->queue->in_order) {
        code = CL(driver, clEnqueueMarkerWithWaitList)(e->cl, count, e->list, NULL);
        count = 0;
    }
    return code ? code
                : CL(driver, clEnqueueBarrierWithWaitList)(e->cl, count, count ? e->list : NULL,
                                                           e->wanted);
}

int32_t fl_urEnqueueEventsWaitWithBarrier(PARAMETERS_urEnqueueEventsWaitWithBarrier) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    return fl_end_enqueue(&e, put_barrier(&e), UR_COMMAND_EVENTS_WAIT_WITH_BARRIER);
}

int32_t fl_urEnqueueEventsWaitWithBarrierExt(PARAMETERS_urEnqueueEventsWaitWithBarrierExt) {
    if (pProperties)
        return FL_TO_PYTHON;
    return fl_urEnqueueEventsWaitWithBarrier(adapter, hQueue, FL_ENDS);
}
