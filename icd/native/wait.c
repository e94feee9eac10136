/* Waits in which at most one thread at a time is in the driver's own wait; the others are called back. icd/command_buffer/waiting.py says where and why. */
#include "native.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

/* Nanoseconds: until the driver's wait is worth its own time, and until a thread looks again. */
enum { SHORT = 100000, AGAIN = 1000000 };

static atomic_flag taken = ATOMIC_FLAG_INIT;   /* the driver's wait */

static int take(void) { return !atomic_flag_test_and_set_explicit(&taken, memory_order_acquire); }

static void give_back(void) { atomic_flag_clear_explicit(&taken, memory_order_release); }

void fl_forget_waits(void) { give_back(); }

/* Of the thread that waits and of the callback: the last of them frees it, since the callback may come long after the event's end. */
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
    return CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof *status, status, NULL);
}

/* Not for the callback alone: others of the event's may come before it, and wait for something themselves. */
static void wait_for(void **table, cl_event event, shared *s) {
    cl_int status = CL_COMPLETE;
    if (ends_within(s, SHORT))
        return;
    while (!take()) {
        if (ends_within(s, AGAIN) || status_of(table, event, &status) != CL_SUCCESS || status <= CL_COMPLETE)
            return;
    }
    CALL(table, clWaitForEvents)(1, &event);
    give_back();
}

static cl_int called_back(void **table, cl_event event) {
    cl_command_queue queue = NULL;
    cl_int status = CL_COMPLETE;
    shared *s = malloc(sizeof *s);
    if (!s)
        return CL_OUT_OF_HOST_MEMORY;
    sem_init(&s->ended, 0, 0);
    s->holders = 2;
    CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL);
    if (queue)
        CALL(table, clFlush)(queue);   /* SPEC clWaitForEvents does so */
    cl_int code = CALL(table, clSetEventCallback)(event, CL_COMPLETE, (void *)ended, s);
    if (code == CL_SUCCESS) {
        wait_for(table, event, s);
        code = status_of(table, event, &status);
    } else {
        let_go(s);   /* for the callback */
    }
    let_go(s);
    return code == CL_SUCCESS && status < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}

int32_t fl_wait(void *event, int at_once) {
    void **table = fl_table_of(event);
    if (!at_once || !take())
        return called_back(table, event);
    cl_int code = CALL(table, clWaitForEvents)(1, (const cl_event *)&event);
    give_back();
    return code;
}

int32_t fl_finish(void *queue, int at_once) {
    void **table = fl_table_of(queue);
    cl_event marker;
    cl_int code;
    if (at_once && take()) {
        code = CALL(table, clFinish)(queue);
        give_back();
        return code;
    }
    code = CALL(table, clEnqueueMarkerWithWaitList)(queue, 0, NULL, &marker);
    if (code != CL_SUCCESS)
        return code;
    code = called_back(table, marker);
    CALL(table, clReleaseEvent)(marker);
    return code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST ? CL_SUCCESS : code;   /* SPEC clFinish: whatever became of commands */
}
