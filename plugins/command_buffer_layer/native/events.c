/* The events of enqueued command-buffers. They are the driver's, of its last command; here they get
 * the type, the queue and the times of a command-buffer.
 *
 * An event is known as long as the program has references to it, which are counted here for that.
 * The calls of a program without such events are passed on after one look at a counter. */
#include "hooks.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 1024 };

typedef struct known_event {
    struct known_event *other;
    void *event, *first;
    uint32_t references, many;
} known_event;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static known_event *buckets[BUCKETS];
static atomic_uint count;
FL_FREE_IN_CHILD(lock)

static known_event **place_of(const void *event) {
    known_event **at = &buckets[((uintptr_t)event >> 4) * 2654435761u % BUCKETS];
    while (*at && (*at)->event != event)
        at = &(*at)->other;
    return at;
}

/* The table that serves an object: with ICD 2 that of its loader (cl_khr_icd 2.0). */
static void *const *table_of(const void *object) {
    const fl_object *o = object;
    return *o->dispatch == (void *)(intptr_t)0x4F50454E434C3331 ? o->dispatch_data
                                                                : (void *const *)o->dispatch;
}

void fl_release_event(void *event) {
    ((fn_clReleaseEvent *)table_of(event)[SLOT_clReleaseEvent])(event);
}

/* Without memory it stays an event of the driver's last command. */
void fl_note_event(void *event, void *first, uint32_t many) {
    known_event *made = malloc(sizeof *made);
    if (!made) {
        if (first)
            fl_release_event(first);
        return;
    }
    pthread_mutex_lock(&lock);
    known_event **place = place_of(event), *old = *place;
    *made = (known_event){old ? old->other : NULL, event, first, 1, many};
    count += !old;
    *place = made;
    pthread_mutex_unlock(&lock);
    if (old && old->first) /* the program had a reference that it released elsewhere */
        fl_release_event(old->first);
    free(old);
}

cl_int hook_clRetainEvent(fl_next next, cl_event event) {
    if (count) {
        pthread_mutex_lock(&lock);
        known_event *found = *place_of(event);
        if (found)
            found->references++;
        pthread_mutex_unlock(&lock);
    }
    return NEXT(clRetainEvent)(event);
}

cl_int hook_clReleaseEvent(fl_next next, cl_event event) {
    known_event *gone = NULL;
    if (count) {
        pthread_mutex_lock(&lock);
        known_event **place = place_of(event);
        if (*place && --(*place)->references == 0) {
            gone = *place;
            *place = gone->other;
            count--;
        }
        pthread_mutex_unlock(&lock);
    }
    if (gone && gone->first)
        fl_release_event(gone->first);
    free(gone);
    return NEXT(clReleaseEvent)(event);
}

static bool is_known(const void *event, known_event *copy) {
    FL_HOLD(lock);
    const known_event *found = *place_of(event);
    if (found)
        *copy = *found;
    return found != NULL;
}

cl_int hook_clGetEventInfo(fl_next next, PARAMETERS_clGetEventInfo) {
    known_event known;
    if (count && (param_name == CL_EVENT_COMMAND_TYPE || param_name == CL_EVENT_COMMAND_QUEUE) &&
        is_known(event, &known)) {
        static const cl_uint type = CL_COMMAND_COMMAND_BUFFER_KHR;
        static void *const no_queue;
        if (param_name == CL_EVENT_COMMAND_TYPE)
            return fl_answer(&type, sizeof type, param_value_size, param_value,
                             param_value_size_ret);
        if (known.many)
            return fl_answer(&no_queue, sizeof no_queue, param_value_size, param_value,
                             param_value_size_ret);
    }
    return NEXT(clGetEventInfo)(ARGUMENTS_clGetEventInfo);
}

/* It begins with its first command. */
cl_int hook_clGetEventProfilingInfo(fl_next next, PARAMETERS_clGetEventProfilingInfo) {
    known_event known;
    bool is_begin =
        param_name >= CL_PROFILING_COMMAND_QUEUED && param_name <= CL_PROFILING_COMMAND_START;
    if (count && is_begin && is_known(event, &known) && known.first)
        event = known.first;
    return NEXT(clGetEventProfilingInfo)(ARGUMENTS_clGetEventProfilingInfo);
}
