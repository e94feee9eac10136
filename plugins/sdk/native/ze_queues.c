/* Executions of lists that need no events, and waits for them.
 *
 * Two threads may use a queue. Python keeps the end of what it has enqueued last, and C that of its
 * own. Whoever waits waits for both (Stream.last). */
#include "ze_calls.h"
#include "ze_entries_in_c.h"

static void *exchange_last(fl_ze_queue *queue, void *event) {
    return __atomic_exchange_n(&queue->last, event, __ATOMIC_ACQ_REL);
}

void *fl_ze_take_last(fl_ze_queue *queue) { return exchange_last(queue, NULL); }

static fl_ze_queue *queue_of(uint32_t driver, uintptr_t handle) {
    fl_ze_queue *queue = fl_ze_struct(driver, handle, kind_ze_command_queue_handle_t);
    return queue && !queue->in_python ? queue : NULL;
}

int32_t fl_zeCommandQueueExecuteCommandLists(uint32_t driver, uintptr_t hCommandQueue,
                                             uint32_t numCommandLists, uintptr_t *phCommandLists,
                                             uintptr_t hFence) {
    fl_ze_queue *queue = queue_of(driver, hCommandQueue);
    if (!queue || numCommandLists != 1 || !phCommandLists || hFence)
        return FL_TO_PYTHON;
    const fl_ze_list *list =
        fl_ze_struct(driver, *phCommandLists, kind_ze_command_list_handle_t);
    if (!list || list->state != FL_ZE_CLOSED || !list->only || list->context != queue->context ||
        list->device != queue->device)
        return FL_TO_PYTHON;
    intptr_t event = fl_ze_icd->enqueue_present(list->only, (void *)queue->cl);
    if (event <= 0)   /* OpenCL's codes are negative */
        return FL_TO_PYTHON;
    void *before = exchange_last(queue, (void *)event);
    if (before)
        fl_ze_icd->release_event(before);
    return 0;
}

int32_t fl_zeCommandQueueSynchronize(uint32_t driver, uintptr_t hCommandQueue, uint64_t timeout) {
    fl_ze_queue *queue = queue_of(driver, hCommandQueue);
    if (!queue || queue->pending || timeout != UINT64_MAX)
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
