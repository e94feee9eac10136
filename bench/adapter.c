/* What C does with the reference adapter. As a library: what adapter.py times, the threads of
 * soak.py. As a program without Python, `adapter LIBRARY`: how long it takes from dlopen to all
 * devices, as JSON.
 *
 * adapter_abi.h is made of the ABI data (adapter_work.py): every type and prototype of both
 * interfaces. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "adapter_abi.h"

typedef const ur_exp_command_buffer_update_kernel_launch_desc_t update;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- what is timed --- */

/* Enqueues of a command-buffer that are not waited for, and the end of the last. */
int32_t enqueues(fn_urEnqueueCommandBufferExp *enqueue, fn_urQueueFinish *finish,
                 ur_queue_handle_t queue, ur_exp_command_buffer_handle_t buffer, uint32_t count) {
    int32_t code = 0;
    for (uint32_t i = 0; i < count && !code; i++)
        code = enqueue(queue, buffer, 0, NULL, NULL);
    return code ? code : finish(queue);
}

/* One enqueue of the driver's own, and its end. */
int32_t native_pass(fn_clEnqueueCommandBufferKHR *enqueue, fn_clFinish *finish,
                    cl_command_queue queue, cl_command_buffer_khr buffer) {
    int32_t code = enqueue(0, NULL, buffer, 0, NULL, NULL);
    return code ? code : finish(queue);
}

/* One update after the other, each of one command. */
int32_t updates(fn_urCommandBufferUpdateKernelLaunchExp *change,
                ur_exp_command_buffer_handle_t buffer, update *list, uint32_t count) {
    int32_t code = 0;
    for (uint32_t i = 0; i < count && !code; i++)
        code = change(buffer, 1, &list[i]);
    return code;
}

/* --- the soak: threads that update, enqueue and read, each a command-buffer of its own --- */

typedef struct functions {
    fn_urCommandBufferUpdateKernelLaunchExp *update;
    fn_urEnqueueCommandBufferExp *enqueue;
    fn_urEnqueueMemBufferRead *read;
    fn_urEventRelease *release;
} functions;

/* Launch i of the command-buffer turns cell i into 3 * cell + values[i]; updates[i] gives it the
 * value that is there. */
typedef struct worker {
    const functions *call;
    ur_queue_handle_t queue;
    ur_exp_command_buffer_handle_t buffer;
    ur_mem_handle_t memory;
    update *updates;
    /* `expected`: what `cells`, which are read, have to be */
    uint32_t *values, *cells, *expected;
    uint32_t launches, random;
    uint64_t enqueued, updated, wrong;
    double end;
    int32_t code;                          /* of the call that failed */
    pthread_t thread;
} worker;

static uint32_t next(worker *w) {
    return (w->random = w->random * 1664525 + 1013904223) >> 8;
}

/* Other values for some launches that follow each other: all in one update, or each in one of its
 * own. */
static int32_t change_some(worker *w) {
    uint32_t first = next(w) % w->launches, count = 1 + next(w) % (w->launches - first),
             each = next(w) & 1;
    for (uint32_t i = first; i < first + count; i++)
        w->values[i] = next(w);
    int32_t code = each ? updates(w->call->update, w->buffer, w->updates + first, count)
                        : w->call->update(w->buffer, count, w->updates + first);
    w->updated += each ? count : 1;
    return code;
}

/* Two or three enqueues, an update before each, and a look at what came of it. */
static int32_t work(worker *w) {
    int32_t code = 0;
    ur_event_handle_t end = NULL;
    for (uint32_t i = 2 + (next(w) & 1); i && !code; i--) {
        code = change_some(w);
        if (!code)
            code = w->call->enqueue(w->queue, w->buffer, 0, NULL, i == 1 ? &end : NULL);
        w->enqueued++;
        for (uint32_t cell = 0; cell < w->launches; cell++)
            w->expected[cell] = 3 * w->expected[cell] + w->values[cell];
    }
    if (!code)   /* the queue may be out of order */
        code = w->call->read(w->queue, w->memory, true, 0, w->launches * sizeof *w->cells, w->cells,
                             1, &end, NULL);
    if (end)
        w->call->release(end);
    for (uint32_t cell = 0; cell < w->launches && !code; cell++)
        w->wrong += w->cells[cell] != w->expected[cell];
    return code;
}

static void *run(void *one) {
    worker *w = one;
    while (!w->code && !w->wrong && seconds() < w->end)
        w->code = work(w);
    return NULL;
}

/* Let all work for so many seconds. */
int32_t soak(worker *workers, uint32_t count, double duration) {
    int32_t code = 0;
    uint32_t started = 0;
    for (double end = seconds() + duration; started < count && !code; started++) {
        workers[started].end = end;
        code = pthread_create(&workers[started].thread, NULL, run, &workers[started]);
    }
    for (uint32_t i = 0; i < started - (code != 0); i++)
        pthread_join(workers[i].thread, NULL);
    return code;
}

/* --- the program --- */

static void *opened;

static void *function(const char *name) {
    void *found = opened ? dlsym(opened, name) : NULL;
    if (!found) {
        fprintf(stderr, "there is no %s: %s\n", name, dlerror());
        exit(2);
    }
    return found;
}

static void check(int32_t code) {
    if (code) {
        fprintf(stderr, "code %d\n", code);
        exit(3);
    }
}

#define CALL(name) ((fn_##name *)function(#name))

int main(int argument_count, char **arguments) {
    double start = seconds();
    void *table[16];
    ur_adapter_handle_t adapter;
    ur_platform_handle_t platforms[16];
    uint32_t platform_count, device_count, all = 0;
    opened = argument_count == 2 ? dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL) : NULL;
    check(((int32_t (*)(uint32_t, void **))function("urGetAdapterProcAddrTable"))(
        UR_API_VERSION_CURRENT, table));
    check(CALL(urAdapterGet)(1, &adapter, NULL));
    check(CALL(urPlatformGet)(adapter, 16, platforms, &platform_count));
    for (uint32_t i = 0; i < platform_count; i++) {
        ur_device_handle_t devices[16];
        check(CALL(urDeviceGet)(platforms[i], UR_DEVICE_TYPE_ALL, 16, devices, &device_count));
        all += device_count;
    }
    printf("{\"seconds\": %.6f, \"devices\": %u}\n", seconds() - start, all);
    return 0;
}
