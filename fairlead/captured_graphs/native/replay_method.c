/* The method `replay` of captured graphs, in C for a replay that repeats the last one without
 * anything else. A small graph runs for less time than Python takes for the same call. For all
 * other replays it calls the function that it replaces. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>

/* The places of a Repeat (captured_graphs/segment.py). RUNS and ENQUEUES have the address of the
 * route, or 0 where Python has to do it. */
enum { QUEUE_TYPE, QUEUE, RUN = 3, ROUTE = 5, TO_EVENT, RUNS = 8, ENQUEUES, SAME_QUEUE, ENDED };

static PyObject *replay_in_python, *name_repeat, *name_int_ptr, *name_wait;
/* icd/native/command_buffer.cdef.h has them. */
static int (*fl_run_again)(void *route);
static intptr_t (*fl_enqueue_again)(void *route), (*fl_enqueue_waited)(void *route);

static PyObject *call_python(PyObject *self, PyObject *const *args, Py_ssize_t count,
                             PyObject *keywords) {
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    PyObject *given = PyTuple_New(count + 1), *by_name = PyDict_New(), *result = NULL;
    bool made = given && by_name;
    for (Py_ssize_t i = 0; made && i <= count; i++) {
        PyObject *one = i ? args[i - 1] : self;
        Py_INCREF(one);
        made = PyTuple_SetItem(given, i, one) == 0;
    }
    for (Py_ssize_t i = 0; made && i < named; i++)
        made = PyDict_SetItem(by_name, PyTuple_GetItem(keywords, i), args[count + i]) == 0;
    if (made)
        result = PyObject_Call(replay_in_python, given, by_name);
    Py_XDECREF(given);
    Py_XDECREF(by_name);
    return result;
}

static void *get_route(PyObject *repeat, int place) {
    return PyLong_AsVoidPtr(PyTuple_GetItem(repeat, place));
}

static bool is_last_queue(PyObject *queue, PyObject *repeat) {
    if (queue == PyTuple_GetItem(repeat, SAME_QUEUE))   /* to ask for its handle takes 80 ns */
        return true;
    if ((PyObject *)Py_TYPE(queue) != PyTuple_GetItem(repeat, QUEUE_TYPE))
        return false;
    PyObject *handle = PyObject_GetAttr(queue, name_int_ptr);
    PyObject *last = PyTuple_GetItem(repeat, QUEUE);
    bool is_same = handle && PyObject_RichCompareBool(handle, last, Py_EQ) == 1;
    Py_XDECREF(handle);
    return is_same;
}

/* NULL without an exception: nothing has happened, and Python has to do it. */
static PyObject *repeat_on(PyObject *self, PyObject *queue, PyObject *repeat, bool waits) {
    bool here = waits && PyTuple_GetItem(repeat, RUN) != Py_None;
    void *route = get_route(repeat, here ? RUNS : ENQUEUES);
    if (!route)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    intptr_t done = here    ? fl_run_again(route)
                    : waits ? fl_enqueue_waited(route)
                            : fl_enqueue_again(route);
    PyEval_RestoreThread(state);
    if (done < 0)
        return PyObject_CallMethod(self, "_fail", "nOO", (Py_ssize_t)done,
                                   PyTuple_GetItem(repeat, ROUTE), here ? Py_True : Py_False);
    if (!done)
        return NULL;
    if (here || (waits && done == 1)) {
        PyObject *ended = PyTuple_GetItem(repeat, ENDED);
        if (ended == Py_None)
            return PyObject_CallMethod(self, "_make_ended", "O", queue);
        Py_INCREF(ended);
        return ended;
    }
    PyObject *event = PyObject_CallFunction(PyTuple_GetItem(repeat, TO_EVENT), "nO",
                                            (Py_ssize_t)done, Py_False);
    /* whoever waits once more gets the error */
    PyObject *waited = event && waits ? PyObject_CallMethod(event, "wait", NULL) : NULL;
    if (event && waits && !waited)
        Py_CLEAR(event);
    Py_XDECREF(waited);
    return event;
}

static PyObject *replay(PyObject *self, PyObject *const *args, Py_ssize_t count,
                        PyObject *keywords) {
    Py_ssize_t named = keywords ? PyTuple_Size(keywords) : 0;
    bool waits = count == 1 && named == 1 && PyTuple_GetItem(keywords, 0) == name_wait &&
                 args[1] == Py_True;
    if (count == 1 && named == waits) {
        PyObject *repeat = PyObject_GetAttr(self, name_repeat); /* keeps the route alive */
        PyObject *event = NULL;
        if (repeat && repeat != Py_None && is_last_queue(args[0], repeat))
            event = repeat_on(self, args[0], repeat, waits);
        Py_XDECREF(repeat);
        if (event || PyErr_Occurred())
            return event;
    }
    return call_python(self, args, count, keywords);
}

static PyObject *replace_replay(PyObject *module, PyObject *args) {
    static PyMethodDef method = {"replay", (PyCFunction)(void (*)(void))replay,
                                 METH_FASTCALL | METH_KEYWORDS, NULL};
    PyObject *type, *doc;
    unsigned long long run, enqueue, wait;
    if (!PyArg_ParseTuple(args, "OSKKK", &type, &doc, &run, &enqueue, &wait))
        return NULL;
    fl_run_again = (int (*)(void *))(uintptr_t)run;
    fl_enqueue_again = (intptr_t(*)(void *))(uintptr_t)enqueue;
    fl_enqueue_waited = (intptr_t(*)(void *))(uintptr_t)wait;
    Py_INCREF(doc); /* the method has its text */
    method.ml_doc = PyBytes_AsString(doc);
    name_repeat = PyUnicode_InternFromString("_repeat");
    name_int_ptr = PyUnicode_InternFromString("int_ptr");
    name_wait = PyUnicode_InternFromString("wait");
    replay_in_python = PyObject_GetAttrString(type, "replay");
    if (!name_repeat || !name_int_ptr || !name_wait || !replay_in_python)
        return NULL;
    PyObject *made = PyDescr_NewMethod((PyTypeObject *)type, &method);
    int code = made ? PyObject_SetAttrString(type, "replay", made) : -1;
    Py_XDECREF(made);
    if (code)
        return NULL;
    Py_INCREF(Py_None);
    return Py_None;
}

PyMODINIT_FUNC PyInit__native(void) {
    static PyMethodDef functions[] = {{"replace_replay", replace_replay, METH_VARARGS, NULL},
                                      {NULL, NULL, 0, NULL}};
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions,
                                 NULL, NULL, NULL, NULL};
    return PyModule_Create(&module);
}
