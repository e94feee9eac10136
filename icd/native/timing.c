/* How long an enqueue takes, for the caller and for the device: by this engines are compared
 * (icd/command_buffer/trial.py). Nothing is waited for: events call back. */
#include "native.h"

#include <stdatomic.h>
#include <stdlib.h>

/* Times in nanoseconds; 0 is "not yet". The holders are Python and the callbacks that are still to
 * come: the last of them frees it. The event is a reference, which Python's drop lets go. */
struct fl_timing {
    atomic_int holders, failed;
    _Atomic int64_t ready, end;
    int64_t begin, back;
    int marked, holds;
    void *event;
};

static void let_go(fl_timing *t) {
    if (atomic_fetch_sub(&t->holders, 1) == 1)
        free(t);
}

void fl_drop_timing(fl_timing *t) {
    if (t->event && (t->holds || !atomic_load(&t->end)))
        fl_hold_event(t->event);
    else if (t->event)
        CALL(fl_table_of(t->event), clReleaseEvent)(t->event);
    let_go(t);
}

static void called(fl_timing *t, _Atomic int64_t *time, cl_int status) {
    if (status < 0)
        atomic_store(&t->failed, 1);
    atomic_store(time, fl_now());
    let_go(t);
}

static void is_ready(cl_event event, cl_int status, void *timing) {
    (void)event;
    called(timing, &((fl_timing *)timing)->ready, status);
}

static void has_ended(cl_event event, cl_int status, void *timing) {
    (void)event;
    called(timing, &((fl_timing *)timing)->end, status);
}

static void call_back(fl_timing *t, void *event, void (*callback)(cl_event, cl_int, void *)) {
    atomic_fetch_add(&t->holders, 1);
    if (CALL(fl_table_of(event), clSetEventCallback)(event, CL_COMPLETE, (void *)callback, t) !=
        CL_SUCCESS) {
        atomic_store(&t->failed, 1);
        let_go(t);
    }
}

fl_timing *fl_begin_timing(void *queue, int marked, int holds, uint32_t wait_count,
                           void *const *wait_list) {
    fl_timing *t = calloc(1, sizeof *t);
    void **table = fl_table_of(queue), *marker = NULL;
    if (!t)
        return NULL;
    t->holders = 1;
    t->marked = marked, t->holds = holds;
    if (marked) {
        if (CALL(table, clEnqueueMarkerWithWaitList)(queue, wait_count, (const cl_event *)wait_list,
                                                     (cl_event *)&marker) == CL_SUCCESS) {
            call_back(t, marker, is_ready);
            fl_holds_events = holds;
            fl_drop_event(marker);
            fl_holds_events = false;
        } else
            atomic_store(&t->failed, 1);
    }
    t->begin = fl_now();
    return t;
}

void fl_end_timing(fl_timing *t, void *event) {
    t->back = fl_now();
    if (CALL(fl_table_of(event), clRetainEvent)(event) == CL_SUCCESS)
        t->event = event;
    call_back(t, event, has_ended);
}

/* The device begins once the marker before the enqueue is complete, but not before the enqueue has
 * begun. */
int64_t fl_timing_of(const fl_timing *t) {
    int64_t ready = atomic_load(&t->ready), end = atomic_load(&t->end);
    if (atomic_load(&t->failed))
        return FL_NO_TIME;
    if (!end || (t->marked && !ready))
        return FL_NO_TIME_YET;
    /* NVIDIA's driver calls back with 0 for a failed event. It is not asked in the callback, where
     * some drivers hold a lock of it. */
    if (t->event && fl_has_failed(t->event))
        return FL_NO_TIME;
    int64_t from = ready > t->begin ? ready : t->begin, here = t->back - t->begin,
            there = end - from;
    return there > here ? there : here;
}
