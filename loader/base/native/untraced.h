/* For functions of Py_AddPendingCall that call Python.
 *
 * Python 3.11 may repeat the first instruction of a function for ever in these. It does so if a
 * tracer or profiler is set, such as coverage's, and one more call is added meanwhile. Any thread
 * may add one. So Python does not trace between these two. */
#pragma once

#include <stddef.h>

typedef struct _ts PyThreadState;

/* Not in every Python, or hidden by cffi's headers. */
__attribute__((weak)) PyThreadState *PyThreadState_Get(void);
__attribute__((weak)) void PyThreadState_EnterTracing(PyThreadState *thread);
__attribute__((weak)) void PyThreadState_LeaveTracing(PyThreadState *thread);

static inline PyThreadState *fl_stop_tracing(void) {
    PyThreadState *thread = PyThreadState_EnterTracing ? PyThreadState_Get() : NULL;
    if (thread)
        PyThreadState_EnterTracing(thread);
    return thread;
}

static inline void fl_trace_again(PyThreadState *thread) {
    if (thread)
        PyThreadState_LeaveTracing(thread);
}
