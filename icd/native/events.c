/* Waits for events of a block, and their callbacks: calls on events do not come through the
 * captured queue. So these two slots of the driver's own table are watched for the length of the
 * block. */
#include "recording.h"

/* A wait for captured events. A client that cleans up holds the GIL and wants nothing but its
 * memory back, which the graph keeps. Another wait is refused, unless the observer knows it for
 * housekeeping: then later commands come after the events waited for. */
static cl_int wait_captured(fl_recording *r, cl_uint count, const cl_event *list) {
    bool cleans_up = r->holds_gil && r->holds_gil();
    if (!cleans_up && r->observer(r->cookie, FL_ASK_WAIT, SLOT_clWaitForEvents, NULL, 0))
        return fl_refuse(r, SLOT_clWaitForEvents, FL_WAITS);
    for (cl_uint i = 0; !cleans_up && i < count; i++) {
        uint32_t node = list[i] ? fl_node_of(r, list[i]) : NONE;
        if (node != NONE && !fl_follow(r, node))
            return CL_OUT_OF_HOST_MEMORY;
    }
    /* The block's own events are complete; others in the list have to be waited for. */
    return DRIVER(list[0], clWaitForEvents)(count, list);
}

cl_int fl_wait_for_events(cl_uint count, const cl_event *list) {
    if (!count || !list || !list[0])
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++) {
        fl_recording *r = list[i] ? fl_owner_of(list[i]) : NULL;
        if (r)
            return wait_captured(r, count, list);
    }
    fl_help_waits(count, (void *const *)list);
    return DRIVER(list[0], clWaitForEvents)(count, list);
}

static cl_int watched_clSetEventCallback(cl_event event, cl_int status, void *notify,
                                         void *user_data) {
    fl_recording *r = fl_owner_of(event);
    if (r)
        return fl_refuse(r, SLOT_clSetEventCallback, FL_CALLBACK);
    return DRIVER(event, clSetEventCallback)(event, status, notify, user_data);
}

static const fl_watched watched[] = {
    {SLOT_clWaitForEvents, (void *)fl_wait_for_events, false},
    {SLOT_clSetEventCallback, (void *)watched_clSetEventCallback, false},
};

int fl_watch_events(void **table, fl_mapping *known) {
    return fl_patch_all(table, watched, 2, known);
}

void fl_unwatch_events(void **table, fl_mapping *known) {
    fl_unpatch_all(table, watched, 2, known);
}
