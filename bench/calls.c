/* What single calls of Unified Runtime cost in a C program: `calls ADAPTER LAYOUT ROUNDS`, on the
 * adapter's first device. LAYOUT is the release that its tables have the order of. Writes one line
 * for each call: its name and nanoseconds.
 *
 * calls_abi.h is made of the ABI data (calls.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calls_abi.h"

enum { PLATFORMS = 8, BYTES = 4096, BATCH = 200, THREADS = 8 };

static void *adapter_library;
static const char *layout;   /* of its tables */

/* A function of the adapter. `places`, which is generated, says for each layout where functions
 * are. */
static void *function(const char *name) {
    void *table[64] = {NULL};
    char getter[64];
    for (const struct place *p = places; p->name; p++)
        if (strcmp(p->name, name) == 0 && strcmp(p->layout, layout) == 0) {
            snprintf(getter, sizeof getter, "urGet%sProcAddrTable", p->table);
            int32_t (*get)(uint32_t, void **) =
                (int32_t (*)(uint32_t, void **))dlsym(adapter_library, getter);
            if (get && get(UR_API_VERSION_CURRENT, table) == 0 && table[p->index])
                return table[p->index];
        }
    fprintf(stderr, "there is no %s\n", name);
    exit(2);
}

static int32_t check_code(int32_t code, int line) {
    if (code) {
        fprintf(stderr, "line %d: code %d\n", line, code);
        exit(3);
    }
    return code;
}

/* A call that has to succeed. Functions are looked up once. */
#define UR(name)                                                                                   \
    ({                                                                                             \
        static fn_##name *known;                                                                   \
        known ? known : (known = (fn_##name *)function(#name));                                    \
    })
#define OK(name, ...) check_code(UR(name)(__VA_ARGS__), __LINE__)

static double read_clock(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static double now(void) { return read_clock(CLOCK_MONOTONIC); }

/* --- what is called --- */

static struct {
    ur_device_handle_t device;
    ur_context_handle_t context;
    ur_queue_handle_t queue;
    ur_kernel_handle_t kernel;
    ur_mem_handle_t a, b;
    ur_event_handle_t done;
    char *shared, *device_memory;
    char host[BYTES];
} w;

static const size_t one = 64, group = 64;
static const uint32_t number = 7;

static void end_batch(void) { OK(urQueueFinish, w.queue); }

static void device_name(void) {
    char name[256];
    OK(urDeviceGetInfo, w.device, UR_DEVICE_INFO_NAME, sizeof name, name, NULL);
}

static void device_usm(void) {
    uint64_t answer;
    OK(urDeviceGetInfo, w.device, UR_DEVICE_INFO_USM_DEVICE_SUPPORT, sizeof answer, &answer, NULL);
}

static void group_size(void) {
    size_t answer;
    OK(urKernelGetGroupInfo, w.kernel, w.device, UR_KERNEL_GROUP_INFO_WORK_GROUP_SIZE,
       sizeof answer, &answer, NULL);
}

static void set_value(void) { OK(urKernelSetArgValue, w.kernel, 1, sizeof number, NULL, &number); }

static void set_pointer(void) { OK(urKernelSetArgPointer, w.kernel, 0, NULL, w.shared); }

/* The release 2025.3 has a list of properties instead of a struct. */
static bool is_old(void) { return strcmp(layout, "2025.3") == 0; }

static void enqueue(ur_queue_handle_t queue, ur_kernel_handle_t kernel, ur_event_handle_t *event) {
    if (is_old())
        OK(urEnqueueKernelLaunch_2025_3, queue, kernel, 1, NULL, &one, &group, 0, NULL, 0, NULL,
           event);
    else
        OK(urEnqueueKernelLaunch, queue, kernel, 1, NULL, &one, &group, NULL, 0, NULL, event);
}

static void launch(void) { enqueue(w.queue, w.kernel, NULL); }

static void launch_with_event(void) {
    ur_event_handle_t event;
    enqueue(w.queue, w.kernel, &event);
    OK(urEventRelease, event);
}

static void launch_and_wait(void) {
    ur_event_handle_t event;
    enqueue(w.queue, w.kernel, &event);
    OK(urEventWait, 1, &event);
    OK(urEventRelease, event);
}

static void flush(void) { OK(urQueueFlush, w.queue); }

static void finish(void) { OK(urQueueFinish, w.queue); }

static void wait_for_done(void) { OK(urEventWait, 1, &w.done); }

static void status(void) {
    uint32_t answer;
    OK(urEventGetInfo, w.done, UR_EVENT_INFO_COMMAND_EXECUTION_STATUS, sizeof answer, &answer,
       NULL);
}

static void retain_event(void) {
    OK(urEventRetain, w.done);
    OK(urEventRelease, w.done);
}

static void marker(void) { OK(urEnqueueEventsWait, w.queue, 0, NULL, NULL); }

static void barrier(void) { OK(urEnqueueEventsWaitWithBarrier, w.queue, 1, &w.done, NULL); }

static void memcpy_waited(void) {
    OK(urEnqueueUSMMemcpy, w.queue, true, w.shared, w.host, 64, 0, NULL, NULL);
}

static void memcpy_enqueued(void) {
    OK(urEnqueueUSMMemcpy, w.queue, false, w.shared, w.device_memory, 64, 0, NULL, NULL);
}

static void fill(void) { OK(urEnqueueUSMFill, w.queue, w.shared, 4, &number, 64, 0, NULL, NULL); }

static void read_buffer(void) {
    OK(urEnqueueMemBufferRead, w.queue, w.a, true, 0, 64, w.host, 0, NULL, NULL);
}

static void write_buffer(void) {
    OK(urEnqueueMemBufferWrite, w.queue, w.a, true, 0, 64, w.host, 0, NULL, NULL);
}

static void copy_buffer(void) {
    OK(urEnqueueMemBufferCopy, w.queue, w.a, w.b, 0, 0, 64, 0, NULL, NULL);
}

static void fill_buffer(void) {
    OK(urEnqueueMemBufferFill, w.queue, w.a, &number, 4, 0, 64, 0, NULL, NULL);
}

static void allocation(void) {
    void *made;
    OK(urUSMDeviceAlloc, w.context, w.device, NULL, NULL, 256, &made);
    OK(urUSMFree, w.context, made);
}

static void memory_type(void) {
    uint32_t answer;
    OK(urUSMGetMemAllocInfo, w.context, w.shared, UR_USM_ALLOC_INFO_TYPE, sizeof answer, &answer,
       NULL);
}

static void context(void) {
    ur_context_handle_t made;
    OK(urContextCreate, 1, &w.device, NULL, &made);
    OK(urContextRelease, made);
}

/* `commands`: it leaves some to be finished. */
static const struct action {
    const char *name;
    void (*run)(void);
    bool commands;
} actions[] = {
    {"urDeviceGetInfo, the name", device_name, false},
    {"urDeviceGetInfo, USM support", device_usm, false},
    {"urKernelGetGroupInfo", group_size, false},
    {"urKernelSetArgValue", set_value, false},
    {"urKernelSetArgPointer", set_pointer, false},
    {"urEnqueueKernelLaunch", launch, true},
    {"urEnqueueKernelLaunch with an event", launch_with_event, true},
    {"urEnqueueKernelLaunch and urEventWait", launch_and_wait, true},
    {"urQueueFlush", flush, false},
    {"urQueueFinish of nothing", finish, false},
    {"urEventWait for a complete event", wait_for_done, false},
    {"urEventGetInfo, the status", status, false},
    {"urEventRetain and urEventRelease", retain_event, false},
    {"urEnqueueEventsWait", marker, true},
    {"urEnqueueEventsWaitWithBarrier", barrier, true},
    {"urEnqueueUSMMemcpy, blocking", memcpy_waited, true},
    {"urEnqueueUSMMemcpy", memcpy_enqueued, true},
    {"urEnqueueUSMFill", fill, true},
    {"urEnqueueMemBufferRead, blocking", read_buffer, true},
    {"urEnqueueMemBufferWrite, blocking", write_buffer, true},
    {"urEnqueueMemBufferCopy", copy_buffer, true},
    {"urEnqueueMemBufferFill", fill_buffer, true},
    {"urUSMDeviceAlloc and urUSMFree", allocation, false},
    {"urUSMGetMemAllocInfo", memory_type, false},
    {"urContextCreate and urContextRelease", context, false},
};

/* --- how --- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* calls.py counts the instructions of this function, by its name. */
static __attribute__((noinline)) void run_batch(const struct action *action) {
    for (unsigned i = 0; i < BATCH; i++)
        action->run();
}

/* The median of `rounds` batches. What ends a batch of commands is not timed. */
static void measure(const struct action *action, unsigned rounds) {
    double *took = calloc(rounds, sizeof *took);
    for (unsigned round = 0; round < rounds; round++) {
        double start = now();
        run_batch(action);
        took[round] = (now() - start) / BATCH;
        if (action->commands)
            end_batch();
    }
    qsort(took, rounds, sizeof *took, ascending);
    printf("%s\t%.1f\n", action->name, took[rounds / 2]);
    free(took);
}

/* Each thread has a queue and a kernel, and launches and waits. */
static ur_program_handle_t program;

struct worker {
    pthread_t thread;
    ur_queue_handle_t queue;
    ur_kernel_handle_t kernel;
    unsigned count;
};

static void *work(void *one) {
    struct worker *worker = one;
    for (unsigned i = worker->count; i; i--) {
        OK(urKernelSetArgValue, worker->kernel, 1, sizeof number, NULL, &number);
        enqueue(worker->queue, worker->kernel, NULL);
        if (i % 16 == 0)
            OK(urQueueFinish, worker->queue);
    }
    OK(urQueueFinish, worker->queue);
    return NULL;
}

static void begin_worker(struct worker *worker, unsigned count) {
    worker->count = count;
    OK(urQueueCreate, w.context, w.device, NULL, &worker->queue);
    OK(urKernelCreate, program, "store", &worker->kernel);
    OK(urKernelSetArgPointer, worker->kernel, 0, NULL, w.shared);
}

static void end_worker(struct worker *worker) {
    OK(urKernelRelease, worker->kernel);
    OK(urQueueRelease, worker->queue);
}

static void measure_threads(unsigned threads, unsigned each) {
    struct worker workers[THREADS];
    for (unsigned i = 0; i < threads; i++)
        begin_worker(&workers[i], each);
    double start = now(), used = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (unsigned i = 0; i < threads; i++)
        check_code(pthread_create(&workers[i].thread, NULL, work, &workers[i]), __LINE__);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    double took = now() - start, calls = threads * each;
    used = read_clock(CLOCK_PROCESS_CPUTIME_ID) - used;
    printf("argument and launch, %u threads\t%.1f\n", threads, took / calls);
    printf("… in CPU time, %u threads\t%.1f\n", threads, used / calls);
    for (unsigned i = 0; i < threads; i++)
        end_worker(&workers[i]);
}

/* The program, by the driver's own functions: not every driver takes SPIR-V. The first word of an
 * object leads to them. */
static ur_program_handle_t build_program(void) {
    static const char *const source =
        "kernel void store(global uint *to, uint value) { to[get_global_id(0)] = value; }";
    ur_program_handle_t made;
    ur_native_handle_t context, device;
    int32_t code;
    OK(urContextGetNativeHandle, w.context, &context);
    OK(urDeviceGetNativeHandle, w.device, &device);
    void *const *table = *(void *const **)context;
    cl_device_id built = (cl_device_id)device;
    cl_program native = ((fn_clCreateProgramWithSource *)table[SLOT_clCreateProgramWithSource])(
        (cl_context)context, 1, (const char **)&source, NULL, &code);
    check_code(code, __LINE__);
    check_code(((fn_clBuildProgram *)table[SLOT_clBuildProgram])(native, 1, &built, "", NULL, NULL),
               __LINE__);
    OK(urProgramCreateWithNativeHandle, (ur_native_handle_t)native, w.context, NULL, &made);
    return made;
}

static void begin(void) {
    ur_adapter_handle_t adapter;
    ur_platform_handle_t platforms[PLATFORMS];
    uint32_t count;
    OK(urAdapterGet, 1, &adapter, NULL);
    OK(urPlatformGet, adapter, PLATFORMS, platforms, &count);
    OK(urDeviceGet, platforms[0], UR_DEVICE_TYPE_ALL, 1, &w.device, NULL);
    OK(urContextCreate, 1, &w.device, NULL, &w.context);
    OK(urQueueCreate, w.context, w.device, NULL, &w.queue);
    program = build_program();
    OK(urKernelCreate, program, "store", &w.kernel);
    OK(urMemBufferCreate, w.context, UR_MEM_FLAG_READ_WRITE, BYTES, NULL, &w.a);
    OK(urMemBufferCreate, w.context, UR_MEM_FLAG_READ_WRITE, BYTES, NULL, &w.b);
    OK(urUSMSharedAlloc, w.context, w.device, NULL, NULL, BYTES, (void **)&w.shared);
    OK(urUSMDeviceAlloc, w.context, w.device, NULL, NULL, BYTES, (void **)&w.device_memory);
    set_pointer(), set_value();
    enqueue(w.queue, w.kernel, &w.done);
    OK(urQueueFinish, w.queue);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 4 || !(adapter_library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "calls ADAPTER LAYOUT ROUNDS: %s\n", dlerror());
        return 2;
    }
    layout = arguments[2];
    unsigned rounds = (unsigned)atoi(arguments[3]);
    begin();
    for (unsigned i = 0; i < sizeof actions / sizeof *actions; i++)
        measure(&actions[i], rounds);
    for (unsigned threads = 1; threads <= THREADS; threads *= THREADS)
        measure_threads(threads, 100 * rounds);
    return 0;
}
