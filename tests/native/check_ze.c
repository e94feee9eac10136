/* Scenarios of the Level Zero driver's entry points in C (plugins/sdk/native/ze_*.c): what C
 * answers itself, what it leaves to Python, and that it then has changed nothing. Handles are
 * numbers here, which `words_of` knows. */
#include "harness.h"
#include "calls.cdef.h"
#include "ur_types.h"
#include "ze_types.h"

#include "ze_calls.cdef.h"
#include "ze_entries_in_c.h"

#include <pthread.h>
#include <string.h>

enum {
    DRIVER = 2,
    KERNEL = 100,
    LIST = 200,
    QUEUE = 300,
    GONE = 400,
    IMMEDIATE = 500,
    EVENT = 600,
    TO_PYTHON = INT32_MIN,
    ROUNDS = 200,
    WAITERS = 4
};
#define PYTHON(call) EQUAL(call, TO_PYTHON)

/* A kernel with a value of 4 bytes, an address, local memory and what the driver does not tell; a
 * list of its launches; a queue, an immediate list on it, and an event. */
static struct {
    fl_ze_kernel kernel;
    fl_kernel inner;
    fl_kept_argument kept[4];
    uint8_t kinds[4];
    unsigned busy;
    fl_ze_copy copy;
    fl_ze_list list;
    fl_array array;
    fl_ze_command command;
    fl_ze_queue queue;
    fl_ze_list immediate;
    fl_ze_event event;
    fl_sequence program;
    fl_built built;
    const fl_built *builts[1];
    fl_part part;
    void *cl_queue;
    fl_buffer buffer;
    fl_route route;
    cl_kernel cl;
    int updates, refuses;
} z;

/* --- what plugins.sdk._native does --- */

static const uintptr_t *words_of(uint32_t driver, uintptr_t handle, unsigned kind) {
    static const struct {
        uintptr_t handle;
        unsigned kind;
        uintptr_t words[4];
    } all[] = {{KERNEL, kind_ze_kernel_handle_t, {(uintptr_t)&z.kernel}},
               {LIST, kind_ze_command_list_handle_t, {(uintptr_t)&z.list}},
               {QUEUE, kind_ze_command_queue_handle_t, {(uintptr_t)&z.queue}},
               {IMMEDIATE, kind_ze_command_list_handle_t, {(uintptr_t)&z.immediate}},
               {EVENT, kind_ze_event_handle_t, {(uintptr_t)&z.event}}};
    EQUAL(driver, FL_ZE_DRIVERS + DRIVER);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].handle == handle && all[i].kind == kind)
            return all[i].words;
    return NULL;
}

static int32_t keep_argument(fl_kernel *kernel, uint32_t index, uint32_t type, size_t size,
                             uintptr_t value) {
    CHECK(kernel == &z.inner && index < kernel->count);
    fl_kept_argument *kept = &kernel->arguments[index];
    if (type == UR_EXP_KERNEL_ARG_TYPE_VALUE) {
        if (size > sizeof kept->bytes)
            return TO_PYTHON;
        memcpy(kept->bytes, (const void *)value, size);
    }
    kept->kind = type == UR_EXP_KERNEL_ARG_TYPE_VALUE   ? FL_KEPT_VALUE
                 : type == UR_EXP_KERNEL_ARG_TYPE_LOCAL ? FL_KEPT_LOCAL
                                                        : FL_KEPT_POINTER;
    kept->size = size, kept->value = value;
    return 0;
}

static atomic_int waits;
static atomic_bool wait_fails, waits_twice;

static int32_t wait_for(const fl_driver *driver, void *event) {
    CHECK(!driver && mock_references(event) >= 1);
    waits++;
    if (atomic_exchange(&waits_twice, false))   /* as another thread does meanwhile */
        OK(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    return wait_fails ? -14 : 0;
}

static int32_t present_status;

static int32_t status_of(void *event) {
    CHECK(mock_references(event) >= 1);
    return present_status;
}

static void retain(const fl_driver *driver, void *event) {
    CHECK(!driver);
    OK(CL(event, clRetainEvent)(event));
}

/* --- what Python has made --- */

static int note_update(void *self, uint32_t command, int relaunched) {
    CHECK(self == &z.program && command == 0 && !relaunched);
    z.updates++;
    return z.refuses ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static bool try_kernel(fl_kernel *kernel) {
    return !__atomic_exchange_n(kernel->busy, 1, __ATOMIC_ACQUIRE);
}

static void leave_kernel(fl_kernel *kernel) {
    __atomic_store_n(kernel->busy, 0, __ATOMIC_RELEASE);
}

static void enter_lock(unsigned *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void leave_lock(unsigned *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

static void begin_ze(world *w) {
    static fl_sdk_functions sdk = {words_of, keep_argument, try_kernel, leave_kernel,
                                   wait_for, status_of,     retain,     NULL,
                                   enter_lock, leave_lock};
    sdk.icd = fl_exported();
    fl_ze_use(&sdk);
    memset(&z, 0, sizeof z);
    waits = 0;
    wait_fails = false;
    z.cl = make_kernel(w, "step:vmlv");
    const uint8_t kinds[] = {FL_ZE_VALUE, FL_ZE_POINTER, FL_ZE_LOCAL, FL_ZE_UNKNOWN};
    memcpy(z.kinds, kinds, sizeof kinds);
    static fl_context context = {.usm = FL_USM_SVM};
    z.inner = (fl_kernel){.context = &context, .busy = &z.busy, .count = 4, .arguments = z.kept};
    z.kernel = (fl_ze_kernel){.kernel = &z.inner,
                              .context = 7,
                              .device = 8,
                              .kinds = z.kinds,
                              .count = 4,
                              .most = 256,
                              .sizes = {4, 2, 1},
                              .limits = {256, 256, 64}};
    z.copy = (fl_ze_copy){.kernel = &z.kernel, .addresses = 2, .mask = ~0ull, .copy = z.cl};
    z.list = (fl_ze_list){.context = 7, .device = 8, .array = &z.array, .copies = &z.copy};
    z.queue = (fl_ze_queue){.context = 7, .device = 8, .cl = (uintptr_t)w->queue};
    z.immediate = (fl_ze_list){.context = 7, .device = 8, .stream = &z.queue};
    z.event = (fl_ze_event){.context = 7};
    present_status = 0;
}

static void end_ze(void) {
    void *last = fl_ze_take_last(&z.queue);
    if (last)
        release_event(last);
    if ((last = fl_ze_take_event(&z.event)))
        release_event(last);
    fl_remember(&z.buffer, NULL, NULL);
    fl_release(&z.program);
    fl_release_array(&z.array);
    CL(z.cl, clReleaseKernel)(z.cl);
}

static int32_t set(uint32_t index, size_t size, const void *value) {
    return fl_zeKernelSetArgumentValue(DRIVER, KERNEL, index, size, (uintptr_t)value);
}

/* All four arguments; the last is a value for C, because its size is no address's. */
static void set_all(uint32_t value, uintptr_t memory) {
    const uint16_t little = 9;
    OK(set(0, sizeof value, &value));
    OK(set(1, sizeof memory, &memory));
    OK(set(2, 64, NULL));
    OK(set(3, sizeof little, &little));
}

static int32_t append(uintptr_t list, uintptr_t kernel, uint32_t groups) {
    const ze_group_count_t count = {groups, 1, 1};
    return fl_zeCommandListAppendLaunchKernel(DRIVER, list, kernel, &count, 0, 0, NULL);
}

/* One launch, which is closed and built, and which can be changed. */
static void build(world *w) {
    static const fl_step step = {.command = 0};
    set_all(5, 0);
    z.copy.addresses = 2;
    OK(append(LIST, KERNEL, 3));
    z.program = (fl_sequence){.commands = z.array.commands, .steps = &step, .step_count = 1};
    z.built = (fl_built){
        .enqueue = fl_enqueue_sequence, .update = note_update, .self = &z.program, .count = 1};
    z.builts[0] = &z.built;
    z.cl_queue = w->queue;
    z.part = (fl_part){&z.built, &z.cl_queue, 1};
    z.buffer = (fl_buffer){.built = z.builts, .built_count = 1};
    z.route = (fl_route){&z.buffer, w->queue, 1, 1, &z.part, 0, 0};
    fl_allow_again(&z.buffer, &z.route);
    z.command = (fl_ze_command){.flags = ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS,
                                .kernel = &z.kernel,
                                .buffer = &z.buffer};
    z.list.commands = &z.command, z.list.count = 1, z.list.only = &z.buffer,
    z.list.state = FL_ZE_CLOSED;
}

static int32_t update(const void *chain) {
    const ze_mutable_commands_exp_desc_t desc = {
        .stype = ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC, .pNext = (uintptr_t)chain};
    return fl_zeCommandListUpdateMutableCommandsExp(DRIVER, LIST, &desc);
}

static ze_mutable_kernel_argument_exp_desc_t change(uint64_t id, uint32_t index, size_t size,
                                                    const void *value) {
    return (ze_mutable_kernel_argument_exp_desc_t){
        .stype = ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC,
        .commandId = id,
        .argIndex = index,
        .argSize = size,
        .pArgValue = (uintptr_t)value};
}

static uint32_t value_now(void) {
    fl_change found;
    OK(fl_get_argument(z.array.commands->arguments, 0, &found));
    return *(const uint32_t *)found.value;
}

/* --- scenarios --- */

SCENARIO(ze_kernels) {
    uint32_t value = 5;
    uint64_t wide = 77;
    begin_ze(w);
    set_all(value, 0x1000);
    CHECK(z.kept[0].kind == FL_KEPT_VALUE && z.kept[1].value == 0x1000 && z.kept[2].size == 64 &&
          z.kept[3].size == 2);
    OK(set(1, 8, NULL));
    EQUAL(z.kept[1].value, 0);
    PYTHON(set(0, 4, NULL));        /* a value that is missing */
    PYTHON(set(1, 4, &value));      /* no address */
    PYTHON(set(2, 4, &value));      /* local memory has no value */
    PYTHON(set(3, 8, &wide));       /* it may be an address */
    PYTHON(set(3, 8, NULL));
    PYTHON(set(4, 4, &value));
    PYTHON(set(UINT32_MAX, 4, &value));
    PYTHON(fl_zeKernelSetArgumentValue(DRIVER, LIST, 0, 4, (uintptr_t)&value));
    PYTHON(fl_zeKernelSetArgumentValue(DRIVER, 0, 0, 4, (uintptr_t)&value));
    OK(fl_zeKernelSetGroupSize(DRIVER, KERNEL, 16, 16, 1));
    const uint32_t wrong[][3] = {
        {0, 1, 1}, {257, 1, 1}, {1, 1, 65}, {16, 17, 1}, {UINT32_MAX, UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        PYTHON(fl_zeKernelSetGroupSize(DRIVER, KERNEL, wrong[i][0], wrong[i][1], wrong[i][2]));
    CHECK(z.kernel.sizes[0] == 16 && z.kernel.sizes[1] == 16);
    z.kernel.required[0] = 8, z.kernel.required[1] = z.kernel.required[2] = 1;
    PYTHON(fl_zeKernelSetGroupSize(DRIVER, KERNEL, 16, 1, 1));
    OK(fl_zeKernelSetGroupSize(DRIVER, KERNEL, 8, 1, 1));
    PYTHON(fl_zeKernelSetGroupSize(DRIVER, GONE, 8, 1, 1));
    OK(fl_zeKernelSetGlobalOffsetExp(DRIVER, KERNEL, 1, 2, 3));
    EQUAL(z.kernel.offsets[2], 3);
    PYTHON(fl_zeKernelSetGlobalOffsetExp(DRIVER, QUEUE, 1, 2, 3));
    z.kernel.kernel = NULL;         /* only Python sets its arguments */
    PYTHON(set(0, 4, &value));
    end_ze();
}

SCENARIO(ze_appends) {
    begin_ze(w);
    PYTHON(append(LIST, KERNEL, 3));   /* nothing is set */
    set_all(5, 0x1000);
    OK(fl_zeKernelSetGlobalOffsetExp(DRIVER, KERNEL, 0, 2, 0));
    OK(append(LIST, KERNEL, 3));
    const fl_command *made = z.array.commands;
    CHECK(z.array.count == 1 && made->op == FL_KERNEL && made->kernel == z.cl &&
          made->work_dim == 2 && made->has_offset);
    CHECK(memcmp(made->n, (size_t[]){0, 2, 0, 12, 2, 1, 4, 2, 1}, 9 * sizeof(size_t)) == 0);
    z.kernel.settings++;            /* it needs another copy */
    PYTHON(append(LIST, KERNEL, 3));
    fl_ze_copy other = {.next = z.list.copies,
                        .kernel = &z.kernel,
                        .settings = 1,
                        .addresses = 0,
                        .mask = 0,
                        .copy = z.cl};
    z.list.copies = &other;
    OK(append(LIST, KERNEL, 3));
    z.kernel.settings = 0;
    OK(append(LIST, KERNEL, 3));
    /* the one that was used comes first */
    CHECK(z.list.copies == &z.copy && z.copy.next == &other && !other.next);
    z.copy.addresses = 0;           /* of launches without addresses */
    PYTHON(append(LIST, KERNEL, 3));
    z.copy.addresses = 2;
    PYTHON(append(LIST, KERNEL, 0));
    PYTHON(append(GONE, KERNEL, 3));
    PYTHON(append(LIST, LIST, 3));
    const ze_group_count_t one = {1, 1, 1};
    uintptr_t event = 1;
    PYTHON(fl_zeCommandListAppendLaunchKernel(DRIVER, LIST, KERNEL, NULL, 0, 0, NULL));
    PYTHON(fl_zeCommandListAppendLaunchKernel(DRIVER, LIST, KERNEL, &one, event, 0, NULL));
    PYTHON(fl_zeCommandListAppendLaunchKernel(DRIVER, LIST, KERNEL, &one, 0, 1, &event));
    z.busy = 1;
    PYTHON(append(LIST, KERNEL, 3));
    CHECK(z.busy == 1);
    z.busy = 0;
    z.kernel.context = 9;
    PYTHON(append(LIST, KERNEL, 3));
    z.kernel.context = 7;
    z.list.state = FL_ZE_CLOSED;
    PYTHON(append(LIST, KERNEL, 3));
    EQUAL(z.array.count, 3);
    end_ze();
}

/* Wherever memory is missing, Python makes the call, and the list is as it was. */
SCENARIO(ze_appends_no_memory) {
    begin_ze(w);
    set_all(5, 0x1000);
    int n = 0;
    for (bool failed = true; failed; n++) {
        uint32_t before = z.array.count;
        memory_fails(n, false);
        int32_t code = append(LIST, KERNEL, 3);
        failed = memory_has_failed();
        EQUAL(code, failed ? TO_PYTHON : 0);
        EQUAL(z.array.count, before + !failed);
        EQUAL(z.busy, 0);
    }
    CHECK(n > 2);
    end_ze();
}

SCENARIO(ze_updates) {
    uint32_t first = 6, second = 7;
    uint16_t little = 1;
    uintptr_t memory = 0x2000;
    begin_ze(w);
    build(w);
    ze_mutable_kernel_argument_exp_desc_t b = change(1, 1, 8, &memory), a = change(1, 0, 4, &first);
    a.pNext = (uintptr_t)&b;
    OK(update(&a));
    CHECK(value_now() == 6 && z.list.state == FL_ZE_CHANGED && z.command.changed == 3 &&
          z.list.dirty == &z.command && !z.updates);
    /* it has to be closed first */
    PYTHON(fl_zeCommandQueueExecuteCommandLists(DRIVER, QUEUE, 1, (uintptr_t[]){LIST}, 0));
    OK(update(NULL));
    a = change(1, 0, 4, &second);
    OK(update(&a));
    CHECK(!z.command.next);         /* once in the list of what is dirty */
    OK(fl_zeCommandListClose(DRIVER, LIST));
    CHECK(z.updates == 1 && z.list.state == FL_ZE_CLOSED && !z.command.dirty && !z.list.dirty &&
          value_now() == 7);
    PYTHON(fl_zeCommandListClose(DRIVER, LIST));   /* nothing is to be closed */
    OK(update(&a));
    z.refuses = 1;
    PYTHON(fl_zeCommandListClose(DRIVER, LIST));
    CHECK(z.command.dirty && z.list.state == FL_ZE_CHANGED);
    z.refuses = 0;
    z.buffer.busy = 1;              /* another thread enqueues it */
    PYTHON(fl_zeCommandListClose(DRIVER, LIST));
    PYTHON(update(&a));
    z.buffer.busy = 0;
    OK(fl_zeCommandListClose(DRIVER, LIST));
    const struct {
        uint64_t id;
        uint32_t index;
        size_t size;
        const void *value;
    } wrong[] = {{0, 0, 4, &first},  {2, 0, 4, &first}, {UINT64_MAX, 0, 4, &first},
                 {1, 4, 4, &first},  {1, 0, 8, &first}, {1, 0, 4, NULL},
                 {1, 1, 4, &memory}, {1, 2, 128, NULL}, {1, 3, 8, &memory},
                 {1, 3, 4, &first}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ze_mutable_kernel_argument_exp_desc_t bad =
            change(wrong[i].id, wrong[i].index, wrong[i].size, wrong[i].value);
        a = change(1, 0, 4, &first);
        a.pNext = (uintptr_t)&bad;
        PYTHON(update(&a));
        CHECK(value_now() == 7 && z.list.state == FL_ZE_CLOSED);
    }
    a.pNext = (uintptr_t)&a;        /* a ring */
    PYTHON(update(&a));
    /* a shorter struct: no byte behind its type is read */
    uint32_t other = ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC;
    PYTHON(update(&other));
    b = change(1, 3, 2, &little);
    OK(update(&b));
    z.command.in_python = 1;
    PYTHON(update(&b));
    PYTHON(fl_zeCommandListUpdateMutableCommandsExp(DRIVER, LIST, NULL));
    PYTHON(fl_zeCommandListUpdateMutableCommandsExp(DRIVER, KERNEL, NULL));
    EQUAL(value_now(), 7);
    end_ze();
}

static int32_t execute(uint32_t count) {
    return fl_zeCommandQueueExecuteCommandLists(DRIVER, QUEUE, count, (uintptr_t[]){LIST, LIST}, 0);
}

SCENARIO(ze_executes) {
    begin_ze(w);
    OK(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));   /* nothing is there */
    build(w);
    mock_clear();
    OK(execute(1));
    OK(execute(1));
    EQUAL(mock_count(), 2);
    EQUAL(mock_references(z.queue.last), 2);   /* the queue's, and the command-buffer's */
    PYTHON(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, 5));
    wait_fails = true;
    PYTHON(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    CHECK(z.queue.last);            /* Python finds it */
    wait_fails = false;
    OK(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    CHECK(!z.queue.last && waits == 2);
    PYTHON(execute(2));
    PYTHON(execute(0));
    PYTHON(fl_zeCommandQueueExecuteCommandLists(DRIVER, QUEUE, 1, NULL, 0));
    PYTHON(fl_zeCommandQueueExecuteCommandLists(DRIVER, QUEUE, 1, (uintptr_t[]){LIST}, 1));
    PYTHON(fl_zeCommandQueueExecuteCommandLists(DRIVER, QUEUE, 1, (uintptr_t[]){KERNEL}, 0));
    PYTHON(fl_zeCommandQueueExecuteCommandLists(DRIVER, LIST, 1, (uintptr_t[]){LIST}, 0));
    mock_fail(-1, 0, CL_OUT_OF_RESOURCES);
    PYTHON(execute(1));
    CHECK(mock_has_failed() && !z.queue.last);
    z.queue.pending = 1;
    PYTHON(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    z.queue.pending = 0, z.queue.in_python = 1;
    PYTHON(execute(1));
    PYTHON(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    EQUAL(mock_count(), 2);
    end_ze();
}

/* A thread that waits while another one does waits for the same, and Python for what it takes. */
SCENARIO(ze_waits_twice) {
    begin_ze(w);
    build(w);
    OK(execute(1));
    waits_twice = true;
    OK(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    CHECK(waits == 2 && !z.queue.last);
    OK(execute(1));
    void *last = fl_ze_take_last(&z.queue);
    CHECK(last && z.queue.pending);
    PYTHON(fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX));
    release_event(last);
    z.queue.pending = 0;
    CHECK(!fl_ze_take_last(&z.queue) && !z.queue.pending);
    fl_ze_pause(&z.queue);
    PYTHON(execute(1));
    end_ze();
}

static int32_t append_list(uintptr_t list, uintptr_t signal, uint32_t waits) {
    return fl_zeCommandListImmediateAppendCommandListsExp(DRIVER, IMMEDIATE, 1, (uintptr_t[]){list},
                                                          signal, waits, NULL);
}

SCENARIO(ze_signals_events) {
    begin_ze(w);
    build(w);
    OK(append_list(LIST, 0, 0));
    OK(append_list(LIST, EVENT, 0));
    EQUAL(z.event.state, (uintptr_t)z.queue.last);
    EQUAL(mock_references(z.queue.last), 3);   /* the queue's, the command-buffer's, the event's */
    OK(fl_zeEventQueryStatus(DRIVER, EVENT));
    present_status = 2;
    EQUAL(fl_zeEventQueryStatus(DRIVER, EVENT), ZE_RESULT_NOT_READY);
    present_status = -5;
    PYTHON(fl_zeEventQueryStatus(DRIVER, EVENT));
    OK(fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    PYTHON(fl_zeEventHostSynchronize(DRIVER, EVENT, 5));
    wait_fails = true;
    PYTHON(fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    wait_fails = false;
    OK(fl_zeCommandListHostSynchronize(DRIVER, IMMEDIATE, UINT64_MAX));
    CHECK(!z.queue.last);
    OK(append_list(LIST, EVENT, 0));           /* signaled again */
    OK(fl_zeEventHostReset(DRIVER, EVENT));
    EQUAL(fl_zeEventQueryStatus(DRIVER, EVENT), ZE_RESULT_NOT_READY);
    PYTHON(fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    mock_fail(-1, 0, CL_OUT_OF_RESOURCES);
    PYTHON(append_list(LIST, EVENT, 0));
    CHECK(mock_has_failed() && z.event.state == FL_ZE_RESET);
    OK(append_list(LIST, EVENT, 0));
    void *signaled = fl_ze_take_event(&z.event);
    CHECK(signaled == z.queue.last);
    release_event(signaled);
    PYTHON(append_list(LIST, EVENT, 0));       /* it is Python's */
    PYTHON(fl_zeEventQueryStatus(DRIVER, EVENT));
    PYTHON(fl_zeEventHostReset(DRIVER, EVENT));
    PYTHON(fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    CHECK(!fl_ze_take_event(&z.event));
    fl_ze_give_event(&z.event);
    OK(append_list(LIST, EVENT, 0));
    PYTHON(append_list(LIST, EVENT, 1));
    PYTHON(append_list(LIST, LIST, 0));
    PYTHON(append_list(KERNEL, 0, 0));
    z.event.context = 6;
    PYTHON(append_list(LIST, EVENT, 0));
    z.immediate.stream = NULL;                 /* a capture lasts */
    PYTHON(append_list(LIST, 0, 0));
    PYTHON(fl_zeCommandListHostSynchronize(DRIVER, IMMEDIATE, UINT64_MAX));
    PYTHON(fl_zeCommandListHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    end_ze();
}

/* Nobody resets a counter-based event. It begins complete, and every signal replaces the last. */
SCENARIO(ze_signals_counter_events) {
    begin_ze(w);
    build(w);
    z.event.counts = 1;
    OK(fl_zeEventQueryStatus(DRIVER, EVENT));
    PYTHON(fl_zeEventHostReset(DRIVER, EVENT));
    PYTHON(append_list(LIST, EVENT, 0));       /* the list is not in-order */
    z.immediate.in_order = 1;
    OK(append_list(LIST, EVENT, 0));
    void *first = z.queue.last;
    OK(append_list(LIST, EVENT, 0));
    EQUAL(z.event.state, (uintptr_t)z.queue.last);
    CHECK(z.queue.last != first);
    PYTHON(fl_zeEventHostReset(DRIVER, EVENT));
    void *taken = fl_ze_take_event(&z.event);
    CHECK(taken == z.queue.last);
    PYTHON(append_list(LIST, EVENT, 0));
    fl_ze_put_event(&z.event, taken);          /* Python hands it over */
    OK(fl_zeEventQueryStatus(DRIVER, EVENT));
    OK(append_list(LIST, EVENT, 0));
    fl_ze_put_event(&z.event, taken);
    release_event(taken);
    OK(fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX));
    end_ze();
}

static void *signal_and_wait(void *data) {
    for (int i = 0; i < ROUNDS; i++) {
        append_list(LIST, EVENT, 0);
        fl_zeEventHostSynchronize(DRIVER, EVENT, UINT64_MAX);
        fl_zeEventQueryStatus(DRIVER, EVENT);
        void *taken = i % 7 ? NULL : fl_ze_take_event(&z.event);
        if (taken)
            release_event(taken);
        if (i % 7 == 0)
            fl_ze_give_event(&z.event);
        else if (i % 3 == 0)
            fl_zeEventHostReset(DRIVER, EVENT);
    }
    return data;
}

/* Threads use one event: every reference is released once. */
SCENARIO(thread_ze_events) {
    pthread_t threads[WAITERS];
    begin_ze(w);
    build(w);
    for (int i = 0; i < WAITERS; i++)
        EQUAL(pthread_create(&threads[i], NULL, signal_and_wait, NULL), 0);
    for (int i = 0; i < WAITERS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK(waits > 0);
    end_ze();
}

static atomic_int executed;

static void *execute_and_wait(void *data) {
    for (int i = 0; i < ROUNDS; i++) {
        int32_t code = execute(1);  /* unless another thread enqueues it */
        CHECK(code == 0 || code == TO_PYTHON);
        executed += code == 0;
        if (i % 3 == 0) {
            code = fl_zeCommandQueueSynchronize(DRIVER, QUEUE, UINT64_MAX);
            CHECK(code == 0 || code == TO_PYTHON);
        }
        void *last = i % 5 || i < ROUNDS / 2 ? NULL : fl_ze_take_last(&z.queue);
        if (last)
            release_event(last);
    }
    return data;
}

/* Threads use one queue: every event is released once. */
SCENARIO(thread_ze) {
    pthread_t threads[WAITERS];
    begin_ze(w);
    build(w);
    for (int i = 0; i < WAITERS; i++)
        EQUAL(pthread_create(&threads[i], NULL, execute_and_wait, NULL), 0);
    for (int i = 0; i < WAITERS; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
    CHECK(atomic_exchange(&executed, 0) > 0);
    end_ze();
}
