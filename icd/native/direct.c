/* The engine `direct`: commands as scripts (direct_script.c), which a queue runs as one native
 * kernel, or the caller's own thread.
 *
 * clEnqueueNativeKernel gets no list of memory objects: PoCL 3.0 and 3.1 drop duplicates in it and
 * put parents in the place of sub-buffers. A script holds a reference to every buffer that it has
 * the address of. */
#define _GNU_SOURCE
#include "direct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Scripts of programs that are gone, which queues still have to run. */
static struct {
    pthread_mutex_t lock;
    fl_script *scripts;
} left = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(left.lock)

/* Whether a queue still has to run a script. One whose wait list failed never runs. */
static bool in_flight(fl_script *script) {
    if (!script->event)
        return false;
    if (!fl_has_ended(script->event))
        return true;
    CALL(fl_table_of(script->event), clReleaseEvent)(script->event);
    script->event = NULL;
    return false;
}

/* The scripts of a list that no queue has are given up, and the first large enough one is kept for
 * the caller. */
static fl_script *sweep(fl_script **list, size_t wanted) {
    fl_script *spare = NULL;
    while (*list) {
        fl_script *script = *list;
        if (in_flight(script)) {
            list = &script->next;
            continue;
        }
        *list = script->next;
        if (wanted && !spare && script->size >= wanted)
            spare = script;
        else
            fl_free_script(script);
    }
    return spare;
}

/* What waits here is freed without the lock: a release may call the program back. */
static void leave(fl_script *scripts) {
    fl_script *all = scripts;
    pthread_mutex_lock(&left.lock);
    fl_script **end = &all;
    while (*end)
        end = &(*end)->next;
    *end = left.scripts;
    left.scripts = NULL;
    pthread_mutex_unlock(&left.lock);
    sweep(&all, 0);
    if (!all)
        return;
    pthread_mutex_lock(&left.lock);
    for (end = &all; *end; end = &(*end)->next)
        ;
    *end = left.scripts;
    left.scripts = all;
    pthread_mutex_unlock(&left.lock);
}

/* Take another script with its cells; what these are at present goes into the next enqueue. false:
 * there is no memory, and nothing has changed. */
static bool take(fl_direct *d, fl_script *script, fl_direct_cells *cells) {
    fl_ticket *made = malloc(sizeof *made + cells->size);
    bool fine = made != NULL;
    for (uint32_t i = 0; fine && i < cells->count; i++) {
        const struct fl_direct_cell *one = &cells->list[i];
        fine = fl_value_of_cell(d, &script->memory, one->cell, one->cell->bytes,
                                made->values + one->at) == FL_DIRECT_FINE;
    }
    if (!fine) {
        free(made);
        return false;
    }
    made->series = NULL;
    free(d->ticket);
    fl_forget_cells(&d->cells);
    d->ticket = made;
    d->cells = *cells;
    d->script = script;
    return true;
}

/* Make a script of the commands as they are now; the answer is a code. The one before it is the
 * caller's. */
static int make(fl_direct *d) {
    fl_direct_cells cells;
    int code = CL_OUT_OF_HOST_MEMORY;
    fl_script *made = fl_list_cells(&cells, d->commands, d->count)
                         ? fl_make_script(d, &cells, d->script, &code)
                         : NULL;
    if (made && take(d, made, &cells))
        return CL_SUCCESS;
    fl_free_script(made);
    fl_forget_cells(&cells);
    return code == CL_SUCCESS ? CL_OUT_OF_HOST_MEMORY : code;
}

fl_direct *fl_new_direct(fl_direct_device *device, fl_group_function *functions,
                         uint32_t function_count, const fl_command *commands, uint32_t count,
                         int fenced, const uint32_t *levels, int *code) {
    fl_direct *d = malloc(sizeof *d);
    *code = CL_OUT_OF_HOST_MEMORY;
    if (!d)
        return NULL;
    *d = (fl_direct){.device = device,
                     .functions = functions,
                     .function_count = function_count,
                     .commands = commands,
                     .count = count,
                     .levels = levels,
                     .fenced = fenced != 0};
    *code = make(d);
    if (*code != CL_SUCCESS) {
        free(d);
        return NULL;
    }
    leave(NULL);
    return d;
}

void fl_release_direct(fl_direct *d) {
    fl_free_series(&d->ticket->series, true);   /* that nobody has enqueued */
    d->script->next = d->retired;
    leave(d->script);
    fl_forget_cells(&d->cells);
    free(d->ticket);
    free(d);
}

void fl_release_direct_scripts(void) { leave(NULL); }

/* A kernel may have read beyond what its launch may use: PoCL says so from 7.1 on. It is told once.
 */
static cl_int failure_of(fl_script *script) {
    return atomic_exchange(&script->failed, 0) ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

static void run_ticket(void *arguments) {
    const fl_ticket *t = arguments;
    fl_run_script(t->script, t->times, t->values, t->series, NULL);
    if (t->series)
        atomic_store(&t->series->done, true);
}

/* The next enqueue takes values of Parameters for each of its times. */
int fl_take_series_direct(void *self, const fl_value *values, uint32_t count, uint32_t times) {
    fl_direct *d = self;
    fl_free_series(&d->ticket->series, true);
    if (times)
        d->ticket->series = fl_new_series(d, &d->script->memory, values, count, times);
    return d->ticket->series || !times ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

/* It is one command of the queue, and stands between two barriers if it is fenced. */
int fl_enqueue_direct(void *self, void *const *queues, uint32_t queue_count, uint32_t times,
                      uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    fl_direct *d = self;
    fl_script *script = d->script;
    fl_ticket *t = d->ticket;
    cl_event made = NULL;
    void **table = fl_table_of(queues[0]);
    (void)queue_count;
    *failed = UINT32_MAX;
    t->script = script;
    t->times = times;
    cl_int code = failure_of(script);
    if (code == CL_SUCCESS && d->fenced) {
        code = fl_put_barrier(queues[0], 0, wait_count, wait_list, NULL);
        wait_count = 0;
    }
    if (code == CL_SUCCESS)
        code = CALL(table, clEnqueueNativeKernel)(
            queues[0], (void *)run_ticket, t, sizeof *t + d->cells.size, 0, NULL, NULL, wait_count,
            wait_count ? (const cl_event *)wait_list : NULL, &made);
    if (code == CL_SUCCESS && d->fenced)
        code = fl_put_barrier(queues[0], 0, 0, NULL, event);
    else if (code == CL_SUCCESS && event) {
        *event = made;
        CALL(table, clRetainEvent)(made);
    }
    if (!made)
        return code;
    if (t->series) {
        fl_free_series(&script->series, !in_flight(script));
        t->series->next = script->series;
        script->series = t->series;
        t->series = NULL;
    }
    if (script->event)   /* what was enqueued before ends before this does */
        fl_drop_event(script->event);
    script->event = made;
    return code;
}

int fl_run_direct(void *self, uint32_t times) {
    fl_direct *d = self;
    fl_run_script(d->script, times, d->ticket->values, NULL, NULL);
    return failure_of(d->script);
}

int fl_run_direct_until(void *self, uint32_t times, void *flag, size_t offset, int wanted,
                        int first, uint32_t *ran, uint32_t *stopped) {
    fl_direct *d = self;
    uint32_t word;
    int reason;
    const struct fl_place *place =
        fl_find_memory(d->device, &d->script->memory, NULL, flag, &reason);
    if (!place || (place->flags & (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)) ||
        place->size < sizeof word || offset > place->size - sizeof word)
        return FL_BUILD_ANEW;
    fl_stop stop = {.word = place->address + offset, .wanted = wanted != 0};
    memcpy(&word, stop.word, sizeof word);
    if (first && (word != 0) == stop.wanted)
        times = 0;
    *ran = fl_run_script(d->script, times, d->ticket->values, d->ticket->series, &stop);
    memcpy(&word, stop.word, sizeof word);
    *stopped = times ? stop.stopped : (word != 0) == stop.wanted;
    return failure_of(d->script);
}

void *fl_find_address_direct(void *self, void *memory) {
    const uint64_t refused = CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS;
    fl_direct *d = self;
    int reason;
    const struct fl_place *place =
        fl_find_memory(d->device, &d->script->memory, NULL, memory, &reason);
    return place && !(place->flags & refused) ? place->address : NULL;
}

/* A copy of the script to change, if a queue has it. */
static bool own(fl_direct *d) {
    if (!in_flight(d->script))
        return true;
    fl_script *spare = sweep(&d->retired, d->script->used + d->script->scratch);
    fl_script *made = fl_copy_script(d->script, spare);
    if (spare && made != spare)
        fl_free_script(spare);
    if (!made)
        return false;
    d->script->next = d->retired;
    d->retired = d->script;
    d->script = made;
    return true;
}

/* A new script of everything; the old one is freed once no queue has it. */
static int make_anew(fl_direct *d) {
    fl_script *old = d->script;
    int code = make(d);
    if (code != CL_SUCCESS)
        return code == CL_OUT_OF_HOST_MEMORY ? code : FL_BUILD_ANEW;
    old->next = d->retired;
    d->retired = old;
    sweep(&d->retired, 0);
    return CL_SUCCESS;
}

/* What cannot be run directly any more is the driver's to run, or to refuse: then everything is
 * built anew. */
int fl_update_direct(void *self, uint32_t command, int relaunched) {
    fl_direct *d = self;
    (void)relaunched;
    if (!own(d))
        return CL_OUT_OF_HOST_MEMORY;
    int reason = fl_store(d, d->script, command);
    if (reason == FL_DIRECT_FINE)
        return CL_SUCCESS;
    if (reason == FL_DIRECT_NO_PLACE)
        return make_anew(d);
    return reason == FL_DIRECT_NO_ROOM ? CL_OUT_OF_HOST_MEMORY : FL_BUILD_ANEW;
}

/* The next enqueue stores it in the cell's place. */
int fl_set_cell_of_direct(void *self, const fl_cell *cell) {
    fl_direct *d = self;
    const struct fl_direct_cell *place = fl_place_of_cell(&d->cells, cell);
    if (!place)
        return CL_SUCCESS;
    if (cell->conversion == FL_AS_MEMORY && fl_has_many(d->script))
        return make_anew(d);
    int reason =
        fl_value_of_cell(d, &d->script->memory, cell, cell->bytes, d->ticket->values + place->at);
    return reason == FL_DIRECT_FINE      ? CL_SUCCESS
           : reason == FL_DIRECT_NO_ROOM ? CL_OUT_OF_HOST_MEMORY
                                         : FL_BUILD_ANEW;
}

int fl_direct_times(fl_direct *d, uint32_t *times, uint32_t *shared_times, uint64_t *groups) {
    const fl_script *script = d->script;
    uint32_t passes = atomic_load(&script->passes);
    bool measures = passes < FL_KNOWN;   /* after the last of them nothing is written */
    if (passes < FL_MEASURED ||
        (measures && (in_flight(d->script) || fl_may_share(script, UINT64_MAX))))
        return 0;
    bool has_all = script->limits.threads < FL_MOST_THREADS;   /* that the driver has */
    for (uint32_t place = 0; place < d->count;) {
        const fl_level level = fl_level_at(script, place);
        const fl_direct_step *first = fl_step_at(script, place);
        double part = first->together && level.can_share
                          ? (double)first->shared_ticks / (double)level.ticks
                          : 1;
        bool was_tried = has_all && level.can_share && level.is_long;
        for (uint32_t end = place + level.count; place < end; place++) {
            const fl_direct_step *s = fl_step_at(script, place);
            const size_t *g = s->kind == FL_STEP_LAUNCH ? s->context->groups : NULL;
            size_t number = (size_t)(s - fl_steps(script));
            times[number] = s->ticks;
            shared_times[number] = (uint32_t)(s->ticks * part);
            groups[number] = was_tried ? 0 : g ? g[0] * g[1] * g[2] : 1;
        }
    }
    return 1;
}

uint32_t fl_direct_shared(const fl_direct *d, uint32_t *threads) {
    uint32_t shared = 0;
    *threads = d->script->shares;
    for (uint32_t place = 0; d->script->shares && place < d->count;) {
        const fl_level level = fl_level_at(d->script, place);
        shared += fl_step_at(d->script, place)->together && level.can_share ? level.count : 0;
        place += level.count;
    }
    return shared;
}

size_t fl_stack_left(void) {
    static _Thread_local char *low;
    pthread_attr_t attributes;
    char here;
    if (!low && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *base;
        size_t size;
        if (pthread_attr_getstack(&attributes, &base, &size) == 0)
            low = base;
        pthread_attr_destroy(&attributes);
    }
    return low && &here > low ? (size_t)(&here - low) : 0;
}
