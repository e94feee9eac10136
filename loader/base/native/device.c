/* Notes in a log what devices did: when each command was queued, submitted, started and ended.
 *
 * Handlers of a layer let OpenCL queues profile, and give each command an event if the program
 * wants none. The commands wait in a list. After each call, those at its front that have ended are
 * noted, and their events are released. So nothing is asked when the process ends, where a driver
 * may be gone already. */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXECUTION_STATUS = 0x11D3,
    QUEUED = 0x1280, /* followed by submitted, started, ended */
    DEVICE_NAME = 0x102B,
    DRIVER_VERSION = 0x102D,
    QUEUE_PROPERTIES = 0x1093,
    PROFILING = 1 << 1,
    ON_DEVICE = 1 << 2,
    MOST_PROPERTIES = 32
};

typedef int32_t info(void *event, uint32_t what, size_t size, void *value, size_t *size_ret);
typedef int32_t count(void *event);

/* A layer that is given back may soon serve another driver, or write into another log. */
typedef struct command {
    struct command *next;
    void *const *driver; /* the table of its driver */
    const fl_log *log;
    fl_call call; /* its arguments are gone */
    uint64_t values[8];
} command;

static fl_device slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */
static command *first, **last = &first;
static int noting; /* a thread is in fl_note_ended */

static __thread void *own __attribute__((tls_model("initial-exec"))); /* the event of a call */
static __thread uint64_t exchanged[2 * MOST_PROPERTIES + 1];

/* The events are the parent's. */
FL_IN_CHILD(pthread_mutex_init(&lock, NULL); first = NULL, last = &first, noting = 0)

static uint64_t add_profiling(uint64_t flags) {
    return flags & ON_DEVICE ? flags : flags | PROFILING;
}

/* Adds profiling to the program's list. One that is too long stays as it is. */
static const uint64_t *add_profiling_to_list(const uint64_t *list) {
    size_t at = 0, flags = 0;
    for (; list && list[at]; at += 2) {
        if (at + 2 >= 2 * MOST_PROPERTIES)
            return list;
        if (list[at] == QUEUE_PROPERTIES)
            flags = at + 1;
    }
    if (at)
        memcpy(exchanged, list, at * sizeof *list);
    if (!flags) {
        exchanged[at] = QUEUE_PROPERTIES, exchanged[at + 1] = 0;
        flags = at + 1, at += 2;
    }
    exchanged[flags] = add_profiling(exchanged[flags]);
    exchanged[at] = 0;
    return exchanged;
}

static bool makes_queue(const fl_call *call) {
    return call->function == slots.create_queue ||
           call->function == slots.create_queue_with_properties;
}

static int before(fl_call *call) {
    int place = call->layer->thunks->event_at[call->function];
    if (makes_queue(call))
        call->kept = call->arguments[2];
    if (call->function == slots.create_queue)
        call->arguments[2] = add_profiling(call->arguments[2]);
    else if (call->function == slots.create_queue_with_properties)
        call->arguments[2] =
            FL_POINTER(add_profiling_to_list((void *)(uintptr_t)call->arguments[2]));
    else if (place >= 0 && !call->arguments[place]) {
        own = NULL;
        call->arguments[place] = FL_POINTER(&own);
        call->kept = 1; /* the event is this layer's, not that of one in front of it */
    }
    return fl_log_begin(call);
}

/* A command was enqueued. Its event is ours now. */
static void add(const fl_call *call, void *event) {
    command *new = malloc(sizeof *new);
    if (!new) {
        ((count *)call->layer->next[slots.release_event])(event);
        return;
    }
    uint64_t kernel = call->function == slots.launch ? call->arguments[1] : 0;
    *new = (command){.driver = call->layer->next,
                     .log = __atomic_load_n(&call->layer->log, __ATOMIC_ACQUIRE),
                     .call = *call,
                     .values = {call->function, call->arguments[0], kernel, FL_POINTER(event)}};
    new->call.arguments = NULL;
    FL_HOLD(lock);
    *last = new, last = &new->next;
}

/* What the device of a new queue is called, and the version of its driver. */
static void note_device(const fl_call *call) {
    fl_log *log = __atomic_load_n(&call->layer->log, __ATOMIC_ACQUIRE);
    info *ask = (info *)call->layer->next[slots.get_device_info];
    void *device = (void *)(uintptr_t)call->arguments[1];
    uint64_t values[FL_QUEUE_WORDS] = {call->result};
    char name[256] = "", version[256] = "";
    if (!log || ask(device, DEVICE_NAME, sizeof name, name, NULL) ||
        ask(device, DRIVER_VERSION, sizeof version, version, NULL))
        return;
    name[sizeof name - 1] = version[sizeof version - 1] = 0;
    /* what does not fit is cut */
    if (snprintf((char *)&values[1], sizeof values - sizeof *values, "%s, driver %s", name,
                 version) < 0)
        return;
    fl_log_note(log, (uint32_t)FL_QUEUE, call, values, FL_QUEUE_WORDS);
}

static bool has_ended(const command *one, void *event) {
    int32_t status = 0;
    info *ask = (info *)one->driver[slots.get_event_info];
    return ask(event, EXECUTION_STATUS, sizeof status, &status, NULL) || status <= 0;
}

static void note(command *one, void *event) {
    info *ask = (info *)one->driver[slots.get_profiling_info];
    fl_log *log = __atomic_load_n(&one->call.layer->log, __ATOMIC_ACQUIRE);
    int32_t code = 0;
    for (uint32_t i = 0; i < 4; i++)
        code |= ask(event, QUEUED + i, sizeof one->values[4], &one->values[4 + i], NULL);
    if (!code && log && log == one->log)
        fl_log_note(log, (uint32_t)FL_COMMAND, &one->call, one->values, 8);
    ((count *)one->driver[slots.release_event])(event);
}

void fl_note_ended(void) {
    int error = errno;
    if (!__atomic_load_n(&first, __ATOMIC_RELAXED) ||
        __atomic_exchange_n(&noting, 1, __ATOMIC_ACQUIRE))
        return; /* another thread does it, or this one, further up */
    for (;;) {
        pthread_mutex_lock(&lock);
        command *one = first;
        pthread_mutex_unlock(&lock);
        void *event = one ? (void *)(uintptr_t)one->values[3] : NULL;
        if (!one || !has_ended(one, event))
            break;
        note(one, event);
        pthread_mutex_lock(&lock);
        first = one->next;
        if (!first)
            last = &first;
        pthread_mutex_unlock(&lock);
        free(one);
    }
    __atomic_store_n(&noting, 0, __ATOMIC_RELEASE);
    errno = error;
}

/* A map returns the address. All other commands return a code. */
static bool has_succeeded(const fl_call *call) {
    bool is_map = call->function == slots.map_buffer || call->function == slots.map_image;
    return is_map ? call->result != 0 : (int32_t)call->result == 0;
}

static void after(fl_call *call) {
    int place = call->layer->thunks->event_at[call->function];
    void **event = place < 0 ? NULL : (void **)(uintptr_t)call->arguments[place];
    bool ours = event && call->kept;
    if (event && has_succeeded(call) && *event) {
        if (!ours)
            ((count *)call->layer->next[slots.retain_event])(*event);
        add(call, *event);
    }
    if (ours) /* the trace shows what the program gave */
        call->arguments[place] = 0;
    if (makes_queue(call)) {
        call->arguments[2] = call->kept;
        if (call->result)
            note_device(call);
    }
    fl_log_end(call);
    fl_note_ended();
}

void fl_log_device(fl_layer *layer, fl_log *log, const fl_device *device) {
    slots = *device;
    fl_log_calls(layer, log);
    fl_set_handlers(layer, before, after);
}
