/* The mock driver. Every object begins with the dispatch pointer and the dispatch data (SPEC
 * cl_khr_icd), and counts its references; an object that nobody refers to keeps its memory until
 * the driver is closed, without its table, so that a use of it is noticed. */
#define _GNU_SOURCE
#include "mock.h"
#include "native.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { DEAD, CONTEXT, QUEUE, BUFFER, SAMPLER, PROGRAM, KERNEL, EVENT };
static const char *const kind_names[] = {"dead",    "context", "queue",  "buffer",
                                         "sampler", "program", "kernel", "event"};

typedef struct value {
    bool set, svm;
    size_t size;
    uint64_t bits;
} value;

typedef struct object {
    fl_object head;
    _Atomic enum kind kind;
    atomic_int references;
    mock *driver;
    struct object *next, *context;
    cl_command_queue_properties properties;
    cl_mem_flags flags;
    void *host;
    size_t size;
    cl_mem_object_type type; /* of a memory object */
    struct object *made_from;
    cl_uint format[2];
    struct object *program;
    char name[64];
    uint32_t argument_count;
    value arguments[MOST_ARGUMENTS];
    cl_int status;
    int entry;
    void (*notify)(cl_event, cl_int, void *);
    void *notify_data;
    /* the program's list of SVM pointers, read when the command runs, as PoCL does */
    void **to_free;
    uint32_t to_free_count;
} object;

struct mock {
    mock_variant variant;
    void **own, **data;
    void *own_as_made[FL_SLOTS], *data_as_made[FL_SLOTS];
    object *objects;
};

typedef struct allocation {
    void *pointer;
    bool lives;
} allocation;

#define MOST_ENTRIES 8192
#define MOST_SVM 4096
static struct {
    pthread_mutex_t lock;
    mock mocks[MOCK_ALL][2];
    void *tables[MOCK_ALL][2][2][FL_SLOTS];
    mock_entry entries[MOST_ENTRIES];
    int count;
    int calls[FL_SLOTS];
    allocation svm[MOST_SVM];
    int svm_count;
    int fail_slot, fail_in;
    cl_int fail_code, event_status, told_status;
    bool failed, no_argument_info, confuses_samplers;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail_in = -1};

_Noreturn void mock_die(const char *file, int line, const char *format, ...) {
    va_list parts;
    va_start(parts, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, parts);
    fputc('\n', stderr);
    va_end(parts);
    abort();
}

static void enter(void) { pthread_mutex_lock(&state.lock); }
static void leave(void) { pthread_mutex_unlock(&state.lock); }

/* --- objects --- */

static object *make(mock *m, enum kind kind, object *context) {
    object *o = __real_calloc(1, sizeof *o);
    *o = (object){.head = {m->own, m->data},
                  .kind = kind,
                  .references = 1,
                  .driver = m,
                  .context = context,
                  .entry = -1};
    enter();
    o->next = m->objects;
    m->objects = o;
    leave();
    return o;
}

/* The object behind a handle, if it is of that kind. One that is gone, or that was never there,
 * ends the test. */
static object *is(const void *handle, enum kind kind) {
    object *o = (object *)handle;
    if (!o)
        return NULL;
    if (o->kind == DEAD || o->references <= 0)
        DIE("an object that is gone was used as a %s", kind_names[kind]);
    if (o->made_from && o->made_from->kind == DEAD)
        DIE("an image was used, and its buffer is gone");
    return o->kind == kind ? o : NULL;
}

static cl_int retain(const void *handle, enum kind kind, cl_int code) {
    enter();
    object *o = is(handle, kind);
    if (o)
        o->references++;
    leave();
    return o ? CL_SUCCESS : code;
}

static cl_int release(const void *handle, enum kind kind, cl_int code) {
    enter();
    object *o = is(handle, kind);
    if (o && --o->references == 0) {
        o->kind = DEAD;
        o->head = (fl_object){NULL, NULL};
    }
    leave();
    return o ? CL_SUCCESS : code;
}

int mock_references(const void *object_) {
    enter();
    int count = ((const object *)object_)->references;
    leave();
    return count;
}

#define COUNTED(type, Name, KIND, CODE)                                                            \
    static cl_int mock_clRetain##Name(type handle) { return retain(handle, KIND, CODE); }          \
    static cl_int mock_clRelease##Name(type handle) { return release(handle, KIND, CODE); }
COUNTED(cl_context, Context, CONTEXT, CL_INVALID_CONTEXT)
COUNTED(cl_command_queue, CommandQueue, QUEUE, CL_INVALID_COMMAND_QUEUE)
COUNTED(cl_mem, MemObject, BUFFER, CL_INVALID_MEM_OBJECT)
COUNTED(cl_sampler, Sampler, SAMPLER, CL_INVALID_SAMPLER)
COUNTED(cl_kernel, Kernel, KERNEL, CL_INVALID_KERNEL)
COUNTED(cl_event, Event, EVENT, CL_INVALID_EVENT)

cl_context mock_context(mock *m) { return &make(m, CONTEXT, NULL)->head; }

static object *in(const void *context, enum kind kind) {
    object *c = is(context, CONTEXT);
    return make(c->driver, kind, c);
}

cl_command_queue mock_queue(cl_context context, bool out_of_order) {
    object *o = in(context, QUEUE);
    o->properties = out_of_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0;
    return &o->head;
}

cl_mem mock_buffer(cl_context context, size_t size, void *use_host_ptr) {
    object *o = in(context, BUFFER);
    o->type = CL_MEM_OBJECT_BUFFER;
    o->size = size;
    o->host = use_host_ptr;
    o->flags = use_host_ptr ? CL_MEM_USE_HOST_PTR : 0;
    return &o->head;
}

cl_mem mock_image(cl_context context, cl_mem_object_type type, cl_mem made_from) {
    object *o = in(context, BUFFER);
    o->type = type;
    o->size = 4096;
    o->made_from = (object *)made_from;
    return &o->head;
}

void mock_made_from(cl_mem image, cl_mem source) {
    ((object *)image)->made_from = (object *)source;
}
void mock_is_depth(cl_mem image) { ((object *)image)->format[0] = CL_DEPTH; }

void mock_buffer_again(cl_context context, cl_mem gone) {
    object *o = (object *)gone;
    if (o->kind != DEAD)
        DIE("the buffer is still there");
    o->head = (fl_object){o->driver->own, o->driver->data};
    o->references = 1;
    o->kind = BUFFER;
}

cl_sampler mock_sampler(cl_context context) { return &in(context, SAMPLER)->head; }
cl_program mock_program(cl_context context) { return &in(context, PROGRAM)->head; }
void mock_release_program(cl_program program) { release(program, PROGRAM, CL_INVALID_PROGRAM); }

/* --- knobs and what was seen --- */

static cl_int injected(int slot) {
    enter();
    cl_int code = CL_SUCCESS;
    if (state.fail_in >= 0 && (state.fail_slot < 0 || state.fail_slot == slot) &&
        state.fail_in-- == 0) {
        code = state.fail_code;
        state.failed = true;
    }
    leave();
    return code;
}

#define MAY_FAIL(name)                                 \
    do {                                               \
        cl_int injected_code = injected(SLOT_##name);  \
        if (injected_code != CL_SUCCESS)               \
            return injected_code;                      \
    } while (0)

void mock_fail(int slot, int n, cl_int code) {
    enter();
    state.fail_slot = slot;
    state.fail_in = n;
    state.fail_code = code;
    state.failed = false;
    leave();
}

bool mock_has_failed(void) {
    enter();
    bool failed = state.failed;
    state.failed = false;
    state.fail_in = -1;
    leave();
    return failed;
}

void mock_hide_argument_info(bool hide) { state.no_argument_info = hide; }

void mock_confuse_samplers(bool confuse) { state.confuses_samplers = confuse; }
void mock_events_are(cl_int status) { state.event_status = status; }
void mock_callbacks_tell(cl_int status) { state.told_status = status; }
int mock_count(void) { return state.count; }

const mock_entry *mock_log(int number) {
    if (number < 0 || number >= state.count)
        DIE("the driver has been given %d commands, there is no number %d", state.count, number);
    return &state.entries[number];
}

void mock_clear(void) {
    state.count = 0;
    memset(state.calls, 0, sizeof state.calls);
}

int mock_calls(int slot) {
    enter();
    int calls = state.calls[slot];
    leave();
    return calls;
}

static void seen(int slot) {
    enter();
    state.calls[slot]++;
    leave();
}

static cl_int answer(const void *value_, size_t value_size, size_t size, void *into,
                     size_t *size_ret) {
    if (into && size < value_size)
        return CL_INVALID_VALUE;
    if (into)
        memcpy(into, value_, value_size);
    if (size_ret)
        *size_ret = value_size;
    return CL_SUCCESS;
}
#define ANSWER(thing) answer(&(thing), sizeof(thing), size, into, size_ret)

/* --- queries --- */

static cl_int mock_clGetCommandQueueInfo(cl_command_queue queue, cl_command_queue_info name,
                                         size_t size, void *into, size_t *size_ret) {
    MAY_FAIL(clGetCommandQueueInfo);
    object *o = is(queue, QUEUE);
    if (!o)
        return CL_INVALID_COMMAND_QUEUE;
    return name == CL_QUEUE_CONTEXT      ? ANSWER(o->context)
           : name == CL_QUEUE_PROPERTIES ? ANSWER(o->properties)
                                         : CL_INVALID_VALUE;
}

static cl_int mock_clGetMemObjectInfo(cl_mem mem, cl_mem_info name, size_t size, void *into,
                                      size_t *size_ret) {
    MAY_FAIL(clGetMemObjectInfo);
    object *o = is(mem, BUFFER), *sampler = state.confuses_samplers ? is(mem, SAMPLER) : NULL;
    cl_uint references;
    object left_over = {.type = CL_MEM_OBJECT_BUFFER, .size = 64, .made_from = (void *)16};
    if (sampler) {
        left_over.context = sampler->context;
        o = &left_over;
    }
    if (!o)
        return CL_INVALID_MEM_OBJECT;
    switch (name) {
    case CL_MEM_CONTEXT: return ANSWER(o->context);
    case CL_MEM_TYPE: return ANSWER(o->type);
    case CL_MEM_ASSOCIATED_MEMOBJECT: return ANSWER(o->made_from);
    case CL_MEM_FLAGS: return ANSWER(o->flags);
    case CL_MEM_HOST_PTR: return ANSWER(o->host);
    case CL_MEM_SIZE: return ANSWER(o->size);
    case CL_MEM_REFERENCE_COUNT:
        references = (cl_uint)mock_references(mem);
        return ANSWER(references);
    }
    return CL_INVALID_VALUE;
}

static object *is_image(const void *handle) {
    object *o = is(handle, BUFFER);
    return o && o->type != CL_MEM_OBJECT_BUFFER ? o : NULL;
}

static object *is_buffer(const void *handle) {
    object *o = is(handle, BUFFER);
    return o && o->type == CL_MEM_OBJECT_BUFFER ? o : NULL;
}

static cl_int mock_clGetImageInfo(cl_mem image, cl_image_info name, size_t size, void *into,
                                  size_t *size_ret) {
    MAY_FAIL(clGetImageInfo);
    object *o = is_image(image);
    const size_t element = 16;
    if (!o)
        return CL_INVALID_MEM_OBJECT;
    return name == CL_IMAGE_ELEMENT_SIZE ? ANSWER(element)
           : name == CL_IMAGE_FORMAT     ? ANSWER(o->format)
                                         : CL_INVALID_VALUE;
}

static cl_int mock_clGetSamplerInfo(cl_sampler sampler, cl_sampler_info name, size_t size,
                                    void *into, size_t *size_ret) {
    MAY_FAIL(clGetSamplerInfo);
    object *o = is(sampler, SAMPLER);
    const cl_uint addressing = CL_ADDRESS_CLAMP, filter = CL_FILTER_NEAREST;
    if (!o)
        return CL_INVALID_SAMPLER;
    return name == CL_SAMPLER_CONTEXT           ? ANSWER(o->context)
           : name == CL_SAMPLER_ADDRESSING_MODE ? ANSWER(addressing)
           : name == CL_SAMPLER_FILTER_MODE     ? ANSWER(filter)
                                                : CL_INVALID_VALUE;
}

static cl_int mock_clGetEventInfo(cl_event event, cl_event_info name, size_t size, void *into,
                                  size_t *size_ret) {
    MAY_FAIL(clGetEventInfo);
    object *o = is(event, EVENT);
    if (!o)
        return CL_INVALID_EVENT;
    enter();
    cl_int status = o->status;
    leave();
    cl_uint references = (cl_uint)mock_references(event);
    return name == CL_EVENT_CONTEXT                    ? ANSWER(o->context)
           : name == CL_EVENT_REFERENCE_COUNT          ? ANSWER(references)
           : name == CL_EVENT_COMMAND_QUEUE            ? ANSWER((void *){NULL})
           : name == CL_EVENT_COMMAND_EXECUTION_STATUS ? ANSWER(status)
                                                       : CL_INVALID_VALUE;
}

/* --- kernels --- */

static const char *signature(const object *kernel) { return strchr(kernel->name, ':') + 1; }

static cl_kernel mock_clCreateKernel(cl_program program, const char *name, cl_int *errcode_ret) {
    object *p = is(program, PROGRAM), *o = NULL;
    cl_int code = p ? injected(SLOT_clCreateKernel) : CL_INVALID_PROGRAM;
    if (code == CL_SUCCESS) {
        o = make(p->driver, KERNEL, p->context);
        o->program = p;
        snprintf(o->name, sizeof o->name, "%s", name);
        o->argument_count = (uint32_t)strlen(signature(o));
        seen(SLOT_clCreateKernel);
    }
    if (errcode_ret)
        *errcode_ret = code;
    return o ? &o->head : NULL;
}

static cl_kernel mock_clCloneKernel(cl_kernel kernel, cl_int *errcode_ret) {
    object *from = is(kernel, KERNEL), *o = NULL;
    cl_int code = from ? injected(SLOT_clCloneKernel) : CL_INVALID_KERNEL;
    if (code == CL_SUCCESS) {
        o = make(from->driver, KERNEL, from->context);
        o->program = from->program;
        memcpy(o->name, from->name, sizeof o->name);
        o->argument_count = from->argument_count;
        memcpy(o->arguments, from->arguments, sizeof o->arguments);
        seen(SLOT_clCloneKernel);
    }
    if (errcode_ret)
        *errcode_ret = code;
    return o ? &o->head : NULL;
}

static cl_int mock_clGetKernelInfo(cl_kernel kernel, cl_kernel_info name, size_t size, void *into,
                                   size_t *size_ret) {
    MAY_FAIL(clGetKernelInfo);
    object *o = is(kernel, KERNEL);
    if (!o)
        return CL_INVALID_KERNEL;
    switch (name) {
    case CL_KERNEL_NUM_ARGS: return ANSWER(o->argument_count);
    case CL_KERNEL_PROGRAM: return ANSWER(o->program);
    case CL_KERNEL_CONTEXT: return ANSWER(o->context);
    case CL_KERNEL_FUNCTION_NAME: return answer(o->name, strlen(o->name) + 1, size, into, size_ret);
    }
    return CL_INVALID_VALUE;
}

static cl_int mock_clGetKernelArgInfo(cl_kernel kernel, cl_uint index, cl_kernel_arg_info name,
                                      size_t size, void *into, size_t *size_ret) {
    MAY_FAIL(clGetKernelArgInfo);
    object *o = is(kernel, KERNEL);
    if (!o || index >= o->argument_count)
        return o ? CL_INVALID_ARG_INDEX : CL_INVALID_KERNEL;
    if (state.no_argument_info)
        return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
    char is_a = signature(o)[index];
    cl_uint address = is_a == 'm'   ? CL_KERNEL_ARG_ADDRESS_GLOBAL
                      : is_a == 'l' ? CL_KERNEL_ARG_ADDRESS_LOCAL
                      : is_a == 's' && state.confuses_samplers ? CL_KERNEL_ARG_ADDRESS_CONSTANT
                                    : CL_KERNEL_ARG_ADDRESS_PRIVATE;
    const char *type = is_a == 's' ? "sampler_t" : "float";
    return name == CL_KERNEL_ARG_ADDRESS_QUALIFIER
               ? ANSWER(address)
               : answer(type, strlen(type) + 1, size, into, size_ret);
}

static cl_int mock_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t size, const void *from) {
    MAY_FAIL(clSetKernelArg);
    object *o = is(kernel, KERNEL);
    if (!o || index >= o->argument_count)
        return o ? CL_INVALID_ARG_INDEX : CL_INVALID_KERNEL;
    value v = {.set = true, .size = size};
    if (from)
        memcpy(&v.bits, from, size < sizeof v.bits ? size : sizeof v.bits);
    char is_a = signature(o)[index];
    if ((is_a == 'm' || is_a == 's') && size != sizeof(void *))
        return CL_INVALID_ARG_SIZE;
    if (is_a == 'm' && v.bits && !is((void *)(uintptr_t)v.bits, BUFFER))
        return CL_INVALID_MEM_OBJECT;
    if (is_a == 's' && !is((void *)(uintptr_t)v.bits, SAMPLER))
        return CL_INVALID_SAMPLER;
    o->arguments[index] = v;
    return CL_SUCCESS;
}

static cl_int mock_clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint index, const void *pointer) {
    MAY_FAIL(clSetKernelArgSVMPointer);
    object *o = is(kernel, KERNEL);
    if (!o || index >= o->argument_count)
        return o ? CL_INVALID_ARG_INDEX : CL_INVALID_KERNEL;
    o->arguments[index] =
        (value){.set = true, .svm = true, .size = sizeof pointer, .bits = (uintptr_t)pointer};
    return CL_SUCCESS;
}

/* --- events --- */

static cl_event mock_clCreateUserEvent(cl_context context, cl_int *errcode_ret) {
    cl_int code = injected(SLOT_clCreateUserEvent);
    object *o = NULL;
    if (code == CL_SUCCESS) {
        o = in(context, EVENT);
        o->status = CL_SUBMITTED;
    }
    if (errcode_ret)
        *errcode_ret = code;
    return o ? &o->head : NULL;
}

static void mock_clSVMFree(cl_context context, void *pointer);

/* A list that is freed when the command has run, and then whoever asked to be told. */
static void finish(object *event, cl_int status) {
    enter();
    void (*notify)(cl_event, cl_int, void *) = event->notify, *data = event->notify_data;
    uint32_t count = event->to_free_count;
    event->status = status;
    event->notify = NULL;
    event->to_free_count = 0;
    leave();
    for (uint32_t i = 0; status == CL_COMPLETE && i < count; i++)
        mock_clSVMFree(&event->context->head, event->to_free[i]);
    if (notify)
        notify(&event->head, status == CL_COMPLETE ? state.told_status : status, data);
}

static cl_int mock_clSetUserEventStatus(cl_event event, cl_int status) {
    MAY_FAIL(clSetUserEventStatus);
    object *o = is(event, EVENT);
    if (!o)
        return CL_INVALID_EVENT;
    finish(o, status);
    return CL_SUCCESS;
}

cl_event mock_pending(cl_context context) { return mock_clCreateUserEvent(context, NULL); }
void mock_complete(cl_event event, cl_int status) { finish(is(event, EVENT), status); }

static cl_int mock_clSetEventCallback(cl_event event, cl_int when, void *notify, void *user_data) {
    MAY_FAIL(clSetEventCallback);
    object *o = is(event, EVENT);
    if (!o)
        return CL_INVALID_EVENT;
    enter();
    cl_int status = o->status;
    o->notify = (void (*)(cl_event, cl_int, void *))notify;
    o->notify_data = user_data;
    leave();
    if (status <= CL_COMPLETE)
        finish(o, status);
    return CL_SUCCESS;
}

static cl_int mock_clWaitForEvents(cl_uint count, const cl_event *list) {
    MAY_FAIL(clWaitForEvents);
    seen(SLOT_clWaitForEvents);
    for (cl_uint i = 0; i < count; i++)
        if (!is(list[i], EVENT))
            return CL_INVALID_EVENT;
    return CL_SUCCESS;
}

/* --- commands --- */

static cl_int enqueue(mock_entry entry, cl_uint count, const cl_event *list, cl_event *event,
                      object **made) {
    object *queue = is(entry.queue, QUEUE);
    cl_int code = queue ? injected(entry.slot) : CL_INVALID_COMMAND_QUEUE;
    if (code != CL_SUCCESS)
        return code;
    if (!count != !list || count > MOST_WAITS)
        return CL_INVALID_EVENT_WAIT_LIST;
    entry.wait_count = count;
    for (cl_uint i = 0; i < count; i++) {
        object *before = is(list[i], EVENT);
        if (!before)
            return CL_INVALID_EVENT_WAIT_LIST;
        if (before->context != queue->context)
            return CL_INVALID_CONTEXT;
        entry.waits[i] = before->entry;
    }
    object *done = event || made ? make(queue->driver, EVENT, queue->context) : NULL;
    enter();
    if (state.count == MOST_ENTRIES)
        DIE("more than %d commands", MOST_ENTRIES);
    entry.event = event ? done : NULL;
    if (done) {
        done->status = state.event_status;
        done->entry = state.count;
    }
    state.entries[state.count++] = entry;
    leave();
    if (event)
        *event = &done->head;
    if (made)
        *made = done;
    return CL_SUCCESS;
}

#define WAITS_PARAMETERS cl_uint count, const cl_event *list, cl_event *event
#define WAITS count, list, event, NULL

static cl_int mock_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                          cl_uint work_dim, const size_t *offset,
                                          const size_t *global, const size_t *local,
                                          WAITS_PARAMETERS) {
    object *k = is(kernel, KERNEL);
    if (!k)
        return CL_INVALID_KERNEL;
    mock_entry entry = {.slot = SLOT_clEnqueueNDRangeKernel,
                        .queue = queue,
                        .kernel = kernel,
                        .work_dim = work_dim,
                        .has_offset = offset != NULL,
                        .has_local = local != NULL};
    for (cl_uint i = 0; i < work_dim; i++) {
        entry.n[i] = offset ? offset[i] : 0;
        entry.n[3 + i] = global[i];
        entry.n[6 + i] = local ? local[i] : 0;
    }
    for (cl_uint i = 0; i < k->argument_count; i++) {
        const value *v = &k->arguments[i];
        char is_a = signature(k)[i];
        if (!v->set)
            return CL_INVALID_KERNEL_ARGS;
        if (v->svm ? v->bits && !mock_svm_lives((void *)(uintptr_t)v->bits)
                   : (is_a == 'm' && v->bits && !is((void *)(uintptr_t)v->bits, BUFFER)) ||
                         (is_a == 's' && !is((void *)(uintptr_t)v->bits, SAMPLER)))
            DIE("argument %u of %s is gone", i, k->name);
        entry.arguments[i] = v->bits;
    }
    return enqueue(entry, WAITS);
}

static cl_int mock_clEnqueueTask(cl_command_queue queue, cl_kernel kernel, WAITS_PARAMETERS) {
    const size_t one = 1;
    return mock_clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, count, list, event);
}

static cl_int mock_clEnqueueCopyBuffer(cl_command_queue queue, cl_mem source, cl_mem target,
                                       size_t source_offset, size_t target_offset, size_t size,
                                       WAITS_PARAMETERS) {
    mock_entry entry = {.slot = SLOT_clEnqueueCopyBuffer,
                        .queue = queue,
                        .source = source,
                        .target = target,
                        .n = {source_offset, target_offset, size}};
    return is(source, BUFFER) && is(target, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static mock_entry rect(int slot, void *queue, const size_t *a, const size_t *b,
                       const size_t *region, size_t p, size_t q, size_t r, size_t s) {
    mock_entry entry = {.slot = slot, .queue = queue, .n = {[9] = p, q, r, s}};
    memcpy(entry.n, a, 3 * sizeof *a);
    memcpy(entry.n + 3, b, 3 * sizeof *b);
    memcpy(entry.n + 6, region, 3 * sizeof *region);
    return entry;
}

static cl_int mock_clEnqueueCopyBufferRect(cl_command_queue queue, cl_mem source, cl_mem target,
                                           const size_t *a, const size_t *b, const size_t *region,
                                           size_t p, size_t q, size_t r, size_t s,
                                           WAITS_PARAMETERS) {
    mock_entry entry = rect(SLOT_clEnqueueCopyBufferRect, queue, a, b, region, p, q, r, s);
    entry.source = source;
    entry.target = target;
    return is(source, BUFFER) && is(target, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static void put_pattern(mock_entry *entry, const void *pattern, size_t size) {
    entry->pattern_size = size;
    memcpy(entry->pattern, pattern, size < sizeof entry->pattern ? size : sizeof entry->pattern);
}

static cl_int mock_clEnqueueFillBuffer(cl_command_queue queue, cl_mem buffer, const void *pattern,
                                       size_t pattern_size, size_t offset, size_t size,
                                       WAITS_PARAMETERS) {
    mock_entry entry = {
        .slot = SLOT_clEnqueueFillBuffer, .queue = queue, .target = buffer, .n = {offset, size}};
    put_pattern(&entry, pattern, pattern_size);
    return is(buffer, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueReadBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                       size_t offset, size_t size, void *host, WAITS_PARAMETERS) {
    mock_entry entry = {.slot = SLOT_clEnqueueReadBuffer,
                        .queue = queue,
                        .source = buffer,
                        .host = host,
                        .n = {offset, size}};
    return is(buffer, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                        size_t offset, size_t size, const void *host,
                                        WAITS_PARAMETERS) {
    mock_entry entry = {.slot = SLOT_clEnqueueWriteBuffer,
                        .queue = queue,
                        .target = buffer,
                        .host = (void *)host,
                        .n = {offset, size}};
    return is(buffer, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueReadBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                           const size_t *a, const size_t *b, const size_t *region,
                                           size_t p, size_t q, size_t r, size_t s, void *host,
                                           WAITS_PARAMETERS) {
    mock_entry entry = rect(SLOT_clEnqueueReadBufferRect, queue, a, b, region, p, q, r, s);
    entry.source = buffer;
    entry.host = host;
    return is(buffer, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueWriteBufferRect(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                            const size_t *a, const size_t *b, const size_t *region,
                                            size_t p, size_t q, size_t r, size_t s,
                                            const void *host, WAITS_PARAMETERS) {
    mock_entry entry = rect(SLOT_clEnqueueWriteBufferRect, queue, a, b, region, p, q, r, s);
    entry.target = buffer;
    entry.host = (void *)host;
    return is(buffer, BUFFER) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

/* --- images: a region's pixels are not looked at, the colour of a fill is --- */

static mock_entry on_image(int slot, void *queue, const size_t *origin, const size_t *region) {
    static const size_t nowhere[3];
    return rect(slot, queue, origin, nowhere, region, 0, 0, 0, 0);
}

static cl_int mock_clEnqueueCopyImage(cl_command_queue queue, cl_mem source, cl_mem target,
                                      const size_t *a, const size_t *b, const size_t *region,
                                      WAITS_PARAMETERS) {
    mock_entry entry = rect(SLOT_clEnqueueCopyImage, queue, a, b, region, 0, 0, 0, 0);
    entry.source = source;
    entry.target = target;
    return is_image(source) && is_image(target) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueCopyImageToBuffer(cl_command_queue queue, cl_mem source, cl_mem target,
                                              const size_t *origin, const size_t *region,
                                              size_t offset, WAITS_PARAMETERS) {
    mock_entry entry = on_image(SLOT_clEnqueueCopyImageToBuffer, queue, origin, region);
    entry.source = source;
    entry.target = target;
    entry.n[3] = offset;
    return is_image(source) && is_buffer(target) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueCopyBufferToImage(cl_command_queue queue, cl_mem source, cl_mem target,
                                              size_t offset, const size_t *origin,
                                              const size_t *region, WAITS_PARAMETERS) {
    mock_entry entry = on_image(SLOT_clEnqueueCopyBufferToImage, queue, origin, region);
    entry.source = source;
    entry.target = target;
    entry.n[4] = offset;
    return is_buffer(source) && is_image(target) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueFillImage(cl_command_queue queue, cl_mem image, const void *colour,
                                      const size_t *origin, const size_t *region,
                                      WAITS_PARAMETERS) {
    mock_entry entry = on_image(SLOT_clEnqueueFillImage, queue, origin, region);
    object *o = is_image(image);
    if (!o)
        return CL_INVALID_MEM_OBJECT;
    entry.target = image;
    put_pattern(&entry, colour, o->format[0] == CL_DEPTH ? 4 : 16);
    return enqueue(entry, WAITS);
}

static cl_int transfer(int slot, cl_command_queue queue, cl_mem image, cl_bool blocking,
                       const size_t *origin, const size_t *region, size_t row, size_t slice,
                       const void *host, WAITS_PARAMETERS) {
    mock_entry entry = on_image(slot, queue, origin, region);
    entry.source = image;
    entry.host = (void *)host;
    entry.n[9] = row;
    entry.n[10] = slice;
    entry.n[11] = blocking;
    return is_image(image) ? enqueue(entry, WAITS) : CL_INVALID_MEM_OBJECT;
}

static cl_int mock_clEnqueueReadImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                      const size_t *origin, const size_t *region, size_t row,
                                      size_t slice, void *host, WAITS_PARAMETERS) {
    return transfer(SLOT_clEnqueueReadImage, queue, image, blocking, origin, region, row, slice,
                    host, count, list, event);
}

static cl_int mock_clEnqueueWriteImage(cl_command_queue queue, cl_mem image, cl_bool blocking,
                                       const size_t *origin, const size_t *region, size_t row,
                                       size_t slice, const void *host, WAITS_PARAMETERS) {
    return transfer(SLOT_clEnqueueWriteImage, queue, image, blocking, origin, region, row, slice,
                    host, count, list, event);
}

static void *mock_clEnqueueMapBuffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                                     cl_map_flags flags, size_t offset, size_t size,
                                     WAITS_PARAMETERS, cl_int *errcode_ret) {
    mock_entry entry = {
        .slot = SLOT_clEnqueueMapBuffer, .queue = queue, .source = buffer, .n = {offset, size}};
    cl_int code = enqueue(entry, WAITS);
    if (errcode_ret)
        *errcode_ret = code;
    return code == CL_SUCCESS ? buffer : NULL;
}

static cl_int mock_clEnqueueNativeKernel(cl_command_queue queue, void *function, void *arguments,
                                         size_t size, cl_uint mem_count, const cl_mem *mems,
                                         const void **places, WAITS_PARAMETERS) {
    return enqueue((mock_entry){.slot = SLOT_clEnqueueNativeKernel, .queue = queue}, WAITS);
}

static cl_int mock_clEnqueueMarkerWithWaitList(cl_command_queue queue, WAITS_PARAMETERS) {
    return enqueue((mock_entry){.slot = SLOT_clEnqueueMarkerWithWaitList, .queue = queue}, WAITS);
}

static cl_int mock_clEnqueueBarrierWithWaitList(cl_command_queue queue, WAITS_PARAMETERS) {
    return enqueue((mock_entry){.slot = SLOT_clEnqueueBarrierWithWaitList, .queue = queue}, WAITS);
}

static cl_int mock_clEnqueueMarker(cl_command_queue queue, cl_event *event) {
    return mock_clEnqueueMarkerWithWaitList(queue, 0, NULL, event);
}

static cl_int mock_clEnqueueWaitForEvents(cl_command_queue queue, cl_uint count,
                                          const cl_event *list) {
    return mock_clEnqueueBarrierWithWaitList(queue, count, list, NULL);
}

static cl_int mock_clEnqueueBarrier(cl_command_queue queue) {
    return mock_clEnqueueBarrierWithWaitList(queue, 0, NULL, NULL);
}

/* A migration is logged as the marker that a replay makes of it. */
static cl_int mock_clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint mem_count,
                                              const cl_mem *mems, cl_mem_migration_flags flags,
                                              WAITS_PARAMETERS) {
    return mock_clEnqueueMarkerWithWaitList(queue, count, list, event);
}

static cl_int mock_clEnqueueSVMMigrateMem(cl_command_queue queue, cl_uint pointer_count,
                                          const void **pointers, const size_t *sizes,
                                          cl_mem_migration_flags flags, WAITS_PARAMETERS) {
    return mock_clEnqueueMarkerWithWaitList(queue, count, list, event);
}

static cl_int mock_clFlush(cl_command_queue queue) {
    MAY_FAIL(clFlush);
    seen(SLOT_clFlush);
    return is(queue, QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

static cl_int mock_clFinish(cl_command_queue queue) {
    MAY_FAIL(clFinish);
    seen(SLOT_clFinish);
    return is(queue, QUEUE) ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

/* --- SVM: an allocation keeps its memory as well, so that its address cannot come again --- */

static allocation *svm_at(const void *pointer) {
    for (int i = state.svm_count; i-- > 0;)
        if (state.svm[i].pointer == pointer)
            return &state.svm[i];
    return NULL;
}

static void *mock_clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size,
                             cl_uint alignment) {
    if (!is(context, CONTEXT) || injected(SLOT_clSVMAlloc))
        return NULL;
    void *pointer = __real_malloc(size);
    enter();
    if (state.svm_count == MOST_SVM)
        DIE("more than %d SVM allocations", MOST_SVM);
    state.svm[state.svm_count++] = (allocation){pointer, true};
    leave();
    return pointer;
}

static void mock_clSVMFree(cl_context context, void *pointer) {
    if (!is(context, CONTEXT))
        DIE("clSVMFree without a context");
    if (!pointer)
        return;
    enter();
    allocation *a = svm_at(pointer);
    if (!a || !a->lives)
        DIE("%p was freed twice, or is no SVM allocation", pointer);
    a->lives = false;
    state.calls[SLOT_clSVMFree]++;
    leave();
}

bool mock_svm_lives(const void *pointer) {
    enter();
    allocation *a = svm_at(pointer);
    bool lives = a && a->lives;
    leave();
    return lives;
}

int mock_living_svm(void) {
    enter();
    int count = 0;
    for (int i = 0; i < state.svm_count; i++)
        count += state.svm[i].lives;
    leave();
    return count;
}

static void not_freed(const void *pointer) {
    enter();
    allocation *a = svm_at(pointer);
    if (a && !a->lives)
        DIE("%p is used and was freed", pointer);
    leave();
}

/* The pointers are read when the command runs; a driver frees by its own function, not through its
 * table. */
static cl_int mock_clEnqueueSVMFree(cl_command_queue queue, cl_uint pointer_count, void **pointers,
                                    void *function, void *user_data, WAITS_PARAMETERS) {
    object *done;
    if (!pointer_count || !pointers)
        return CL_INVALID_VALUE;
    mock_entry entry = {.slot = SLOT_clEnqueueSVMFree, .queue = queue, .n = {pointer_count}};
    cl_int code = enqueue(entry, count, list, event, &done);
    if (code != CL_SUCCESS)
        return code;
    if (function)
        ((void (*)(cl_command_queue, cl_uint, void **, void *))function)(queue, pointer_count,
                                                                         pointers, user_data);
    else if (done->status == CL_COMPLETE)
        for (cl_uint i = 0; i < pointer_count; i++)
            mock_clSVMFree(&done->context->head, pointers[i]);
    else {
        done->to_free = pointers;
        done->to_free_count = pointer_count;
    }
    if (!event)
        release(done, EVENT, CL_INVALID_EVENT);
    return CL_SUCCESS;
}

static cl_int mock_clEnqueueSVMMemcpy(cl_command_queue queue, cl_bool blocking, void *target,
                                      const void *source, size_t size, WAITS_PARAMETERS) {
    mock_entry entry = {.slot = SLOT_clEnqueueSVMMemcpy,
                        .queue = queue,
                        .source = (void *)source,
                        .target = target,
                        .n = {size}};
    not_freed(source);
    not_freed(target);
    return enqueue(entry, WAITS);
}

static cl_int mock_clEnqueueSVMMemFill(cl_command_queue queue, void *pointer, const void *pattern,
                                       size_t pattern_size, size_t size, WAITS_PARAMETERS) {
    mock_entry entry = {
        .slot = SLOT_clEnqueueSVMMemFill, .queue = queue, .target = pointer, .n = {size}};
    not_freed(pointer);
    put_pattern(&entry, pattern, pattern_size);
    return enqueue(entry, WAITS);
}

/* --- the driver --- */

static void fill(void **table) {
#define HAS(name) table[SLOT_##name] = (void *)(fn_##name *)mock_##name
    HAS(clRetainContext), HAS(clReleaseContext), HAS(clRetainCommandQueue),
        HAS(clReleaseCommandQueue), HAS(clGetCommandQueueInfo);
    HAS(clRetainMemObject), HAS(clReleaseMemObject), HAS(clGetMemObjectInfo), HAS(clRetainSampler),
        HAS(clReleaseSampler);
    HAS(clCreateKernel), HAS(clRetainKernel), HAS(clReleaseKernel), HAS(clSetKernelArg),
        HAS(clSetKernelArgSVMPointer);
    HAS(clGetKernelInfo), HAS(clGetKernelArgInfo), HAS(clCloneKernel), HAS(clCreateUserEvent),
        HAS(clSetUserEventStatus);
    HAS(clRetainEvent), HAS(clReleaseEvent), HAS(clGetEventInfo), HAS(clSetEventCallback),
        HAS(clWaitForEvents), HAS(clFlush);
    HAS(clFinish), HAS(clSVMAlloc), HAS(clSVMFree), HAS(clEnqueueSVMFree), HAS(clEnqueueSVMMemcpy),
        HAS(clEnqueueSVMMemFill);
    HAS(clEnqueueNDRangeKernel), HAS(clEnqueueTask), HAS(clEnqueueCopyBuffer),
        HAS(clEnqueueCopyBufferRect), HAS(clEnqueueFillBuffer);
    HAS(clEnqueueReadBuffer), HAS(clEnqueueWriteBuffer), HAS(clEnqueueReadBufferRect),
        HAS(clEnqueueWriteBufferRect);
    HAS(clEnqueueMapBuffer), HAS(clEnqueueNativeKernel), HAS(clEnqueueMarkerWithWaitList),
        HAS(clEnqueueBarrierWithWaitList);
    HAS(clEnqueueMarker), HAS(clEnqueueWaitForEvents), HAS(clEnqueueBarrier),
        HAS(clEnqueueMigrateMemObjects);
    HAS(clEnqueueSVMMigrateMem), HAS(clGetImageInfo), HAS(clGetSamplerInfo),
        HAS(clEnqueueCopyImage), HAS(clEnqueueFillImage);
    HAS(clEnqueueCopyImageToBuffer), HAS(clEnqueueCopyBufferToImage), HAS(clEnqueueReadImage),
        HAS(clEnqueueWriteImage);
#undef HAS
}

/* A page with a copy of `table`: read-only, and `for_good` if even mprotect cannot open it (a file
 * that may only be read). */
static void **seal(void *const *table, bool for_good) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    int file = memfd_create("table", 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int read_only = open(path, O_RDONLY);
    if (file < 0 || read_only < 0 || ftruncate(file, (off_t)size) != 0 ||
        pwrite(file, table, FL_SLOTS * sizeof *table, 0) < 0)
        DIE("no memory for a read-only table");
    void **page = mmap(NULL, size, PROT_READ, MAP_SHARED, for_good ? read_only : file, 0);
    if (page == MAP_FAILED)
        DIE("no page for a read-only table");
    close(file);
    close(read_only);
    return page;
}

static mock *opened(mock_variant variant, int number) {
    mock *m = &state.mocks[variant][number];
    void **own = state.tables[variant][number][0], **data = state.tables[variant][number][1];
    m->variant = variant;
    if (variant != MOCK_ICD2_BARE)
        fill(own);
    m->own =
        variant == MOCK_SEALED || variant == MOCK_LOCKED ? seal(own, variant == MOCK_LOCKED) : own;
    if (variant == MOCK_ICD2 || variant == MOCK_ICD2_BARE) {
        fill(data);
        /* as a loader does: no NULL stays (SPEC cl_khr_icd) */
        for (int slot = 0; slot < FL_SLOTS; slot++)
            if (!data[slot])
                data[slot] = fl_stubs[slot];
        m->data = data;
        own[SLOT_clGetPlatformIDs] = own[SLOT_clUnloadCompiler] = FL_ICD2_TAG;
    }
    return m;
}

static void remember_tables(mock *m) {
    memcpy(m->own_as_made, m->own, sizeof m->own_as_made);
    if (m->data)
        memcpy(m->data_as_made, m->data, sizeof m->data_as_made);
}

mock *mock_open(mock_variant variant, int number) {
    mock *m = &state.mocks[variant][number];
    if (!m->own) {
        opened(variant, number);
        remember_tables(m);
    }
    mock_clear();
    state.event_status = state.told_status = CL_COMPLETE;
    state.no_argument_info = state.confuses_samplers = false;
    return m;
}

static void put(void **table, int slot, void *function, bool sealed) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    if (sealed)
        mprotect(table, size, PROT_READ | PROT_WRITE);
    table[slot] = function;
    if (sealed)
        mprotect(table, size, PROT_READ);
}

void mock_put_slot(mock *m, int slot, void *function) {
    put(m->own, slot, m->data ? m->own[slot] : function, m->variant == MOCK_SEALED);
    if (m->data)
        m->data[slot] = function ? function : fl_stubs[slot];
    remember_tables(m);
}

void *mock_exchange_slot(mock *m, int slot, void *function) {
    void **table = m->data ? m->data : m->own, *was = table[slot];
    put(table, slot, function, m->variant == MOCK_SEALED);
    return was;
}

void mock_put_back_slots(mock *m) {
    void *whole[FL_SLOTS] = {NULL};
    fill(whole);
    for (int slot = 0; slot < FL_SLOTS; slot++)
        if (whole[slot] && !m->data)
            put(m->own, slot, whole[slot], m->variant == MOCK_SEALED);
        else if (whole[slot])
            m->data[slot] = whole[slot];
    remember_tables(m);
}

static bool same(void *const *table, void *const *as_made, const char *name) {
    for (int slot = 0; slot < FL_SLOTS; slot++)
        if (table[slot] != as_made[slot]) {
            fprintf(stderr, "slot %d of the driver's %s is %p and was %p\n", slot, name,
                    table[slot], as_made[slot]);
            return false;
        }
    return true;
}

bool mock_is_untouched(const mock *m) {
    bool good = same(m->own, m->own_as_made, "own table") &&
                (!m->data || same(m->data, m->data_as_made, "dispatch_data"));
    for (const object *o = m->objects; o; o = o->next)
        if (o->kind != DEAD && (o->head.dispatch != m->own || o->head.dispatch_data != m->data)) {
            fprintf(stderr,
                    "a %s has another dispatch pointer or dispatch data than it was made with\n",
                    kind_names[o->kind]);
            good = false;
        }
    return good;
}

bool mock_close(mock *m) {
    bool good = mock_is_untouched(m);
    for (object *o = m->objects, *next; o; o = next) {
        next = o->next;
        if (o->kind != DEAD) {
            fprintf(stderr, "a %s still has %d references\n", kind_names[o->kind], o->references);
            good = false;
        }
        free(o);
    }
    m->objects = NULL;
    if (mock_living_svm()) {
        fprintf(stderr, "%d SVM allocations were not freed\n", mock_living_svm());
        good = false;
    }
    while (state.svm_count)
        free(state.svm[--state.svm_count].pointer);
    return good;
}

const char *mock_variant_name(mock_variant variant) {
    static const char *const names[] = {"icd1", "icd1-read-only", "icd2", "icd2-tags-only",
                                        "locked"};
    return names[variant];
}

void *mock_function(const void *handle, int slot) {
    const fl_object *o = handle;
    void **table = __atomic_load_n(&o->dispatch, __ATOMIC_ACQUIRE);
    if (__atomic_load_n(&table[0], __ATOMIC_ACQUIRE) == FL_ICD2_TAG && o->dispatch_data)
        table = o->dispatch_data;
    void *function = __atomic_load_n(&table[slot], __ATOMIC_ACQUIRE);
    if (!function)
        DIE("slot %d of the table is NULL", slot);
    return function;
}
