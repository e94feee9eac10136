/* How far queues are: what is complete, and what will soon be. */
#include "calls.h"

#include "../../../loader/base/native/clock.h"

/* --- commands --- */

void fl_count(fl_queue *queue) { __atomic_fetch_add(&queue->enqueued, 1, __ATOMIC_SEQ_CST); }

void fl_note_finished(fl_queue *queue, uint64_t count) {
    uint64_t known = fl_load(&queue->finished);
    while (known < count && !__atomic_compare_exchange_n(&queue->finished, &known, count, false,
                                                         __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        continue;
}

uint64_t fl_count_one(fl_queue *queue, uint64_t before) {
    uint64_t counted = __atomic_fetch_add(&queue->enqueued, 1, __ATOMIC_SEQ_CST);
    return counted == before ? before + 1 : before;
}

/* All queues that were not closed. */
static struct {
    fl_queue *first;
    int32_t unfinished;
    fl_lock lock;
} all;

void fl_add_queue(fl_queue *queue) {
    FL_HOLD_LOCK(all.lock);
    queue->next = all.first;
    all.first = queue;
}

void fl_remove_queue(fl_queue *queue) {
    FL_HOLD_LOCK(all.lock);
    fl_queue **at = &all.first;
    while (*at && *at != queue)
        at = &(*at)->next;
    if (*at)
        *at = queue->next;
}

void fl_add_unfinished(int32_t count) {
    __atomic_fetch_add(&all.unfinished, count, __ATOMIC_SEQ_CST);
}

bool fl_all_finished(uintptr_t context) {
    bool finished = true;
    fl_enter_lock(&all.lock);
    for (const fl_queue *q = all.first; q && finished; q = q->next)
        finished = q->context->cl != context ||
                   (!q->shared && fl_load(&q->enqueued) == fl_load(&q->finished));
    fl_leave_lock(&all.lock);
    /* A queue that was closed meanwhile is among these. */
    return finished && !__atomic_load_n(&all.unfinished, __ATOMIC_SEQ_CST);
}

/* --- blocking writes that the driver ends later ---
 *
 * Such a driver has read the host's memory when it returns. What comes later on the same in-order
 * queue sees the write. So nobody notices, unless another queue of the context or the program's own
 * calls of OpenCL use the buffer. */

static int32_t memory_is_shared;   /* the program has a cl_mem */

void fl_note_shared_memory(void) { __atomic_store_n(&memory_is_shared, 1, __ATOMIC_SEQ_CST); }

bool fl_may_be_late(const fl_queue *queue) {
    bool alone = !__atomic_load_n(&memory_is_shared, __ATOMIC_SEQ_CST);
    FL_HOLD_LOCK(all.lock);
    for (const fl_queue *q = all.first; q && alone; q = q->next)
        alone = q == queue || q->context->cl != queue->context->cl;
    return alone;
}

/* --- launches that are over soon ---
 *
 * The main thread of Python can end a wait by Ctrl-C, and so does not wait in the driver. There a
 * thread that waits also runs the command, which is much faster. So a kernel that was soon over is
 * waited for in the driver when it is launched again alone, with the same sizes. */

int64_t fl_soon = 1000000;   /* nanoseconds */

static uint64_t *place_of(fl_queue *queue, uint64_t key) { return &queue->brief[key % FL_BRIEFS]; }

bool fl_begin_launch(fl_queue *queue, uint64_t key, uint64_t place) {
    queue->launch = key, queue->launch_place = place, queue->launch_began = fl_now();
    return *place_of(queue, key) == key;
}

bool fl_ends_soon(fl_queue *queue, uint64_t place) {
    return queue->launch_place == place && *place_of(queue, queue->launch) == queue->launch;
}

void fl_note_launch(fl_queue *queue, uint64_t place) {
    if (!place || queue->launch_place != place)
        return;
    uint64_t *known = place_of(queue, queue->launch);
    if (fl_now() - queue->launch_began < fl_soon)
        *known = queue->launch;
    else if (*known == queue->launch)
        *known = 0;
    queue->launch_place = 0;
}
