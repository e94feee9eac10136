/* The functions that a recording table leads to: each appends the command that it was called for,
 * or refuses it.
 *
 * A call that reaches one of them when the block has just ended goes on to the driver. A call of
 * another thread than the one that began the block is refused. */
#include "recording.h"

#include <stdlib.h>
#include <string.h>

cl_int fl_refuse(fl_recording *r, int slot, enum fl_reason reason) {
    r->observer(r->cookie, FL_ASK_REFUSED, (uint32_t)slot, NULL, reason);
    return CL_INVALID_OPERATION;
}

/* The recording of another thread may end at any moment: it is not let go while a visitor is in
 * here (recording.c, restore). */
call fl_call_on(cl_command_queue queue, int slot) {
    recording_table *ours = fl_recording_table(__atomic_load_n(&queue->dispatch, __ATOMIC_ACQUIRE));
    call c = {.table = fl_table_of(queue)};
    if (!ours)
        return c;
    atomic_fetch_add(&ours->visitors, 1);
    bool ended = __atomic_load_n(&queue->dispatch, __ATOMIC_SEQ_CST) !=
                 ours->slots; /* and the table may be another queue's */
    fl_recording *r = c.recording = ended ? NULL : atomic_load(&ours->recording);
    if (r) {
        c.queue_index = ours->queue;
        c.queue = &r->queues[ours->queue];
        c.refused = pthread_equal(r->thread, pthread_self()) ? CL_SUCCESS
                                                             : fl_refuse(r, slot, FL_OTHER_THREAD);
    }
    atomic_fetch_sub(&ours->visitors, 1);
    return c;
}

/* A memory object made with CL_MEM_USE_HOST_PTR lives in the program's memory, which has to be kept
 * as well. */
static bool host_memory_kept(fl_recording *r, cl_mem mem) {
    void **table = fl_table_of(mem);
    cl_mem_flags flags = 0;
    void *host = NULL;
    size_t size = 0;
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_FLAGS, sizeof flags, &flags, NULL);
    if (!(flags & CL_MEM_USE_HOST_PTR))
        return true;
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_HOST_PTR, sizeof host, &host, NULL);
    CALL(table, clGetMemObjectInfo)(mem, CL_MEM_SIZE, sizeof size, &size, NULL);
    return !host || r->observer(r->cookie, FL_ASK_HOST_OF_MEMORY, 0, host, size) == 0;
}

/* The memory objects that are kept from a number on are new: the program's memory that they live in
 * is asked for. */
static cl_int keep_host_memory(call *c, int slot, uint32_t first) {
    const fl_keep *keep = &c->recording->keep;
    bool kept = true;
    for (uint32_t i = first; kept && i < keep->count; i++)
        kept = keep->entries[i].kind != FL_KEEP_MEM ||
               host_memory_kept(c->recording, keep->entries[i].object);
    return kept ? CL_SUCCESS : fl_refuse(c->recording, slot, FL_HOST_MEMORY);
}

cl_int fl_keep_memory(call *c, int slot, cl_mem mem) {
    uint32_t first = c->recording->keep.count;
    int added = mem ? fl_keep_add_memory(&c->recording->keep, mem) : CL_INVALID_MEM_OBJECT;
    return added > 0 ? keep_host_memory(c, slot, first) : added;
}

static cl_int keep_both(call *c, int slot, cl_mem source, cl_mem target) {
    cl_int code = fl_keep_memory(c, slot, source);
    return code == CL_SUCCESS ? fl_keep_memory(c, slot, target) : code;
}

/* SPEC clEnqueueFillBuffer, clEnqueueSVMMemFill: 1, 2, 4 … 128 bytes. */
cl_int fl_set_pattern(call *c, int slot, fl_command *command, const void *pattern, size_t size) {
    if (fl_is_parameter(pattern))   /* a fill would keep the first value */
        return fl_refuse(c->recording, slot, FL_PARAMETER);
    if (!pattern || !size || size > 128 || size & (size - 1))
        return CL_INVALID_VALUE;
    command->pattern = malloc(size);
    command->pattern_size = size;
    if (!command->pattern)
        return CL_OUT_OF_HOST_MEMORY;
    memcpy(command->pattern, pattern, size);
    return CL_SUCCESS;
}

static cl_int record_kernel(call *c, int slot, cl_kernel kernel, fl_command command,
                            cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    fl_recording *r = c->recording;
    enum fl_reason reason;
    if (!kernel)
        return CL_INVALID_KERNEL;
    uint32_t first = r->keep.count;
    cl_int code =
        fl_freeze(&kernel, &command.arguments, r->allow_unseen, &r->keep, &r->pins, &reason);
    if (code == CL_SUCCESS && reason != FL_NOT_REFUSED)
        code = fl_refuse(r, slot, reason);
    if (code == CL_SUCCESS)
        code = keep_host_memory(c, slot, first);
    if (code != CL_SUCCESS) {
        fl_release_arguments(command.arguments);
        return code;
    }
    command.op = FL_KERNEL;
    command.kernel = kernel;
    return fl_append(c, slot, command, wait_count, wait_list, event);
}

static cl_int record_clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel,
                                            cl_uint work_dim, const size_t *offset,
                                            const size_t *global, const size_t *local,
                                            cl_uint num_events_in_wait_list,
                                            const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueNDRangeKernel, command_queue, kernel, work_dim, offset, global, local, WAITS);
    fl_command command = {
        .work_dim = work_dim, .has_offset = offset != NULL, .has_local = local != NULL};
    if (work_dim < 1 || work_dim > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (!global)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint i = 0; i < work_dim; i++) {
        command.n[i] = offset ? offset[i] : 0;
        command.n[3 + i] = global[i];
        command.n[6 + i] = local ? local[i] : 0;
    }
    return record_kernel(&c, SLOT_clEnqueueNDRangeKernel, kernel, command, WAITS);
}

static cl_int record_clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                                   cl_uint num_events_in_wait_list, const cl_event *event_wait_list,
                                   cl_event *event) {
    ENTER(clEnqueueTask, command_queue, kernel, WAITS);
    fl_command command = {
        .work_dim = 1, .has_local = 1, .n = {0, 0, 0, 1, 0, 0, 1}}; /* SPEC: one work-item */
    return record_kernel(&c, SLOT_clEnqueueTask, kernel, command, WAITS);
}

static cl_int record_clEnqueueCopyBuffer(cl_command_queue command_queue, cl_mem source,
                                         cl_mem target, size_t source_offset, size_t target_offset,
                                         size_t size, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyBuffer, command_queue, source, target, source_offset, target_offset, size,
          WAITS);
    fl_command command = {.op = FL_COPY,
                          .source = source,
                          .target = target,
                          .n = {source_offset, target_offset, size}};
    cl_int code = keep_both(&c, SLOT_clEnqueueCopyBuffer, source, target);
    return code == CL_SUCCESS ? fl_append(&c, SLOT_clEnqueueCopyBuffer, command, WAITS) : code;
}

static fl_command rect(uint16_t op, const size_t *first, const size_t *second, const size_t *region,
                       size_t a, size_t b, size_t x, size_t y) {
    fl_command command = {.op = op, .n = {[9] = a, b, x, y}};
    for (int i = 0; i < 3; i++) {
        command.n[i] = first[i];
        command.n[3 + i] = second[i];
        command.n[6 + i] = region[i];
    }
    return command;
}

static cl_int record_clEnqueueCopyBufferRect(cl_command_queue command_queue, cl_mem source,
                                             cl_mem target, const size_t *source_origin,
                                             const size_t *target_origin, const size_t *region,
                                             size_t source_row, size_t source_slice,
                                             size_t target_row, size_t target_slice,
                                             cl_uint num_events_in_wait_list,
                                             const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueCopyBufferRect, command_queue, source, target, source_origin, target_origin,
          region, source_row, source_slice, target_row, target_slice, WAITS);
    if (!source_origin || !target_origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    fl_command command = rect(FL_COPY_RECT, source_origin, target_origin, region, source_row,
                              source_slice, target_row, target_slice);
    command.source = source;
    command.target = target;
    cl_int code = keep_both(&c, SLOT_clEnqueueCopyBufferRect, source, target);
    return code == CL_SUCCESS ? fl_append(&c, SLOT_clEnqueueCopyBufferRect, command, WAITS) : code;
}

static cl_int record_clEnqueueFillBuffer(cl_command_queue command_queue, cl_mem buffer,
                                         const void *pattern, size_t pattern_size, size_t offset,
                                         size_t size, cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueFillBuffer, command_queue, buffer, pattern, pattern_size, offset, size, WAITS);
    fl_command command = {.op = FL_FILL, .target = buffer, .n = {offset, size}};
    cl_int code = fl_keep_memory(&c, SLOT_clEnqueueFillBuffer, buffer);
    if (code == CL_SUCCESS)
        code = fl_set_pattern(&c, SLOT_clEnqueueFillBuffer, &command, pattern, pattern_size);
    if (code != CL_SUCCESS)
        return code;
    return fl_append(&c, SLOT_clEnqueueFillBuffer, command, WAITS);
}

/* Reads and writes. The host memory is used when the graph runs: the observer is asked to keep it
 * alive. */
cl_int fl_record_transfer(call *c, int slot, fl_command command, cl_mem memory, cl_bool blocking,
                          const void *host, size_t size, cl_uint wait_count,
                          const cl_event *wait_list, cl_event *event) {
    if (blocking)
        return fl_refuse(c->recording, slot, FL_BLOCKING);
    if (!host)
        return CL_INVALID_VALUE;
    if (fl_is_parameter(host))   /* a write would go on with the first value */
        return fl_refuse(c->recording, slot, FL_PARAMETER);
    cl_int code = fl_keep_memory(c, slot, memory);
    if (code != CL_SUCCESS)
        return code;
    command.source = command.target = memory;
    command.host = (void *)host;
    command.host_size = size;
    return fl_append(c, slot, command, wait_count, wait_list, event);
}

static cl_int record_clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer,
                                         cl_bool blocking, size_t offset, size_t size, void *host,
                                         cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueReadBuffer, command_queue, buffer, blocking, offset, size, host, WAITS);
    fl_command command = {.op = FL_READ, .n = {offset, size}};
    return fl_record_transfer(&c, SLOT_clEnqueueReadBuffer, command, buffer, blocking, host, size,
                              WAITS);
}

static cl_int record_clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer,
                                          cl_bool blocking, size_t offset, size_t size,
                                          const void *host, cl_uint num_events_in_wait_list,
                                          const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueWriteBuffer, command_queue, buffer, blocking, offset, size, host, WAITS);
    fl_command command = {.op = FL_WRITE, .n = {offset, size}};
    return fl_record_transfer(&c, SLOT_clEnqueueWriteBuffer, command, buffer, blocking, host, size,
                              WAITS);
}

/* How far host memory is used by a rect: up to the last byte of its last row (SPEC
 * clEnqueueReadBufferRect). */
static size_t host_extent(const size_t *origin, const size_t *region, size_t row, size_t slice) {
    row = row ? row : region[0];
    slice = slice ? slice : region[1] * row;
    return (origin[2] + region[2] - 1) * slice + (origin[1] + region[1] - 1) * row + origin[0] +
           region[0];
}

static cl_int record_clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer,
                                             cl_bool blocking, const size_t *origin,
                                             const size_t *host_origin, const size_t *region,
                                             size_t row, size_t slice, size_t host_row,
                                             size_t host_slice, void *host,
                                             cl_uint num_events_in_wait_list,
                                             const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueReadBufferRect, command_queue, buffer, blocking, origin, host_origin, region,
          row, slice, host_row, host_slice, host, WAITS);
    if (!origin || !host_origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    fl_command command =
        rect(FL_READ_RECT, origin, host_origin, region, row, slice, host_row, host_slice);
    size_t extent = host_extent(host_origin, region, host_row, host_slice);
    return fl_record_transfer(&c, SLOT_clEnqueueReadBufferRect, command, buffer, blocking, host,
                              extent, WAITS);
}

static cl_int record_clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer,
                                              cl_bool blocking, const size_t *origin,
                                              const size_t *host_origin, const size_t *region,
                                              size_t row, size_t slice, size_t host_row,
                                              size_t host_slice, const void *host,
                                              cl_uint num_events_in_wait_list,
                                              const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueWriteBufferRect, command_queue, buffer, blocking, origin, host_origin, region,
          row, slice, host_row, host_slice, host, WAITS);
    if (!origin || !host_origin || !fl_has_size(region))
        return CL_INVALID_VALUE;
    fl_command command =
        rect(FL_WRITE_RECT, origin, host_origin, region, row, slice, host_row, host_slice);
    size_t extent = host_extent(host_origin, region, host_row, host_slice);
    return fl_record_transfer(&c, SLOT_clEnqueueWriteBufferRect, command, buffer, blocking, host,
                              extent, WAITS);
}

/* SVM and host memory share one address space: an end of the copy that is not an SVM allocation is
 * host memory, and somebody has to keep it alive. The observer is asked about both. SVM is pinned,
 * so it keeps nothing more for that. */
static cl_int record_clEnqueueSVMMemcpy(cl_command_queue command_queue, cl_bool blocking,
                                        void *target, const void *source, size_t size,
                                        cl_uint num_events_in_wait_list,
                                        const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueSVMMemcpy, command_queue, blocking, target, source, size, WAITS);
    fl_recording *r = c.recording;
    fl_command command = {
        .op = FL_SVM_COPY, .source = (void *)source, .target = target, .n = {size}};
    if (blocking)
        return fl_refuse(r, SLOT_clEnqueueSVMMemcpy, FL_BLOCKING);
    if (!target || !source)
        return CL_INVALID_VALUE;
    r->observer(r->cookie, FL_ASK_SVM, FL_SVM_COPY, target, size);
    r->observer(r->cookie, FL_ASK_SVM, FL_SVM_COPY, (void *)source, size);
    if (!fl_pin(&r->pins, target) || !fl_pin(&r->pins, source))
        return CL_OUT_OF_HOST_MEMORY;
    return fl_append(&c, SLOT_clEnqueueSVMMemcpy, command, WAITS);
}

static cl_int record_clEnqueueSVMMemFill(cl_command_queue command_queue, void *pointer,
                                         const void *pattern, size_t pattern_size, size_t size,
                                         cl_uint num_events_in_wait_list,
                                         const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueSVMMemFill, command_queue, pointer, pattern, pattern_size, size, WAITS);
    fl_recording *r = c.recording;
    fl_command command = {.op = FL_SVM_FILL, .target = pointer, .n = {0, size}};
    cl_int code = CL_INVALID_VALUE;
    if (pointer)
        code = fl_set_pattern(&c, SLOT_clEnqueueSVMMemFill, &command, pattern, pattern_size);
    if (code != CL_SUCCESS)
        return code;
    r->observer(r->cookie, FL_ASK_SVM, FL_SVM_FILL, pointer, size);
    if (!fl_pin(&r->pins, pointer)) {
        free(command.pattern);
        return CL_OUT_OF_HOST_MEMORY;
    }
    return fl_append(&c, SLOT_clEnqueueSVMMemFill, command, WAITS);
}

/* The graph owns the allocation from here on: its commands may use it until the graph is dropped.
 * Pinned before anything can fail, freed when nothing can fail any more. */
static cl_int record_clEnqueueSVMFree(cl_command_queue command_queue, cl_uint count,
                                      void **pointers, void *free_function, void *user_data,
                                      cl_uint num_events_in_wait_list,
                                      const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueSVMFree, command_queue, count, pointers, free_function, user_data, WAITS);
    if (free_function)
        return fl_refuse(c.recording, SLOT_clEnqueueSVMFree, FL_CANNOT_CAPTURE);
    if (!count || !pointers)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < count; i++)
        if (pointers[i] && !fl_pin(&c.recording->pins, pointers[i]))
            return CL_OUT_OF_HOST_MEMORY;
    fl_command command = {.op = FL_MARKER};
    cl_int code = event ? fl_append(&c, SLOT_clEnqueueSVMFree, command, WAITS) : CL_SUCCESS;
    for (cl_uint i = 0; code == CL_SUCCESS && i < count; i++)
        if (pointers[i])
            fl_free_with_pins(c.recording->context, pointers[i]);
    return code;
}

static cl_int record_clEnqueueMarkerWithWaitList(cl_command_queue command_queue,
                                                 cl_uint num_events_in_wait_list,
                                                 const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueMarkerWithWaitList, command_queue, WAITS);
    return fl_append(&c, SLOT_clEnqueueMarkerWithWaitList, (fl_command){.op = FL_MARKER}, WAITS);
}

static cl_int record_clEnqueueBarrierWithWaitList(cl_command_queue command_queue,
                                                  cl_uint num_events_in_wait_list,
                                                  const cl_event *event_wait_list,
                                                  cl_event *event) {
    ENTER(clEnqueueBarrierWithWaitList, command_queue, WAITS);
    return fl_append(&c, SLOT_clEnqueueBarrierWithWaitList, (fl_command){.op = FL_BARRIER}, WAITS);
}

static cl_int record_clEnqueueMarker(cl_command_queue command_queue, cl_event *event) {
    ENTER(clEnqueueMarker, command_queue, event);
    return fl_append(&c, SLOT_clEnqueueMarker, (fl_command){.op = FL_MARKER}, 0, NULL, event);
}

static cl_int record_clEnqueueWaitForEvents(cl_command_queue command_queue, cl_uint count,
                                            const cl_event *list) {
    ENTER(clEnqueueWaitForEvents, command_queue, count, list);
    if (!count || !list)
        return CL_INVALID_VALUE;
    return fl_append(&c, SLOT_clEnqueueWaitForEvents, (fl_command){.op = FL_BARRIER}, count, list,
                     NULL);
}

static cl_int record_clEnqueueBarrier(cl_command_queue command_queue) {
    ENTER(clEnqueueBarrier, command_queue);
    return fl_append(&c, SLOT_clEnqueueBarrier, (fl_command){.op = FL_BARRIER}, 0, NULL, NULL);
}

/* A migration says where data will be wanted; a replay needs only the order that it stands in. */
static cl_int record_clEnqueueMigrateMemObjects(cl_command_queue command_queue, cl_uint count,
                                                const cl_mem *objects, cl_mem_migration_flags flags,
                                                cl_uint num_events_in_wait_list,
                                                const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueMigrateMemObjects, command_queue, count, objects, flags, WAITS);
    return fl_append(&c, SLOT_clEnqueueMigrateMemObjects, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clEnqueueSVMMigrateMem(cl_command_queue command_queue, cl_uint count,
                                            const void **pointers, const size_t *sizes,
                                            cl_mem_migration_flags flags,
                                            cl_uint num_events_in_wait_list,
                                            const cl_event *event_wait_list, cl_event *event) {
    ENTER(clEnqueueSVMMigrateMem, command_queue, count, pointers, sizes, flags, WAITS);
    return fl_append(&c, SLOT_clEnqueueSVMMigrateMem, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clFlush(cl_command_queue command_queue) {
    ENTER(clFlush, command_queue);
    return CL_SUCCESS;   /* there is nothing to flush: nothing was submitted */
}

static cl_int record_clFinish(cl_command_queue command_queue) {
    ENTER(clFinish, command_queue);
    return fl_refuse(c.recording, SLOT_clFinish, FL_WAITS);
}

/* --- what is refused: generated, since all of them are alike --- */

static cl_int refuse_call(cl_command_queue command_queue, int slot, void ***table) {
    call c = fl_call_on(command_queue, slot);
    *table = c.recording ? NULL : c.table;
    if (!c.recording)
        return CL_SUCCESS;
    return c.refused ? c.refused : fl_refuse(c.recording, slot, FL_CANNOT_CAPTURE);
}
#include "refusals.h"

void fl_fill_recording_slots(void **slots) {
    RECORD(clEnqueueNDRangeKernel);
    RECORD(clEnqueueTask);
    RECORD(clEnqueueCopyBuffer);
    RECORD(clEnqueueCopyBufferRect);
    RECORD(clEnqueueFillBuffer);
    RECORD(clEnqueueReadBuffer);
    RECORD(clEnqueueWriteBuffer);
    RECORD(clEnqueueReadBufferRect);
    RECORD(clEnqueueWriteBufferRect);
    RECORD(clEnqueueSVMMemcpy);
    RECORD(clEnqueueSVMMemFill);
    RECORD(clEnqueueSVMFree);
    RECORD(clEnqueueMarkerWithWaitList);
    RECORD(clEnqueueBarrierWithWaitList);
    RECORD(clEnqueueMarker);
    RECORD(clEnqueueWaitForEvents);
    RECORD(clEnqueueBarrier);
    RECORD(clEnqueueMigrateMemObjects);
    RECORD(clEnqueueSVMMigrateMem);
    RECORD(clFlush);
    RECORD(clFinish);
    fl_fill_image_slots(slots);
    FL_FILL_REFUSALS(slots)
}
