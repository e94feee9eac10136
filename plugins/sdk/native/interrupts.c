/* Ctrl-C that came while an entry point ran. The handler of loader/base/interrupts.py defers it.
 * The shell raises it again when the entry point has returned. Python then handles it before the
 * next instruction of the caller. */
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include "interrupts.cdef.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static atomic_int due;
static pthread_t thread; /* the thread that runs Python's signal handlers */

void fl_put_off_interrupt(void) {
    thread = pthread_self();
    due = 1;
}

const int *fl_interrupt_due(void) { return (const int *)&due; }

/* An outer entry point may still run. Then the handler defers it again. */
void fl_raise_interrupt(void) {
    if (due && pthread_equal(thread, pthread_self())) {
        due = 0;
        PyErr_SetInterrupt();
    }
}

/* Returns whether a frame of this thread is a finalizer. It needs the GIL and runs no Python
 * code. */
static bool in_finalizer(void) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    bool found = false;
    Py_XINCREF(frame);
    while (frame && frame != Py_None && !found) {
        PyObject *code = PyObject_GetAttrString(frame, "f_code");
        PyObject *name = code ? PyObject_GetAttrString(code, "co_name") : NULL;
        found = name && PyUnicode_CompareWithASCIIString(name, "__del__") == 0;
        PyObject *back = PyObject_GetAttrString(frame, "f_back");
        Py_XDECREF(name);
        Py_XDECREF(code);
        Py_DECREF(frame);
        frame = back;
    }
    Py_XDECREF(frame);
    PyErr_Clear();
    return found;
}

/* A pending call runs in the main thread between two instructions. It adds itself again while the
 * finalizer runs. A Python function cannot do this, because each of its calls would handle the next
 * interrupt inside the last one. */
static int raise_outside_finalizer(void *unused) {
    if (!in_finalizer() || Py_AddPendingCall(raise_outside_finalizer, unused))
        PyErr_SetInterrupt();
    return 0;
}

void fl_interrupt_after_finalizer(void) {
    if (Py_AddPendingCall(raise_outside_finalizer, NULL))
        PyErr_SetInterrupt();
}
