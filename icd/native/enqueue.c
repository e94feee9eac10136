/* Enqueues of a command-buffer. Each comes after the one before it, on whatever queues they are and
 * whichever engines run it. All of it is here and not in Python: a pass fills the caches with the
 * driver's memory, and whatever runs after it runs cold. */
#include "native.h"
#include "waits.h"

#include "busy.h"

#include <stdlib.h>
#include <string.h>

/* One more enqueue was made. The reference to the event is taken over. The queue is retained here,
 * since Ctrl-C may keep Python from it. */
void fl_remember(fl_buffer *b, void *queue, void *event) {
    void *old = b->last_event, *left = b->last_queue == queue ? NULL : b->last_queue;
    if (queue && queue != b->last_queue)
        CALL(fl_table_of(queue), clRetainCommandQueue)(queue);
    b->last_queue = queue;
    b->last_event = event;
    if (old)
        CALL(fl_table_of(old), clReleaseEvent)(old);
    if (left)
        CALL(fl_table_of(left), clReleaseCommandQueue)(left);
}

static int enqueue_part(const fl_part *p, uint32_t times, uint32_t wait_count,
                        void *const *wait_list, void **event, uint32_t *failed) {
    const fl_built *built = p->built;
    int code = built->enqueue(built->self, p->queues, p->queue_count, times, wait_count, wait_list,
                              event, failed);
    if (*failed != UINT32_MAX)
        *failed += built->first;
    return code;
}

/* Several parts, over and over: each comes after the one before it, by the queue's order or by its
 * event. */
static int enqueue_parts(const fl_route *route, uint32_t times, uint32_t wait_count,
                         void *const *wait_list, void **event, uint32_t *failed) {
    void *before = NULL;
    for (uint32_t i = 0; i < times; i++)
        for (uint32_t k = 0; k < route->part_count; k++) {
            bool is_last = i + 1 == times && k + 1 == route->part_count;
            void *made = NULL;
            bool wanted = is_last || !route->in_order || fl_holds_events;
            int code = enqueue_part(&route->parts[k], 1, before ? 1 : wait_count,
                                    before ? &before : wait_list, wanted ? &made : NULL, failed);
            if (before)
                fl_drop_event(before);
            if (code != CL_SUCCESS)
                return code;
            before = made;
        }
    *event = before;
    return CL_SUCCESS;
}

int fl_pass_failure(fl_buffer *b) {
    void *end = NULL;
    if (!b->may_fail || !b->last_event || !fl_has_failed(b->last_event))
        return CL_SUCCESS;
    int code = CALL(fl_table_of(b->last_queue), clEnqueueMarkerWithWaitList)(b->last_queue, 0, NULL,
                                                                            (cl_event *)&end);
    if (code == CL_SUCCESS)
        fl_remember(b, b->last_queue, end);
    return code;
}

_Thread_local struct fl_repeated fl_repeated = {NULL, 1};

int fl_enqueue_all(const fl_route *route, uint32_t times, uint32_t wait_count,
                   void *const *wait_list, void **event, uint32_t *failed) {
    void *end = NULL, **list = NULL;
    fl_buffer *b = route->buffer;
    bool is_next = b->last_queue == route->queue && route->in_order && route->part_count == 1;
    bool may_fail = wait_count || (b->may_fail && b->last_event && !fl_has_ended(b->last_event));
    bool holds = b->holds_events && may_fail;
    void *repeated = is_next && !holds ? b->last_event : NULL;
    *failed = UINT32_MAX;
    if (b->last_event && (b->last_queue != route->queue || !route->in_order)) {
        int code = fl_pass_failure(b);
        if (code != CL_SUCCESS)
            return code;
        list = malloc(((size_t)wait_count + 1) * sizeof *list);
        if (!list)
            return CL_OUT_OF_HOST_MEMORY;
        if (wait_count)
            memcpy(list, wait_list, wait_count * sizeof *list);
        list[wait_count++] = b->last_event;
        wait_list = list;
        if (b->last_queue != route->queue) /* SPEC clFlush: whoever waits for another queue's event
                                              has to flush that queue */
            CALL(fl_table_of(b->last_queue), clFlush)(b->last_queue);
    }
    fl_holds_events = holds;
    fl_repeated.event = repeated;
    int code = route->part_count == 1
                   ? enqueue_part(route->parts, times, wait_count, wait_list, &end, failed)
                   : enqueue_parts(route, times, wait_count, wait_list, &end, failed);
    fl_holds_events = false;
    fl_repeated.event = NULL;
    free(list);
    if (code != CL_SUCCESS)
        return code;
    b->may_fail = may_fail;
    if (end && end == repeated) {
        b->enqueued += times;
        if (event)
            *event = end;
        if (event && fl_repeated.references == 1)
            CALL(fl_table_of(end), clRetainEvent)(end);
        return CL_SUCCESS;
    }
    if (holds) {
        CALL(fl_table_of(end), clRetainEvent)(end);
        fl_hold_event(end);
    }
    b->enqueued += times;
    if (event) {
        *event = end;
        CALL(fl_table_of(end), clRetainEvent)(end);
    }
    fl_remember(b, route->queue, end);
    return CL_SUCCESS;
}

/* Where the queue keeps the order, only the last one needs an event. */
int fl_enqueue_step(const fl_route *route, bool is_first, bool is_last, uint32_t wait_count,
                    void *const *wait_list, void **event, uint32_t *failed) {
    if (is_first || is_last || !route->in_order || route->part_count != 1 ||
        (route->buffer->holds_events && route->buffer->may_fail))
        return fl_enqueue_all(route, 1, wait_count, wait_list, is_last ? event : NULL, failed);
    *failed = UINT32_MAX;
    int code = enqueue_part(route->parts, 1, wait_count, wait_list, NULL, failed);
    route->buffer->enqueued += code == CL_SUCCESS;
    return code;
}

int fl_enqueue(const fl_route *route, uint32_t times, uint32_t wait_count, void *const *wait_list,
               void **event, uint32_t *failed) {
    FL_HOLD_BUFFER(route->buffer);
    return fl_enqueue_all(route, times, wait_count, wait_list, event, failed);
}

static uint32_t forks;

void fl_begin_child(void) { forks++; }

void fl_allow_again(fl_buffer *buffer, fl_route *route) {
    FL_HOLD_BUFFER(buffer);
    if (route)
        route->forks = forks;
    buffer->again = route;
}

static bool may_repeat(const fl_buffer *b, const fl_route *route) {
    bool looks = b->next_look && b->enqueued >= b->next_look;
    return b->again == route && !b->stale && !looks && !fl_is_captured(route->queue);
}

/* FL_BUILD_ANEW: an engine cannot run anything any more, and nothing has happened. */
static int stay_stale(fl_buffer *b, int code) {
    b->stale |= code == FL_BUILD_ANEW;
    return code == FL_BUILD_ANEW ? CL_SUCCESS : code;
}

/* While a route is allowed, its queue and what it leads to are kept. */
static intptr_t enqueue_turn(fl_route *route, fl_value *values, uint32_t count, uint32_t turn,
                             const void *known) {
    fl_buffer *b = route->buffer;
    void *event = NULL;
    int code = CL_SUCCESS;
    if (route->forks != forks)
        return 0;
    FL_HOLD_BUFFER(b);
    bool allowed = may_repeat(b, route), is_known = known && b->last_event == known;
    if (allowed && count)
        code = fl_take_turn(b, values, count, turn);
    allowed &= !b->stale;
    fl_repeated.references = is_known ? 2 : 1;
    if (allowed && code == CL_SUCCESS)
        code = fl_enqueue_all(route, 1, 0, NULL, &event, &route->failed);
    fl_repeated.references = 1;
    code = stay_stale(b, code);
    return code != CL_SUCCESS ? code : is_known && event == known ? 1 : (intptr_t)event;
}

intptr_t fl_enqueue_turn(fl_route *route, fl_value *values, uint32_t count, uint32_t turn) {
    return enqueue_turn(route, values, count, turn, NULL);
}

intptr_t fl_enqueue_again(fl_route *route) { return enqueue_turn(route, NULL, 0, 0, NULL); }

intptr_t fl_enqueue_joined(fl_route *route, intptr_t event) {
    return enqueue_turn(route, NULL, 0, 0, (const void *)event);
}

intptr_t fl_enqueue_waited(fl_route *route) {
    intptr_t made = fl_enqueue_again(route);
    if (made <= 0)
        return made;
    const cl_event event = (cl_event)made;
    if (CALL(fl_table_of(event), clWaitForEvents)(1, &event) != CL_SUCCESS)
        return made;
    CALL(fl_table_of(event), clReleaseEvent)(event);
    return 1;
}

intptr_t fl_enqueue_present(fl_buffer *b, void *queue) {
    void *event = NULL;
    uint32_t failed;
    if (!fl_try(b))
        return 0;
    const fl_route *route = b->again;
    int code = route && route->queue == queue && route->forks == forks && may_repeat(b, route)
                   ? fl_enqueue_all(route, 1, 0, NULL, &event, &failed)
                   : CL_SUCCESS;
    code = stay_stale(b, code);
    fl_leave(b);
    return code != CL_SUCCESS ? code : (intptr_t)event;
}

static void release_event(void *event) { CALL(fl_table_of(event), clReleaseEvent)(event); }

/* The caller has the buffer. */
static int run_here(const fl_route *route, uint32_t times) {
    const fl_built *first = route->parts[0].built;
    int code = first->finish ? first->finish(first->self, route->queue)
                             : CALL(fl_table_of(route->queue), clFinish)(route->queue);
    for (uint32_t i = 0; i < times && code == CL_SUCCESS; i += route->part_count == 1 ? times : 1)
        for (uint32_t k = 0; k < route->part_count && code == CL_SUCCESS; k++) {
            const fl_built *built = route->parts[k].built;
            code = built->run ? built->run(built->self, route->part_count == 1 ? times : 1)
                              : CL_INVALID_OPERATION;
        }
    if (code == CL_SUCCESS)
        route->buffer->enqueued += times;
    return code;
}

int fl_run(const fl_route *route, uint32_t times) {
    FL_HOLD_BUFFER(route->buffer);
    return run_here(route, times);
}

void *fl_find_address(const fl_route *route, void *memory) {
    void *found = NULL;
    FL_HOLD_BUFFER(route->buffer);
    for (uint32_t k = 0; k < route->part_count && !found; k++) {
        const fl_built *built = route->parts[k].built;
        found = built->find_address ? built->find_address(built->self, memory) : NULL;
    }
    return found;
}

int fl_run_again(fl_route *route) {
    fl_buffer *b = route->buffer;
    if (route->forks != forks || fl_stack_left() < FL_STACK_NEEDED)
        return 0;
    FL_HOLD_BUFFER(b);
    bool is_elsewhere = b->last_event && b->last_queue != route->queue;
    bool allowed = may_repeat(b, route) && !is_elsewhere;
    int code = allowed ? run_here(route, 1) : 0;
    allowed &= code != FL_BUILD_ANEW;
    code = stay_stale(b, code);
    return allowed && code == CL_SUCCESS ? 1 : code;
}

/* Each comes after the one before it by its event, since the queue may be out of order. */
int fl_enqueue_driver_buffer(void *self, void *const *queues, uint32_t queue_count, uint32_t times,
                             uint32_t wait_count, void *const *wait_list, void **event,
                             uint32_t *failed) {
    const fl_driver_buffer *d = self;
    fn_clEnqueueCommandBufferKHR *enqueue_buffer = (fn_clEnqueueCommandBufferKHR *)d->enqueue;
    cl_event before = NULL;
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < times && code == CL_SUCCESS; i++) {
        cl_event made = NULL;
        bool wanted = event || i + 1 < times;
        code = enqueue_buffer(1, (cl_command_queue *)queues, d->buffer, wait_count,
                              (const cl_event *)wait_list, wanted ? &made : NULL);
        if (before)
            fl_drop_event(before);
        before = made;
        wait_count = 1;
        wait_list = (void *const *)&before;
    }
    if (event)
        *event = before;
    return code;
}

void fl_begin_changes(fl_buffer *buffer) { fl_enter(buffer); }

void fl_end_changes(fl_buffer *buffer) { fl_leave(buffer); }

int fl_update_buffer(fl_buffer *b, uint32_t command, int relaunched) {
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < b->built_count; i++) {
        const fl_built *built = b->built[i];
        uint32_t number =
            command - built->first; /* of a command before it: larger than any count */
        cl_int failed = built->update && number < built->count
                            ? built->update(built->self, number, relaunched)
                            : CL_SUCCESS;
        if (failed == FL_BUILD_ANEW)
            b->stale = 1;
        else
            code = failed != CL_SUCCESS ? failed : code;
    }
    return code;
}

static void exchange_launch(fl_command *row, fl_command *other) {
    fl_command old = *row;
    *row = *other;
    *other = old;
}

/* Kernels that were compared last, and whether they are of one function. */
typedef struct compared {
    void *first, *second;
    bool same;
} compared;

static bool read_function(cl_kernel kernel, cl_program *program, char *name, size_t room) {
    fn_clGetKernelInfo *ask = CALL(fl_table_of(kernel), clGetKernelInfo);
    return ask(kernel, CL_KERNEL_PROGRAM, sizeof *program, program, NULL) == CL_SUCCESS &&
           ask(kernel, CL_KERNEL_FUNCTION_NAME, room, name, NULL) == CL_SUCCESS;
}

static bool are_of_one_function(void *first, void *second, compared *last) {
    enum { LONGEST = 512 };
    char names[2][LONGEST];
    cl_program programs[2];
    if (first == second || (last->first == first && last->second == second))
        return first == second || last->same;
    bool same = first && second && read_function(first, &programs[0], names[0], LONGEST) &&
                read_function(second, &programs[1], names[1], LONGEST) &&
                programs[0] == programs[1] && !strcmp(names[0], names[1]);
    *last = (compared){first, second, same};
    return same;
}

static bool has_all(const fl_arguments *list) {
    for (uint32_t i = 0; i < fl_argument_count(list); i++)
        if (list->list[i].kind == FL_ARG_UNSEEN)
            return false;
    return true;
}

/* What a row is to be: another launch of its function in its place, by its own kernel. */
static int prepare(fl_command *now, const fl_command *row, const fl_command *other,
                   compared *last) {
    if (other->op != FL_KERNEL || !are_of_one_function(row->kernel, other->kernel, last) ||
        (row->kernel != other->kernel && !has_all(other->arguments)))
        return FL_PYTHON_UPDATES;
    *now = *other;
    now->kernel = row->kernel;
    now->queue = row->queue;
    now->first_dep = row->first_dep;
    now->dep_count = row->dep_count;
    now->arguments =
        fl_change_arguments(other->arguments, fl_argument_count(other->arguments), NULL, 0);
    return now->arguments ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

static int exchange_all(fl_buffer *b, fl_command *rows, const uint32_t *numbers, fl_command *now,
                        uint32_t count) {
    int code = CL_SUCCESS;
    uint32_t done = 0;
    FL_HOLD_BUFFER(b);
    for (; done < count && code == CL_SUCCESS; done++) {
        exchange_launch(&rows[numbers[done]], &now[done]);
        code = fl_update_buffer(b, numbers[done], 0);
    }
    while (code != CL_SUCCESS && done--) {
        exchange_launch(&rows[numbers[done]], &now[done]);
        fl_update_buffer(b, numbers[done], 0);
    }
    return code;
}

int fl_take_over_all(fl_buffer *b, fl_command *rows, const uint32_t *numbers,
                     fl_command *const *others, uint32_t count) {
    fl_command one, *now = count == 1 ? &one : malloc(count * sizeof *now);
    int code = b->python_updates ? FL_PYTHON_UPDATES : now ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    uint32_t ready = 0;
    compared last = {0};
    while (ready < count && code == CL_SUCCESS) {
        code = prepare(&now[ready], &rows[numbers[ready]], others[ready], &last);
        ready += code == CL_SUCCESS;
    }
    if (code == CL_SUCCESS)
        code = exchange_all(b, rows, numbers, now, count);
    while (ready--)   /* the old ones, or those that were refused */
        fl_release_arguments(now[ready].arguments);
    if (now != &one)
        free(now);
    return code;
}

int fl_take_over(fl_buffer *b, uint32_t command, fl_command *row, const fl_command *other) {
    fl_command *const others[] = {(fl_command *)other};
    return fl_take_over_all(b, row - command, &command, others, 1);
}

const fl_functions *fl_exported(void) {
    static const fl_waits waits = {fl_wait, fl_finish, fl_begin_wait, fl_begin_finish,
                                  fl_go_on_waiting, fl_end_wait, fl_take_wait, fl_give_wait_back,
                                  fl_status_of};
    static const fl_functions functions = {
        fl_new_command,  fl_change_arguments, fl_release_arguments, fl_set_argument,
        fl_get_argument, fl_argument_count,   fl_update_buffer,     fl_enqueue_present,
        release_event,   &waits,
    };
    return &functions;
}
