/* Ctrl-C that came while an entry point ran. The handler of loader/base/interrupts.py puts it off; the shell raises it again as soon as
 * the entry point has returned. Python then handles it before the next instruction of the caller. */
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include "interrupts.cdef.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static atomic_int due;
static pthread_t thread;   /* the one that runs Python's signal handlers */

void fl_put_off_interrupt(void) {
    thread = pthread_self();
    due = 1;
}

const int *fl_interrupt_due(void) { return (const int *)&due; }

/* An outer entry point may still be running: then the handler puts it off again. */
void fl_raise_interrupt(void) {
    if (due && pthread_equal(thread, pthread_self())) {
        due = 0;
        PyErr_SetInterrupt();
    }
}

/* Functions from which an exception does not come out: finalizers, and what C calls for a layer (loader/base/layers.py). */
static const char *const callbacks[] = {"__del__", "_python_before", "_python_after"};

static bool is_callback(PyObject *name) {
    for (size_t i = 0; name && i < sizeof callbacks / sizeof *callbacks; i++)
        if (PyUnicode_CompareWithASCIIString(name, callbacks[i]) == 0)
            return true;
    return false;
}

/* Whether a frame of this thread is such a function's. Needs the GIL; runs no Python code. */
static bool in_callback(void) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    bool found = false;
    Py_XINCREF(frame);
    while (frame && frame != Py_None && !found) {
        PyObject *code = PyObject_GetAttrString(frame, "f_code");
        PyObject *name = code ? PyObject_GetAttrString(code, "co_name") : NULL;
        found = is_callback(name);
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

/* A pending call runs in the main thread between two instructions. It adds itself again as long as the function runs: no
 * Python function does this, because each of its calls would handle the next interrupt inside the last one. */
static int raise_outside_callback(void *unused) {
    if (!in_callback() || Py_AddPendingCall(raise_outside_callback, unused))
        PyErr_SetInterrupt();
    return 0;
}

void fl_interrupt_after_callback(void) {
    if (Py_AddPendingCall(raise_outside_callback, NULL))
        PyErr_SetInterrupt();
}
