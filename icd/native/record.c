/* The functions that a recording table leads to: each appends the command that it was called for,
 * or refuses it. Those of transfers and fills are made of the table of operations.
 *
 * A call that reaches one of them when the block has just ended goes on to the driver. A call of
 * another thread than the one that began the block is refused. */
#define FL_DEFINE_OPERATION_SIDES
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
    unsigned visitors = atomic_load(&ours->visitors);   /* 0: in a forked child */
    while (visitors && !atomic_compare_exchange_weak(&ours->visitors, &visitors, visitors - 1))
        ;
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

static cl_int keep_memory(call *c, int slot, cl_mem mem) {
    uint32_t first = c->recording->keep.count;
    int added = mem ? fl_keep_add_memory(&c->recording->keep, mem) : CL_INVALID_MEM_OBJECT;
    return added > 0 ? keep_host_memory(c, slot, first) : added;
}

/* SPEC clEnqueueFillBuffer, clEnqueueSVMMemFill: 1, 2, 4 … 128 bytes. */
static cl_int set_pattern(call *c, int slot, fl_command *command, const void *pattern,
                          size_t size) {
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

static cl_int record_clEnqueueNDRangeKernel(PARAMETERS_clEnqueueNDRangeKernel) {
    ENTER(clEnqueueNDRangeKernel);
    const size_t *offset = global_work_offset, *local = local_work_size;
    fl_command command = {
        .work_dim = work_dim, .has_offset = offset != NULL, .has_local = local != NULL};
    if (work_dim < 1 || work_dim > 3)
        return CL_INVALID_WORK_DIMENSION;
    if (!global_work_size)
        return CL_INVALID_GLOBAL_WORK_SIZE;
    for (cl_uint i = 0; i < work_dim; i++) {
        command.n[i] = offset ? offset[i] : 0;
        command.n[3 + i] = global_work_size[i];
        command.n[6 + i] = local ? local[i] : 0;
    }
    return record_kernel(&c, SLOT_clEnqueueNDRangeKernel, kernel, command, WAITS);
}

static cl_int record_clEnqueueTask(PARAMETERS_clEnqueueTask) {
    ENTER(clEnqueueTask);
    fl_command command = {
        .work_dim = 1, .has_local = 1, .n = {0, 0, 0, 1, 0, 0, 1}}; /* SPEC: one work-item */
    return record_kernel(&c, SLOT_clEnqueueTask, kernel, command, WAITS);
}

/* --- transfers and fills --- */

static cl_mem_object_type type_of(cl_mem mem) {
    cl_mem_object_type type = 0;
    if (mem)
        CALL(fl_table_of(mem), clGetMemObjectInfo)(mem, CL_MEM_TYPE, sizeof type, &type, NULL);
    return type;
}

/* Whether a side is what its operation takes. NULL is refused when memory is kept, and the driver
 * looks at buffers itself, unless an image is copied to one: that would be a plain copy. */
static bool is_side(unsigned char kind, cl_mem mem, bool with_image) {
    cl_mem_object_type type;
    if (kind == FL_SVM_SIDE || kind == FL_HOST_SIDE || !with_image)
        return true;
    type = kind == FL_NO_SIDE ? 0 : type_of(mem);
    return kind == FL_IMAGE_SIDE
               ? type >= CL_MEM_OBJECT_IMAGE2D && type <= CL_MEM_OBJECT_IMAGE1D_BUFFER
               : kind == FL_NO_SIDE || type == CL_MEM_OBJECT_BUFFER;
}

static bool put_three(size_t *to, const size_t *three) {
    for (int i = 0; three && i < 3; i++)
        to[i] = three[i];
    return three;
}

static bool put_region(size_t *to, const size_t *region) {
    return put_three(to, region) && to[0] && to[1] && to[2];
}

/* How much host memory a transfer uses: up to the last byte of its last row. Regions of images are
 * counted in elements, and in a 1D array the rows are the slices (SPEC clEnqueueReadImage). */
static cl_int measure_host(fl_command *command, bool is_source, cl_mem image) {
    const size_t *origin = command->n + (is_source ? 0 : 3), *region = command->n + 6;
    size_t row = command->n[is_source ? 9 : 11], slice = command->n[is_source ? 10 : 12];
    size_t length = region[0], element = 1, start = 0;
    if (image) {
        cl_int code = CALL(fl_table_of(image), clGetImageInfo)(
            image, CL_IMAGE_ELEMENT_SIZE, sizeof element, &element, NULL);
        if (code != CL_SUCCESS)
            return code;
        length *= element;
    }
    row = row ? row : length;
    if (image && type_of(image) == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        row = slice ? slice : row;
    slice = slice ? slice : region[1] * row;
    if (!image)   /* an image's origin is the image's own */
        start = origin[2] * slice + origin[1] * row + origin[0];
    command->host_size = start + (region[2] - 1) * slice + (region[1] - 1) * row + length;
    return CL_SUCCESS;
}

/* Host memory is used when the graph runs: the observer is asked to keep it alive. */
static cl_int use_host(call *c, int slot, fl_command *command, fl_sides sides) {
    bool is_source = sides.source == FL_HOST_SIDE;
    unsigned char other = is_source ? sides.target : sides.source;
    if (!command->host)
        return CL_INVALID_VALUE;
    if (fl_is_parameter(command->host))   /* a write would go on with the first value */
        return fl_refuse(c->recording, slot, FL_PARAMETER);
    return measure_host(command, is_source,
                        other != FL_IMAGE_SIDE ? NULL
                        : is_source            ? command->target
                                               : command->source);
}

/* SVM and host memory share one address space: an end of a copy that is not an SVM allocation is
 * host memory, and somebody has to keep it alive. The observer is asked about both. SVM is pinned,
 * so it keeps nothing more for that. */
static cl_int use_address(call *c, fl_command *command, void *address) {
    fl_recording *r = c->recording;
    r->observer(r->cookie, FL_ASK_SVM, command->op, address, command->n[6]);
    return fl_pin(&r->pins, address) ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
}

static cl_int use_side(call *c, int slot, fl_command *command, unsigned char kind, void *side) {
    if (kind == FL_BUFFER_SIDE || kind == FL_IMAGE_SIDE)
        return keep_memory(c, slot, side);
    return kind == FL_SVM_SIDE ? use_address(c, command, side) : CL_SUCCESS;
}

/* SPEC clEnqueueFillImage: the colour has four numbers of four bytes, that of a depth image one. */
static cl_int measure_colour(cl_mem image, size_t *size) {
    cl_uint format[2] = {0};   /* cl_image_format: channel order, channel type */
    cl_int code = CALL(fl_table_of(image), clGetImageInfo)(image, CL_IMAGE_FORMAT, sizeof format,
                                                           format, NULL);
    *size = format[0] == CL_DEPTH ? 4 : 16;
    return code;
}

/* Append a transfer or a fill. `complete`: every origin is there, and a region of some size. What
 * the driver would find out when it enqueues is left to the replay. */
static cl_int record_operation(call *c, int slot, fl_command *command, bool complete,
                               cl_bool blocking, const void *pattern, size_t pattern_size,
                               cl_uint wait_count, const cl_event *wait_list, cl_event *event) {
    fl_sides sides = operation_sides[command->op];
    bool with_image = sides.source == FL_IMAGE_SIDE || sides.target == FL_IMAGE_SIDE;
    cl_int code = CL_SUCCESS;
    if (blocking)
        return fl_refuse(c->recording, slot, FL_BLOCKING);
    if (!is_side(sides.source, command->source, with_image) ||
        !is_side(sides.target, command->target, with_image))
        return CL_INVALID_MEM_OBJECT;
    if (!complete || (sides.source == FL_SVM_SIDE && !command->source) ||
        (sides.target == FL_SVM_SIDE && !command->target))
        return CL_INVALID_VALUE;
    if (sides.source == FL_HOST_SIDE || sides.target == FL_HOST_SIDE)
        code = use_host(c, slot, command, sides);
    if (code == CL_SUCCESS && sides.source == FL_NO_SIDE) {
        if (with_image)
            code = measure_colour(command->target, &pattern_size);
        if (code == CL_SUCCESS)
            code = set_pattern(c, slot, command, pattern, pattern_size);
    }
    if (code == CL_SUCCESS)
        code = use_side(c, slot, command, sides.source, command->source);
    if (code == CL_SUCCESS)
        code = use_side(c, slot, command, sides.target, command->target);
    if (code == CL_SUCCESS)
        return fl_append(c, slot, *command, wait_count, wait_list, event);
    free(command->pattern);
    return code;
}

/* The graph owns the allocation from here on: its commands may use it until the graph is dropped.
 * Pinned before anything can fail, freed when nothing can fail any more. */
static cl_int record_clEnqueueSVMFree(PARAMETERS_clEnqueueSVMFree) {
    ENTER(clEnqueueSVMFree);
    if (pfn_free_func)
        return fl_refuse(c.recording, SLOT_clEnqueueSVMFree, FL_CANNOT_CAPTURE);
    if (!num_svm_pointers || !svm_pointers)
        return CL_INVALID_VALUE;
    for (cl_uint i = 0; i < num_svm_pointers; i++)
        if (svm_pointers[i] && !fl_pin(&c.recording->pins, svm_pointers[i]))
            return CL_OUT_OF_HOST_MEMORY;
    fl_command command = {.op = FL_MARKER};
    cl_int code = event ? fl_append(&c, SLOT_clEnqueueSVMFree, command, WAITS) : CL_SUCCESS;
    for (cl_uint i = 0; code == CL_SUCCESS && i < num_svm_pointers; i++)
        if (svm_pointers[i])
            fl_free_with_pins(c.recording->context, svm_pointers[i]);
    return code;
}

static cl_int record_clEnqueueMarkerWithWaitList(PARAMETERS_clEnqueueMarkerWithWaitList) {
    ENTER(clEnqueueMarkerWithWaitList);
    return fl_append(&c, SLOT_clEnqueueMarkerWithWaitList, (fl_command){.op = FL_MARKER}, WAITS);
}

static cl_int record_clEnqueueBarrierWithWaitList(PARAMETERS_clEnqueueBarrierWithWaitList) {
    ENTER(clEnqueueBarrierWithWaitList);
    return fl_append(&c, SLOT_clEnqueueBarrierWithWaitList, (fl_command){.op = FL_BARRIER}, WAITS);
}

static cl_int record_clEnqueueMarker(cl_command_queue command_queue, cl_event *event) {
    ENTER(clEnqueueMarker);
    return fl_append(&c, SLOT_clEnqueueMarker, (fl_command){.op = FL_MARKER}, 0, NULL, event);
}

static cl_int record_clEnqueueWaitForEvents(PARAMETERS_clEnqueueWaitForEvents) {
    ENTER(clEnqueueWaitForEvents);
    if (!num_events || !event_list)
        return CL_INVALID_VALUE;
    return fl_append(&c, SLOT_clEnqueueWaitForEvents, (fl_command){.op = FL_BARRIER}, num_events,
                     event_list, NULL);
}

static cl_int record_clEnqueueBarrier(cl_command_queue command_queue) {
    ENTER(clEnqueueBarrier);
    return fl_append(&c, SLOT_clEnqueueBarrier, (fl_command){.op = FL_BARRIER}, 0, NULL, NULL);
}

/* A migration says where data will be wanted; a replay needs only the order that it stands in. */
static cl_int record_clEnqueueMigrateMemObjects(PARAMETERS_clEnqueueMigrateMemObjects) {
    ENTER(clEnqueueMigrateMemObjects);
    return fl_append(&c, SLOT_clEnqueueMigrateMemObjects, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clEnqueueSVMMigrateMem(PARAMETERS_clEnqueueSVMMigrateMem) {
    ENTER(clEnqueueSVMMigrateMem);
    return fl_append(&c, SLOT_clEnqueueSVMMigrateMem, (fl_command){.op = FL_HINT}, WAITS);
}

static cl_int record_clFlush(cl_command_queue command_queue) {
    ENTER(clFlush);
    return CL_SUCCESS;   /* there is nothing to flush: nothing was submitted */
}

static cl_int record_clFinish(cl_command_queue command_queue) {
    ENTER(clFinish);
    return fl_refuse(c.recording, SLOT_clFinish, FL_WAITS);
}

/* --- what is made of the table of operations, and what is refused, since nothing records it --- */

static cl_int refuse_call(cl_command_queue command_queue, int slot, void ***table) {
    call c = fl_call_on(command_queue, slot);
    *table = c.recording ? NULL : c.table;
    if (!c.recording)
        return CL_SUCCESS;
    return c.refused ? c.refused : fl_refuse(c.recording, slot, FL_CANNOT_CAPTURE);
}
#include "record_operations.h"

void fl_fill_recording_slots(void **slots) {
    RECORD(clEnqueueNDRangeKernel);
    RECORD(clEnqueueTask);
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
    FL_FILL_OPERATIONS(slots)
}
