/* See world.h. */
#include "world.h"

#include <stdatomic.h>
#include <string.h>

/* --- Python, and the GIL, which no thread here has --- */

int PyGILState_Check(void);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *state);
int Py_AddPendingCall(int (*function)(void *), void *data);
void PyErr_SetInterrupt(void);

int PyGILState_Check(void) { return 0; }
void *PyEval_SaveThread(void) { DIE("a thread without the GIL lets it go"); }
void PyEval_RestoreThread(void *state) { DIE("a thread takes the GIL: %p", state); }
int Py_AddPendingCall(int (*function)(void *), void *data) {
    DIE("a handle of Python's ends in C: %p", data);
}
void PyErr_SetInterrupt(void) { DIE("an interrupt that did not come"); }

static atomic_int releases, waits, answer_to_wait;

static int32_t python_release(uint32_t adapter, uintptr_t handle) {
    EQUAL(adapter, ADAPTER);
    atomic_fetch_add(&releases, 1);
    return UR_RESULT_ERROR_INVALID_NULL_HANDLE;
}

static int32_t python_wait(uint32_t adapter, uint32_t count, const uintptr_t *events) {
    EQUAL(adapter, ADAPTER);
    CHECK(count == 1 && fl_get_state(adapter, *events, kind_ur_event_handle_t));
    atomic_fetch_add(&waits, 1);
    return atomic_load(&answer_to_wait);
}

int asked_to_release(void) { return atomic_exchange(&releases, 0); }
int asked_to_wait(void) { return atomic_exchange(&waits, 0); }
void python_waits(int32_t code) { atomic_store(&answer_to_wait, code); }

/* --- icd's waits --- */

static atomic_int begun;
static atomic_bool last;
enum { STILL = 1 };

static int32_t wait_at_once(void *object, int at_once) {
    return object && !atomic_load(&last) ? 0 : -5;
}

static int32_t begin_wait(void *object, int in_turns, struct fl_waiting **waiting) {
    CHECK(object);
    atomic_fetch_add(&begun, 1);
    *waiting = atomic_load(&last) ? (struct fl_waiting *)&begun : NULL;
    return 0;
}

static int32_t go_on(struct fl_waiting *waiting, uint32_t milliseconds) { return STILL; }
static void end_wait(struct fl_waiting *waiting) { CHECK(waiting); }

static atomic_bool turn;
static int32_t take_turn(void) { return !atomic_exchange(&turn, true); }
static void give_turn_back(void) { CHECK(atomic_exchange(&turn, false)); }

static int32_t status_of(void *event) {
    cl_int status = CL_COMPLETE;
    fn_clGetEventInfo *ask = (fn_clGetEventInfo *)(*(void ***)event)[SLOT_clGetEventInfo];
    cl_int code =
        ask(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
    return code ? code : status;
}

const fl_waits world_waits = {wait_at_once, wait_at_once, begin_wait, begin_wait,    go_on,
                              end_wait,     take_turn,    give_turn_back, status_of};

int begun_waits(void) { return atomic_exchange(&begun, 0); }
void waits_last(bool do_last) { atomic_store(&last, do_last); }

/* --- handles --- */

uintptr_t new_handle(unsigned kind, int32_t references, uintptr_t a, uintptr_t b, uintptr_t c,
                     uintptr_t d) {
    static uintptr_t block;
    static uint64_t number;
    if (!block)
        block = fl_block(1);
    CHECK(block && number < FL_BLOCK);
    uintptr_t handle = block + number * sizeof(fl_handle);
    fl_describe(handle, (const uintptr_t[]){a, b, c, d});
    fl_begin(handle, ++number, ADAPTER, (uint16_t)kind, references);
    return handle;
}

void end_handle(uintptr_t handle) {
    EQUAL(fl_references(handle), 1);
    CHECK(fl_end(handle));
}

void release_event(uintptr_t event) {
    EQUAL(fl_entry_release(ADAPTER, event, kind_ur_event_handle_t, python_release), 0);
    EQUAL(asked_to_release(), 0);
}

/* --- the world --- */

void describe_buffer(world *w, unsigned number) {
    *(number ? &w->b : &w->a) =
        new_handle(kind_ur_mem_handle_t, 1, (uintptr_t)w->buffers[number], w->context.cl, 1, SIZE);
}

void begin_world(world *w) {
    memset(w, 0, sizeof *w);
    w->driver_of_all = mock_open(MOCK_PLAIN, 0);
    cl_context context = mock_context(w->driver_of_all);
    /* an ICD 1 object begins with its table */
    memcpy(w->functions, *(void *const *)context, sizeof w->functions);
    w->table = w->functions;
    w->driver = (fl_driver){.table = (uintptr_t)&w->table};
    w->memory = (fl_usm_device){.cl = 5, .largest = MOST, .align = 128, .kinds = ~0u};
    w->context = (fl_context){.cl = (uintptr_t)context,
                              .driver = &w->driver,
                              .usm = FL_USM_SVM,
                              .devices = &w->memory,
                              .device_count = 1};
    w->queue = (fl_queue){.cl = (uintptr_t)mock_queue(context, false),
                          .context = &w->context,
                          .device = 5,
                          .in_order = 1};
    w->program = mock_program(context);
    cl_int code;
    cl_kernel kernel = CL(&w->driver, clCreateKernel)(w->program, "step:mlvv", &code);
    OK(code);
    w->kernel = (fl_kernel){.cl = (uintptr_t)kernel,
                            .context = &w->context,
                            .count = 4,
                            .device = 5,
                            .arguments = w->kept,
                            .busy = &w->busy};
    fl_make_handles(ADAPTER, 1);
    for (unsigned kind = 0; kind < 64; kind++)
        fl_in_python.release[kind] = python_release;
    fl_in_python.wait = python_wait;
    fl_add_queue(&w->queue);
    w->device_h = new_handle(kind_ur_device_handle_t, FL_FIXED, 5, (uintptr_t)&w->driver, 0,
                             (uintptr_t)fl_new_answers());
    w->context_h = new_handle(kind_ur_context_handle_t, 1, w->context.cl, (uintptr_t)&w->context, 0,
                              (uintptr_t)fl_new_answers());
    w->queue_h = new_handle(kind_ur_queue_handle_t, 1, w->queue.cl, (uintptr_t)&w->queue, 0, 0);
    w->kernel_h = new_handle(kind_ur_kernel_handle_t, 1, w->kernel.cl, (uintptr_t)&w->kernel, 0, 0);
    for (unsigned i = 0; i < 2; i++) {
        w->buffers[i] = mock_buffer(context, SIZE, NULL);
        describe_buffer(w, i);
    }
}

void end_world(world *w) {
    EQUAL(asked_to_release(), 0);
    for (int i = 0; i < 2; i++)
        fl_free_answers(
            (fl_answers *)fl_get_state(ADAPTER, i ? w->context_h : w->device_h,
                                   i ? kind_ur_context_handle_t : kind_ur_device_handle_t)[FOURTH]);
    fl_end(w->device_h);
    const uintptr_t handles[] = {w->context_h, w->queue_h, w->kernel_h, w->a, w->b};
    for (unsigned i = 0; i < sizeof handles / sizeof *handles; i++)
        end_handle(handles[i]);
    fl_remove_queue(&w->queue);
    CL(&w->driver, clReleaseKernel)((cl_kernel)w->kernel.cl);
    mock_release_program(w->program);
    CL(&w->driver, clReleaseMemObject)(w->buffers[0]);
    CL(&w->driver, clReleaseMemObject)(w->buffers[1]);
    CL(&w->driver, clReleaseCommandQueue)((cl_command_queue)w->queue.cl);
    CL(&w->driver, clReleaseContext)((cl_context)w->context.cl);
    CHECK(mock_close(w->driver_of_all));
}
