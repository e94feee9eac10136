/* Buffers of memory that both OpenCL and CUDA have.
 *
 * While somebody shares memory, a few slots of the driver's own table lead to functions of ours. A
 * buffer that the program creates is made of CUDA's memory, which the driver imports: a large one
 * by itself, a small one as a sub-buffer of a slab. The program sees no difference: what it asks of
 * such a buffer is answered as for any other. Where a buffer cannot be shared, the driver makes it
 * as always. */
#include "cuda_buffers.h"

#include "answer.h"
#include "recording.h"

#include <string.h>

/* Flags of buffers that can be shared: not those of host memory, nor unknown ones. */
#define SHAREABLE                                                                                  \
    (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY | CL_MEM_COPY_HOST_PTR |             \
     CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)

/* Whether flags exclude each other. Of parts, NVIDIA's driver does not look. */
static bool is_contradictory(cl_mem_flags flags) {
    cl_mem_flags access = flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY);
    cl_mem_flags host =
        flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS);
    return access & (access - 1) || host & (host - 1);
}

/* NULL: the driver makes it, or refuses it in its own words. */
static cl_mem shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host) {
    if (!(flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY)))
        flags |= CL_MEM_READ_WRITE;
    if (!context || !size || flags & ~(cl_mem_flags)SHAREABLE || is_contradictory(flags) ||
        !host != !(flags & CL_MEM_COPY_HOST_PTR))
        return NULL;
    return fl_new_shared_buffer(context, flags, size, host);
}

/* A block hears of memory that begins with the host's contents, which no replay renews. */
static cl_mem told(cl_context context, int slot, cl_mem_flags flags, cl_mem memory) {
    if (memory && flags & (CL_MEM_COPY_HOST_PTR | CL_MEM_USE_HOST_PTR))
        fl_tell_call(context, FL_ASK_CREATED, slot, memory);
    return memory;
}

static cl_mem create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                            cl_int *code) {
    bool shares = fl_shares_table(context);
    cl_mem memory = shares ? shared_buffer(context, flags, size, host) : NULL;
    if (memory && code)
        *code = CL_SUCCESS;
    if (!memory) {
        memory = DRIVER(context, clCreateBuffer)(context, flags, size, host, code);
        if (shares)
            fl_count_other_buffer(memory);
    }
    return told(context, SLOT_clCreateBuffer, flags, memory);
}

static cl_mem create_buffer_with_properties(cl_context context, const cl_mem_properties *properties,
                                            cl_mem_flags flags, size_t size, void *host,
                                            cl_int *code) {
    if (!properties)
        return create_buffer(context, flags, size, host, code);
    fn_clCreateBufferWithProperties *create = DRIVER(context, clCreateBufferWithProperties);
    cl_mem memory = create(context, properties, flags, size, host, code);
    if (fl_shares_table(context))
        fl_count_other_buffer(memory);
    return told(context, SLOT_clCreateBufferWithProperties, flags, memory);
}

/* What the driver says of a buffer: what it is a part of, and where. NVIDIA's driver counts from
 * the beginning of the outermost one, of which PoCL has no parts of parts. */
static cl_mem parent_of(cl_mem memory, size_t *offset) {
    fn_clGetMemObjectInfo *ask = DRIVER(memory, clGetMemObjectInfo);
    cl_mem parent = NULL;
    *offset = 0;
    if (ask(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL) != CL_SUCCESS ||
        (parent && ask(memory, CL_MEM_OFFSET, sizeof *offset, offset, NULL) != CL_SUCCESS))
        return NULL;
    return parent;
}

enum { DEEPEST = 8 };

/* Where a buffer lies that is shared. `depth` counts from 0, the program's buffer, to parts of
 * parts of it. `offset` is a part's in the program's buffer. */
typedef struct place {
    int depth;
    size_t offset;
    cl_mem_flags flags;           /* of the program's buffer */
    fl_cuda_memory memory;
} place;

/* False: it is not shared. */
static bool locate(cl_mem memory, place *found) {
    size_t offset = 0, first = 0;
    *found = (place){0};
    while (memory && found->depth < DEEPEST) {
        fl_place_facts facts;
        if (fl_find_place(memory, &facts)) {
            found->offset = found->depth ? first - facts.origin : 0;
            found->flags = facts.flags;
            found->memory = facts.memory;
            found->memory.address += found->offset;
            return true;
        }
        memory = parent_of(memory, &offset);
        if (!found->depth++)
            first = offset;
    }
    return false;
}

bool fl_find_cuda_memory(void *memory, fl_cuda_memory *found) {
    place where;
    bool is_shared = locate(memory, &where);
    *found = where.memory;
    return is_shared;
}

uint64_t fl_cuda_address(void *memory) {
    fl_cuda_memory found;
    return fl_find_cuda_memory(memory, &found) ? found.address : 0;
}

/* The program's buffer has no parent, and no properties. */
static cl_int get_info(cl_mem memory, cl_mem_info what, size_t room, void *to, size_t *size_ret) {
    fn_clGetMemObjectInfo *ask = DRIVER(memory, clGetMemObjectInfo);
    bool concerns = what == CL_MEM_ASSOCIATED_MEMOBJECT || what == CL_MEM_OFFSET ||
                    what == CL_MEM_FLAGS || what == CL_MEM_HOST_PTR || what == CL_MEM_PROPERTIES;
    void *none = NULL;
    cl_mem_flags flags = 0;
    place found;
    if (fl_is_kept(memory))
        return CL_INVALID_MEM_OBJECT;
    if (!concerns || !locate(memory, &found))
        return ask(memory, what, room, to, size_ret);
    if (found.depth && what == CL_MEM_FLAGS &&
        ask(memory, what, sizeof flags, &flags, NULL) == CL_SUCCESS)
        found.flags = (flags & SHAREABLE) | (found.flags & CL_MEM_COPY_HOST_PTR); /* of the whole */
    else if (found.depth && what != CL_MEM_HOST_PTR && what != CL_MEM_OFFSET)
        return ask(memory, what, room, to, size_ret);
    switch (what) {
    case CL_MEM_HOST_PTR:
    case CL_MEM_ASSOCIATED_MEMOBJECT: return fl_answer(&none, sizeof none, room, to, size_ret);
    case CL_MEM_OFFSET: return fl_answer(&found.offset, sizeof found.offset, room, to, size_ret);
    case CL_MEM_FLAGS: return fl_answer(&found.flags, sizeof flags, room, to, size_ret);
    default: return fl_answer(NULL, 0, room, to, size_ret);
    }
}

/* A part of a shared buffer must lie in it: behind it others lie, and NVIDIA's driver looks at the
 * beginning alone. */
static cl_mem create_part(cl_mem memory, cl_mem_flags flags, cl_buffer_create_type type,
                          const void *region, cl_int *code) {
    fn_clGetMemObjectInfo *ask = DRIVER(memory, clGetMemObjectInfo);
    const size_t *bounds = region;   /* a cl_buffer_region */
    size_t size = 0;
    place found;
    if (type == CL_BUFFER_CREATE_TYPE_REGION && bounds && locate(memory, &found) &&
        ask(memory, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS &&
        (bounds[0] > size || bounds[1] > size - bounds[0])) {
        if (code)
            *code = CL_INVALID_VALUE;
        return NULL;
    }
    fl_never_keep(memory);
    return DRIVER(memory, clCreateSubBuffer)(memory, flags, type, region, code);
}

/* What a cl_image_desc begins with, and its buffer. */
typedef struct image_description {
    uint32_t type;
    size_t bounds[6];
    uint32_t mips, samples;
    cl_mem buffer;
} image_description;

/* An image of a buffer uses its memory for as long as it lives. */
static void hold_for_image(const cl_image_desc *description) {
    const image_description *d = (const void *)description;
    if (d && d->buffer)
        fl_never_keep(d->buffer);
}

static cl_mem create_image(cl_context context, cl_mem_flags flags, const cl_image_format *format,
                           const cl_image_desc *description, void *host, cl_int *code) {
    hold_for_image(description);
    cl_mem memory =
        DRIVER(context, clCreateImage)(context, flags, format, description, host, code);
    return told(context, SLOT_clCreateImage, flags, memory);
}

static cl_mem create_image_with_properties(cl_context context, const cl_mem_properties *properties,
                                           cl_mem_flags flags, const cl_image_format *format,
                                           const cl_image_desc *description, void *host,
                                           cl_int *code) {
    fn_clCreateImageWithProperties *create = DRIVER(context, clCreateImageWithProperties);
    hold_for_image(description);
    cl_mem memory = create(context, properties, flags, format, description, host, code);
    return told(context, SLOT_clCreateImageWithProperties, flags, memory);
}

/* The program wants to hear when its buffer ends. */
static cl_int set_destructor_callback(cl_mem memory, void (*gone)(cl_mem, void *), void *data) {
    fn_clSetMemObjectDestructorCallback *set = DRIVER(memory, clSetMemObjectDestructorCallback);
    fl_never_keep(memory);
    return set(memory, (void *)gone, data);
}

static cl_int release_buffer(cl_mem memory) {
    cl_int code;
    if (fl_keep_buffer(memory, &code))
        return code;
    code = DRIVER(memory, clReleaseMemObject)(memory);
    fl_give_back();
    return code;
}

/* --- contexts and queues: see cuda_idle.c --- */

static cl_context create_context(const cl_context_properties *properties, cl_uint count,
                                 const cl_device_id *devices, void *notify, void *data,
                                 cl_int *code) {
    fn_clCreateContext *create = DRIVER(devices[0], clCreateContext);
    cl_context context = create(properties, count, devices, notify, data, code);
    if (context)
        fl_add_context(context);
    return context;
}

/* An ICD loader reaches a driver through the platform in the properties. */
static cl_context create_context_from_type(const cl_context_properties *properties,
                                           cl_device_type type, void *notify, void *data,
                                           cl_int *code) {
    const void *platform = NULL;
    for (const cl_context_properties *p = properties; p && p[0]; p += 2)
        if (p[0] == CL_CONTEXT_PLATFORM)
            platform = (const void *)p[1];
    if (!platform) {
        if (code)
            *code = CL_INVALID_PLATFORM;
        return NULL;
    }
    fn_clCreateContextFromType *create = DRIVER(platform, clCreateContextFromType);
    cl_context context = create(properties, type, notify, data, code);
    if (context)
        fl_add_context(context);
    return context;
}

static cl_int retain_context(cl_context context) {
    fl_retain_shared_context(context);
    return DRIVER(context, clRetainContext)(context);
}

static cl_int release_context(cl_context context) {
    fn_clReleaseContext *release = DRIVER(context, clReleaseContext);
    fl_release_shared_context(context);
    return release(context);
}

static cl_command_queue listed(cl_context context, cl_command_queue queue, bool in_order) {
    fl_queues *queues = queue ? fl_queues_of(context) : NULL;
    if (queues)
        fl_add_queue(queues, queue, in_order);
    return queue;
}

static cl_command_queue create_queue(cl_context context, cl_device_id device,
                                     cl_command_queue_properties properties, cl_int *code) {
    fn_clCreateCommandQueue *create = DRIVER(context, clCreateCommandQueue);
    return listed(context, create(context, device, properties, code),
                  !(properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE));
}

static cl_command_queue create_queue_with_properties(cl_context context, cl_device_id device,
                                                     const cl_queue_properties *properties,
                                                     cl_int *code) {
    fn_clCreateCommandQueueWithProperties *create =
        DRIVER(context, clCreateCommandQueueWithProperties);
    bool in_order = true;
    for (const cl_queue_properties *p = properties; p && p[0]; p += 2)
        if (p[0] == CL_QUEUE_PROPERTIES && p[1] & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
            in_order = false;
    return listed(context, create(context, device, properties, code), in_order);
}

static cl_int retain_queue(cl_command_queue queue) {
    fl_queues *queues = fl_queues_with(queue);
    if (queues)
        fl_retain_queue(queues, queue);
    return DRIVER(queue, clRetainCommandQueue)(queue);
}

static cl_int release_queue(cl_command_queue queue) {
    fl_queues *queues = fl_queues_with(queue);
    if (!queues || !fl_release_queue(queues, queue))
        return DRIVER(queue, clReleaseCommandQueue)(queue);
    fl_end_context(queues);
    return CL_SUCCESS;
}

/* Calls on queues, such as those of semaphores, which cuda_lanes.c would not see. */
static void *find_extension(cl_platform_id platform, const char *name) {
    fn_clGetExtensionFunctionAddressForPlatform *find =
        DRIVER(platform, clGetExtensionFunctionAddressForPlatform);
    void *found = find(platform, name);
    if (found && !strncmp(name, "clEnqueue", strlen("clEnqueue")))
        fl_forbid_lanes();
    return found;
}

/* Blocks watch these, too. */
static const fl_watched creation[] = {
    {SLOT_clCreateBuffer, (void *)create_buffer, false},
    {SLOT_clCreateBufferWithProperties, (void *)create_buffer_with_properties, false},
    {SLOT_clCreateImage, (void *)create_image, false},
    {SLOT_clCreateImageWithProperties, (void *)create_image_with_properties, false},
};

int fl_watch_creation(void **table, fl_mapping *known) {
    return fl_patch_all(table, creation, 4, known);
}

void fl_unwatch_creation(void **table, fl_mapping *known) {
    fl_unpatch_all(table, creation, 4, known);
}

int fl_share_memory(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import) {
    static const fl_watched others[] = {
        {SLOT_clGetMemObjectInfo, (void *)get_info, false},
        {SLOT_clCreateSubBuffer, (void *)create_part, false},
        {SLOT_clSetMemObjectDestructorCallback, (void *)set_destructor_callback, false},
        {SLOT_clReleaseMemObject, (void *)release_buffer, false},
        {SLOT_clCreateContext, (void *)create_context, false},
        {SLOT_clCreateContextFromType, (void *)create_context_from_type, false},
        {SLOT_clRetainContext, (void *)retain_context, false},
        {SLOT_clReleaseContext, (void *)release_context, false},
        {SLOT_clCreateCommandQueue, (void *)create_queue, false},
        {SLOT_clCreateCommandQueueWithProperties, (void *)create_queue_with_properties, false},
        {SLOT_clRetainCommandQueue, (void *)retain_queue, false},
        {SLOT_clReleaseCommandQueue, (void *)release_queue, false},
        {SLOT_clGetExtensionFunctionAddressForPlatform, (void *)find_extension, false},
    };
    void **table = fl_table_of(opencl_device);
    fl_mapping known = {0};
    if (!fl_add_shared_device(opencl_device, device, import))
        return CL_OUT_OF_RESOURCES;
    int code = fl_patch_all(table, others, sizeof others / sizeof *others, &known);
    if (code == CL_SUCCESS)
        code = fl_watch_creation(table, &known);
    if (code != CL_SUCCESS)
        fl_remove_shared_device(opencl_device);
    return code;
}

void fl_unshare_memory(void *opencl_device) {
    fl_mapping known = {0};
    if (fl_remove_shared_device(opencl_device))
        fl_unpatch_all(fl_table_of(opencl_device), creation, 2, &known);
    /* the others stay: buffers that were shared live on */
}
