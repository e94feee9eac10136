/* Beginning and ending a block: for its length a queue's dispatch pointer leads to a recording
 * table.
 *
 * A recording table is a copy of the driver's. In place of the queue's commands it has functions
 * that append to the recording. Commands that cannot be captured are refused. Any client's loader
 * jumps into it by the ICD rules. The tables lie in a pool that is never freed: a thread may still
 * be on its way into one when the block has ended, and is then sent on to the driver.
 *
 * Only the thread that began the block records, so a recording needs no lock; calls of other
 * threads are refused. */
#include "recording.h"

#include <sched.h>
#include <stdlib.h>

#define MOST_TABLES 512

static recording_table pool[MOST_TABLES];
/* Of the pool, and of the list of active recordings. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fl_recording *recordings;

/* A visitor of another thread does not come back in a forked child, and the one that forks is
 * counted no more. */
static void forget_visitors(void) {
    for (int i = 0; i < MOST_TABLES; i++)
        atomic_store(&pool[i].visitors, 0);
}
FL_IN_CHILD(pthread_mutex_init(&lock, NULL); forget_visitors())

recording_table *fl_recording_table(const void *dispatch) {
    uintptr_t at = (uintptr_t)dispatch - (uintptr_t)pool;
    return at < sizeof pool ? &pool[at / sizeof *pool] : NULL;
}

/* An ICD 2 driver's own table need hold no more than the tags; then word 1 leads to the loader's
 * data, which in every loader begins with a full table. */
void **fl_table_of(const void *object) {
    const fl_object *o = object;
    void **table = __atomic_load_n(&o->dispatch, __ATOMIC_ACQUIRE);
    for (recording_table *ours = fl_recording_table(table); ours;
         ours = fl_recording_table(table)) {
        void **original = atomic_load(&ours->original),
             **meanwhile = __atomic_load_n(&o->dispatch, __ATOMIC_ACQUIRE);
        if (meanwhile == table) { /* else the block has ended, and the recording table may be
                                     another queue's by now */
            table = original;
            break;
        }
        table = meanwhile;
    }
    return table[0] == FL_ICD2_TAG && o->dispatch_data ? o->dispatch_data : table;
}

int fl_is_captured(void *queue) {
    recording_table *ours =
        fl_recording_table(__atomic_load_n(&((fl_object *)queue)->dispatch, __ATOMIC_ACQUIRE));
    return ours && atomic_load(&ours->recording);
}

/* The recording, among the active ones, that knows an event; NULL if none does. */
fl_recording *fl_owner_of(const void *event) {
    FL_HOLD(lock);
    fl_recording *r = recordings;
    while (r && (!pthread_equal(r->thread, pthread_self()) || fl_node_of(r, event) == NONE))
        r = r->next;
    return r;
}

static recording_table *take_table(fl_recording *r, uint32_t index) {
    static void *recording_slots[FL_SLOTS]; /* what differs from the driver's table; filled once,
                                               under the lock */
    if (!recording_slots[SLOT_clFinish])
        fl_fill_recording_slots(recording_slots);
    queue_state *queue = &r->queues[index];
    for (int i = 0; i < MOST_TABLES; i++) {
        recording_table *t = &pool[i];
        if (t->used)
            continue;
        t->used = true;
        atomic_store(&t->original, queue->original);
        t->queue = index;
        for (int slot = 0; slot < FL_SLOTS; slot++) {
            t->slots[slot] =
                recording_slots[slot] ? recording_slots[slot] : fl_slot(queue->table, slot);
        }
        t->slots[0] = fl_stubs[0];   /* no tag: ICD 2 loaders too have to come through this table */
        atomic_store_explicit(&t->recording, r, memory_order_release);
        return t;
    }
    return NULL;
}

static cl_int exchange(fl_recording *r, cl_command_queue queue, uint32_t index) {
    queue_state *state = &r->queues[index];
    cl_command_queue_properties properties = 0;
    *state = (queue_state){.queue = queue, .table = fl_table_of(queue), .barrier = NONE};
    cl_int code = CALL(state->table, clGetCommandQueueInfo)(queue, CL_QUEUE_PROPERTIES,
                                                            sizeof properties, &properties, NULL);
    if (code != CL_SUCCESS)
        return code;
    state->in_order = !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    FL_HOLD(lock);
    state->original = __atomic_load_n(&queue->dispatch, __ATOMIC_ACQUIRE);
    bool taken = fl_recording_table(state->original) != NULL;
    recording_table *t = taken ? NULL : take_table(r, index);
    state->recording_table = t;
    if (t)
        __atomic_store_n(&queue->dispatch, t->slots, __ATOMIC_RELEASE);
    return t ? CL_SUCCESS : taken ? CL_INVALID_OPERATION : CL_OUT_OF_RESOURCES;
}

/* What is watched while the block lasts. SVM is watched for longer. */
static int (*const watches[])(void **table, fl_mapping *known) = {
    fl_watch_arguments, fl_watch_events, fl_watch_uncaptured, fl_watch_creation, fl_watch_svm};
static void (*const unwatches[])(void **table, fl_mapping *known) = {
    fl_unwatch_arguments, fl_unwatch_events, fl_unwatch_uncaptured, fl_unwatch_creation,
    fl_unwatch_svm};
enum { WATCHES = sizeof watches / sizeof *watches };

static int watch(void **table) {
    fl_mapping known = {0};
    for (int i = 0; i < WATCHES; i++) {
        int code = watches[i](table, &known);
        if (code != CL_SUCCESS) {
            while (i-- > 0)
                unwatches[i](table, &known);
            return code;
        }
    }
    return CL_SUCCESS;
}

static void unwatch(const fl_recording *r, bool svm_too) {
    fl_mapping known = {0};
    for (int i = 0; i < r->watched_count; i++)
        for (int k = 0; k < WATCHES - !svm_too; k++)
            unwatches[k](r->watched[i], &known);
}

/* Whoever has found the recording in a table is let go first: it may be with the observer, which
 * may want the GIL, so no lock is held while it is waited for. */
static void restore(fl_recording *r) {
    for (uint32_t i = 0; i < r->queue_count; i++) {
        queue_state *queue = &r->queues[i];
        recording_table *t = queue->recording_table;
        if (!t)
            continue;
        __atomic_store_n(&queue->queue->dispatch, queue->original, __ATOMIC_SEQ_CST);
        atomic_store(&t->recording, NULL);
        while (atomic_load(&t->visitors))
            sched_yield();
    }
    FL_HOLD(lock);
    for (uint32_t i = 0; i < r->queue_count; i++)
        if (r->queues[i].recording_table) {
            r->queues[i].recording_table->used = false;
            r->queues[i].recording_table = NULL;
        }
    for (fl_recording **at = &recordings; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
}

/* Begin a block. All queues are of one context. NULL: *code says why, and nothing has changed. */
fl_recording *fl_begin(void *const *queues, uint32_t count, void *context, int allow_unseen,
                       fl_observer *observer, void *cookie, int (*holds_gil)(void), int *code) {
    fl_recording *r = count && count <= MOST_QUEUES ? calloc(1, sizeof *r) : NULL;
    *code = count && count <= MOST_QUEUES ? CL_OUT_OF_HOST_MEMORY : CL_INVALID_VALUE;
    if (!r)
        return NULL;
    r->thread = pthread_self();
    r->context = context;
    r->table = fl_table_of(context);
    r->allow_unseen = allow_unseen;
    r->observer = observer;
    r->cookie = cookie;
    r->holds_gil = holds_gil;
    void **tables[2] = {((fl_object *)context)->dispatch, ((fl_object *)context)->dispatch_data};
    int table_count = tables[0][0] == FL_ICD2_TAG && tables[1] ? 2 : 1;
    int added = fl_keep_add(&r->keep, context, FL_KEEP_CONTEXT, false);
    for (uint32_t i = 0; added >= 0 && i < count; i++)
        added = fl_keep_add(&r->keep, queues[i], FL_KEEP_QUEUE, false);
    *code = added < 0 ? added : CL_SUCCESS;
    while (*code == CL_SUCCESS && r->watched_count < table_count)
        if ((*code = watch(tables[r->watched_count])) == CL_SUCCESS) {
            r->watched[r->watched_count] = tables[r->watched_count];
            r->watched_count++;
        }
    if (*code == CL_SUCCESS) {
        pthread_mutex_lock(&lock);
        r->next = recordings;
        recordings = r;
        pthread_mutex_unlock(&lock);
        r->watches_svm = true;
    }
    for (uint32_t i = 0; *code == CL_SUCCESS && i < count; i++) {
        r->queue_count++;
        *code = exchange(r, queues[i], i);
    }
    if (*code == CL_SUCCESS) {
        atomic_store(&r->active, true);
        return r;
    }
    restore(r);
    unwatch(r, true);
    fl_keep_release(&r->keep);
    free(r);
    return NULL;
}

/* End the block: every pointer is as it was. SVM stays watched for as long as commands use it. */
void fl_end(fl_recording *r) {
    if (!atomic_exchange(&r->active, false))
        return;
    restore(r);
    bool pinned = r->pins.count > 0;
    unwatch(r, !pinned);
    r->watches_svm = pinned;
    fl_forget_events(r);
    for (uint32_t i = 0; i < r->queue_count; i++)
        free(r->queues[i].open);
}

/* Drop the recording and everything that it kept alive. */
void fl_drop(fl_recording *r) {
    fl_end(r);
    fl_unpin_all(&r->pins);
    fl_mapping known = {0};
    for (int i = 0; r->watches_svm && i < r->watched_count; i++)
        fl_unwatch_svm(r->watched[i], &known);
    for (uint32_t i = 0; i < r->command_count; i++) {
        free(r->commands[i].pattern);
        fl_release_arguments(r->commands[i].arguments);
    }
    fl_keep_release(&r->keep);
    free(r->commands);
    free(r->deps);
    free(r->pending);
    free(r->host_waits);
    free(r);
}

const fl_command *fl_commands(const fl_recording *r, uint32_t *count) {
    *count = r->command_count;
    return r->commands;
}

const uint32_t *fl_deps(const fl_recording *r, uint32_t *count) {
    *count = r->dep_count;
    return r->deps;
}

void *const *fl_pending(const fl_recording *r, uint32_t *count) {
    *count = r->pending_count;
    return r->pending;
}

/* How many objects the recording keeps alive. */
uint32_t fl_kept(const fl_recording *r) {
    return r->keep.count;
}

/* Whether it keeps memory objects that are parts of or made from others. */
int fl_has_parts(const fl_recording *r) {
    return r->keep.has_parts;
}

/* References to the samplers that it keeps, NULL if there are none. */
struct fl_keep *fl_share_samplers(const fl_recording *r) {
    fl_keep *made = calloc(1, sizeof *made);
    for (uint32_t i = 0; made && i < r->keep.count; i++)
        if (r->keep.entries[i].kind == FL_KEEP_SAMPLER)
            fl_keep_add(made, r->keep.entries[i].object, FL_KEEP_SAMPLER, false);
    if (!made || made->count)
        return made;
    fl_release_samplers(made);
    return NULL;
}

void fl_release_samplers(struct fl_keep *samplers) {
    fl_keep_release(samplers);
    free(samplers);
}

/* How many SVM pointers it pins. */
uint32_t fl_pinned(const fl_recording *r) {
    return r->pins.count;
}

/* A recording of this thread that has not heard of what has this number, NULL if all have. Only
 * this thread begins and ends its own. */
static fl_recording *next_to_tell(uint64_t number, cl_mem memory) {
    FL_HOLD(lock);
    fl_recording *r = recordings;
    while (r && (!pthread_equal(r->thread, pthread_self()) || r->heard == number ||
                 (memory && fl_keep_has(&r->keep, memory))))
        r = r->next;
    if (r)
        r->heard = number;
    return r;
}

/* Tell this thread's recordings, but none that keeps `memory`. The list is looked at anew each
 * time, because an observer may end a recording. */
static void tell_all(int what, cl_mem memory, size_t detail) {
    static _Atomic uint64_t numbers;
    uint64_t number = atomic_fetch_add(&numbers, 1) + 1;
    fl_recording *r;
    while ((r = next_to_tell(number, memory)))
        r->observer(r->cookie, what, 0, NULL, detail);
}

void fl_tell_memory(cl_mem memory) { tell_all(FL_ASK_PASSED, memory, 0); }

void fl_tell_parameter(uint64_t id) { tell_all(FL_ASK_PARAMETER, NULL, (size_t)id); }

void fl_tell_call(cl_context context, enum fl_ask what, int slot, void *object) {
    pthread_mutex_lock(&lock);
    fl_recording *r = recordings;
    while (r && (!pthread_equal(r->thread, pthread_self()) || r->context != context))
        r = r->next;
    pthread_mutex_unlock(&lock);
    if (r)
        r->observer(r->cookie, (int)what, (uint32_t)slot, object, 0);
}

int fl_is_recording(void) {
    FL_HOLD(lock);
    fl_recording *r = recordings;
    while (r && !pthread_equal(r->thread, pthread_self()))
        r = r->next;
    return r != NULL;
}
