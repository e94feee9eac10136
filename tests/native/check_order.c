/* What a recorded command waits for, and what may be done with events inside a block. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

SCENARIO(order_in_order) {
    fl_recording *r = begin(w);
    cl_event first;
    OK(fill(w->queue, w->a, &first));
    OK(fill(w->queue, w->a, NULL));
    OK(marker(w->queue, 1, &first, NULL));
    OK(marker(w->queue, 0, NULL, NULL));
    release_event(first);
    end(w, r);
    WAITS_FOR_NOTHING(r, 0);
    WAITS_FOR(r, 1, 0);
    WAITS_FOR(r, 2, 1, 0);
    WAITS_FOR(r, 3, 2);
    drop(w, r);
}

SCENARIO(order_out_of_order) {
    cl_command_queue q = w->free_queue;
    cl_event e[2];
    fl_recording *r = begin_free(w);
    OK(fill(q, w->a, &e[0]));                                    /* 0 */
    OK(fill(q, w->b, &e[1]));                                    /* 1 */
    OK(marker(q, 1, e, NULL));                                   /* 2: after 0 */
    OK(marker(q, 0, NULL, NULL));                                /* 3: after all */
    OK(fill(q, w->a, NULL));                                     /* 4: after nothing */
    /* 5: after 1; all later ones after it */
    OK(CL(q, clEnqueueBarrierWithWaitList)(q, 1, &e[1], NULL));
    OK(fill(q, w->a, NULL));                                     /* 6 */
    OK(CL(q, clEnqueueBarrier)(q));                              /* 7: after all */
    OK(fill(q, w->a, NULL));                                     /* 8 */
    OK(CL(q, clEnqueueWaitForEvents)(q, 2, e));                  /* 9 */
    release_event(e[0]);
    release_event(e[1]);
    end(w, r);
    WAITS_FOR_NOTHING(r, 0);
    WAITS_FOR_NOTHING(r, 1);
    WAITS_FOR(r, 2, 0);
    WAITS_FOR(r, 3, 0, 1, 2);
    WAITS_FOR_NOTHING(r, 4);
    WAITS_FOR(r, 5, 1);
    WAITS_FOR(r, 6, 5);
    WAITS_FOR(r, 7, 5, 3, 4, 6);
    WAITS_FOR(r, 8, 7);
    WAITS_FOR(r, 9, 7, 0, 1);
    drop(w, r);
}

SCENARIO(order_two_queues) {
    cl_event e;
    fl_recording *r = begin_on(w, (const cl_command_queue[]){w->queue, w->free_queue}, 2, false);
    OK(fill(w->queue, w->a, &e));
    OK(fill(w->free_queue, w->b, NULL));
    OK(marker(w->free_queue, 1, &e, NULL));
    OK(fill(w->queue, w->a, NULL));
    release_event(e);
    end(w, r);
    EQUAL(command(r, 0)->queue, 0);
    EQUAL(command(r, 1)->queue, 1);
    WAITS_FOR_NOTHING(r, 1);
    WAITS_FOR(r, 2, 0);
    WAITS_FOR(r, 3, 0);
    drop(w, r);
}

/* An event of the block is complete, the program's own, and lives on after the graph is gone. More
 * than the first table holds. */
SCENARIO(order_events) {
    enum { MANY = 300 };
    cl_event events[MANY];
    cl_int status = 1;
    fl_recording *r = begin_free(w);
    for (int i = 0; i < MANY; i++)
        OK(fill(w->free_queue, w->a, &events[i]));
    OK(marker(w->free_queue, 30, events, NULL));
    OK(marker(w->free_queue, 2, (const cl_event[]){events[MANY - 1], events[MANY - 1]}, NULL));
    OK(CL(events[7], clGetEventInfo)(events[7], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                     &status, NULL));
    EQUAL(status, CL_COMPLETE);
    EQUAL(mock_references(events[7]), 2);
    end(w, r);
    EQUAL(mock_references(events[7]), 1);
    EQUAL(command(r, MANY)->dep_count, 30);
    WAITS_FOR(r, MANY + 1, MANY - 1);
    drop(w, r);
    for (int i = 0; i < MANY; i++)
        release_event(events[i]);
}

/* Events that the program drops in the block are let go in it; those that it keeps stay what they
 * were. */
SCENARIO(order_dropped_events) {
    enum { MANY = 1000, EVERY = 97 };
    cl_event events[MANY];
    uint32_t living = 0;
    fl_recording *r = begin_free(w);
    for (int i = 0; i < MANY; i++) {
        OK(fill(w->free_queue, w->a, &events[i]));
        if (i % EVERY)
            release_event(events[i]);
    }
    for (int i = 0; i < MANY; i++)
        living += mock_references(events[i]) > 0;
    CHECK(living < MANY / 4);
    for (int i = 0; i < MANY; i += EVERY) {
        EQUAL(mock_references(events[i]), 2);
        OK(marker(w->free_queue, 1, &events[i], NULL));
        WAITS_FOR(r, MANY + i / EVERY, i);
    }
    end(w, r);
    drop(w, r);
    for (int i = 0; i < MANY; i += EVERY)
        release_event(events[i]);
}

SCENARIO(order_outside_events) {
    cl_event done, pending = mock_pending(w->context);
    OK(marker(w->queue, 0, NULL, &done));
    uint32_t count;
    fl_recording *r = begin(w);
    cl_event list[] = {done, pending, pending};
    OK(marker(w->queue, 3, list, NULL));
    OK(marker(w->queue, 1, &pending, NULL));
    end(w, r);
    void *const *events = fl_pending(r, &count);
    EQUAL(count, 1);
    CHECK(events[0] == (void *)pending);
    WAITS_FOR_NOTHING(r, 0);
    release_event(pending);
    EQUAL(mock_references(pending), 1);   /* the graph's */
    drop(w, r);
    release_event(done);
}

/* A call that failed for another reason does not make the graph forget an event, when the program
 * goes on to use it. */
SCENARIO(order_pending_after_error) {
    cl_event pending = mock_pending(w->context);
    cl_event list[] = {pending, NULL};
    uint32_t count;
    fl_recording *r = begin(w);
    EQUAL(marker(w->queue, 2, list, NULL), CL_INVALID_EVENT_WAIT_LIST);
    OK(marker(w->queue, 1, list, NULL));
    end(w, r);
    fl_pending(r, &count);
    EQUAL(count, 1);
    drop(w, r);
    release_event(pending);
}

SCENARIO(order_failed_event) {
    cl_event failed = mock_pending(w->context);
    mock_complete(failed, CL_OUT_OF_RESOURCES);
    fl_recording *r = begin(w);
    refused(w, marker(w->queue, 1, &failed, NULL), SLOT_clEnqueueMarkerWithWaitList,
            FL_FAILED_EVENT);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
    release_event(failed);
}

SCENARIO(order_foreign_event) {
    cl_context context = mock_context(w->m);
    cl_event foreign = mock_pending(context), other;
    fl_recording *r = begin(w), *s = begin_free(w);
    refused(w, marker(w->queue, 1, &foreign, NULL), SLOT_clEnqueueMarkerWithWaitList,
            FL_FOREIGN_EVENT);
    OK(fill(w->free_queue, w->a, &other));   /* an event of another block */
    refused(w, marker(w->queue, 1, &other, NULL), SLOT_clEnqueueMarkerWithWaitList,
            FL_FOREIGN_EVENT);
    fl_end(s);
    OK(marker(w->queue, 1, &other, NULL));   /* harmless now */
    end(w, r);
    EQUAL(count_of(r), 1);
    drop(w, r);
    drop(w, s);
    release_event(other);
    release_event(foreign);
    CL(context, clReleaseContext)(context);
}

SCENARIO(order_waits) {
    cl_event before, e;
    OK(fill(w->queue, w->a, &before));
    fl_recording *r = begin_free(w);
    OK(fill(w->free_queue, w->a, &e));
    cl_event list[] = {before, e};
    atomic_store(&w->trace.no_wait, true);
    refused(w, CL(e, clWaitForEvents)(2, list), SLOT_clWaitForEvents, FL_WAITS);
    EQUAL(w->trace.waits, 1);
    /* a destructor: it wants its memory back, and nothing is asked */
    atomic_store(&harness_holds_gil, 1);
    OK(CL(e, clWaitForEvents)(2, list));
    EQUAL(w->trace.waits, 1);
    EQUAL(count_of(r), 1);
    mock_clear();
    OK(CL(e, clWaitForEvents)(1, &before));   /* not captured: the driver waits */
    EQUAL(mock_calls(SLOT_clWaitForEvents), 1);
    end(w, r);
    OK(CL(e, clWaitForEvents)(2, list));      /* and after the block it does for both */
    EQUAL(mock_calls(SLOT_clWaitForEvents), 2);
    drop(w, r);
    release_event(before);
    release_event(e);
}

/* A client's own tidying: what comes later on any captured queue comes after what was waited for.
 */
SCENARIO(order_housekeeping) {
    cl_event e;
    fl_recording *r = begin_on(w, (const cl_command_queue[]){w->queue, w->free_queue}, 2, false);
    OK(fill(w->free_queue, w->a, &e));       /* 0 */
    OK(CL(e, clWaitForEvents)(1, &e));
    OK(fill(w->queue, w->a, NULL));          /* 1 */
    OK(fill(w->free_queue, w->a, NULL));     /* 2: a barrier, and 3 */
    OK(fill(w->free_queue, w->a, NULL));     /* 4 */
    OK(CL(w->free_queue, clEnqueueBarrier)(w->free_queue));
    release_event(e);
    end(w, r);
    EQUAL(count_of(r), 6);
    EQUAL(w->trace.nodes, 6);
    EQUAL(command(r, 2)->op, FL_BARRIER);
    WAITS_FOR(r, 1, 0);
    WAITS_FOR(r, 2, 0);
    WAITS_FOR(r, 3, 2);
    WAITS_FOR(r, 4, 2);
    WAITS_FOR(r, 5, 0, 2, 3, 4);
    drop(w, r);
}

/* A call that fails does not make the next one forget what the host waited for. */
SCENARIO(order_housekeeping_after_error) {
    cl_event e, nothing = NULL;
    fl_recording *r = begin_on(w, (const cl_command_queue[]){w->queue, w->free_queue}, 2, false);
    OK(fill(w->free_queue, w->a, &e));                                                    /* 0 */
    OK(CL(e, clWaitForEvents)(1, &e));
    EQUAL(marker(w->queue, 1, &nothing, NULL), CL_INVALID_EVENT_WAIT_LIST);
    OK(fill(w->queue, w->a, NULL));                                                       /* 1 */
    /* 2: a barrier may stay */
    EQUAL(marker(w->free_queue, 1, &nothing, NULL), CL_INVALID_EVENT_WAIT_LIST);
    OK(fill(w->free_queue, w->a, NULL));                                                  /* 3 */
    release_event(e);
    end(w, r);
    WAITS_FOR(r, 1, 0);
    WAITS_FOR(r, 2, 0);
    WAITS_FOR(r, 3, 2);
    drop(w, r);
}

/* A wait for events of the block and others: for the others the program has to be made to wait. */
SCENARIO(order_mixed_wait) {
    cl_event list[2];
    OK(fill(w->queue, w->a, &list[1]));
    fl_recording *r = begin(w);
    OK(fill(w->queue, w->a, &list[0]));
    OK(CL(list[0], clWaitForEvents)(2, list));
    EQUAL(mock_calls(SLOT_clWaitForEvents), 1);
    end(w, r);
    drop(w, r);
    release_event(list[0]);
    release_event(list[1]);
}

static void never(cl_event event, cl_int status, void *data) {
    atomic_fetch_add((atomic_int *)data, 1);
}

SCENARIO(order_callback) {
    atomic_int called = 0;
    cl_event before, e;
    OK(fill(w->queue, w->a, &before));
    fl_recording *r = begin(w);
    OK(fill(w->queue, w->a, &e));
    refused(w, CL(e, clSetEventCallback)(e, CL_COMPLETE, (void *)never, &called),
            SLOT_clSetEventCallback, FL_CALLBACK);
    EQUAL(called, 0);
    OK(CL(before, clSetEventCallback)(before, CL_COMPLETE, (void *)never, &called));
    EQUAL(called, 1);
    end(w, r);
    OK(CL(e, clSetEventCallback)(e, CL_COMPLETE, (void *)never, &called));
    EQUAL(called, 2);
    drop(w, r);
    release_event(before);
    release_event(e);
}

/* A wait by callback ends when the event does, whatever became of it, and says what the driver's
 * own would. */
SCENARIO(wait_called_back) {
    cl_event event = mock_pending(w->context);
    mock_complete(event, CL_COMPLETE);
    OK(fl_wait(event, 0));
    mock_fail(SLOT_clSetEventCallback, 0, CL_OUT_OF_RESOURCES);
    EQUAL(fl_wait(event, 0), CL_OUT_OF_RESOURCES);
    mock_complete(event, CL_OUT_OF_RESOURCES);
    EQUAL(fl_wait(event, 0), CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    release_event(event);
    OK(fl_finish(w->queue, 0));
    mock_fail(SLOT_clEnqueueMarkerWithWaitList, 0, CL_OUT_OF_RESOURCES);
    EQUAL(fl_finish(w->queue, 0), CL_OUT_OF_RESOURCES);
}

SCENARIO(wait_at_once) {
    cl_event event;
    OK(marker(w->queue, 0, NULL, &event));
    int seen = mock_calls(SLOT_clWaitForEvents);
    OK(fl_wait(event, 1));
    EQUAL(mock_calls(SLOT_clWaitForEvents), seen + 1);
    mock_fail(SLOT_clWaitForEvents, 0, CL_OUT_OF_RESOURCES);
    EQUAL(fl_wait(event, 1), CL_OUT_OF_RESOURCES);
    OK(fl_finish(w->queue, 1));
    OK(fl_wait(event, 1));   /* the turn was given back */
    EQUAL(mock_calls(SLOT_clWaitForEvents), seen + 2);
    release_event(event);
}

/* The thread in the driver's wait takes no signal that the program keeps for later. */
SCENARIO(thread_without_signals) {
    cl_event event = mock_pending(w->context);
    sigset_t kept, pending;
    fl_waiting *waiting;
    mock_clear();
    EQUAL(fl_begin_wait(event, 1, &waiting), FL_STILL_WAITING);
    while (!mock_calls(SLOT_clWaitForEvents))
        EQUAL(fl_go_on_waiting(waiting, 1), FL_STILL_WAITING);
    sigemptyset(&kept);
    sigaddset(&kept, SIGUSR1);
    CHECK(!pthread_sigmask(SIG_BLOCK, &kept, NULL));
    CHECK(!kill(getpid(), SIGUSR1));
    CHECK(!sigpending(&pending) && sigismember(&pending, SIGUSR1));
    mock_complete(event, CL_COMPLETE);
    while (fl_go_on_waiting(waiting, 1) == FL_STILL_WAITING)
        ;
    fl_end_wait(waiting);
    release_event(event);
}

static void *complete(void *event) {
    mock_complete(event, CL_COMPLETE);
    return NULL;
}

/* The thread that waits is in the driver's wait by then, since it was called back by nobody. */
static void *complete_late(void *event) {
    while (!mock_calls(SLOT_clWaitForEvents))
        sched_yield();
    return complete(event);
}

SCENARIO(thread_wait) {
    for (int i = 0; i < 100; i++) {
        cl_event event = mock_pending(w->context);
        pthread_t thread;
        mock_clear();
        CHECK(pthread_create(&thread, NULL, i % 2 ? complete : complete_late, event) == 0);
        OK(fl_wait(event, 0));
        CHECK(pthread_join(thread, NULL) == 0);
        release_event(event);
    }
}
