/* Enqueues of one command-buffer: each comes after the one before it, on whatever queues they are, and whoever runs it, the replay or the
 * driver. All of it is here, and not in Python, since a pass fills the caches with the driver's memory: whatever runs after it runs cold. */
#include "native.h"

#include "busy.h"

#include <stdlib.h>
#include <string.h>

void fl_remember(fl_last *last, void *queue, void *event) {
    fl_last old = *last;
    if (queue != old.queue)
        CALL(fl_table_of(queue), clRetainCommandQueue)(queue);
    *last = (fl_last){queue, event};
    if (old.event)
        CALL(fl_table_of(old.event), clReleaseEvent)(old.event);
    if (old.queue && queue != old.queue)
        CALL(fl_table_of(old.queue), clReleaseCommandQueue)(old.queue);
}

void fl_forget(fl_last *last) {
    fl_last old = *last;
    *last = (fl_last){NULL, NULL};
    if (old.event)
        CALL(fl_table_of(old.event), clReleaseEvent)(old.event);
    if (old.queue)
        CALL(fl_table_of(old.queue), clReleaseCommandQueue)(old.queue);
}

static int enqueue(const fl_route *route, uint32_t times, uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    void *queue = route->lanes[0], *end = NULL, **list = NULL;
    const fl_last *last = route->last;
    *failed = UINT32_MAX;
    if (last->event && (last->queue != queue || !route->in_order)) {
        list = malloc(((size_t)wait_count + 1) * sizeof *list);
        if (!list)
            return CL_OUT_OF_HOST_MEMORY;
        if (wait_count)
            memcpy(list, wait_list, wait_count * sizeof *list);
        list[wait_count++] = last->event;
        wait_list = list;
        if (last->queue != queue)   /* SPEC clFlush: whoever waits for another queue's event has to flush that queue */
            CALL(fl_table_of(last->queue), clFlush)(last->queue);
    }
    cl_int code;
    if (route->program)
        code = fl_replay(route->program, route->lanes, route->lane_count, times, wait_count, wait_list, &end, failed);
    else
        code = ((fn_clEnqueueCommandBufferKHR *)route->enqueue_native)(1, (cl_command_queue *)route->lanes, route->native, wait_count,
                                                                       (const cl_event *)wait_list, (cl_event *)&end);
    free(list);
    if (code != CL_SUCCESS)
        return code;
    if (event) {
        *event = end;
        CALL(fl_table_of(end), clRetainEvent)(end);
    }
    fl_remember(route->last, queue, end);
    return CL_SUCCESS;
}

int fl_enqueue(const fl_route *route, uint32_t times, uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    fl_enter(route->ways);
    int code = enqueue(route, times, wait_count, wait_list, event, failed);
    fl_leave(route->ways);
    return code;
}

void fl_begin_changes(fl_ways *ways) { fl_enter(ways); }

void fl_end_changes(fl_ways *ways) { fl_leave(ways); }

int fl_update_ways(const fl_ways *ways, uint32_t command, int relaunched) {
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < ways->count; i++) {
        cl_int failed = fl_update(ways->list[i].program, ways->list[i].step_of[command], relaunched);
        code = failed != CL_SUCCESS ? failed : code;
    }
    return code;
}
