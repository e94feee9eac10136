/* Waits that run commands. With some drivers a thread that waits for an in-order queue runs its
 * commands, and one that waits for an out-of-order queue runs none. A replay on such a queue has
 * in-order queues of its own. So a program that waits for the replay waits for their events first:
 * then its thread runs one branch, and the driver's thread another one.
 *
 * It waits for each event in the order of the enqueues, not for the last ones only. With these
 * alone, branches that wait for each other ran one after the other.
 *
 * A wait of the program is longer by nothing that it would not wait for: the end of the replay
 * comes after the events that are waited for here, on the same queue. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* So many replays at most are known, and of more than one so many events. More of them are far
 * ahead of the device. */
enum { MOST = 256, MOST_EVENTS = 4096 };

/* In the order of the enqueues. The events are references. */
static struct helped {
    uint64_t number;
    const void *sequence;
    void *queue;    /* the program's, on which the replay ends */
    cl_event *own;  /* of queues of ours, in the order of the enqueues */
    uint32_t own_count;   /* 0 where there is only an end */
    cl_event end;   /* that comes after them and after all before it on the queue, or NULL */
} list[MOST];
static uint64_t last_number;
static uint32_t event_count; /* of ours */
static atomic_uint count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
FL_FREE_IN_CHILD(lock)

/* Take one out; the caller has the lock, and lets its events go when it has not. */
static struct helped take(unsigned place) {
    struct helped taken = list[place];
    unsigned left = atomic_load(&count) - 1;
    memmove(&list[place], &list[place + 1], (left - place) * sizeof *list);
    atomic_store(&count, left);
    event_count -= taken.own_count;
    return taken;
}

static void let_go(struct helped one) {
    for (uint32_t i = 0; i < one.own_count; i++)
        CALL(fl_table_of(one.own[i]), clReleaseEvent)(one.own[i]);
    free(one.own);
    if (one.end)
        CALL(fl_table_of(one.end), clReleaseEvent)(one.end);
}

/* Take one of a sequence. */
static bool take_of(const void *sequence, struct helped *found) {
    FL_HOLD(lock);
    for (unsigned i = 0; i < atomic_load(&count); i++)
        if (list[i].sequence == sequence)
            return *found = take(i), true;
    return false;
}

/* The caller has the lock, also afterwards. */
static void make_room(uint32_t own_count) {
    while (atomic_load(&count) == MOST ||
           (atomic_load(&count) && event_count + own_count > MOST_EVENTS)) {
        struct helped old = take(0);
        pthread_mutex_unlock(&lock);
        let_go(old);
        pthread_mutex_lock(&lock);
    }
}

void fl_offer_help(const void *sequence, void *queue, uint32_t own_count, void *const *own,
                   void *end) {
    cl_event *kept = own_count ? malloc(own_count * sizeof *kept) : NULL;
    if (own_count && !kept)
        return;   /* it only takes longer */
    for (uint32_t i = 0; i < own_count; i++) {
        kept[i] = own[i];
        CALL(fl_table_of(kept[i]), clRetainEvent)(kept[i]);
    }
    if (end)
        CALL(fl_table_of(end), clRetainEvent)(end);
    FL_HOLD(lock);
    make_room(own_count);
    event_count += own_count;
    unsigned place = atomic_load(&count);
    list[place] = (struct helped){++last_number, sequence, queue, kept, own_count, end};
    atomic_store(&count, place + 1);
}

/* The number of the last one that an event ends, or of the last on a queue; 0 if there is none. */
static uint64_t last_of(void **queue, cl_event end) {
    for (unsigned i = atomic_load(&count); i-- > 0;)
        if (end ? list[i].end == end : list[i].queue == *queue) {
            *queue = list[i].queue;
            return list[i].number;
        }
    return 0;
}

/* Take the first one on a queue up to a number. */
static bool next(const void *queue, uint64_t last, struct helped *found) {
    FL_HOLD(lock);
    for (unsigned i = 0; i < atomic_load(&count) && list[i].number <= last; i++)
        if (list[i].queue == queue)
            return *found = take(i), true;
    return false;
}

/* What is enqueued meanwhile is not waited for: it may need this thread to go on. */
static void help(void *queue, cl_event end) {
    struct helped one;
    pthread_mutex_lock(&lock);
    uint64_t last = last_of(&queue, end);
    pthread_mutex_unlock(&lock);
    while (last && next(queue, last, &one)) {
        for (uint32_t i = 0; i < one.own_count; i++)
            DRIVER(one.own[i], clWaitForEvents)(1, &one.own[i]);
        let_go(one);
    }
}

void fl_note_end(void *queue, void *end) {
    pthread_mutex_lock(&lock);
    uint64_t last = last_of(&queue, NULL);
    pthread_mutex_unlock(&lock);
    if (last)
        fl_offer_help(NULL, queue, 0, NULL, end);
}

void fl_help_event(void *end) {
    if (atomic_load(&count))
        help(NULL, end);
}

static cl_int watched_clFinish(cl_command_queue queue) {
    if (atomic_load(&count) && fl_take_wait()) {
        help(queue, NULL);
        fl_give_wait_back();
    }
    return DRIVER(queue, clFinish)(queue);
}

/* In a thread that waits for events of the program. */
void fl_help_waits(uint32_t number, void *const *events) {
    if (!atomic_load(&count) || !fl_take_wait())
        return;
    for (uint32_t i = 0; i < number; i++)
        fl_help_event(events[i]);
    fl_give_wait_back();
}

static const fl_watched watched[] = {
    {SLOT_clWaitForEvents, (void *)fl_wait_for_events, false},
    {SLOT_clFinish, (void *)watched_clFinish, false},
};

/* The driver's own table, and the one that a loader gave it (ICD 2). */
static int tables_of(const void *queue, void **tables[2]) {
    const fl_object *object = queue;
    tables[0] = object->dispatch;
    tables[1] = object->dispatch_data;
    return tables[0][0] == FL_ICD2_TAG && tables[1] ? 2 : 1;
}

int fl_begin_help(const void *queue) {
    void **tables[2];
    fl_mapping known = {0};
    for (int i = 0, number = tables_of(queue, tables); i < number; i++) {
        int code = fl_patch_all(tables[i], watched, 2, &known);
        if (code != CL_SUCCESS) {
            while (i-- > 0)
                fl_unpatch_all(tables[i], watched, 2, &known);
            return code;
        }
    }
    return CL_SUCCESS;
}

void fl_end_help(const void *sequence, const void *queue) {
    struct helped gone;
    void **tables[2];
    fl_mapping known = {0};
    while (take_of(sequence, &gone))
        let_go(gone);
    for (int i = 0, number = tables_of(queue, tables); i < number; i++)
        fl_unpatch_all(tables[i], watched, 2, &known);
}
