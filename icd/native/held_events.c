/* Events that are held until they have ended: some drivers use the event of a failing command after
 * its last reference is gone.
 *
 * What ends an event may still be at work with it when its status is there. So an event is let go
 * when it is found to have ended twice. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>

_Thread_local bool fl_holds_events;

static struct {
    pthread_mutex_t lock;
    struct held {
        cl_event event;
        bool ended;
    } *list;
    uint32_t count, room;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(held.lock)

cl_int fl_status_of(void *event) {
    cl_int status = CL_COMPLETE;
    cl_int code = CALL(fl_table_of(event), clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                           sizeof status, &status, NULL);
    return code == CL_SUCCESS ? status : CL_COMPLETE;
}

bool fl_has_ended(void *event) { return fl_status_of(event) <= CL_COMPLETE; }

/* Of a command that waited for a failed event, Intel's CPU driver says that it is complete. */
bool fl_has_failed(void *event) {
    cl_int status = fl_status_of(event);
    if (status == CL_COMPLETE)
        status = CALL(fl_table_of(event), clWaitForEvents)(1, (const cl_event *)&event);
    return status < CL_COMPLETE;
}

/* Those that ended before the last look are put behind the others, and the answer is how many these
 * are. */
static uint32_t sort(void) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < held.count; i++) {
        struct held one = held.list[i];
        if (one.ended)
            continue;
        one.ended = fl_has_ended(one.event);
        held.list[i] = held.list[kept];
        held.list[kept++] = one;
    }
    return kept;
}

/* Without memory the event is never let go. */
void fl_hold_event(void *event) {
    struct held *gone = NULL;
    uint32_t gone_count = 0;
    pthread_mutex_lock(&held.lock);
    if (held.count == held.room) {
        uint32_t kept = sort(), room = held.room ? held.room * 2 : 64;
        gone = malloc((held.count - kept + 1) * sizeof *gone);
        for (uint32_t i = kept; gone && i < held.count; i++)
            gone[gone_count++] = held.list[i];
        if (gone)
            held.count = kept;
        struct held *larger = held.count * 2 > held.room || !held.room
                                  ? realloc(held.list, room * sizeof *larger)
                                  : NULL;
        if (larger) {
            held.list = larger;
            held.room = room;
        }
    }
    if (held.count < held.room)
        held.list[held.count++] = (struct held){event, false};
    pthread_mutex_unlock(&held.lock);
    for (uint32_t i = 0; i < gone_count;
         i++) /* without the lock: a driver may call the program back */
        CALL(fl_table_of(gone[i].event), clReleaseEvent)(gone[i].event);
    free(gone);
}

void fl_drop_event(void *event) {
    if (fl_holds_events)
        fl_hold_event(event);
    else
        CALL(fl_table_of(event), clReleaseEvent)(event);
}
