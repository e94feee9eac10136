/* Replay: a sequence is a flat array of steps, walked without the GIL. Each step is one call of the
 * driver's own table.
 *
 * On an in-order queue the steps carry no events at all; a step signals only if a step on another
 * queue, or on an out-of-order queue, has to wait for it. Steps that begin also wait for the
 * caller's wait list, the last gives the caller's event. Kernels are the sequence's own
 * (sequence_kernels.c). */
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* The driver's own functions, also while somebody watches them, or those that its USM has instead.
 */
typedef struct functions {
    fn_clSetKernelArg *set;
    fn_clSetKernelArgSVMPointer *set_pointer;
    fn_clEnqueueSVMMemcpy *clEnqueueSVMMemcpy;
    fn_clEnqueueSVMMemFill *clEnqueueSVMMemFill;
} functions;

/* Make a copy of a rectangle one between what its buffers are parts of, at shifted origins. */
static cl_int move_to_parents(fl_command *copy) {
    void **sides[] = {&copy->source, &copy->target};
    cl_int code = CL_SUCCESS;
    for (int i = 0; i < 2 && code == CL_SUCCESS; i++) {
        uint64_t told[4];
        code = fl_find_root(*sides[i], told);
        *sides[i] = (void *)(uintptr_t)told[0];
        copy->n[3 * i] += told[1];
    }
    return code;
}

static cl_int issue(const fl_sequence *p, const fl_command *c, const functions *f, void **t,
                    cl_command_queue q, cl_uint waits, const cl_event *list, cl_event *event) {
    fl_command moved;
    if (c->op == FL_COPY_RECT && p->in_parents) {
        moved = *c;
        c = &moved;
        cl_int code = move_to_parents(&moved);
        if (code != CL_SUCCESS)
            return code;
    }
    const size_t *n = c->n;
    switch (c->op) {
#include "replay_operations.h"
    }
    return CL_INVALID_OPERATION;
}

static cl_int put_marker(void *queue, cl_uint waits, const cl_event *list, cl_event *event) {
    return CALL(fl_table_of(queue), clEnqueueMarkerWithWaitList)(queue, waits, list, event);
}

/* Whatever comes later in the queue comes after everything before this, and after the list. On
 * PoCL's out-of-order queues a barrier with a wait list does not wait for earlier barriers. There
 * a marker waits for the list, and a barrier without one for the marker. */
int fl_put_barrier(void *queue, int in_order, uint32_t waits, void *const *listed, void **event) {
    void **t = fl_table_of(queue);
    const cl_event *list = (const cl_event *)listed;
    cl_event made[2] = {NULL};
    cl_int code = CL_SUCCESS;
    if (waits && !in_order) {
        code = put_marker(queue, waits, list, fl_holds_events ? &made[0] : NULL);
        waits = 0;
    }
    if (code == CL_SUCCESS)
        code = CALL(t, clEnqueueBarrierWithWaitList)(queue, waits, waits ? list : NULL,
                                                     event             ? (cl_event *)event
                                                     : fl_holds_events ? &made[1]
                                                                       : NULL);
    for (int i = 0; i < 2; i++)
        if (made[i])
            fl_hold_event(made[i]);
    return code;
}

/* A place in an out-of-order queue: after its earlier barriers and the list, but after nothing
 * else. A marker without a list would come after everything. `by_transfer`: so would one whose list
 * is complete, or one with a list does not wait for earlier barriers. A transfer does neither. */
int fl_put_place(void *queue, int by_transfer, uint32_t waits, void *const *list, void **event) {
    void **t = fl_table_of(queue);
    cl_event done = NULL;
    cl_mem memory = NULL;
    cl_context context = NULL;
    cl_int code = CL_SUCCESS;
    if (!waits || by_transfer)
        code = CALL(t, clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof context, &context,
                                              NULL);
    if (code == CL_SUCCESS && by_transfer) {
        memory = CALL(t, clCreateBuffer)(context, CL_MEM_READ_WRITE, 1, NULL, &code);
    } else if (code == CL_SUCCESS && !waits) {
        done = CALL(t, clCreateUserEvent)(context, &code);
        if (done)
            code = CALL(t, clSetUserEventStatus)(done, CL_COMPLETE);
        waits = 1, list = (void *const *)&done;
    }
    if (code == CL_SUCCESS && memory)
        code = CALL(t, clEnqueueMigrateMemObjects)(queue, 1, &memory, 0, waits,
                                                   waits ? (const cl_event *)list : NULL,
                                                   (cl_event *)event);
    else if (code == CL_SUCCESS)
        code = put_marker(queue, waits, (const cl_event *)list, (cl_event *)event);
    if (memory)   /* SPEC clReleaseMemObject: the command keeps it */
        CALL(t, clReleaseMemObject)(memory);
    if (done)
        CALL(t, clReleaseEvent)(done);
    return code;
}

/* Room for the events of one pass, `externals` after them, and for the longest wait list. Where a
 * wait runs commands, the list has room for all events. */
typedef struct workspace {
    cl_event *signals;     /* by step; NULL where none */
    cl_event *list;
} workspace;

static void release_signals(const fl_sequence *p, workspace *w) {
    for (uint32_t i = 0; i < p->step_count; i++)
        if (w->signals[i]) {
            fl_drop_event(w->signals[i]);
            w->signals[i] = NULL;
        }
}

/* The caller gets the events of the exported steps. */
static void export_signals(const fl_sequence *p, workspace *w) {
    for (uint32_t i = 0; i < p->export_count; i++) {
        p->exported[i] = w->signals[p->exports[i]];
        CALL(fl_table_of(p->exported[i]), clRetainEvent)(p->exported[i]);
    }
}

/* All events of our own queues. Those of the caller's queue come first or last. */
static void offer_help(const fl_sequence *p, workspace *w, void *queue, cl_event end) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->step_count; i++)
        if (w->signals[i] && p->steps[i].queue)
            w->list[count++] = w->signals[i];
    fl_offer_help(p, queue, count, (void *const *)w->list, end);
}

/* The wait list of a step: earlier steps, and `head` events more. */
static uint32_t gather(const workspace *w, const uint32_t *steps, uint32_t count, uint32_t head,
                       const cl_event *head_list) {
    for (uint32_t i = 0; i < count; i++)
        w->list[i] = w->signals[steps[i]];
    for (uint32_t i = 0; i < head; i++)
        w->list[count + i] = head_list[i];
    return count + head;
}

static cl_int set(const functions *f, cl_kernel kernel, const fl_set *sets, uint32_t count) {
    cl_int code = CL_SUCCESS;
    for (const fl_set *s = sets; s < sets + count && code == CL_SUCCESS; s++)
        code = s->svm ? f->set_pointer(kernel, s->index, s->value)
                      : f->set(kernel, s->index, s->size, s->inside ? s->bytes : s->value);
    return code;
}

/* Every kernel as its last launch leaves it: before the first replay, after a failure, and where an
 * update has changed a last launch. */
static cl_int make_ready(const fl_sequence *p, const functions *f) {
    const fl_prepared *made = p->prepared;
    cl_int code = CL_SUCCESS;
    for (uint32_t k = 0; k < made->copied.count && code == CL_SUCCESS; k++) {
        if (made->last_step[k] == UINT32_MAX)
            continue;
        const fl_arguments *arguments = p->commands[p->steps[made->last_step[k]].command].arguments;
        fl_set *sets = calloc(arguments->count + 1, sizeof *sets);
        if (!sets)
            return CL_OUT_OF_HOST_MEMORY;
        code = set(f, made->kernels[k], sets, fl_differences(NULL, arguments, sets));
        free(sets);
    }
    return code;
}

/* What the cells hold now, in the kernels whose last launch leaves a cell in. */
static cl_int refresh(const fl_sequence *p, const functions *f) {
    const fl_prepared *made = p->prepared;
    cl_int code = CL_SUCCESS;
    for (uint32_t k = 0; k < made->copied.count && code == CL_SUCCESS; k++) {
        if (made->last_step[k] == UINT32_MAX)
            continue;
        const fl_arguments *arguments = p->commands[p->steps[made->last_step[k]].command].arguments;
        for (uint32_t i = 0; i < arguments->count && code == CL_SUCCESS; i++)
            if (arguments->list[i].cell)
                code =
                    f->set(made->kernels[k], i, arguments->list[i].size, arguments->list[i].value);
    }
    return code;
}

static functions functions_of(const fl_sequence *p, const void *object) {
    void **t = fl_table_of(object);
    return (functions){
        DRIVER(object, clSetKernelArg),
        (fn_clSetKernelArgSVMPointer *)(p->set_pointer
                                            ? p->set_pointer
                                            : fl_patched(object, SLOT_clSetKernelArgSVMPointer)),
        (fn_clEnqueueSVMMemcpy *)(p->copy_memory ? p->copy_memory
                                                 : fl_slot(t, SLOT_clEnqueueSVMMemcpy)),
        (fn_clEnqueueSVMMemFill *)(p->fill_memory ? p->fill_memory
                                                  : fl_slot(t, SLOT_clEnqueueSVMMemFill)),
    };
}

static bool is_order(uint16_t op) {
    return op == FL_MARKER || op == FL_BARRIER || op == FL_HINT;
}

static bool is_empty(const fl_launch *l) {
    return !l->global[0] || (l->work_dim > 1 && !l->global[1]) ||
           (l->work_dim > 2 && !l->global[2]);
}

static cl_int launch(const fl_sequence *p, const fl_launch *l, const fl_command *c,
                     const functions *f, void **t, cl_command_queue q, cl_uint waits,
                     const cl_event *list, cl_event *event) {
    cl_int code = set(f, l->kernel, p->prepared->sets + l->first_set, l->set_count);
    if (code != CL_SUCCESS)
        return code;
    if (is_empty(l))   /* it only has its place in the order: drivers divide by its sizes */
        return waits || event ? put_marker(q, waits, list, event) : CL_SUCCESS;
    return CALL(t, clEnqueueNDRangeKernel)(q, l->kernel, l->work_dim, l->has_offset ? c->n : NULL,
                                           l->global, l->has_local ? l->local : NULL, waits, list,
                                           event);
}

/* What the next launches need is on its way while the driver works on this one, and leaves little
 * else in the caches. */
static void fetch(const fl_sequence *p, uint32_t step) {
    const fl_launch *l = &p->prepared->launches[step];   /* there is one more than steps */
    __builtin_prefetch(p->prepared->sets + l[1].first_set);
    if (step + 2 < p->step_count)
        __builtin_prefetch(l + 2);
}

/* A step that moves and launches nothing. In a replay that is beside the caller's commands a
 * barrier of the graph orders no others: its steps wait for each other by events. */
static cl_int order(const fl_sequence *p, const fl_step *s, uint16_t op, cl_command_queue q,
                    cl_uint waits, const cl_event *list, cl_event *event) {
    if (p->beside && (s->begins || (p->by_transfer && !s->queue)))
        return fl_put_place(q, p->by_transfer, waits, (void *const *)list, (void **)event);
    bool is_marker = op != FL_BARRIER || (p->beside && (s->command != UINT32_MAX || !s->queue));
    return is_marker ? put_marker(q, waits, list, event)
                     : fl_put_barrier(q, !p->fenced || s->queue, waits, (void *const *)list,
                                      (void **)event);
}

/* One pass over the steps. `head_list` goes before everything, and before the end once more: some
 * drivers run what comes after a failed command in its queue, and then the end has to fail, too. */
static cl_int pass(const fl_sequence *p, const functions *f, void *const *queues, workspace *w,
                   cl_uint head, const cl_event *head_list, cl_event *event, uint32_t *failed) {
    void **table = fl_table_of(queues[0]);   /* all queues are of one driver */
    const fl_step *steps = p->steps;
    uint32_t last = p->step_count - 1;
    for (uint32_t i = 0; i <= last; i++) {
        const fl_step *s = &steps[i];
        void *queue = queues[s->queue];
        bool ends = i == last && !p->final_wait_count, outside = s->begins || ends;
        const cl_event *list = outside ? head_list : NULL;
        cl_uint waits = outside ? head : 0;
        if (s->wait_count) {
            waits = gather(w, p->waits + s->first_wait, s->wait_count, waits, list);
            list = w->list;
        }
        const fl_command *command = s->command == UINT32_MAX ? NULL : &p->commands[s->command];
        const fl_launch *l = &p->prepared->launches[i];
        fetch(p, i);
        cl_event spare = NULL, *out = s->signals ? &w->signals[i] : ends ? event : NULL;
        if (!out && fl_holds_events)
            out = &spare;
        bool only_orders = !command || is_order(command->op);
        cl_int code =
            l->kernel ? launch(p, l, command, f, table, queue, waits, list, out)
            : only_orders
                ? order(p, s, command ? command->op : FL_BARRIER, queue, waits, list, out)
                : issue(p, command, f, table, queue, waits, list, out);
        if (code != CL_SUCCESS) {
            *failed = s->command;
            return code;
        }
        if (spare)
            fl_hold_event(spare);
        if (s->signals && ends && event) {   /* exported, and the caller's as well */
            *event = w->signals[i];
            CALL(fl_table_of(*event), clRetainEvent)(*event);
        }
    }
    if (!p->final_wait_count)
        return CL_SUCCESS;
    /* Several ends: a step on queue 0 is the one that the caller sees, and what the next pass comes
     * after. */
    const fl_step end = {.command = UINT32_MAX};
    *failed = UINT32_MAX;
    cl_uint waits = gather(w, p->final_waits, p->final_wait_count, head, head_list);
    return order(p, &end, p->beside ? FL_MARKER : FL_BARRIER, queues[0], waits, w->list, event);
}

/* After a failure the caller's queue comes after what was enqueued on the other queues. The caller
 * does not know of it. Whoever waits for that queue may then give up the memory that it uses.
 */
static void join(const fl_sequence *p, void *const *queues, uint32_t queue_count) {
    void **table = fl_table_of(queues[0]);
    cl_event *ends = calloc(queue_count, sizeof *ends);
    cl_uint count = 0;
    for (uint32_t i = 1; ends && i < queue_count; i++)
        count += put_marker(queues[i], 0, NULL, &ends[count]) == CL_SUCCESS;
    if (count)
        fl_put_barrier(queues[0], !p->fenced, count, (void *const *)ends, NULL);
    for (cl_uint i = 0; i < count; i++)
        CALL(table, clReleaseEvent)(ends[i]);
    free(ends);
}

/* Enqueue the sequence `times` times. *event, if wanted, is complete when all of it is. On failure
 * *failed is the command's number, or UINT32_MAX if it was a barrier; what was enqueued before it
 * stays enqueued. */
int fl_replay(fl_sequence *p, void *const *queues, uint32_t queue_count, uint32_t times,
              uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    workspace w = {NULL, NULL};
    cl_int code = CL_SUCCESS;
    uint32_t widest = p->helps && p->step_count > p->final_wait_count ? p->step_count
                                                                      : p->final_wait_count;
    bool events = p->final_wait_count > 0 || p->external_count > 0;
    *failed = UINT32_MAX;
    if (p->step_count == 0)
        return put_marker(queues[0], wait_count, (cl_event *)wait_list, (cl_event *)event);
    for (uint32_t i = 0; i < p->step_count; i++) {
        events |= p->steps[i].signals;
        if (p->steps[i].wait_count > widest)
            widest = p->steps[i].wait_count;
    }
    if (events) {
        w.signals = calloc((size_t)p->step_count + p->external_count, sizeof *w.signals);
        w.list = calloc((size_t)widest + wait_count + 1, sizeof *w.list);
        if (!w.signals || !w.list)
            code = CL_OUT_OF_HOST_MEMORY;
    }
    if (code == CL_SUCCESS)
        code = fl_prepare(p);
    functions f = functions_of(p, queues[0]);
    if (code == CL_SUCCESS && !p->prepared->ready)
        code = make_ready(p, &f);
    else if (code == CL_SUCCESS && p->prepared->stale)
        code = refresh(p, &f);
    for (uint32_t i = 0; i < p->external_count && code == CL_SUCCESS; i++)
        w.signals[p->step_count + i] = p->externals[i];
    cl_event before = NULL;
    for (uint32_t i = 0; i < times && code == CL_SUCCESS; i++) {
        cl_event end = NULL, after = before;
        cl_uint head = after ? 1 : wait_count;
        bool ends = i + 1 == times;
        code = pass(p, &f, queues, &w, head, after ? &after : (cl_event *)wait_list,
                    ends        ? (cl_event *)event
                    : p->beside ? &end
                                : NULL,
                    failed);
        if (after)
            fl_drop_event(after);
        before = end;
        if (code == CL_SUCCESS && i + 1 == times)
            export_signals(p, &w);
        if (code == CL_SUCCESS && p->helps)
            offer_help(p, &w, queues[0], event && i + 1 == times ? *event : NULL);
        if (events)
            release_signals(p, &w);
    }
    if (p->prepared)
        p->prepared->ready =
            code == CL_SUCCESS; /* a failure leaves the kernels somewhere in between */
    if (code == CL_SUCCESS)
        p->prepared->stale = false;
    if (before)
        fl_drop_event(before);
    if (code != CL_SUCCESS)
        join(p, queues, queue_count);
    for (uint32_t i = 0; queue_count > 1 && i < queue_count;
         i++) /* SPEC clFlush: queues that wait for each other */
        CALL(fl_table_of(queues[i]), clFlush)(queues[i]);
    free(w.signals);
    free(w.list);
    return code;
}

/* Launches lead to the cell. Kernels whose last launch leaves it in are told by the next replay. */
int fl_set_cell_of_sequence(void *sequence, const fl_cell *cell) {
    fl_prepared *made = ((fl_sequence *)sequence)->prepared;
    (void)cell;
    if (made)
        made->stale = true;
    return CL_SUCCESS;
}

int fl_enqueue_sequence(void *sequence, void *const *queues, uint32_t queue_count, uint32_t times,
                       uint32_t wait_count, void *const *wait_list, void **event,
                       uint32_t *failed) {
    return fl_replay(sequence, queues, queue_count, times, wait_count, wait_list, event, failed);
}
