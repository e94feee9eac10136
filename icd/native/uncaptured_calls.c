/* Commands that go to a queue which is not captured, while this thread records a block of the same
 * context: they run at once and the graph does not have them, which is rarely meant. The functions
 * that programs use most are watched. */
#include "recording.h"

/* Tell the recording, if there is one. */
static void tell(cl_command_queue queue, int slot) {
    cl_context context = NULL;
    if (!queue || !fl_is_recording() || fl_is_captured(queue))
        return;
    if (CALL(fl_table_of(queue), clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof context,
                                                        &context, NULL) == CL_SUCCESS)
        fl_tell_call(context, FL_ASK_UNCAPTURED, slot, NULL);
}

#define WATCHED(name)                                                                              \
    static cl_int watched_##name(PARAMETERS_##name) {                                              \
        tell(command_queue, SLOT_##name);                                                          \
        return DRIVER(command_queue, name)(ARGUMENTS_##name);                                      \
    }

WATCHED(clEnqueueNDRangeKernel)
WATCHED(clEnqueueReadBuffer)
WATCHED(clEnqueueWriteBuffer)
WATCHED(clEnqueueCopyBuffer)
WATCHED(clEnqueueFillBuffer)

static const fl_watched all[] = {
#define ONE(name) {SLOT_##name, (void *)(fn_##name *)watched_##name, true}
    ONE(clEnqueueNDRangeKernel), ONE(clEnqueueReadBuffer), ONE(clEnqueueWriteBuffer),
    ONE(clEnqueueCopyBuffer),    ONE(clEnqueueFillBuffer),
};
enum { COUNT = sizeof all / sizeof *all };

int fl_watch_uncaptured(void **table, fl_mapping *known) {
    return fl_patch_all(table, all, COUNT, known);
}

void fl_unwatch_uncaptured(void **table, fl_mapping *known) {
    fl_unpatch_all(table, all, COUNT, known);
}
