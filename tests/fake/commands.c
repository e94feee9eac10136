/* What the fake driver has behind its platforms: contexts, queues, events, memory, programs and
 * kernels that run nothing. Every command is complete when it is enqueued. Knobs are those of
 * driver.c. This file is compiled once for all drivers that set none of its knobs. */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

/* Two threads meet in clSVMAlloc (SVM_MEETS), else the second one there fails. */
#ifndef SVM_MEETS
#define SVM_MEETS 0
#endif
/* An argument that was an SVM pointer once makes every launch fail in which it is something else.
 */
#ifndef ARGUMENTS_STICK
#define ARGUMENTS_STICK 0
#endif
#ifndef AT_SUGGESTION
#define AT_SUGGESTION /* a statement in clGetKernelSuggestedLocalWorkSizeKHR, such as abort() */
#endif
#ifndef AT_RECORD
#define AT_RECORD /* a statement in clCommandNDRangeKernelKHR */
#endif

#define THING(handle) ((thing *)(handle))

static cl_int retain(void *object) {
    THING(object)->references++;
    return CL_SUCCESS;
}

cl_int release(void *object) {
    if (--THING(object)->references == 0)
        free(object);
    return CL_SUCCESS;
}

static cl_int done(thing *queue, cl_event *event) {
    if (event)
        *event = make(&queue->head, queue->context);
    if (event)
        THING(*event)->parent = queue;
    return CL_SUCCESS;
}

static cl_int context_info(cl_context context, cl_context_info name, size_t room, void *into,
                           size_t *size) {
    cl_uint one = 1;
    cl_device_id device = THING(context)->device;
    return name == CL_CONTEXT_DEVICES ? give(&device, sizeof device, room, into, size)
                                      : give(&one, sizeof one, room, into, size);
}

static cl_command_queue queue_of(cl_context context, cl_device_id device,
                                 cl_command_queue_properties properties, cl_int *code) {
    thing *queue = make(context, THING(context));
    queue->device = device;
    queue->properties = properties;
    say("clCreateCommandQueue");
    if (code)
        *code = CL_SUCCESS;
    return &queue->head;
}

static cl_command_queue queue_with(cl_context context, cl_device_id device,
                                   const cl_queue_properties *properties, cl_int *code) {
    return queue_of(context, device,
                    properties && *properties == CL_QUEUE_PROPERTIES ? properties[1] : 0, code);
}

static cl_int release_of_queue(cl_command_queue queue) {
    say("clReleaseCommandQueue");
    return release(queue);
}

static cl_int queue_info(cl_command_queue queue, cl_command_queue_info name, size_t room,
                         void *into, size_t *size) {
    thing *q = THING(queue);
    cl_uint count = (cl_uint)q->references;
    switch (name) {
    case CL_QUEUE_CONTEXT: return give(&q->context, sizeof q->context, room, into, size);
    case CL_QUEUE_DEVICE: return give(&q->device, sizeof q->device, room, into, size);
    case CL_QUEUE_PROPERTIES: return give(&q->properties, sizeof q->properties, room, into, size);
    case CL_QUEUE_REFERENCE_COUNT: return give(&count, sizeof count, room, into, size);
    default: return CL_INVALID_VALUE;
    }
}

static cl_int flush(cl_command_queue queue) {
    (void)queue;
    return CL_SUCCESS;
}

static cl_int event_info(cl_event event, cl_event_info name, size_t room, void *into,
                         size_t *size) {
    cl_int complete = CL_COMPLETE;
    if (name == CL_EVENT_COMMAND_QUEUE)
        return give(&THING(event)->parent, sizeof(void *), room, into, size);
    if (name == CL_EVENT_CONTEXT)
        return give(&THING(event)->context, sizeof(void *), room, into, size);
    return give(&complete, sizeof complete, room, into, size);
}

static cl_int profiling_info(cl_event event, cl_profiling_info name, size_t room, void *into,
                             size_t *size) {
    cl_ulong now = 1000;
    (void)event, (void)name;
    return give(&now, sizeof now, room, into, size);
}

static cl_int event_callback(cl_event event, cl_int status,
                             void (*notify)(cl_event, cl_int, void *), void *data) {
    say("clSetEventCallback");
    notify(event, status, data);
    return CL_SUCCESS;
}

static cl_int wait_for_events(cl_uint count, const cl_event *events) {
    (void)count, (void)events;
    say("clWaitForEvents");
    return CL_SUCCESS;
}

static cl_event user_event(cl_context context, cl_int *code) {
    *code = CL_SUCCESS;
    return make(context, THING(context));
}

static cl_int user_status(cl_event event, cl_int status) {
    (void)event, (void)status;
    return CL_SUCCESS;
}

static cl_int marker(cl_command_queue queue, cl_uint count, const cl_event *waits,
                     cl_event *event) {
    (void)waits;
    say("clEnqueueMarkerWithWaitList %u", count);
    return done(THING(queue), event);
}

static cl_int barrier(cl_command_queue queue, cl_uint count, const cl_event *waits,
                      cl_event *event) {
    (void)waits;
    say("clEnqueueBarrierWithWaitList %u", count);
    return done(THING(queue), event);
}

static cl_int migrate(cl_command_queue queue, cl_uint object_count, const cl_mem *objects,
                      cl_mem_migration_flags flags, cl_uint count, const cl_event *waits,
                      cl_event *event) {
    (void)object_count, (void)objects, (void)flags, (void)count, (void)waits;
    say("clEnqueueMigrateMemObjects");
    return done(THING(queue), event);
}

static cl_mem buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                     cl_int *code) {
    thing *made = make(context, THING(context));
    (void)flags, (void)host;
    made->size = size;
    made->memory = calloc(1, size);
    *code = CL_SUCCESS;
    return &made->head;
}

static cl_mem sub_buffer(cl_mem parent, cl_mem_flags flags, cl_buffer_create_type type,
                         const void *region, cl_int *code) {
    const size_t *numbers = region;
    thing *made = make(parent, THING(parent)->context);
    (void)flags, (void)type;
    made->parent = THING(parent);
    made->size = numbers[1];
    made->memory = (char *)THING(parent)->memory + numbers[0];
    *code = CL_SUCCESS;
    return &made->head;
}

static cl_int memory_info(cl_mem mem, cl_mem_info name, size_t room, void *into, size_t *size) {
    thing *parent = THING(mem)->parent;
    size_t number = name == CL_MEM_SIZE ? THING(mem)->size : 0;
    if (name == CL_MEM_OFFSET && parent)
        number = (char *)THING(mem)->memory - (char *)parent->memory;
    return name == CL_MEM_ASSOCIATED_MEMOBJECT ? give(&parent, sizeof parent, room, into, size)
                                               : give(&number, sizeof number, room, into, size);
}

static cl_int read_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                          size_t size, void *into, cl_uint count, const cl_event *waits,
                          cl_event *event) {
    (void)mem, (void)offset, (void)count, (void)waits;
    memset(into, 0, size);
    say("clEnqueueReadBuffer %u", blocking);
    return done(THING(queue), event);
}

static cl_int write_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                           size_t size, const void *from, cl_uint count, const cl_event *waits,
                           cl_event *event) {
    (void)mem, (void)offset, (void)size, (void)from, (void)count, (void)waits;
    say("clEnqueueWriteBuffer %u", blocking);
    return done(THING(queue), event);
}

static cl_int copy_rect(cl_command_queue queue, cl_mem source, cl_mem target, const size_t *at,
                        const size_t *to, const size_t *region, size_t source_row,
                        size_t source_slice, size_t target_row, size_t target_slice, cl_uint count,
                        const cl_event *waits, cl_event *event) {
    (void)to, (void)region, (void)source_row, (void)source_slice, (void)target_row,
        (void)target_slice, (void)count, (void)waits;
    (void)target;
    say("clEnqueueCopyBufferRect %s at %zu", THING(source)->parent ? "sub-buffer" : "buffer",
        at[0]);
    return done(THING(queue), event);
}

/* Memory by address. */

static atomic_int inside;

static void *svm_alloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
    int others = atomic_fetch_add(&inside, 1);
    (void)context, (void)flags, (void)alignment;
    for (int i = 0; SVM_MEETS ? atomic_load(&inside) < 2 : i < 200; i++)
        sched_yield();
    if (SVM_MEETS)
        return malloc(size); /* `inside` stays: the two have met */
    others |= atomic_fetch_sub(&inside, 1) - 1;
    return others ? NULL : malloc(size);
}

static void svm_free(cl_context context, void *memory) {
    (void)context;
    free(memory);
}

static cl_int svm_memcpy(cl_command_queue queue, cl_bool blocking, void *into, const void *from,
                         size_t size, cl_uint count, const cl_event *waits, cl_event *event) {
    (void)count, (void)waits;
    memcpy(into, from, size);
    say("clEnqueueSVMMemcpy %u", blocking);
    return done(THING(queue), event);
}

/* Programs and kernels: every kernel has two arguments. */

static cl_program program_with_source(cl_context context, cl_uint count, const char **lines,
                                      const size_t *lengths, cl_int *code) {
    (void)count, (void)lines, (void)lengths;
    *code = CL_SUCCESS;
    return make(context, THING(context));
}

static cl_int build_program(cl_program program, cl_uint count, const cl_device_id *on,
                            const char *options, void *notify, void *data) {
    (void)program, (void)count, (void)on, (void)options, (void)notify, (void)data;
    return CL_SUCCESS;
}

static cl_int program_info(cl_program program, cl_program_info name, size_t room, void *into,
                           size_t *size) {
    cl_uint one = 1;
    (void)program;
    if (name == CL_PROGRAM_DEVICES)
        return give(&THING(program)->context->device, sizeof(void *), room, into, size);
    return name == CL_PROGRAM_KERNEL_NAMES ? give_text("f", room, into, size)
                                           : give(&one, sizeof one, room, into, size);
}

static cl_int build_info(cl_program program, cl_device_id device, cl_program_build_info name,
                         size_t room, void *into, size_t *size) {
    cl_int success = 0;
    (void)program, (void)device;
    return name == CL_PROGRAM_BUILD_STATUS ? give(&success, sizeof success, room, into, size)
                                           : give_text("", room, into, size);
}

static cl_kernel kernel(cl_program program, const char *name, cl_int *code) {
    (void)name;
    *code = CL_SUCCESS;
    say("clCreateKernel");
    return make(program, THING(program)->context);
}

static cl_int kernel_info(cl_kernel kernel, cl_kernel_info name, size_t room, void *into,
                          size_t *size) {
    cl_uint two = 2;
    (void)kernel;
    if (name == CL_KERNEL_FUNCTION_NAME)
        return give_text("f", room, into, size);
    if (name == CL_KERNEL_CONTEXT || name == CL_KERNEL_PROGRAM)
        return give(&THING(kernel)->context, sizeof(void *), room, into, size);
    return give(&two, sizeof two, room, into, size);
}

static cl_int group_info(cl_kernel kernel, cl_device_id device, cl_kernel_work_group_info name,
                         size_t room, void *into, size_t *size) {
    size_t sizes[3] = {0, 0, 0}, eight = 8;
    (void)kernel, (void)device;
    return name == CL_KERNEL_COMPILE_WORK_GROUP_SIZE ? give(sizes, sizeof sizes, room, into, size)
                                                     : give(&eight, sizeof eight, room, into, size);
}

static cl_int set_argument(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    (void)size, (void)value;
    THING(kernel)->wrong |= THING(kernel)->pointers & 1u << index;
    return CL_SUCCESS;
}

static cl_int set_pointer(cl_kernel kernel, cl_uint index, const void *value) {
    (void)value;
    THING(kernel)->pointers |= 1u << index;
    THING(kernel)->wrong &= ~(1u << index);
    return CL_SUCCESS;
}

static cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_uint dim, const size_t *offset,
                     const size_t *global, const size_t *local, cl_uint count,
                     const cl_event *waits, cl_event *event) {
    (void)dim, (void)offset, (void)global, (void)local, (void)waits;
    say("clEnqueueNDRangeKernel %u", count);
    return ARGUMENTS_STICK && THING(kernel)->wrong ? CL_INVALID_KERNEL_ARGS
                                                   : done(THING(queue), event);
}

/* Extensions: a suggested local size, and command-buffers of version 0.9.4. */

static cl_int suggest(cl_command_queue queue, cl_kernel kernel, cl_uint dim, const size_t *offset,
                      const size_t *global, size_t *into) {
    (void)queue, (void)kernel, (void)offset, (void)global;
    AT_SUGGESTION;
    for (cl_uint i = 0; i < dim; i++)
        into[i] = 1;
    return CL_SUCCESS;
}

static void *create_recorded(cl_uint count, const cl_command_queue *queues, const void *properties,
                             cl_int *code) {
    (void)count, (void)properties;
    say("clCreateCommandBufferKHR");
    if (code)
        *code = CL_SUCCESS;
    return make(*queues, THING(*queues)->context);
}

static cl_int finalize(void *recorded) {
    (void)recorded;
    return CL_SUCCESS;
}

static cl_int record_launch(void *recorded, cl_command_queue queue, const void *properties,
                            cl_kernel kernel, cl_uint dim, const size_t *offset,
                            const size_t *global, const size_t *local, cl_uint count,
                            const cl_uint *points, cl_uint *point, void *handle) {
    (void)recorded, (void)queue, (void)properties, (void)kernel, (void)dim, (void)offset,
        (void)global, (void)local, (void)count;
    (void)points, (void)handle;
    AT_RECORD;
    if (point)
        *point = 1;
    return CL_SUCCESS;
}

static cl_int enqueue_recorded(cl_uint queues, cl_command_queue *queue, void *recorded,
                               cl_uint count, const cl_event *waits, cl_event *event) {
    (void)queues, (void)count, (void)waits;
    say("clEnqueueCommandBufferKHR");
    return done(queue && *queue ? THING(*queue) : THING(recorded), event);
}

#define SLOT(name, function) {#name, SLOT_##name, (void *)function}

const entry command_entries[] = {
    SLOT(clGetContextInfo, context_info),
    SLOT(clRetainContext, retain),
    SLOT(clCreateCommandQueue, queue_of),
    SLOT(clCreateCommandQueueWithProperties, queue_with),
    SLOT(clRetainCommandQueue, retain),
    SLOT(clReleaseCommandQueue, release_of_queue),
    SLOT(clGetCommandQueueInfo, queue_info),
    SLOT(clFlush, flush),
    SLOT(clGetEventInfo, event_info),
    SLOT(clGetEventProfilingInfo, profiling_info),
    SLOT(clSetEventCallback, event_callback),
    SLOT(clRetainEvent, retain),
    SLOT(clReleaseEvent, release),
    SLOT(clWaitForEvents, wait_for_events),
    SLOT(clCreateUserEvent, user_event),
    SLOT(clSetUserEventStatus, user_status),
    SLOT(clEnqueueMarkerWithWaitList, marker),
    SLOT(clEnqueueBarrierWithWaitList, barrier),
    SLOT(clEnqueueMigrateMemObjects, migrate),
    SLOT(clCreateBuffer, buffer),
    SLOT(clCreateSubBuffer, sub_buffer),
    SLOT(clGetMemObjectInfo, memory_info),
    SLOT(clRetainMemObject, retain),
    SLOT(clReleaseMemObject, release),
    SLOT(clEnqueueReadBuffer, read_buffer),
    SLOT(clEnqueueWriteBuffer, write_buffer),
    SLOT(clEnqueueCopyBufferRect, copy_rect),
    SLOT(clSVMAlloc, svm_alloc),
    SLOT(clSVMFree, svm_free),
    SLOT(clEnqueueSVMMemcpy, svm_memcpy),
    SLOT(clCreateProgramWithSource, program_with_source),
    SLOT(clBuildProgram, build_program),
    SLOT(clGetProgramInfo, program_info),
    SLOT(clGetProgramBuildInfo, build_info),
    SLOT(clRetainProgram, retain),
    SLOT(clReleaseProgram, release),
    SLOT(clCreateKernel, kernel),
    SLOT(clRetainKernel, retain),
    SLOT(clReleaseKernel, release),
    SLOT(clGetKernelInfo, kernel_info),
    SLOT(clGetKernelWorkGroupInfo, group_info),
    SLOT(clSetKernelArg, set_argument),
    SLOT(clSetKernelArgSVMPointer, set_pointer),
    SLOT(clEnqueueNDRangeKernel, launch),
    {NULL, 0, NULL},
};

void *command_extension(const char *name) {
    static const struct { const char *name; void *function;
    } extensions[] = {
        {"clGetKernelSuggestedLocalWorkSizeKHR", (void *)suggest},
        {"clCreateCommandBufferKHR", (void *)create_recorded},
        {"clFinalizeCommandBufferKHR", (void *)finalize},
        {"clCommandNDRangeKernelKHR", (void *)record_launch},
        {"clEnqueueCommandBufferKHR", (void *)enqueue_recorded},
        {"clReleaseCommandBufferKHR", (void *)release},
    };
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        if (strcmp(extensions[i].name, name) == 0)
            return extensions[i].function;
    return NULL;
}
