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

#define WATCHED(name, parameters, ...)                                                             \
    static cl_int watched_##name parameters {                                                      \
        tell(command_queue, SLOT_##name);                                                          \
        return ((fn_##name *)fl_patched(command_queue, SLOT_##name))(command_queue, __VA_ARGS__,   \
                                                                     WAITS);                       \
    }
#define LIST cl_uint num_events_in_wait_list, const cl_event *event_wait_list, cl_event *event

WATCHED(clEnqueueNDRangeKernel,
        (cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim, const size_t *offset,
         const size_t *global, const size_t *local, LIST),
        kernel, work_dim, offset, global, local)
WATCHED(clEnqueueReadBuffer,
        (cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, size_t offset,
         size_t size, void *ptr, LIST),
        buffer, blocking, offset, size, ptr)
WATCHED(clEnqueueWriteBuffer,
        (cl_command_queue command_queue, cl_mem buffer, cl_bool blocking, size_t offset,
         size_t size, const void *ptr, LIST),
        buffer, blocking, offset, size, ptr)
WATCHED(clEnqueueCopyBuffer,
        (cl_command_queue command_queue, cl_mem from, cl_mem to, size_t from_offset,
         size_t to_offset, size_t size, LIST),
        from, to, from_offset, to_offset, size)
WATCHED(clEnqueueFillBuffer,
        (cl_command_queue command_queue, cl_mem buffer, const void *pattern, size_t pattern_size,
         size_t offset, size_t size, LIST),
        buffer, pattern, pattern_size, offset, size)

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
