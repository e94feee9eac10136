/* What a runtime calls for each submission of a command-buffer, in the adapter on Level Zero.
 *
 * C enqueues a command-buffer that is one append of a list, without a wait list, where Python has
 * enqueued it before (OneAppendPath). It makes the event, waits for it, and ends it. Everything
 * else is Python's. The numbers of a handle (calls.h) are:
 *
 * | queue | 0 | fl_lz_queue | | |
 * | command-buffer | 0 | fl_lz_buffer | | fl_answers |
 * | event of C's | the event | fl_lz_context | fl_lz_queue | its command, FL_LEVEL_ZERO | */
#include "calls.h"
#include "interrupts.cdef.h"
#include "level_zero.cdef.h"
#include "ze_slots.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

typedef int32_t append_lists(uintptr_t list, uint32_t count, uintptr_t *lists, uintptr_t signal,
                             uint32_t wait_count, uintptr_t *waits);
typedef int32_t of_event(uintptr_t event);
typedef int32_t until(uintptr_t object, uint64_t timeout);

/* A function of the driver, through the layers that trace it. */
#define ZE(context, type, name)                                                                    \
    ((type *)(*(void *const *const *)(context)->table)[SLOT_##name])

enum { TRIES = 4 };   /* events that are looked at before Python makes more */

/* --- locks --- */

/* Who this is: an address has 48 bits. A lock that was taken before a fork is free in the child. */
static uintptr_t me(void) { return (uintptr_t)fl_forks() << 48 ^ (uintptr_t)pthread_self(); }

/* Returns 1 if it was entered, 0 if this thread has it, -1 if another one has. */
static int try_lock(fl_lz_lock *lock) {
    uintptr_t mine = me(), owner = __atomic_load_n(&lock->owner, __ATOMIC_ACQUIRE);
    if (owner == mine)
        return 0;
    if (owner >> 48 == mine >> 48 && owner)
        return -1;
    return __atomic_compare_exchange_n(&lock->owner, &owner, mine, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED)
               ? 1
               : -1;
}

bool fl_lz_enter(fl_lz_lock *lock) {
    int found;
    while ((found = try_lock(lock)) < 0)
        sched_yield();
    return found;
}

void fl_lz_leave(fl_lz_lock *lock) { __atomic_store_n(&lock->owner, 0, __ATOMIC_RELEASE); }

/* --- events --- */

static void put(fl_lz_context *context, fl_lz_event event) {
    context->events[(context->first + context->count++) % context->room] = event;
}

static fl_lz_event take(fl_lz_context *context) {
    fl_lz_event event = context->events[context->first];
    context->first = (context->first + 1) % context->room;
    context->count--;
    return event;
}

bool fl_lz_make_room(fl_lz_context *context, uint32_t room) {
    fl_lz_context other = {.events = malloc(room * sizeof *other.events), .room = room};
    if (!other.events)
        return false;
    bool entered = fl_lz_enter(&context->lock);
    while (context->count)
        put(&other, take(context));
    fl_lz_event *before = context->events;
    context->events = other.events;
    context->room = room, context->first = 0, context->count = other.count;
    if (entered)
        fl_lz_leave(&context->lock);
    free(before);
    return true;
}

void fl_lz_give_event(fl_lz_context *context, uintptr_t ze, bool used) {
    bool entered = fl_lz_enter(&context->lock);
    put(context, (fl_lz_event){ze, used});
    if (entered)
        fl_lz_leave(&context->lock);
}

fl_lz_context *fl_lz_new_context(uintptr_t table, bool counts) {
    fl_lz_context *context = calloc(1, sizeof *context);
    if (context)
        context->table = table, context->counts = counts;
    return context;
}

void fl_lz_free_context(fl_lz_context *context) {
    free(context->events);
    free(context);
}

static fl_lz_event next_event(fl_lz_context *context) {
    fl_lz_event event = {0, false};
    if (fl_lz_enter(&context->lock)) {
        if (context->count)
            event = take(context);
        fl_lz_leave(&context->lock);
    }
    return event;
}

/* Whether its command has ended, and it can be used again. */
static bool is_free(fl_lz_context *context, uintptr_t event) {
    return !ZE(context, of_event, zeEventQueryStatus)(event) &&
           (context->counts || !ZE(context, of_event, zeEventHostReset)(event));
}

/* An event that is not signaled or is counter-based, or 0: Python has to make more. */
static uintptr_t take_event(fl_lz_context *context) {
    for (int i = 0; i < TRIES; i++) {
        fl_lz_event event = next_event(context);
        if (!event.ze)
            break;
        if (!event.used || is_free(context, event.ze))
            return event.ze;
        fl_lz_give_event(context, event.ze, true);   /* its command runs, or has failed */
    }
    context->wants = 1;
    return 0;
}

void fl_lz_end_event(const uintptr_t *words) {
    fl_lz_give_event((fl_lz_context *)words[STRUCT], words[CL_OBJECT], true);
}

/* --- command-buffers --- */

/* Appends its list. The event's command has the place of the append. */
static bool append(fl_lz_queue *queue, fl_lz_buffer *buffer, uintptr_t event) {
    if (buffer->around != queue ||
        ZE(queue->context, append_lists, zeCommandListImmediateAppendCommandListsExp)(
            queue->list, 1, &buffer->list, event, 0, NULL))
        return false;
    __atomic_fetch_add(&queue->pending, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(&buffer->pending, 1, __ATOMIC_SEQ_CST);
    return true;
}

static bool append_alone(fl_lz_queue *queue, fl_lz_buffer *buffer, uintptr_t event) {
    bool done = false;
    if (try_lock(&buffer->lock) <= 0)
        return false;
    if (try_lock(&queue->lock) > 0) {
        done = append(queue, buffer, event);
        fl_lz_leave(&queue->lock);
    }
    fl_lz_leave(&buffer->lock);
    return done;
}

static int32_t enqueue(uint32_t adapter, fl_lz_queue *queue, fl_lz_buffer *buffer,
                       uintptr_t *out) {
    fl_lz_context *context = queue->context;
    uintptr_t made = fl_reserve(adapter), event = made && buffer->around ? take_event(context) : 0;
    if (!event || !append_alone(queue->around, buffer, event)) {
        fl_give_back(adapter, made);
        if (event)
            fl_lz_give_event(context, event, false);
        return FL_TO_PYTHON;
    }
    const uintptr_t words[] = {event, (uintptr_t)context, (uintptr_t)queue,
                               UR_COMMAND_ENQUEUE_COMMAND_BUFFER_EXP | FL_LEVEL_ZERO};
    fl_begin_made(made, adapter, kind_ur_event_handle_t, words);
    if (out)
        *out = made;
    else
        fl_let_go(adapter, made, kind_ur_event_handle_t);
    return 0;
}

int32_t fl_lz_urEnqueueCommandBufferExp(PARAMETERS_urEnqueueCommandBufferExp) {
    const unsigned kind = kind_ur_exp_command_buffer_handle_t;
    if (numEventsInWaitList || phEventWaitList)
        return FL_TO_PYTHON;
    fl_lz_queue *queue = fl_hold_struct(adapter, hQueue, kind_ur_queue_handle_t);
    if (!queue)
        return FL_TO_PYTHON;
    fl_lz_buffer *buffer = fl_hold_struct(adapter, hCommandBuffer, kind);
    int32_t code = buffer && queue->around ? enqueue(adapter, queue, buffer, phEvent)
                                           : FL_TO_PYTHON;
    if (buffer)
        fl_let_go(adapter, hCommandBuffer, kind);
    fl_let_go(adapter, hQueue, kind_ur_queue_handle_t);
    return code;
}

/* --- waits --- */

/* The main thread of a Python program waits there, where Ctrl-C ends its waits. */
static int32_t wait_for_event(fl_lz_context *context, uintptr_t event) {
    return fl_waits_here() ? ZE(context, until, zeEventHostSynchronize)(event, UINT64_MAX)
                           : ZE(context, of_event, zeEventQueryStatus)(event);
}

int32_t fl_lz_urEventWait(uint32_t adapter, uint32_t numEvents, const uintptr_t *phEventWaitList) {
    int32_t code = 0;
    if (!numEvents || !phEventWaitList)
        return FL_TO_PYTHON;
    for (uint32_t i = 0; i < numEvents && !code; i++) {
        const uintptr_t *words = fl_hold_made(adapter, phEventWaitList[i], kind_ur_event_handle_t);
        if (!words)
            return FL_TO_PYTHON;
        code = wait_for_event((fl_lz_context *)words[STRUCT], words[CL_OBJECT]);
        fl_let_go(adapter, phEventWaitList[i], kind_ur_event_handle_t);
    }
    return code ? FL_TO_PYTHON : 0;
}

/* Another thread may wait at the same time. So the commands are pending until the wait is over. */
static int32_t finish(fl_lz_queue *queue) {
    uint64_t pending = __atomic_load_n(&queue->pending, __ATOMIC_SEQ_CST);
    if (!queue->only_c)
        return FL_TO_PYTHON;
    if (!pending)
        return 0;
    if (!fl_waits_here())
        return FL_TO_PYTHON;
    int32_t code =
        ZE(queue->context, until, zeCommandListHostSynchronize)(queue->list, UINT64_MAX);
    if (!code) /* unless more was enqueued meanwhile */
        __atomic_compare_exchange_n(&queue->pending, &pending, 0, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
    return code;
}

int32_t fl_lz_urQueueFinish(uint32_t adapter, uintptr_t hQueue) {
    fl_lz_queue *queue = fl_hold_struct(adapter, hQueue, kind_ur_queue_handle_t);
    if (!queue)
        return FL_TO_PYTHON;
    int32_t code = finish(queue);
    if (!code && queue->around && queue->around != queue)
        code = finish(queue->around);
    fl_let_go(adapter, hQueue, kind_ur_queue_handle_t);
    return code ? FL_TO_PYTHON : 0;
}
