/* Events that C signals, resets, asks and waits for, as long as Python knows nothing of them.
 *
 * Python takes an event when it first looks at it (fl_ze_take_event). It gives it back when it
 * resets it. Two threads may wait for an event. So one that uses it locks it for a moment. */
#include "ze_calls.h"
#include "ze_entries_in_c.h"

static bool is_signaled(uintptr_t state) { return state > FL_ZE_IN_PYTHON; }

static uintptr_t begin(fl_ze_event *event) {
    fl_sdk->enter_lock(&event->lock);
    return event->state;
}

static void end(fl_ze_event *event, uintptr_t state) {
    __atomic_store_n(&event->state, state, __ATOMIC_RELEASE);
    fl_sdk->leave_lock(&event->lock);
}

static void release(uintptr_t state) {
    if (is_signaled(state))
        fl_ze_icd->release_event((void *)state);
}

void *fl_ze_take_event(fl_ze_event *event) {
    uintptr_t state = begin(event);
    end(event, FL_ZE_IN_PYTHON);
    return is_signaled(state) ? (void *)state : NULL;
}

void fl_ze_give_event(fl_ze_event *event) {
    release(begin(event));
    end(event, FL_ZE_RESET);
}

void fl_ze_put_event(fl_ze_event *event, void *cl) {
    release(begin(event));
    fl_sdk->retain(event->driver, cl);
    end(event, (uintptr_t)cl);
}

bool fl_ze_begin_signal(fl_ze_event *event, uintptr_t *before) {
    *before = begin(event);
    if (*before == FL_ZE_IN_PYTHON)
        end(event, FL_ZE_IN_PYTHON);
    return *before != FL_ZE_IN_PYTHON;
}

void fl_ze_end_signal(fl_ze_event *event, uintptr_t before, void *cl) {
    if (cl) {
        fl_sdk->retain(event->driver, cl);
        release(before);
    }
    end(event, cl ? (uintptr_t)cl : before);
}

static fl_ze_event *event_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_event_handle_t);
}

int32_t fl_zeEventHostReset(uint32_t driver, uintptr_t hEvent) {
    fl_ze_event *event = event_of(driver, hEvent);
    if (!event || event->counts)
        return FL_TO_PYTHON;
    uintptr_t state = begin(event);
    bool is_ours = state != FL_ZE_IN_PYTHON;
    end(event, is_ours ? FL_ZE_RESET : state);
    if (is_ours)
        release(state);
    return is_ours ? 0 : FL_TO_PYTHON;
}

int32_t fl_zeEventQueryStatus(uint32_t driver, uintptr_t hEvent) {
    fl_ze_event *event = event_of(driver, hEvent);
    if (!event)
        return FL_TO_PYTHON;
    uintptr_t state = begin(event);
    int32_t status = is_signaled(state)      ? fl_sdk->status((void *)state)
                     : state == FL_ZE_RESET ? !event->counts
                                            : -1;
    end(event, state);
    return status < 0 ? FL_TO_PYTHON : status ? ZE_RESULT_NOT_READY : 0;
}

int32_t fl_zeEventHostSynchronize(uint32_t driver, uintptr_t hEvent, uint64_t timeout) {
    fl_ze_event *event = event_of(driver, hEvent);
    if (!event || timeout != UINT64_MAX)
        return FL_TO_PYTHON;
    uintptr_t state = begin(event);
    if (is_signaled(state))
        fl_sdk->retain(event->driver, (void *)state);
    end(event, state);
    if (!is_signaled(state))
        return FL_TO_PYTHON;
    int32_t code = fl_sdk->wait(event->driver, (void *)state);
    release(state);
    return code ? FL_TO_PYTHON : 0;
}
