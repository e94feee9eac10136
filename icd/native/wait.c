/* A wait for an event by its callback: icd/waiting.py says where and why. */
#include "native.h"

#include <semaphore.h>

static void ended(cl_event event, cl_int status, void *semaphore) {
    (void)event, (void)status;
    sem_post(semaphore);
}

int32_t fl_await(void *event) {
    void **table = fl_table_of(event);
    cl_command_queue queue = NULL;
    cl_int status = CL_COMPLETE;
    sem_t semaphore;
    CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL);
    if (queue)
        CALL(table, clFlush)(queue);   /* SPEC clWaitForEvents does so */
    sem_init(&semaphore, 0, 0);
    cl_int code = CALL(table, clSetEventCallback)(event, CL_COMPLETE, (void *)ended, &semaphore);
    if (code == CL_SUCCESS) {
        while (sem_wait(&semaphore))
            continue;   /* a signal came */
        code = CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    }
    sem_destroy(&semaphore);
    return code == CL_SUCCESS && status < 0 ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}
