/* Executions of lists that need no events of elsewhere, and waits for them.
 *
 * Threads may use one queue. Python keeps the end of what it has enqueued last, and C that of its
 * own. Whoever waits waits for both (Stream.last). What C has enqueued last stays known until it
 * has ended or Python takes it: a second thread that waits must not find nothing. A queue is locked
 * while C enqueues on it, so that its last event is that of the last enqueue. */
#include "ze_calls.h"
#include "ze_entries_in_c.h"

static void enter(fl_ze_queue *queue) { fl_sdk->enter_lock(&queue->lock); }

static void leave(fl_ze_queue *queue) { fl_sdk->leave_lock(&queue->lock); }

void *fl_ze_take_last(fl_ze_queue *queue) {
    enter(queue);
    void *event = queue->last;
    queue->last = NULL;
    queue->pending |= event != NULL;
    leave(queue);
    return event;
}

void fl_ze_pause(fl_ze_queue *queue) {
    enter(queue);
    queue->in_python = 1;
    leave(queue);
}

static fl_ze_queue *queue_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_command_queue_handle_t);
}

/* Whether the events that a list leaves reset are so already: it signals them for itself alone. */
static bool are_reset(const fl_ze_list *list) {
    for (uint32_t i = 0; i < list->reset_count; i++)
        if (__atomic_load_n(&list->resets[i]->lock, __ATOMIC_ACQUIRE) ||
            __atomic_load_n(&list->resets[i]->state, __ATOMIC_ACQUIRE) != FL_ZE_RESET)
            return false;
    return true;
}

/* Whether a queue can execute a list without Python. */
static bool can_run(const fl_ze_queue *queue, const fl_ze_list *list) {
    return !queue->in_python && list && list->state == FL_ZE_CLOSED && list->only &&
           list->context == queue->context && list->device == queue->device && are_reset(list);
}

/* False: Python does it. */
static bool run_now(fl_ze_queue *queue, const fl_ze_list *list, fl_ze_event *event) {
    uintptr_t signaled = 0;
    if (!can_run(queue, list) || (event && !fl_ze_begin_signal(event, &signaled)))
        return false;
    intptr_t code = fl_ze_icd->enqueue_present(list->only, (void *)queue->cl);
    void *made = code > 0 ? (void *)code : NULL;   /* OpenCL's codes are negative */
    if (event)
        fl_ze_end_signal(event, signaled, made);
    if (made && queue->last)
        fl_ze_icd->release_event(queue->last);
    if (made)
        queue->last = made;
    return made;
}

static int32_t run(fl_ze_queue *queue, const fl_ze_list *list, fl_ze_event *event) {
    enter(queue);
    bool done = run_now(queue, list, event);
    leave(queue);
    return done ? 0 : FL_TO_PYTHON;
}

/* The event to wait for, a reference; NULL if C has nothing to wait for, or Python waits. */
static void *begin_wait(fl_ze_queue *queue, bool *is_ours) {
    enter(queue);
    *is_ours = !queue->in_python && !queue->pending;
    void *event = *is_ours ? queue->last : NULL;
    if (event)
        fl_sdk->retain(queue->driver, event);
    leave(queue);
    return event;
}

/* `event`: has ended. */
static void forget(fl_ze_queue *queue, void *event) {
    enter(queue);
    bool is_last = queue->last == event;
    if (is_last)
        queue->last = NULL;
    leave(queue);
    if (is_last)
        fl_ze_icd->release_event(event);
}

static int32_t synchronize(fl_ze_queue *queue, uint64_t timeout) {
    bool is_ours;
    if (!queue || timeout != UINT64_MAX)
        return FL_TO_PYTHON;
    void *event = begin_wait(queue, &is_ours);
    if (!event)
        return is_ours ? 0 : FL_TO_PYTHON;
    int32_t code = fl_sdk->wait(queue->driver, event);
    if (!code)
        forget(queue, event);
    fl_ze_icd->release_event(event);
    return code ? FL_TO_PYTHON : 0;   /* Python goes on, or says what has failed */
}

static fl_ze_list *list_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_command_list_handle_t);
}

int32_t fl_zeCommandQueueExecuteCommandLists(PARAMETERS_zeCommandQueueExecuteCommandLists) {
    fl_ze_queue *queue = queue_of(driver, hCommandQueue);
    if (!queue || numCommandLists != 1 || !phCommandLists || hFence)
        return FL_TO_PYTHON;
    return run(queue, list_of(driver, *phCommandLists), NULL);
}

int32_t fl_zeCommandQueueSynchronize(uint32_t driver, uintptr_t hCommandQueue, uint64_t timeout) {
    return synchronize(queue_of(driver, hCommandQueue), timeout);
}

static bool can_signal(const fl_ze_list *list, const fl_ze_event *event) {
    return event && event->context == list->context && (!event->counts || list->in_order);
}

int32_t fl_zeCommandListImmediateAppendCommandListsExp(
    PARAMETERS_zeCommandListImmediateAppendCommandListsExp) {
    (void)phWaitEvents;
    const fl_ze_list *to = list_of(driver, hCommandListImmediate);
    fl_ze_event *event =
        hSignalEvent ? fl_ze_struct(driver, hSignalEvent, kind_ze_event_handle_t) : NULL;
    if (!to || !to->stream || numCommandLists != 1 || !phCommandLists ||
        numWaitEvents || (hSignalEvent && !can_signal(to, event)))
        return FL_TO_PYTHON;
    return run(to->stream, list_of(driver, *phCommandLists), event);
}

int32_t fl_zeCommandListHostSynchronize(uint32_t driver, uintptr_t hCommandList, uint64_t timeout) {
    const fl_ze_list *list = list_of(driver, hCommandList);
    return synchronize(list ? list->stream : NULL, timeout);
}
