/* Waits in which at most one thread at a time is in the driver's own wait; the others are called
 * back. icd/command_buffer/waiting.py says where and why. */
#include "native.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <sched.h>

/* Nanoseconds: until the driver's wait is worth its own time, and until a thread looks again. */
enum { SHORT = 100000, AGAIN = 1000000, POLLED = 30000 };
enum { FAILED = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST };

static atomic_flag taken = ATOMIC_FLAG_INIT;   /* the driver's wait */

int32_t fl_take_wait(void) {
    return !atomic_flag_test_and_set_explicit(&taken, memory_order_acquire);
}

void fl_give_wait_back(void) { atomic_flag_clear_explicit(&taken, memory_order_release); }

/* Of the thread that waits and of the callback: the last of them frees it, since the callback may
 * come long after the event's end. */
typedef struct {
    sem_t ended;
    atomic_int holders;
} shared;

static void let_go(shared *s) {
    if (atomic_fetch_sub(&s->holders, 1) == 1) {
        sem_destroy(&s->ended);
        free(s);
    }
}

static void ended(cl_event event, cl_int status, void *s) {
    (void)event, (void)status;
    sem_post(&((shared *)s)->ended);
    let_go(s);
}

static int ends_within(shared *s, long nanoseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return sem_timedwait(&s->ended, &until) == 0;
}

static cl_int status_of(void **table, cl_event event, cl_int *status) {
    return CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof *status,
                                       status, NULL);
}

/* Not for the callback alone: others of the event's may come before it, and wait for something
 * themselves. */
static void wait_for(void **table, cl_event event, shared *s) {
    cl_int status = CL_COMPLETE;
    if (ends_within(s, SHORT))
        return;
    while (!fl_take_wait()) {
        if (ends_within(s, AGAIN) || status_of(table, event, &status) != CL_SUCCESS ||
            status <= CL_COMPLETE)
            return;
    }
    fl_help_event(event);
    CALL(table, clWaitForEvents)(1, &event);
    fl_give_wait_back();
}

/* SPEC clWaitForEvents does so. */
static void flush_queue_of(void **table, cl_event event) {
    cl_command_queue queue = NULL;
    CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL);
    if (queue)
        CALL(table, clFlush)(queue);
}

/* Have the semaphore of what is returned posted at the end of an event; NULL, and the code, if that
 * cannot be. */
static shared *call_back(void **table, cl_event event, cl_int *code) {
    shared *s = malloc(sizeof *s);
    *code = CL_OUT_OF_HOST_MEMORY;
    if (!s)
        return NULL;
    sem_init(&s->ended, 0, 0);
    s->holders = 2;
    *code = CALL(table, clSetEventCallback)(event, CL_COMPLETE, (void *)ended, s);
    if (*code == CL_SUCCESS)
        return s;
    let_go(s);
    let_go(s);
    return NULL;
}

static cl_int called_back(void **table, cl_event event) {
    cl_int code;
    flush_queue_of(table, event);
    shared *s = call_back(table, event, &code);
    if (!s)
        return code;
    wait_for(table, event, s);
    let_go(s);
    return CL_SUCCESS;
}

/* What a wait says once it is over. */
static cl_int outcome_of(cl_event event, cl_int code) {
    return code == CL_SUCCESS && fl_has_failed(event) ? FAILED : code;
}

/* The wait of another thread is mostly short, and a callback costs more than to try again. */
static int take_wait_soon(void) {
    for (int64_t end = fl_now() + POLLED; !fl_take_wait(); sched_yield())
        if (fl_now() > end)
            return 0;
    return 1;
}

int32_t fl_wait(void *event, int at_once) {
    void **table = fl_table_of(event);
    if (!at_once || !take_wait_soon())
        return outcome_of(event, called_back(table, event));
    cl_int status = CL_COMPLETE,
           code = CALL(table, clWaitForEvents)(1, (const cl_event *)&event);
    fl_give_wait_back();
    if (code == CL_SUCCESS)   /* NVIDIA's driver says so of a failed user event, too */
        status_of(table, event, &status);
    return status < CL_COMPLETE ? FAILED : code;
}

/* SPEC clFinish: it succeeds, whatever became of commands. */
int32_t fl_finish(void *queue, int at_once) {
    void **table = fl_table_of(queue);
    cl_event marker;
    cl_int code;
    if (at_once && take_wait_soon()) {
        code = CALL(table, clFinish)(queue);
        fl_give_wait_back();
        return code;
    }
    code = CALL(table, clEnqueueMarkerWithWaitList)(queue, 0, NULL, &marker);
    if (code != CL_SUCCESS)
        return code;
    fl_note_end(queue, marker);
    code = called_back(table, marker);
    CALL(table, clReleaseEvent)(marker);
    return code;
}

/* --- waits that the main thread can leave, to look for signals --- */

struct fl_waiting {
    shared *end;
    void *event;
    int in_turns, helped, is_marker;
};

static int is_over(void **table, cl_event event, cl_int *code) {
    cl_int status = CL_COMPLETE;
    *code = status_of(table, event, &status);
    return *code != CL_SUCCESS || status <= CL_COMPLETE;
}

/* Returns FL_STILL_WAITING, with what waits, or OpenCL's code. */
static cl_int begin(void **table, cl_event event, int in_turns, fl_waiting **waiting) {
    cl_int code;
    *waiting = NULL;
    if (is_over(table, event, &code))
        return code;
    flush_queue_of(table, event);
    for (int64_t end = fl_now() + POLLED; fl_now() < end; sched_yield())
        if (is_over(table, event, &code))
            return code;
    fl_waiting *w = malloc(sizeof *w);
    shared *s = w ? call_back(table, event, &code) : NULL;
    if (!s) {
        free(w);
        return w ? code : CL_OUT_OF_HOST_MEMORY;
    }
    *w = (fl_waiting){s, event, in_turns, 0, 0};
    *waiting = w;
    return FL_STILL_WAITING;
}

int32_t fl_begin_wait(void *event, int in_turns, fl_waiting **waiting) {
    return outcome_of(event, begin(fl_table_of(event), event, in_turns, waiting));
}

/* The driver's own wait, in a thread of its own: there it runs commands. */
static void *help(void *event) {
    void **table = fl_table_of(event);
    fl_help_event(event);
    CALL(table, clWaitForEvents)(1, (const cl_event *)&event);
    CALL(table, clReleaseEvent)(event);
    fl_give_wait_back();
    return NULL;
}

static int begin_to_help(void *event) {
    pthread_t thread;
    if (!fl_take_wait())
        return 0;
    CALL(fl_table_of(event), clRetainEvent)(event);
    if (fl_start_thread(&thread, NULL, help, event))
        return 1;
    CALL(fl_table_of(event), clReleaseEvent)(event);
    fl_give_wait_back();
    return 0;
}

int32_t fl_go_on_waiting(fl_waiting *w, uint32_t milliseconds) {
    void **table = fl_table_of(w->event);
    cl_int code;
    int ended = w->in_turns && !w->helped && ends_within(w->end, SHORT);
    for (int64_t end = fl_now() + milliseconds * INT64_C(1000000); !ended && fl_now() < end;) {
        if (w->in_turns && !w->helped)
            w->helped = begin_to_help(w->event);
        ended = ends_within(w->end, AGAIN) || is_over(table, w->event, &code);
    }
    if (!ended)
        return FL_STILL_WAITING;
    is_over(table, w->event, &code);
    return w->is_marker ? code : outcome_of(w->event, code);
}

int32_t fl_begin_finish(void *queue, int in_turns, fl_waiting **waiting) {
    void **table = fl_table_of(queue);
    cl_event marker;
    cl_int code = CALL(table, clEnqueueMarkerWithWaitList)(queue, 0, NULL, &marker);
    *waiting = NULL;
    if (code != CL_SUCCESS)
        return code;
    fl_note_end(queue, marker);
    code = begin(table, marker, in_turns, waiting);
    if (*waiting)
        (*waiting)->is_marker = 1;
    else
        CALL(table, clReleaseEvent)(marker);
    return code;
}

void fl_end_wait(fl_waiting *w) {
    if (w->is_marker)
        CALL(fl_table_of(w->event), clReleaseEvent)(w->event);
    let_go(w->end);
    free(w);
}
