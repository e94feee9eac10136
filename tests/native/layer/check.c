/* The C part of the command-buffer layer, without Python and without a driver: this program is its
 * loader, and plays the part of both.
 *
 * `check` runs all scenarios, each in a process of its own, `check NAME…` those whose names begin
 * so. */
#include "hooks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extension_names.h"
#include "python.h"
#include "../processes.h"

enum { THREADS = 4, TURNS = 500 };

cl_int clInitLayer(cl_uint num_entries, void *const *target_dispatch, cl_uint *num_entries_ret,
                   void *const **layer_dispatch_ret);

/* --- there is no Python --- */

bool fl_python_begin(const char *config) { return false; }
bool fl_python_start(const char *config, const char *module, void *address) { return false; }
bool fl_python_lives(void) { return false; }
void *fl_python_release(void) { return NULL; }
void fl_python_restore(void *thread) {}

/* --- the driver --- */

static void *driver[FL_SLOTS];
static fl_object objects[64];
static atomic_int released;

static cl_int release_event(cl_event event) {
    released++;
    return CL_SUCCESS;
}
static cl_int retain_event(cl_event event) { return CL_SUCCESS; }
static cl_int set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    return CL_SUCCESS;
}
static cl_int set_pointer(cl_kernel kernel, cl_uint index, const void *value) { return CL_SUCCESS; }
static cl_int set_exec(cl_kernel kernel, cl_kernel_exec_info name, size_t size, const void *value) {
    return CL_SUCCESS;
}
static cl_kernel clone(cl_kernel kernel, cl_int *code) {
    if (code)
        *code = CL_SUCCESS;
    return kernel + 1;
}
static cl_kernel create(cl_program program, const char *name, cl_int *code) {
    return clone(program, code);
}

static void *const *table; /* the layer's */

static void start(void) {
    cl_uint count = 0;
    memcpy(driver, fl_stubs, sizeof driver);
    driver[SLOT_clReleaseEvent] = (void *)release_event,
    driver[SLOT_clRetainEvent] = (void *)retain_event;
    driver[SLOT_clSetKernelArg] = (void *)set_arg,
    driver[SLOT_clSetKernelArgSVMPointer] = (void *)set_pointer;
    driver[SLOT_clSetKernelExecInfo] = (void *)set_exec, driver[SLOT_clCloneKernel] = (void *)clone;
    driver[SLOT_clCreateKernel] = (void *)create;
    for (unsigned i = 0; i < sizeof objects / sizeof *objects; i++)
        objects[i].dispatch = driver;
    CHECK(clInitLayer(FL_SLOTS, driver, &count, &table) == CL_SUCCESS && count == FL_SLOTS);
}

#define CALL(name) ((fn_##name *)(table)[SLOT_##name])

static void on_threads(void *work(void *)) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* --- scenarios --- */

static void arguments(void) {
    start();
    cl_kernel kernel = &objects[0];
    char big[200], room[200];
    size_t needed = 0;
    void *pointer = NULL;
    memset(big, 7, sizeof big);
    CHECK(fl_seen_argument(kernel, 0, room, sizeof room, &needed, &pointer) == FL_UNSET);
    CHECK(!CALL(clSetKernelArg)(kernel, 2, sizeof big, big) &&
          !CALL(clSetKernelArg)(kernel, 0, 64, NULL));
    CHECK(!CALL(clSetKernelArgSVMPointer)(kernel, 1, big));
    CHECK(fl_seen_argument(kernel, 2, room, 10, &needed, &pointer) == FL_SET &&
          needed == sizeof big && pointer);
    CHECK(fl_seen_argument(kernel, 2, room, sizeof room, &needed, &pointer) == FL_SET &&
          !memcmp(room, big, sizeof big));
    CHECK(fl_seen_argument(kernel, 0, room, sizeof room, &needed, &pointer) == FL_SET &&
          needed == 64 && !pointer);
    CHECK(fl_seen_argument(kernel, 1, room, sizeof room, &needed, &pointer) == FL_SET_POINTER &&
          pointer == big);
    CHECK(fl_seen_argument(kernel, 3, room, sizeof room, &needed, &pointer) == FL_UNSET);
    CHECK(!CALL(clSetKernelArg)(kernel, 1, 4, big) && !CALL(clSetKernelArg)(kernel, 2, 4, big));
    CHECK(fl_seen_argument(kernel, 2, room, sizeof room, &needed, &pointer) == FL_SET &&
          needed == 4);
}

static void copies_and_new_kernels(void) {
    start();
    cl_kernel kernel = &objects[0];
    uint32_t value = 5, word = 0;
    size_t needed = 0;
    void *pointer = NULL;
    CHECK(!CALL(clSetKernelArg)(kernel, 3, sizeof value, &value) &&
          !CALL(clSetKernelExecInfo)(kernel, 77, sizeof value, &value));
    cl_kernel copy = CALL(clCloneKernel)(kernel, NULL);
    CHECK(fl_seen_argument(copy, 3, &word, sizeof word, &needed, &pointer) == FL_SET && word == 5);
    CHECK(fl_seen_exec_info(copy, 0, &word, sizeof word, &needed) == 77 &&
          !fl_seen_exec_info(copy, 1, &word, sizeof word, &needed));
    CHECK(fl_exec_changes(copy) == 1);
    CHECK(CALL(clCreateKernel)(kernel, "k", NULL) == copy); /* at the copy's address */
    CHECK(fl_seen_argument(copy, 3, &word, sizeof word, &needed, &pointer) == FL_UNSET);
    CHECK(!fl_seen_exec_info(copy, 0, &word, sizeof word, &needed) && fl_exec_changes(copy) == 2);
}

static void handles(void) {
    void *made[2000];
    start();
    for (unsigned i = 0; i < 2000; i++)
        CHECK((made[i] = fl_new_handle(i % 2 ? FL_BUFFER : FL_COMMAND, &objects[0])) &&
              *(void **)made[i] == driver);
    CHECK(!fl_references(made[0]) && fl_references(made[1]) == 1 &&
          !fl_references((char *)made[1] + 8) && !fl_references(&made));
    CHECK(fl_clRetainCommandBufferKHR(made[1]) == CL_SUCCESS && fl_references(made[1]) == 2);
    CHECK(fl_clReleaseCommandBufferKHR(made[1]) == CL_SUCCESS &&
          fl_clReleaseCommandBufferKHR(made[1]) == CL_SUCCESS);
    CHECK(fl_clReleaseCommandBufferKHR(made[1]) == CL_INVALID_COMMAND_BUFFER_KHR);
    CHECK(fl_clRetainCommandBufferKHR(NULL) == CL_INVALID_COMMAND_BUFFER_KHR &&
          fl_enqueue_known(made[3]) == 0);
    /* no Python */
    CHECK(fl_clEnqueueCommandBufferKHR(0, NULL, made[3], 0, NULL, NULL) == CL_OUT_OF_RESOURCES);
    for (unsigned i = 0; i < 2000; i++)
        fl_free_handle(made[i]);
    CHECK(!fl_references(made[3]) && fl_new_handle(FL_BUFFER, &objects[0]));
}

static void events(void) {
    start();
    cl_event event = &objects[1], first = &objects[2];
    cl_uint type = 0;
    fl_note_event(event, first, 1);
    CHECK(!CALL(clGetEventInfo)(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL) &&
          type == CL_COMMAND_COMMAND_BUFFER_KHR);
    CHECK(CALL(clGetEventInfo)(event, CL_EVENT_COMMAND_TYPE, 1, &type, NULL) == CL_INVALID_VALUE);
    CHECK(!CALL(clRetainEvent)(event) && !CALL(clReleaseEvent)(event) && released == 1);
    fl_note_event(event, NULL, 0); /* the same address again */
    CHECK(released == 2);
    CHECK(!CALL(clReleaseEvent)(event) && released == 3);
    CHECK(CALL(clGetEventInfo)(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL) ==
          CL_INVALID_OPERATION);
}

static void loaders(void) {
    void *target[FL_SLOTS], *const *made = NULL;
    cl_uint count = 0, refused = 0, instances = 0;
    for (const fl_instance *one = fl_instances; one; one = one->other)
        instances++;
    for (int turn = 0; turn < 3; turn++)
        for (uintptr_t number = 1; number <= instances + 2; number++) {
            for (unsigned i = 0; i < FL_SLOTS; i++)
                target[i] = (void *)number;
            cl_int code = clInitLayer(FL_SLOTS, target, &count, &made);
            CHECK(code == CL_SUCCESS || code == CL_OUT_OF_RESOURCES);
            refused += code != CL_SUCCESS;
            if (!code)
                free((void *)made);
        }
    CHECK(refused == 6);
}

static void *set_and_look(void *number) {
    for (uint32_t i = 0; i < TURNS; i++) {
        cl_kernel kernel = &objects[(i + (size_t)number) % 8];
        char room[64] = {0};
        size_t needed = 0;
        void *pointer = NULL;
        CHECK(!CALL(clSetKernelArg)(kernel, i % 5, i % 60 + 1, room));
        fl_seen_argument(kernel, i % 5, room, sizeof room, &needed, &pointer);
        fl_exec_changes(kernel);
    }
    return NULL;
}

static void thread_arguments(void) {
    start();
    on_threads(set_and_look);
}

static void *shared; /* a command-buffer */
static intptr_t enqueue_again(void *route) { return (void)route, CL_INVALID_VALUE; }

static void *use_handles(void *number) {
    for (uint32_t i = 0; i < TURNS; i++) {
        void *own = fl_new_handle(FL_BUFFER, &objects[0]);
        CHECK(fl_clRetainCommandBufferKHR(shared) == CL_SUCCESS && fl_references(own) == 1);
        fl_set_route(shared, (size_t)number % 2 && i % 2 ? &objects[0] : NULL);
        intptr_t answer = fl_enqueue_known(shared);
        CHECK(answer == 0 || answer == CL_INVALID_VALUE);
        CHECK(fl_clReleaseCommandBufferKHR(shared) == CL_SUCCESS);
        fl_free_handle(own);
    }
    return NULL;
}

static void thread_handles(void) {
    start();
    fl_state.enqueue_again = enqueue_again;
    shared = fl_new_handle(FL_BUFFER, &objects[0]);
    on_threads(use_handles);
    CHECK(fl_references(shared) == 1);
}

static void *use_events(void *number) {
    cl_event event = &objects[8 + (size_t)number];
    for (uint32_t i = 0; i < TURNS; i++) {
        fl_note_event(event, NULL, 0);
        CHECK(!CALL(clRetainEvent)(event) && !CALL(clReleaseEvent)(event) &&
              !CALL(clReleaseEvent)(event));
    }
    return NULL;
}

static void thread_events(void) {
    start();
    on_threads(use_events);
}

/* --- */

#define S(name) {#name, name},
static const scenario scenarios[] = {S(arguments) S(copies_and_new_kernels) S(handles) S(events) S(
    loaders) S(thread_arguments) S(thread_handles) S(thread_events)};

int main(int count, char **words) {
    return RUN(scenarios, count, words);
}
