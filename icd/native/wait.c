/* Waits in which at most one thread at a time is in the driver's own wait; the others are called back. icd/waiting.py says where and why. */
#include "native.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

/* Nanoseconds: until the driver's wait is worth its own time, and until a thread asks again whether it is its turn. */
enum { SHORT = 100000, AGAIN = 1000000 };

static atomic_flag taken = ATOMIC_FLAG_INIT;   /* the driver's wait */

static int take(void) { return !atomic_flag_test_and_set_explicit(&taken, memory_order_acquire); }

static void give_back(void) { atomic_flag_clear_explicit(&taken, memory_order_release); }

static void ended(cl_event event, cl_int status, void *semaphore) {
    (void)event, (void)status;
    sem_post(semaphore);
}

static int ends_within(sem_t *semaphore, long nanoseconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += nanoseconds;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return sem_timedwait(semaphore, &until) == 0;
}

/* The callback comes in any case, after the driver's wait too. */
static void wait_for_callback(void **table, cl_event event, sem_t *semaphore) {
    if (ends_within(semaphore, SHORT))
        return;
    while (!take())
        if (ends_within(semaphore, AGAIN))
            return;
    CALL(table, clWaitForEvents)(1, &event);
    give_back();
    while (sem_wait(semaphore))
        continue;   /* a signal came */
}

static cl_int called_back(void **table, cl_event event) {
    cl_command_queue queue = NULL;
    cl_int status = CL_COMPLETE;
    sem_t semaphore;
    CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL);
    if (queue)
        CALL(table, clFlush)(queue);   /* SPEC clWaitForEvents does so */
    sem_init(&semaphore, 0, 0);
    cl_int code = CALL(table, clSetEventCallback)(event, CL_COMPLETE, (void *)ended, &semaphore);
    if (code == CL_SUCCESS) {
        wait_for_callback(table, event, &semaphore);
        code = CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    }
    sem_destroy(&semaphore);
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
