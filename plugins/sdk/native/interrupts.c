/* Ctrl-C that came while an entry point ran. The handler of loader/base/interrupts.py puts it off; the shell raises it again as soon as
 * the entry point has returned. Python then handles it before the next instruction of the caller. */
#include "interrupts.cdef.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Of Python's stable ABI. Its own headers hide some of these from cffi. */
typedef struct object object;
void PyErr_SetInterrupt(void);
void PyErr_Clear(void);
int Py_AddPendingCall(int (*function)(void *), void *data);
object *PyEval_GetFrame(void);
object *PyObject_GetAttrString(object *of, const char *name);
int PyUnicode_CompareWithASCIIString(object *text, const char *other);
void Py_IncRef(object *of);   /* these two take NULL */
void Py_DecRef(object *of);

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

/* Whether a frame of this thread is a finalizer. Needs the GIL; runs no Python code. Behind the last frame is None, which has no code. */
static bool in_finalizer(void) {
    object *frame = PyEval_GetFrame();
    bool found = false;
    Py_IncRef(frame);
    while (frame && !found) {
        object *code = PyObject_GetAttrString(frame, "f_code");
        object *name = code ? PyObject_GetAttrString(code, "co_name") : NULL;
        found = name && PyUnicode_CompareWithASCIIString(name, "__del__") == 0;
        object *back = code ? PyObject_GetAttrString(frame, "f_back") : NULL;
        Py_DecRef(name);
        Py_DecRef(code);
        Py_DecRef(frame);
        frame = back;
    }
    Py_DecRef(frame);
    PyErr_Clear();
    return found;
}

/* A pending call runs in the main thread between two instructions. It adds itself again as long as the finalizer runs: no
 * Python function does this, because each of its calls would handle the next interrupt inside the last one. */
static int raise_outside_finalizer(void *unused) {
    if (!in_finalizer() || Py_AddPendingCall(raise_outside_finalizer, unused))
        PyErr_SetInterrupt();
    return 0;
}

void fl_interrupt_after_finalizer(void) {
    if (Py_AddPendingCall(raise_outside_finalizer, NULL))
        PyErr_SetInterrupt();
}
