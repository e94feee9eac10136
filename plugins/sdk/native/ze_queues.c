/* Executions of lists that need no events of elsewhere, and waits for them.
 *
 * Two threads may use a queue. Python keeps the end of what it has enqueued last, and C that of its
 * own. Whoever waits waits for both (Stream.last). */
#include "ze_calls.h"
#include "ze_entries_in_c.h"

#include <sched.h>

static void *exchange_last(fl_ze_queue *queue, void *event) {
    return __atomic_exchange_n(&queue->last, event, __ATOMIC_ACQ_REL);
}

void *fl_ze_take_last(fl_ze_queue *queue) { return exchange_last(queue, NULL); }

static fl_ze_queue *queue_of(uint32_t driver, uintptr_t handle) {
    fl_ze_queue *queue = fl_ze_struct(driver, handle, kind_ze_command_queue_handle_t);
    return queue && !queue->in_python ? queue : NULL;
}

/* Whether the events that a list leaves reset are so already: it signals them for itself alone. */
static bool are_reset(const fl_ze_list *list) {
    for (uint32_t i = 0; i < list->reset_count; i++)
        if (__atomic_load_n(&list->resets[i]->state, __ATOMIC_ACQUIRE) != FL_ZE_RESET)
            return false;
    return true;
}

/* Whether a queue can execute a list without Python. */
static bool can_run(const fl_ze_queue *queue, const fl_ze_list *list) {
    return list && list->state == FL_ZE_CLOSED && list->only && list->context == queue->context &&
           list->device == queue->device && are_reset(list);
}

void fl_ze_pause(fl_ze_queue *queue) {
    __atomic_store_n(&queue->in_python, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&queue->users, __ATOMIC_SEQ_CST))
        sched_yield();
}

/* Returns the cl_event, which the queue has, or NULL: Python does it. */
static void *run_now(fl_ze_queue *queue, const fl_ze_list *list, fl_ze_event *event) {
    uintptr_t signaled = 0;
    if (!can_run(queue, list) || (event && !fl_ze_begin_signal(event, &signaled)))
        return NULL;
    intptr_t code = fl_ze_icd->enqueue_present(list->only, (void *)queue->cl);
    void *made = code > 0 ? (void *)code : NULL;   /* OpenCL's codes are negative */
    if (event)
        fl_ze_end_signal(event, signaled, made);
    void *before = made ? exchange_last(queue, made) : NULL;
    if (before)
        fl_ze_icd->release_event(before);
    return made;
}

static void *run(fl_ze_queue *queue, const fl_ze_list *list, fl_ze_event *event) {
    __atomic_add_fetch(&queue->users, 1, __ATOMIC_SEQ_CST);
    bool is_ours = !__atomic_load_n(&queue->in_python, __ATOMIC_SEQ_CST);
    void *made = is_ours ? run_now(queue, list, event) : NULL;
    __atomic_sub_fetch(&queue->users, 1, __ATOMIC_SEQ_CST);
    return made;
}

static int32_t synchronize(fl_ze_queue *queue, uint64_t timeout) {
    if (!queue || queue->in_python || queue->pending || timeout != UINT64_MAX)
        return FL_TO_PYTHON;
    void *event = exchange_last(queue, NULL), *none = NULL;
    if (!event)
        return 0;
    int32_t code = fl_sdk->wait(queue->driver, event);
    /* Python goes on, or says what has failed. A later event of the queue tells the same. */
    if (code && __atomic_compare_exchange_n(&queue->last, &none, event, false, __ATOMIC_ACQ_REL,
                                            __ATOMIC_RELAXED))
        return FL_TO_PYTHON;
    fl_ze_icd->release_event(event);
    return code ? FL_TO_PYTHON : 0;
}

static fl_ze_list *list_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_command_list_handle_t);
}

int32_t fl_zeCommandQueueExecuteCommandLists(uint32_t driver, uintptr_t hCommandQueue,
                                             uint32_t numCommandLists, uintptr_t *phCommandLists,
                                             uintptr_t hFence) {
    fl_ze_queue *queue = queue_of(driver, hCommandQueue);
    if (!queue || numCommandLists != 1 || !phCommandLists || hFence)
        return FL_TO_PYTHON;
    return run(queue, list_of(driver, *phCommandLists), NULL) ? 0 : FL_TO_PYTHON;
}

int32_t fl_zeCommandQueueSynchronize(uint32_t driver, uintptr_t hCommandQueue, uint64_t timeout) {
    return synchronize(queue_of(driver, hCommandQueue), timeout);
}

static bool can_signal(const fl_ze_list *list, const fl_ze_event *event) {
    return event && event->context == list->context && (!event->counts || list->in_order);
}

int32_t fl_zeCommandListImmediateAppendCommandListsExp(
    uint32_t driver, uintptr_t hCommandListImmediate, uint32_t numCommandLists,
    uintptr_t *phCommandLists, uintptr_t hSignalEvent, uint32_t numWaitEvents,
    uintptr_t *phWaitEvents) {
    (void)phWaitEvents;
    const fl_ze_list *to = list_of(driver, hCommandListImmediate);
    fl_ze_event *event =
        hSignalEvent ? fl_ze_struct(driver, hSignalEvent, kind_ze_event_handle_t) : NULL;
    if (!to || !to->stream || to->stream->in_python || numCommandLists != 1 || !phCommandLists ||
        numWaitEvents || (hSignalEvent && !can_signal(to, event)))
        return FL_TO_PYTHON;
    return run(to->stream, list_of(driver, *phCommandLists), event) ? 0 : FL_TO_PYTHON;
}

int32_t fl_zeCommandListHostSynchronize(uint32_t driver, uintptr_t hCommandList, uint64_t timeout) {
    const fl_ze_list *list = list_of(driver, hCommandList);
    return synchronize(list ? list->stream : NULL, timeout);
}
