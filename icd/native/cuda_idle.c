/* When OpenCL does not use any more what the program has released.
 *
 * Drivers do not tell. NVIDIA's calls a destructor's callback before the commands that use the
 * buffer have ended. So the queues of a context are known from their creation on: one queue that
 * is in order answers by itself, and others are asked by markers. The driver is never called with
 * the lock, because it calls functions of ours that take it. */
#include "cuda_buffers.h"

#include <stdlib.h>

/* A marker takes 8 µs, and a look at one 3. So markers are put for so many releases, or bytes. */
enum { ENOUGH_RELEASES = 16 };
#define ENOUGH_BYTES ((uint64_t)64 << 20)

bool fl_runs_in_order(const fl_queues *queues) {
    const fl_known_queue *only = queues->first;
    return queues->are_known && !queues->last && !queues->last_looked_at && only && !only->next &&
           only->in_order;
}

bool fl_is_let_go(const fl_queues *queues) { return !queues->references && !queues->first; }

/* An event that is complete after everything in a queue; NULL if there is none. Without the flush
 * it would wait for the program's next one. */
static fl_marker *put_marker(cl_command_queue queue, fl_marker *next) {
    fl_marker *made = malloc(sizeof *made);
    if (!made)
        return NULL;
    made->next = next;
    if (DRIVER(queue, clEnqueueMarkerWithWaitList)(queue, 0, NULL, &made->event) != CL_SUCCESS) {
        free(made);
        return NULL;
    }
    DRIVER(queue, clFlush)(queue);
    return made;
}

/* A failed one is complete, too. */
static bool is_complete(cl_event event) {
    cl_int status = CL_QUEUED;
    cl_int code = DRIVER(event, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                sizeof status, &status, NULL);
    return code == CL_SUCCESS && status <= CL_COMPLETE;
}

static void drop_marker(fl_marker *marker) {
    DRIVER(marker->event, clReleaseEvent)(marker->event);
    free(marker);
}

void fl_drop_markers(fl_marker *markers) {
    while (markers) {
        fl_marker *next = markers->next;
        drop_marker(markers);
        markers = next;
    }
}

/* Those that are not complete; the others are dropped. */
static fl_marker *drop_complete(fl_marker *markers) {
    fl_marker **at = &markers;
    while (*at) {
        fl_marker *one = *at;
        if (!is_complete(one->event)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        drop_marker(one);
    }
    return markers;
}

/* This thread has used a queue, which the program may have released meanwhile. */
static void leave_queue(fl_known_queue *queue) {
    pthread_mutex_lock(&fl_shared_lock);
    bool is_gone = !--queue->users && !queue->references;
    pthread_mutex_unlock(&fl_shared_lock);
    if (!is_gone)
        return;
    DRIVER(queue->handle, clReleaseCommandQueue)(queue->handle);
    free(queue);
}

/* Put a marker into each queue. The caller has the lock, which is given up meanwhile. */
static void put_markers(fl_queues *queues) {
    uint32_t count = 0, missing = 0;
    fl_marker *made = NULL;
    for (fl_known_queue *q = queues->first; q; q = q->next)
        count++;
    fl_known_queue **all = malloc((count + 1) * sizeof *all);
    if (!all)
        return;
    count = 0;
    for (fl_known_queue *q = queues->first; q; q = q->next) {
        q->users++;
        all[count++] = q;
    }
    uint64_t turn = queues->turn++;
    queues->released = queues->released_bytes = 0;
    pthread_mutex_unlock(&fl_shared_lock);
    for (uint32_t i = 0; i < count; i++) {
        fl_marker *one = put_marker(all[i]->handle, made);
        if (one)
            made = one;
        else
            missing++;
        leave_queue(all[i]);
    }
    free(all);
    pthread_mutex_lock(&fl_shared_lock);
    queues->asked = made;
    if (!missing)   /* otherwise the next markers, of a later turn, will tell */
        queues->asked_turn = turn;
}

bool fl_ask_queues(fl_queues *queues) {
    pthread_mutex_lock(&fl_shared_lock);
    uint64_t before = queues->idle_turn;
    bool had_last = queues->last;
    if (queues->are_known && !queues->asking) {
        queues->asking = true;   /* so nobody else looks at these two */
        fl_marker *last = queues->last, *asked = queues->asked;
        queues->last = queues->asked = NULL;
        queues->last_looked_at = last != NULL;
        pthread_mutex_unlock(&fl_shared_lock);
        last = drop_complete(last);
        asked = drop_complete(asked);
        pthread_mutex_lock(&fl_shared_lock);
        fl_marker **end = &queues->last;   /* of a queue that was released just now */
        while (*end)
            end = &(*end)->next;
        *end = last;
        queues->last_looked_at = false;
        queues->asked = asked;
        if (!asked && !queues->last) {
            queues->idle_turn = queues->asked_turn;
            if (queues->released >= ENOUGH_RELEASES || queues->released_bytes >= ENOUGH_BYTES)
                put_markers(queues);
        }
        queues->asking = false;
    }
    bool is_new = queues->idle_turn != before || (had_last && !queues->last);
    pthread_mutex_unlock(&fl_shared_lock);
    return is_new;
}

fl_marker *fl_forget_queues(fl_queues *queues) {
    fl_marker *all = queues->last, **end = &all;
    while (*end)
        end = &(*end)->next;
    *end = queues->asked;
    queues->last = queues->asked = NULL;
    queues->are_known = false;
    return all;
}

void fl_add_queue(fl_queues *queues, cl_command_queue queue, bool in_order) {
    fl_known_queue *made = calloc(1, sizeof *made);
    FL_HOLD(fl_shared_lock);
    if (made) {
        *made = (fl_known_queue){queues->first, queue, 1, 0, in_order};
        queues->first = made;
    } else
        queues->are_known = false;
}

static fl_known_queue **find(fl_queues *queues, cl_command_queue queue) {
    fl_known_queue **at = &queues->first;
    while (*at && (*at)->handle != queue)
        at = &(*at)->next;
    return at;
}

bool fl_has_queue(fl_queues *queues, cl_command_queue queue) { return *find(queues, queue); }

void fl_retain_queue(fl_queues *queues, cl_command_queue queue) {
    FL_HOLD(fl_shared_lock);
    (*find(queues, queue))->references++;
}

/* The commands of a queue that ends may use what the program releases later. So its last marker is
 * looked at until it is complete. */
bool fl_release_queue(fl_queues *queues, cl_command_queue queue) {
    pthread_mutex_lock(&fl_shared_lock);
    fl_known_queue **at = find(queues, queue), *known = *at;
    bool is_last = known && !--known->references;
    if (!is_last) {
        pthread_mutex_unlock(&fl_shared_lock);
        return false;
    }
    known->users++;   /* nobody else can find it, but who put markers into it */
    pthread_mutex_unlock(&fl_shared_lock);
    fl_marker *made = put_marker(queue, NULL);
    pthread_mutex_lock(&fl_shared_lock);
    for (at = &queues->first; *at != known; at = &(*at)->next)
        ;
    *at = known->next;
    if (made) {
        made->next = queues->last;
        queues->last = made;
    } else
        queues->are_known = false;
    pthread_mutex_unlock(&fl_shared_lock);
    leave_queue(known);
    return true;
}
