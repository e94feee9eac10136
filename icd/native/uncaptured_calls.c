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
        fl_tell_uncaptured(context, slot);
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

static const struct {
    int slot;
    void *function;
} all[] = {
#define ONE(name) {SLOT_##name, (void *)(fn_##name *)watched_##name}
    ONE(clEnqueueNDRangeKernel), ONE(clEnqueueReadBuffer), ONE(clEnqueueWriteBuffer),
    ONE(clEnqueueCopyBuffer),    ONE(clEnqueueFillBuffer),
};
enum { COUNT = sizeof all / sizeof *all };

/* What the driver has not stays empty, which a recording looks for. */
int fl_watch_uncaptured(void **table, fl_mapping *known) {
    for (int i = 0; i < COUNT; i++) {
        if (fl_slot(table, all[i].slot) == fl_stubs[all[i].slot])
            continue;
        int code = fl_patch(table, all[i].slot, all[i].function, known);
        if (code != CL_SUCCESS) {
            while (i-- > 0)
                fl_unpatch(table, all[i].slot, known);
            return code;
        }
    }
    return CL_SUCCESS;
}

void fl_unwatch_uncaptured(void **table, fl_mapping *known) {
    for (int i = 0; i < COUNT; i++)
        fl_unpatch(table, all[i].slot, known);
}
