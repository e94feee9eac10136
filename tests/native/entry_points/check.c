/* Scenarios of the reference adapter's entry points in C (plugins/sdk/native), with a mock driver:
 * what C answers itself, what it leaves to Python, and that it then has changed nothing. `check`
 * runs all of them, `check NAME…` those whose names begin so. */
#include "world.h"
#include "level_zero.cdef.h"
#include "ze_slots.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t SIZES[] = {64, 2, 1};

static uintptr_t of(const void *address) { return (uintptr_t)address; }

static uint32_t status_of(uintptr_t event) {
    uint32_t status = 77;
    size_t size = 0;
    OK(fl_urEventGetInfo(ADAPTER, event, UR_EVENT_INFO_COMMAND_EXECUTION_STATUS, 4, of(&status),
                         &size));
    EQUAL(size, 4);
    return status;
}

/* A marker with its event. */
static uintptr_t mark(world *w, uint32_t count, const uintptr_t *list) {
    uintptr_t event = 0;
    OK(fl_urEnqueueEventsWait(ADAPTER, w->queue_h, count, list, &event));
    CHECK(event);
    return event;
}

/* --- queues and events --- */

static void queues_enqueue_and_wait(world *w) {
    OK(fl_urEnqueueEventsWaitWithBarrier(ADAPTER, w->queue_h, NO_WAITS, NULL));
    uintptr_t events[3] = {mark(w, NO_WAITS), mark(w, NO_WAITS)};
    OK(fl_urEnqueueEventsWaitWithBarrierExt(ADAPTER, w->queue_h, NULL, 2, events, &events[2]));
    EQUAL(mock_log(3)->wait_count, 2);
    EQUAL(mock_log(3)->waits[1], 2);
    EQUAL(w->queue.enqueued, 4);
    CHECK(!fl_all_finished(w->context.cl));
    EQUAL(status_of(events[2]), UR_EVENT_STATUS_COMPLETE);
    uint32_t references = 0;
    OK(fl_urEventGetInfo(ADAPTER, events[0], UR_EVENT_INFO_REFERENCE_COUNT, 4, of(&references),
                         NULL));
    EQUAL(references, 1);
    TO_PYTHON(fl_urEventGetInfo(ADAPTER, events[0], UR_EVENT_INFO_REFERENCE_COUNT, 3,
                                of(&references), NULL));
    TO_PYTHON(fl_urEventGetInfo(ADAPTER, events[0], UR_EVENT_INFO_REFERENCE_COUNT, 4, 0, NULL));
    TO_PYTHON(
        fl_urEventGetInfo(ADAPTER, events[0], UR_EVENT_INFO_CONTEXT, 8, of(&references), NULL));
    OK(fl_urEventWait(ADAPTER, 1, &events[1]));
    EQUAL(w->queue.finished, 3);
    OK(fl_urEventWait(ADAPTER, 3, events));
    EQUAL(w->queue.finished, 4);
    CHECK(fl_all_finished(w->context.cl));
    int finishes = mock_calls(SLOT_clFinish);
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));   /* nothing is left to wait for */
    EQUAL(mock_calls(SLOT_clFinish), finishes);
    OK(fl_urEnqueueEventsWait(ADAPTER, w->queue_h, NO_WAITS, NULL));
    OK(fl_urQueueFlush(ADAPTER, w->queue_h));
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));
    EQUAL(mock_calls(SLOT_clFinish), finishes + 1);
    for (int i = 0; i < 3; i++)
        release_event(events[i]);
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, events));   /* it is gone */
}

static void queues_refuse(world *w) {
    uintptr_t many[FL_WAITS + 1], out = 1, event = mark(w, NO_WAITS);
    for (unsigned i = 0; i <= FL_WAITS; i++)
        many[i] = event;
    const uintptr_t strangers[] = {event, w->queue_h}, wild[] = {event, 0x123450}, none[] = {0};
#define ENQUEUE(queue, count, list) fl_urEnqueueEventsWait(ADAPTER, queue, count, list, &out)
    TO_PYTHON(ENQUEUE(0, 0, NULL));
    TO_PYTHON(ENQUEUE(w->context_h, 0, NULL));
    TO_PYTHON(ENQUEUE(w->queue_h + 1, 0, NULL));
    TO_PYTHON(ENQUEUE(UINTPTR_MAX, 0, NULL));
    TO_PYTHON(ENQUEUE(w->queue_h, FL_WAITS + 1, many));
    TO_PYTHON(ENQUEUE(w->queue_h, 1, NULL));
    TO_PYTHON(ENQUEUE(w->queue_h, 0, many));
    TO_PYTHON(ENQUEUE(w->queue_h, 2, strangers));
    TO_PYTHON(ENQUEUE(w->queue_h, 2, wild));
    TO_PYTHON(ENQUEUE(w->queue_h, 1, none));
    const ur_exp_enqueue_ext_properties_t properties = {0};
    TO_PYTHON(
        fl_urEnqueueEventsWaitWithBarrierExt(ADAPTER, w->queue_h, &properties, NO_WAITS, &out));
    TO_PYTHON(fl_urEventWait(ADAPTER, 0, many));
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, NULL));
    TO_PYTHON(fl_urEventWait(ADAPTER, FL_WAITS + 1, many));
    TO_PYTHON(fl_urEventWait(ADAPTER, 2, strangers));
    TO_PYTHON(fl_urQueueFlush(ADAPTER, event));
    TO_PYTHON(fl_urQueueFinish(ADAPTER, event));
    TO_PYTHON(
        fl_urEventGetInfo(ADAPTER, w->queue_h, UR_EVENT_INFO_REFERENCE_COUNT, 4, of(many), NULL));
    fl_in_callback(1);
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, &event));
    TO_PYTHON(fl_urQueueFinish(ADAPTER, w->queue_h));
    fl_in_callback(0);
    OK(ENQUEUE(w->queue_h, FL_WAITS, many));
    CHECK(out != 1);
    EQUAL(fl_references(event), 1);
    EQUAL(fl_references(w->queue_h), 1);
    EQUAL(mock_count(), 2);
    release_event(out);
    release_event(event);
#undef ENQUEUE
}

/* What the driver refuses is Python's to explain. Nothing is held then, and no event is made. */
static void queues_driver_fails(world *w) {
    uintptr_t out = 1, event = mark(w, NO_WAITS);
    const int slots[] = {SLOT_clEnqueueMarkerWithWaitList, SLOT_clGetEventInfo};
    for (unsigned i = 0; i < 2; i++) {
        mock_fail(slots[i], 0, CL_OUT_OF_RESOURCES);
        TO_PYTHON(fl_urEnqueueEventsWait(ADAPTER, w->queue_h, 1, &event, &out));
        CHECK(mock_has_failed() && out == 1);
    }
    mock_fail(SLOT_clWaitForEvents, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, &event));
    mock_fail(SLOT_clFlush, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(fl_urQueueFlush(ADAPTER, w->queue_h));
    mock_fail(SLOT_clFinish, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(fl_urQueueFinish(ADAPTER, w->queue_h));
    EQUAL(w->queue.finished, 0);
    mock_events_are(-5);   /* what waits for a failed event is Python's, too */
    uintptr_t failed = mark(w, NO_WAITS);
    EQUAL(status_of(failed), UR_EVENT_STATUS_ERROR);
    TO_PYTHON(fl_urEnqueueEventsWait(ADAPTER, w->queue_h, 1, &failed, NULL));
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, &failed));
    mock_events_are(CL_COMPLETE);
    EQUAL(fl_references(event), 1);
    EQUAL(fl_references(w->queue_h), 1);
    release_event(failed);
    release_event(event);
}

static cl_int time_of(cl_event event, cl_profiling_info name, size_t size, void *value,
                      size_t *size_ret) {
    cl_ulong time = name == CL_PROFILING_COMMAND_SUBMIT ? 0 : name;
    memcpy(value, &time, sizeof time);
    return CL_SUCCESS;
}

static void queues_profile(world *w) {
    uint64_t time = 0;
    uintptr_t event = mark(w, NO_WAITS);
    PUT(w, clGetEventProfilingInfo, time_of);
    OK(fl_urEventGetProfilingInfo(ADAPTER, event, UR_PROFILING_INFO_COMMAND_START, 8, of(&time),
                                  NULL));
    EQUAL(time, CL_PROFILING_COMMAND_START);
    /* no time */
    TO_PYTHON(fl_urEventGetProfilingInfo(ADAPTER, event, UR_PROFILING_INFO_COMMAND_SUBMIT, 8,
                                         of(&time), NULL));
    TO_PYTHON(fl_urEventGetProfilingInfo(ADAPTER, event, UR_PROFILING_INFO_COMMAND_START, 7,
                                         of(&time), NULL));
    TO_PYTHON(
        fl_urEventGetProfilingInfo(ADAPTER, event, (ur_profiling_info_t)-1, 8, of(&time), NULL));
    TO_PYTHON(fl_urEventGetProfilingInfo(ADAPTER, w->queue_h, UR_PROFILING_INFO_COMMAND_START, 8,
                                         of(&time), NULL));
    fl_adopt(event);   /* events of Python may be those of several commands */
    TO_PYTHON(fl_urEventGetProfilingInfo(ADAPTER, event, UR_PROFILING_INFO_COMMAND_START, 8,
                                         of(&time), NULL));
    CL(&w->driver,
       clReleaseEvent)((cl_event)fl_get_state(ADAPTER, event, kind_ur_event_handle_t)[CL_OBJECT]);
    end_handle(event);
}

/* The thread that handles signals waits in steps; a wait that is not over soon goes on in Python.
 */
static void queues_wait_in_steps(world *w) {
    char host[SIZE];
    uintptr_t event = mark(w, NO_WAITS);
    fl_waits_in_steps((uintptr_t)pthread_self());
    OK(fl_urEventWait(ADAPTER, 1, &event));
    OK(fl_urEnqueueMemBufferRead(ADAPTER, w->queue_h, w->a, true, 0, SIZE, of(host), NO_WAITS,
                                 NULL));
    EQUAL(begun_waits(), 1);   /* so few bytes on an idle queue are not worth it */
    uintptr_t other = mark(w, NO_WAITS);
    waits_last(true);
    TO_PYTHON(fl_urEventWait(ADAPTER, 1, &other));
    TO_PYTHON(fl_urQueueFinish(ADAPTER, w->queue_h));
    EQUAL(begun_waits(), 2);
    python_waits(9);
    uintptr_t out = 1;
    EQUAL(fl_urEnqueueMemBufferRead(ADAPTER, w->queue_h, w->a, true, 0, SIZE, of(host), NO_WAITS,
                                    &out),
          9);
    EQUAL(out, 1);
    EQUAL(asked_to_wait(), 1);
    python_waits(0);
    OK(fl_urEnqueueMemBufferRead(ADAPTER, w->queue_h, w->a, true, 0, SIZE, of(host), NO_WAITS,
                                 &out));
    EQUAL(asked_to_wait(), 1);
    waits_last(false);
    begun_waits();
    fl_waits_in_steps(0);
    w->driver.turns = 1;   /* one thread at a time: by icd's waits */
    OK(fl_urEnqueueMemBufferWrite(ADAPTER, w->queue_h, w->a, true, 0, SIZE, of(host), NO_WAITS,
                                  NULL));
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));
    w->driver.turns = 0;
    release_event(out);
    release_event(other);
    release_event(event);
}

/* --- transfers --- */

static void transfers_of_buffers(world *w) {
    char host[SIZE] = {0};
    uintptr_t event;
    const char pattern[] = "abcdefgh";
#define READ(buffer, offset, size, to)                                                             \
    fl_urEnqueueMemBufferRead(ADAPTER, w->queue_h, buffer, false, offset, size, to, NO_WAITS,      \
                              &event)
#define WRITE(buffer, offset, size, from)                                                          \
    fl_urEnqueueMemBufferWrite(ADAPTER, w->queue_h, buffer, true, offset, size, from, NO_WAITS,    \
                               NULL)
#define COPY(from, to, size)                                                                       \
    fl_urEnqueueMemBufferCopy(ADAPTER, w->queue_h, w->a, w->b, from, to, size, NO_WAITS, NULL)
#define FILL(bytes, offset, size)                                                                  \
    fl_urEnqueueMemBufferFill(ADAPTER, w->queue_h, w->a, of(pattern), bytes, offset, size,         \
                              NO_WAITS, NULL)
    OK(READ(w->a, 8, SIZE - 8, of(host)));
    EQUAL(mock_log(0)->n[0], 8);
    release_event(event);
    OK(WRITE(w->b, 0, SIZE, of(host)));
    OK(COPY(0, SIZE / 2, SIZE / 2));
    OK(FILL(8, 16, 32));
    CHECK(memcmp(mock_log(3)->pattern, pattern, 8) == 0);
    int done = mock_count();
    const size_t bad[][2] = {{0, 0},    {0, SIZE + 1}, {SIZE, 1},     {SIZE + 1, 0},
                             {8, SIZE}, {8, SIZE_MAX}, {SIZE_MAX, 8}, {SIZE_MAX, SIZE_MAX}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        TO_PYTHON(READ(w->a, bad[i][0], bad[i][1], of(host)));
        TO_PYTHON(WRITE(w->a, bad[i][0], bad[i][1], of(host)));
        TO_PYTHON(COPY(bad[i][0], 0, bad[i][1]));
        TO_PYTHON(COPY(0, bad[i][0], bad[i][1]));
        TO_PYTHON(FILL(1, bad[i][0], bad[i][1]));
    }
    TO_PYTHON(READ(w->a, 0, 4, 0));
    TO_PYTHON(WRITE(w->a, 0, 4, 0));
    TO_PYTHON(READ(w->queue_h, 0, 4, of(host)));
    TO_PYTHON(READ(0, 0, 4, of(host)));
    TO_PYTHON(FILL(0, 0, 8));
    TO_PYTHON(FILL(3, 0, 9));
    TO_PYTHON(FILL(8, 4, 8));
    TO_PYTHON(FILL(256, 0, 512));
    TO_PYTHON(FILL(SIZE_MAX, 0, 8));
    mock_fail(SLOT_clEnqueueCopyBuffer, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(COPY(0, 0, 4));
    /* the buffers are of another context */
    w->queue.context = &(fl_context){.cl = 77, .driver = &w->driver};
    TO_PYTHON(READ(w->a, 0, 4, of(host)));
    w->queue.context = &w->context;
    EQUAL(mock_count(), done);
#undef READ
#undef WRITE
#undef COPY
#undef FILL
}

static void transfers_by_address(world *w) {
    char host[256] = {0};
    uintptr_t memory = 0, event;
    OK(fl_urUSMDeviceAlloc(ADAPTER, w->context_h, w->device_h, NULL, 0, 256, &memory));
#define COPY(to, from, size)                                                                       \
    fl_urEnqueueUSMMemcpy(ADAPTER, w->queue_h, true, to, from, size, NO_WAITS, &event)
#define FILL(at, bytes, size)                                                                      \
    fl_urEnqueueUSMFill(ADAPTER, w->queue_h, at, bytes, of(host), size, NO_WAITS, &event)
    OK(COPY(memory, of(host), 256));
    release_event(event);
    OK(FILL(memory + 16, 16, 240));
    release_event(event);
    TO_PYTHON(COPY(memory + 1, of(host), 256));
    TO_PYTHON(COPY(of(host), memory + 255, 2));
    TO_PYTHON(COPY(memory, 16, 8));             /* nobody's address */
    TO_PYTHON(COPY(memory, UINTPTR_MAX - 4, 8));
    TO_PYTHON(COPY(memory, of(host), 0));
    TO_PYTHON(COPY(memory, of(host), SIZE_MAX));
    TO_PYTHON(COPY(0, of(host), 8));
    TO_PYTHON(FILL(memory, 8, 264));
    TO_PYTHON(FILL(memory, 8, 0));
    TO_PYTHON(FILL(memory, 8, SIZE_MAX - 7));
    TO_PYTHON(FILL(memory + 4, 8, 16));
    /* drivers may have no fill for the program's own memory */
    TO_PYTHON(FILL(of(host), 1, 8));
    fl_add_hidden(1);
    TO_PYTHON(COPY(memory, of(host), 8));       /* Python may know this memory */
    fl_add_hidden(-1);
    w->context.usm = FL_USM_OTHER;
    TO_PYTHON(COPY(memory, of(host), 8));
    TO_PYTHON(FILL(memory, 8, 8));
    w->context.usm = FL_USM_SVM;
    EQUAL(mock_count(), 2);
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));
    OK(fl_urUSMFree(ADAPTER, w->context_h, memory));
#undef COPY
#undef FILL
}

/* --- kernels --- */

static ur_exp_kernel_arg_properties_t row(uint32_t type, uint32_t index, size_t size,
                                          uintptr_t word) {
    ur_exp_kernel_arg_properties_t made = {.type = type, .index = index, .size = size};
    memcpy(&made.value, &word, sizeof word);
    return made;
}

static int32_t start(world *w, const size_t *local, uintptr_t *event) {
    return fl_urEnqueueKernelLaunch(ADAPTER, w->queue_h, w->kernel_h, 2, NULL, SIZES, local, NULL,
                                    NO_WAITS, event);
}

static void kernels_set_and_launch(world *w) {
    uint64_t number = 42, wide[9] = {0};
    TO_PYTHON(start(w, NULL, NULL));   /* no argument is set */
    OK(fl_urKernelSetArgMemObj(ADAPTER, w->kernel_h, 0, NULL, w->a));
    OK(fl_urKernelSetArgLocal(ADAPTER, w->kernel_h, 1, 64, NULL));
    OK(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 2, 8, NULL, of(&number)));
    OK(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 3, FL_INSIDE, NULL, of(wide)));
    EQUAL(w->kernel.changed, 15);
    CHECK(memcmp(w->kept[2].bytes, &number, 8) == 0 && w->kept[0].value == w->a);
    OK(start(w, NULL, NULL));
    EQUAL(mock_log(0)->arguments[2], 42);
    EQUAL(mock_log(0)->arguments[0], of(w->buffers[0]));
    CHECK(!mock_log(0)->has_local);
    w->kernel.required[0] = w->kernel.required[1] = w->kernel.required[2] = 1;
    OK(start(w, NULL, NULL));
    CHECK(mock_log(1)->has_local);
    TO_PYTHON(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 3, sizeof wide, NULL, of(wide)));
    TO_PYTHON(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 4, 8, NULL, of(&number)));
    TO_PYTHON(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, UINT32_MAX, 8, NULL, of(&number)));
    TO_PYTHON(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 2, SIZE_MAX, NULL, of(&number)));
    TO_PYTHON(fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 2, 8, NULL, 0));
    TO_PYTHON(fl_urKernelSetArgMemObj(ADAPTER, w->kernel_h, 0, NULL, w->queue_h));
    TO_PYTHON(fl_urKernelSetArgMemObj(ADAPTER, w->queue_h, 0, NULL, w->a));
    *w->kernel.busy = 1;      /* another thread has it */
    TO_PYTHON(start(w, NULL, NULL));
    TO_PYTHON(fl_urKernelSetArgMemObj(ADAPTER, w->kernel_h, 0, NULL, w->b));
    *w->kernel.busy = 0;
    w->kernel.in_python = 1;
    TO_PYTHON(start(w, NULL, NULL));
    w->kernel.in_python = 0;
    end_handle(w->a);        /* an argument that was released, and another buffer instead of it */
    TO_PYTHON(start(w, NULL, NULL));
    describe_buffer(w, 0);
    TO_PYTHON(start(w, NULL, NULL));
    OK(fl_urKernelSetArgMemObj(ADAPTER, w->kernel_h, 0, NULL, 0));
    OK(start(w, NULL, NULL));
    EQUAL(mock_count(), 3);
    EQUAL(*w->kernel.busy, 0);
}

static void kernels_pointers(world *w) {
    uintptr_t memory = 0;
    OK(fl_urUSMSharedAlloc(ADAPTER, w->context_h, w->device_h, NULL, 0, 64, &memory));
    OK(fl_urKernelSetArgPointer(ADAPTER, w->kernel_h, 0, NULL, memory));
    EQUAL(w->kernel.had_pointers, 1);
    OK(fl_urKernelSetArgPointer(ADAPTER, w->kernel_h, 0, NULL, 0));
    w->context.usm = FL_USM_OTHER;
    TO_PYTHON(fl_urKernelSetArgPointer(ADAPTER, w->kernel_h, 0, NULL, memory));
    w->context.usm = FL_USM_INTEL;   /* whose function this driver has not */
    TO_PYTHON(fl_urKernelSetArgPointer(ADAPTER, w->kernel_h, 0, NULL, memory));
    w->context.usm = FL_USM_SVM;
    mock_fail(SLOT_clSetKernelArgSVMPointer, 0, CL_INVALID_ARG_VALUE);
    TO_PYTHON(fl_urKernelSetArgPointer(ADAPTER, w->kernel_h, 0, NULL, memory));
    OK(fl_urUSMFree(ADAPTER, w->context_h, memory));
}

static void kernels_with_arguments(world *w) {
    uint64_t number = 7;
    uintptr_t event;
    const ur_exp_kernel_arg_properties_t rows[] = {
        row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 3, 8, of(&number)),
        row(UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ, 0, 0, w->b),
        row(UR_EXP_KERNEL_ARG_TYPE_LOCAL, 1, 32, 0),
        row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 2, 8, of(&number))};
    ur_exp_kernel_arg_properties_t wrong[FL_ARGUMENTS + 1];
#define LAUNCH(dim, size, local, count, list, properties)                                          \
    fl_urEnqueueKernelLaunchWithArgsExp(ADAPTER, w->queue_h, w->kernel_h, dim, NULL, size, local,  \
                                        count, list, properties, NO_WAITS, &event)
    OK(LAUNCH(2, SIZES, SIZES, 4, rows, NULL));
    EQUAL(mock_log(0)->arguments[0], of(w->buffers[1]));
    EQUAL(mock_log(0)->arguments[3], 7);
    release_event(event);
    for (unsigned i = 0; i < 5; i++) {
        memcpy(wrong, rows, sizeof rows);
        wrong[3] = i == 0   ? row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 3, 8, of(&number))     /* twice */
                   : i == 1 ? row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 64, 8, of(&number))
                   : i == 2 ? row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 2, FL_INSIDE + 1, of(&number))
                   : i == 3 ? row(UR_EXP_KERNEL_ARG_TYPE_SAMPLER, 2, 8, 0)
                            : row(UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ, 2, 8, 0x40);
        TO_PYTHON(LAUNCH(2, SIZES, NULL, 4, wrong, NULL));
    }
    for (unsigned i = 0; i <= FL_ARGUMENTS; i++)
        wrong[i] = rows[0];
    TO_PYTHON(LAUNCH(2, SIZES, NULL, 3, rows, NULL));
    TO_PYTHON(LAUNCH(2, SIZES, NULL, 4, NULL, NULL));
    TO_PYTHON(LAUNCH(2, SIZES, NULL, FL_ARGUMENTS + 1, wrong, NULL));
    TO_PYTHON(LAUNCH(2, SIZES, NULL, UINT32_MAX, wrong, NULL));
    const size_t empty[] = {64, 0, 1};
    const ur_kernel_launch_ext_properties_t flags = {.flags = 1};
    TO_PYTHON(LAUNCH(0, SIZES, NULL, 4, rows, NULL));
    TO_PYTHON(LAUNCH(4, SIZES, NULL, 4, rows, NULL));
    TO_PYTHON(LAUNCH(UINT32_MAX, SIZES, NULL, 4, rows, NULL));
    TO_PYTHON(LAUNCH(2, NULL, NULL, 4, rows, NULL));
    TO_PYTHON(LAUNCH(2, empty, NULL, 4, rows, NULL));
    TO_PYTHON(LAUNCH(2, SIZES, empty, 4, rows, NULL));
    TO_PYTHON(LAUNCH(2, SIZES, NULL, 4, rows, &flags));
    /* the size of a work-group that the kernel needs is known for another device */
    w->queue.device = 6;
    TO_PYTHON(LAUNCH(2, SIZES, NULL, 4, rows, NULL));
    w->queue.device = 5;
    mock_fail(SLOT_clEnqueueNDRangeKernel, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(LAUNCH(2, SIZES, NULL, 4, rows, NULL));
    EQUAL(mock_count(), 1);
    EQUAL(*w->kernel.busy, 0);
    EQUAL(fl_references(w->kernel_h), 1);
    EQUAL(fl_references(w->queue_h), 1);
    EQUAL(fl_references(w->b), 1);
#undef LAUNCH
}

/* --- memory --- */

static void memory_is_known(world *w) {
    enum { COUNT = 300 };
    static uintptr_t all[COUNT];
    const ur_usm_desc_t desc = {.align = 64};
    for (unsigned i = 0; i < COUNT; i++)
        OK(i % 3 == 0 ? fl_urUSMHostAlloc(ADAPTER, w->context_h, &desc, 0, 100, &all[i])
           : i % 3 == 1
               ? fl_urUSMDeviceAlloc(ADAPTER, w->context_h, w->device_h, NULL, 0, 100, &all[i])
               : fl_urUSMSharedAlloc(ADAPTER, w->context_h, w->device_h, &desc, 0, 100, &all[i]));
    /* Python's, before all others */
    CHECK(fl_add_memory(16, 32, w->context.cl, UR_USM_TYPE_HOST));
    uint64_t answer = 0;
    size_t size = 0;
#define INFO(address, name, room)                                                                  \
    fl_urUSMGetMemAllocInfo(ADAPTER, w->context_h, address, UR_USM_ALLOC_INFO_##name, room,        \
                            of(&answer), &size)
    OK(INFO(all[7] + 99, BASE_PTR, 8));
    EQUAL(answer, all[7]);
    OK(INFO(all[7], SIZE, 8));
    EQUAL(answer, 100);
    answer = 0;
    OK(INFO(all[7], TYPE, 4));
    EQUAL(answer, UR_USM_TYPE_DEVICE);
    EQUAL(size, 4);
    TO_PYTHON(INFO(all[7], SIZE, 7));
    TO_PYTHON(INFO(all[7], POOL, 8));
    TO_PYTHON(INFO(1, TYPE, 4));
    TO_PYTHON(INFO(UINTPTR_MAX, TYPE, 4));
    EQUAL(fl_kind_of_memory(all[6]), UR_USM_TYPE_HOST);
    EQUAL(fl_kind_of_memory(48), UR_USM_TYPE_UNKNOWN);
    EQUAL(fl_locate(&w->context, 16, 32), FL_IN_MEMORY);
    EQUAL(fl_locate(&w->context, 16, 33), FL_UNKNOWN_PLACE);
    EQUAL(fl_locate(&w->context, 8, 9), FL_UNKNOWN_PLACE);     /* it ends in another */
    EQUAL(fl_locate(&w->context, 8, 8), FL_NOWHERE);
    EQUAL(fl_locate(&w->context, UINTPTR_MAX, 2), FL_UNKNOWN_PLACE);
    TO_PYTHON(fl_urUSMFree(ADAPTER, w->context_h, 16));        /* Python's */
    TO_PYTHON(fl_urUSMFree(ADAPTER, w->context_h, 0));
    TO_PYTHON(fl_urUSMFree(ADAPTER, w->context_h, all[3] + 1));
    OK(fl_urEnqueueEventsWait(ADAPTER, w->queue_h, NO_WAITS, NULL));
    TO_PYTHON(fl_urUSMFree(ADAPTER, w->context_h, all[0]));    /* commands may use it */
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));
    fl_memory taken;
    CHECK(!fl_adopt_memory(all[9], 77, &taken));
    CHECK(fl_adopt_memory(all[9] + 5, w->context.cl, &taken) && taken.base == all[9]);
    CHECK(!fl_adopt_memory(all[9], w->context.cl, &taken));
    TO_PYTHON(fl_urUSMFree(ADAPTER, w->context_h, all[9]));
    fl_remove_memory(all[9]);
    CL(&w->driver, clSVMFree)((cl_context)w->context.cl, (void *)all[9]);
    for (unsigned i = 0; i < COUNT; i++)   /* in another order than they came */
        if (i * 7 % COUNT != 9)
            OK(fl_urUSMFree(ADAPTER, w->context_h, all[i * 7 % COUNT]));
    fl_remove_memory(16);
    fl_remove_memory(16);
    EQUAL(fl_find_memory(w->context.cl), 0);
    EQUAL(mock_living_svm(), 0);
#undef INFO
}

static void memory_is_refused(world *w) {
    uintptr_t out = 1;
#define ALLOC(desc, pool, size) fl_urUSMHostAlloc(ADAPTER, w->context_h, desc, pool, size, &out)
    const ur_usm_desc_t hints = {.hints = 1}, odd = {.align = 3}, wide = {.align = 256};
    TO_PYTHON(ALLOC(NULL, 1, 8));
    TO_PYTHON(ALLOC(&hints, 0, 8));
    TO_PYTHON(ALLOC(&odd, 0, 8));
    TO_PYTHON(ALLOC(&wide, 0, 8));
    TO_PYTHON(ALLOC(NULL, 0, 0));
    TO_PYTHON(ALLOC(NULL, 0, MOST + 1));
    TO_PYTHON(ALLOC(NULL, 0, SIZE_MAX));
    TO_PYTHON(fl_urUSMHostAlloc(ADAPTER, w->queue_h, NULL, 0, 8, &out));
    TO_PYTHON(fl_urUSMHostAlloc(ADAPTER, w->context_h, NULL, 0, 8, NULL));
    TO_PYTHON(fl_urUSMDeviceAlloc(ADAPTER, w->context_h, w->queue_h, NULL, 0, 8, &out));
    w->memory.kinds = 0;
    TO_PYTHON(ALLOC(NULL, 0, 8));
    w->memory.kinds = ~0u;
    w->context.device_count = 0;
    TO_PYTHON(ALLOC(NULL, 0, 8));
    w->context.device_count = 1;
    mock_fail(SLOT_clSVMAlloc, 0, CL_OUT_OF_RESOURCES);
    TO_PYTHON(ALLOC(NULL, 0, 8));
    EQUAL(out, 1);
    EQUAL(mock_living_svm(), 0);
    /* No memory for the list: the driver has its memory back. */
    static uintptr_t all[600];
    unsigned count = 0, failures = 0;
    while (!failures && count < 600) {
        memory_fails(0, false);
        int32_t code = ALLOC(NULL, 0, 8);
        failures += memory_has_failed();
        EQUAL(code, failures ? FL_TO_PYTHON : 0);
        all[count] = out;
        count += !failures;
    }
    EQUAL(failures, 1);
    EQUAL(mock_living_svm(), (int)count);
    while (count)
        OK(fl_urUSMFree(ADAPTER, w->context_h, all[--count]));
#undef ALLOC
}

/* --- kept answers --- */

static void answers_are_kept(world *w) {
    static const int64_t names[] = {1, 2, 33, -(int64_t)5 - 1};
    uint64_t numbers[4] = {1, 2, 3, 4}, out[4] = {0};
    size_t size = 0;
    fl_keep_answers(FL_OF_DEVICE, names, 4);
#define KEEP(name, value, size)                                                                    \
    fl_keep(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->device_h, 0, name, of(value), size)
#define KEPT(name, size, value, size_ret)                                                          \
    fl_kept(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->device_h, 0, name, size, value,     \
            size_ret)
    TO_PYTHON(KEPT(1, 32, of(out), &size));
    KEEP(1, numbers, 32);
    KEEP(33, numbers + 2, 8);     /* in the same place */
    KEEP(2, numbers, 0);
    KEEP(3, numbers, 8);          /* that may change */
    OK(KEPT(1, 32, of(out), &size));
    CHECK(size == 32 && memcmp(out, numbers, 32) == 0);
    OK(KEPT(1, 0, 0, &size));
    OK(KEPT(33, 32, of(out), NULL));
    EQUAL(out[0], 3);
    OK(KEPT(2, 0, 0, &size));
    EQUAL(size, 0);
    TO_PYTHON(KEPT(1, 31, of(out), &size));
    TO_PYTHON(KEPT(1, 32, 0, &size));
    TO_PYTHON(KEPT(1, 0, 0, NULL));
    TO_PYTHON(KEPT(3, 8, of(out), &size));
    TO_PYTHON(fl_kept(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->queue_h, 0, 1, 32, of(out),
                      &size));
    /* Handles in answers have to last. */
    const uintptr_t lasting[] = {w->device_h, 0}, passing[] = {w->device_h, w->queue_h};
    KEEP(5, passing, sizeof passing);
    TO_PYTHON(KEPT(5, 32, of(out), &size));
    KEEP(5, lasting, sizeof lasting);
    OK(KEPT(5, 32, of(out), &size));
    memory_fails(0, false);
    fl_keep(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->device_h, w->device_h, 1,
            of(numbers), 8);
    CHECK(memory_has_failed());
    fl_keep(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->device_h, w->queue_h, 1, of(numbers),
            8);
    fl_keep(ADAPTER, FL_OF_DEVICE, kind_ur_device_handle_t, w->queue_h, 0, 1, of(numbers), 8);
    EQUAL(fl_references(w->queue_h), 1);
    memory_fails(0, false);
    CHECK(!fl_new_answers());
    memory_has_failed();
    fl_free_answers(NULL);
#undef KEEP
#undef KEPT
}

/* --- contexts --- */

static mock *made_by;

static cl_context create_context(const cl_context_properties *properties, cl_uint count,
                                 const cl_device_id *devices, void *notify, void *data,
                                 cl_int *code) {
    CHECK(properties[0] == CL_CONTEXT_PLATFORM && count && devices[0] == (cl_device_id)5);
    *code = made_by ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
    return made_by ? mock_context(made_by) : NULL;
}

static void contexts_are_made(world *w) {
    PUT(w, clCreateContext, create_context);
    made_by = w->driver_of_all;
    uintptr_t out = 1, devices[FL_DEVICES + 1];
    for (unsigned i = 0; i <= FL_DEVICES; i++)
        devices[i] = w->device_h;
#define CREATE(count, list) fl_urContextCreate(ADAPTER, count, list, NULL, &out)
    OK(CREATE(FL_DEVICES, devices));
    OK(fl_entry_retain(ADAPTER, out, kind_ur_context_handle_t, fl_in_python.release[0]));
    for (int i = 0; i < 2; i++)
        OK(fl_entry_release(ADAPTER, out, kind_ur_context_handle_t, fl_in_python.release[0]));
    CHECK(fl_entry_release(ADAPTER, out, kind_ur_context_handle_t, fl_in_python.release[0]) != 0);
    EQUAL(asked_to_release(), 1);   /* a handle that is gone */
    out = 1;
    TO_PYTHON(CREATE(0, devices));
    TO_PYTHON(CREATE(FL_DEVICES + 1, devices));
    TO_PYTHON(CREATE(UINT32_MAX, devices));
    TO_PYTHON(CREATE(1, NULL));
    TO_PYTHON(CREATE(1, &w->queue_h));
    TO_PYTHON(fl_urContextCreate(ADAPTER, 1, devices, NULL, NULL));
    unsigned failures = 0;
    for (int n = 0; n < 6; n++) {
        memory_fails(n, false);
        int32_t code = CREATE(1, devices);
        failures += memory_has_failed() && code;
        if (!code)
            OK(fl_entry_release(ADAPTER, out, kind_ur_context_handle_t, fl_in_python.release[0]));
    }
    EQUAL(failures, 2);             /* the struct and the answers */
    made_by = NULL;
    TO_PYTHON(CREATE(1, devices));
#undef CREATE
}

/* --- threads --- */

enum { THREADS = 4, ROUNDS = 150 };

static uintptr_t shared_event;

static void *run_thread(void *of_world) {
    world *w = of_world;
    uint64_t number = 1, out = 0;
    size_t size;
    for (int i = 0; i < ROUNDS; i++) {
        uintptr_t events[2] = {mark(w, NO_WAITS), mark(w, NO_WAITS)}, memory = 0;
        OK(fl_entry_retain(ADAPTER, events[0], kind_ur_event_handle_t, fl_in_python.release[0]));
        OK(fl_urEventWait(ADAPTER, 2, events));
        EQUAL(status_of(events[0]), UR_EVENT_STATUS_COMPLETE);
        release_event(events[0]);
        OK(fl_urUSMDeviceAlloc(ADAPTER, w->context_h, w->device_h, NULL, 0, 64, &memory));
        EQUAL(fl_kind_of_memory(memory + 63), UR_USM_TYPE_DEVICE);
        int32_t code = fl_urUSMFree(ADAPTER, w->context_h, memory);
        if (code == FL_TO_PYTHON) {   /* other threads have enqueued: Python waits for them */
            fl_memory taken;
            CHECK(fl_adopt_memory(memory, w->context.cl, &taken));
            fl_remove_memory(memory);
            CL(&w->driver, clSVMFree)((cl_context)w->context.cl, (void *)memory);
        } else
            OK(code);
        /* unless another thread has the kernel */
        code = fl_urKernelSetArgValue(ADAPTER, w->kernel_h, 2, 8, NULL, of(&number));
        CHECK(code == 0 || code == FL_TO_PYTHON);
        fl_enter_kernel(&w->kernel);
        CHECK(w->kernel.changed <= 4);
        fl_leave_kernel(&w->kernel);
        fl_keep(ADAPTER, FL_OF_CONTEXT, kind_ur_context_handle_t, w->context_h, 0, 1, of(&number),
                8);
        OK(fl_kept(ADAPTER, FL_OF_CONTEXT, kind_ur_context_handle_t, w->context_h, 0, 1, 8,
                   of(&out), &size));
        EQUAL(out, 1);
        release_event(events[0]);
        release_event(events[1]);
        uint32_t references = 0;
        OK(fl_entry_retain(ADAPTER, shared_event, kind_ur_event_handle_t, fl_in_python.release[0]));
        OK(fl_urEventGetInfo(ADAPTER, shared_event, UR_EVENT_INFO_REFERENCE_COUNT, 4,
                             of(&references), NULL));
        CHECK(references > 1 && references <= 2 * THREADS);   /* a call holds it, too */
        release_event(shared_event);
    }
    return NULL;
}

static void thread_everything(world *w) {
    static const int64_t names[] = {1};
    pthread_t threads[THREADS];
    fl_keep_answers(FL_OF_CONTEXT, names, 1);
    shared_event = mark(w, NO_WAITS);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, run_thread, w));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    release_event(shared_event);
    EQUAL(w->queue.enqueued, 2 * THREADS * ROUNDS + 1);
    OK(fl_urQueueFinish(ADAPTER, w->queue_h));
    CHECK(fl_all_finished(w->context.cl));
    EQUAL(mock_living_svm(), 0);
}

/* --- the adapter on Level Zero --- */

enum { EVENTS = 8 };

/* A driver of Level Zero, whose events are numbers. */
static struct {
    int32_t status[EVENTS + 1], code, appends, waits, resets;
} lz;

static int32_t lz_append(uintptr_t list, uint32_t count, uintptr_t *lists, uintptr_t signal,
                         uint32_t waits, uintptr_t *events) {
    CHECK(list == 5 && count == 1 && *lists == 6 && signal && !waits && !events);
    lz.appends += !lz.code;
    return lz.code;
}

static int32_t lz_query(uintptr_t event) { return lz.status[event]; }

static int32_t lz_reset(uintptr_t event) {
    EQUAL(lz.status[event], 0);
    lz.resets++;
    return lz.code;
}

static int32_t lz_wait(uintptr_t object, uint64_t timeout) {
    CHECK(object && timeout == UINT64_MAX);
    lz.waits++;
    return lz.code;
}

static void level_zero(world *w) {
    static void *functions[1024], *table = functions;
    functions[SLOT_zeCommandListImmediateAppendCommandListsExp] = (void *)lz_append;
    functions[SLOT_zeEventQueryStatus] = (void *)lz_query;
    functions[SLOT_zeEventHostReset] = (void *)lz_reset;
    functions[SLOT_zeEventHostSynchronize] = functions[SLOT_zeCommandListHostSynchronize] =
        (void *)lz_wait;
    memset(&lz, 0, sizeof lz);
    fl_lz_context *context = fl_lz_new_context(of(&table), false);
    fl_lz_queue queue = {.context = context, .list = 5, .only_c = 1};
    fl_lz_buffer buffer = {.list = 6};
    uintptr_t q = new_handle(kind_ur_queue_handle_t, 1, 0, of(&queue), 0, 0), event = 0, first,
              behind[EVENTS];
    uintptr_t b = new_handle(kind_ur_exp_command_buffer_handle_t, 1, 0, of(&buffer), 0, 0);
#define ENQUEUE(waits, list) fl_lz_urEnqueueCommandBufferExp(ADAPTER, q, b, waits, list, &event)
    TO_PYTHON(ENQUEUE(0, NULL));                 /* Python enqueues first */
    queue.around = buffer.around = &queue;
    TO_PYTHON(ENQUEUE(0, NULL));                 /* there is no event */
    EQUAL(context->wants, 1);
    CHECK(fl_lz_make_room(context, 1));
    fl_lz_give_event(context, 1, false);
    OK(ENQUEUE(0, NULL));
    CHECK(queue.pending && buffer.pending && !context->count);
    first = event;
    OK(fl_lz_urEventWait(ADAPTER, 1, &first));
    lz.code = 9;
    TO_PYTHON(fl_lz_urEventWait(ADAPTER, 1, &first));
    TO_PYTHON(fl_lz_urEventWait(ADAPTER, 1, &q));
    TO_PYTHON(fl_lz_urEventWait(ADAPTER, 0, NULL));
    TO_PYTHON(fl_lz_urQueueFinish(ADAPTER, q));
    CHECK(queue.pending);
    lz.code = 0;
    OK(fl_lz_urQueueFinish(ADAPTER, q));
    EQUAL(lz.waits, 4);
    OK(fl_lz_urQueueFinish(ADAPTER, q));         /* nothing is left to wait for */
    EQUAL(lz.waits, 4);
    release_event(first);
    EQUAL(context->count, 1);
    lz.status[1] = 1;                            /* the command still runs */
    TO_PYTHON(ENQUEUE(0, NULL));
    EQUAL(context->count, 1);
    lz.status[1] = 0, lz.code = 9;
    TO_PYTHON(ENQUEUE(0, NULL));
    lz.code = 0;
    TO_PYTHON(ENQUEUE(1, &first));               /* a wait list */
    TO_PYTHON(fl_lz_urEnqueueCommandBufferExp(ADAPTER, b, q, 0, NULL, &event));
    CHECK(fl_lz_enter(&buffer.lock) && !fl_lz_enter(&buffer.lock));
    TO_PYTHON(ENQUEUE(0, NULL));                 /* this thread has it */
    fl_lz_leave(&buffer.lock);
    OK(fl_lz_urEnqueueCommandBufferExp(ADAPTER, q, b, 0, NULL, NULL));
    EQUAL(context->count, 1);                    /* nobody wants the event */
    CHECK(fl_lz_make_room(context, EVENTS));
    for (uintptr_t i = 2; i <= EVENTS; i++)
        fl_lz_give_event(context, i, false);
    for (int i = 0; i < EVENTS; i++) {
        OK(ENQUEUE(0, NULL));
        behind[i] = event;
    }
    TO_PYTHON(ENQUEUE(0, NULL));
    OK(fl_lz_urEventWait(ADAPTER, EVENTS, behind));
    for (int i = 0; i < EVENTS; i++)
        release_event(behind[i]);
    EQUAL(context->count, EVENTS);
    fl_lz_queue of_any_order = {.context = context, .list = 7, .around = &queue, .only_c = 1};
    uintptr_t other = new_handle(kind_ur_queue_handle_t, 1, 0, of(&of_any_order), 0, 0);
    OK(fl_lz_urEnqueueCommandBufferExp(ADAPTER, other, b, 0, NULL, NULL));
    OK(fl_lz_urQueueFinish(ADAPTER, other));
    CHECK(!queue.pending && !of_any_order.pending);
    queue.only_c = 0;                            /* Python has enqueued, too */
    TO_PYTHON(fl_lz_urQueueFinish(ADAPTER, other));
    EQUAL(lz.appends, 3 + EVENTS);
    int32_t resets = lz.resets;
    CHECK(resets > 0);
    context->counts = true;                      /* nobody resets a counter-based event */
    OK(fl_lz_urEnqueueCommandBufferExp(ADAPTER, q, b, 0, NULL, NULL));
    EQUAL(lz.resets, resets);
    for (int i = 0; i < 3; i++)
        end_handle((uintptr_t[]){q, b, other}[i]);
    fl_lz_free_context(context);
    (void)w;
#undef ENQUEUE
}

static const struct {
    const char *name;
    void (*run)(world *w);
} scenarios[] = {
#define S(name) {#name, name},
    S(queues_enqueue_and_wait) S(queues_refuse) S(queues_driver_fails) S(queues_profile)
        S(queues_wait_in_steps) S(transfers_of_buffers) S(transfers_by_address)
            S(kernels_set_and_launch) S(kernels_pointers) S(kernels_with_arguments)
                S(memory_is_known) S(memory_is_refused) S(answers_are_kept) S(contexts_are_made)
                    S(level_zero) S(thread_everything) S(gpu_appends) S(gpu_late_edges)
                        S(gpu_late_edges_start_early) S(gpu_early_starts) S(gpu_updates)
                        S(gpu_updates_undone) S(gpu_updates_refused) S(gpu_enqueues) S(thread_gpu)};

int main(int count, char **names) {
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        bool wanted = count == 1;
        for (int k = 1; k < count; k++)
            wanted |= strncmp(scenarios[i].name, names[k], strlen(names[k])) == 0;
        if (!wanted)
            continue;
        printf("%s\n", scenarios[i].name);
        fflush(stdout);
        world w;
        begin_world(&w);
        scenarios[i].run(&w);
        end_world(&w);
    }
    return 0;
}
