/* Loops that end by themselves: replays until a kernel has written something other than 0 to a
 * flag.
 *
 * The word is read after every few replays, and the next few are enqueued before it is looked at.
 * So the device does not wait for the host. That costs some replays too many, which is told. */
#include "native.h"

#include "busy.h"

static cl_int read_flag(const fl_route *route, void *flag, size_t offset, uint32_t *word,
                        cl_event *made) {
    fl_buffer *b = route->buffer;
    fl_enter(b);   /* the last event may be exchanged by another thread */
    cl_event last = b->last_event;
    void **table = fl_table_of(route->queue);
    CALL(table, clRetainEvent)(last);
    fl_leave(b);
    cl_int code = CALL(table, clEnqueueReadBuffer)(route->queue, flag, CL_FALSE, offset,
                                                   sizeof *word, word, 1, &last, made);
    CALL(table, clReleaseEvent)(last);
    if (code == CL_SUCCESS)
        CALL(table, clFlush)(route->queue);
    return code;
}

/* Wait for a read, if there is one. */
static cl_int end_read(cl_event *read) {
    cl_int code = *read ? fl_wait(*read, 1) : CL_SUCCESS;
    if (*read)
        CALL(fl_table_of(*read), clReleaseEvent)(*read);
    *read = NULL;
    return code;
}

/* Whether the last enqueue has failed. Intel's read after a failed event is a success. */
static bool last_has_failed(fl_buffer *b) {
    FL_HOLD_BUFFER(b);
    return fl_has_failed(b->last_event);
}

int fl_enqueue_until(const fl_route *route, uint32_t times, uint32_t every, void *flag,
                     size_t offset, uint32_t wait_count, void *const *wait_list, uint32_t *ran,
                     uint32_t *stopped, uint32_t *failed) {
    uint32_t words[2] = {0, 0};
    cl_event reads[2] = {NULL, NULL};
    cl_int code = CL_SUCCESS;
    bool may_fail = wait_count;
    *ran = *stopped = 0;
    *failed = UINT32_MAX;
    for (uint32_t turn = 0; code == CL_SUCCESS && !*stopped && *ran < times; turn++) {
        uint32_t left = times - *ran, count = every < left ? every : left, now = turn & 1;
        if (turn && !route->in_order) {   /* the next ones would change the word while it is read */
            wait_list = (void *const *)&reads[!now];
            wait_count = 1;
        }
        code = fl_enqueue(route, count, wait_count, wait_list, NULL, failed);
        if (code != CL_SUCCESS)
            break;
        *ran += count;
        code = read_flag(route, flag, offset, &words[now], &reads[now]);
        cl_int ended = end_read(&reads[!now]);
        code = code != CL_SUCCESS ? code : ended;
        *stopped = words[!now] != 0;
    }
    for (int i = 0; i < 2; i++) {   /* they write to this function's memory */
        cl_int ended = end_read(&reads[i]);
        code = code != CL_SUCCESS ? code : ended;
        *stopped |= words[i] != 0;
    }
    return code == CL_SUCCESS && may_fail && last_has_failed(route->buffer)
               ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
               : code;
}

int fl_run_until(const fl_route *route, uint32_t times, fl_value *values, uint32_t count,
                 void *flag, size_t offset, int wanted, int first, uint32_t *ran,
                 uint32_t *stopped) {
    fl_buffer *b = route->buffer;
    const fl_built *built = route->parts[0].built;
    uint32_t done = 0;
    *ran = *stopped = 0;
    if (route->part_count != 1 || !built->run_until)
        return FL_BUILD_ANEW;
    FL_HOLD_BUFFER(b);
    int code = CALL(fl_table_of(route->queue), clFinish)(route->queue);
    bool at_once = fl_takes_all(route, values, count, times);
    if (code == CL_SUCCESS && first && !at_once) /* before the values of the first turn are taken */
        code = built->run_until(built->self, 0, flag, offset, wanted, 0, &done, stopped);
    first = first && at_once;
    while (code == CL_SUCCESS && !*stopped && *ran < times) {
        code = at_once ? CL_SUCCESS : fl_take_next(b, values, count, *ran);
        if (code == CL_SUCCESS)
            code = b->stale ? FL_BUILD_ANEW
                            : built->run_until(built->self, at_once ? times : 1, flag, offset,
                                               wanted, first, &done, stopped);
        *ran += code == FL_BUILD_ANEW ? 0 : done;
    }
    if (at_once) {
        built->take_series(built->self, NULL, 0, 0);
        if (*ran)
            fl_take_next(b, values, count, *ran - 1);
    }
    b->enqueued += *ran;
    return code;
}
