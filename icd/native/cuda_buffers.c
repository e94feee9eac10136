/* Buffers of memory that both OpenCL and CUDA have.
 *
 * While somebody shares memory, a few slots of the driver's own table lead to functions of ours. A
 * buffer that the program creates is made of CUDA's memory, which the driver imports: a large one
 * by itself, a small one as a sub-buffer of a slab. The program sees no difference: what it asks of
 * such a buffer is answered as for any other. Where a buffer cannot be shared, the driver makes it
 * as always. */
#include "cuda_buffers.h"

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

static cl_mem not_shared(cl_mem memory) {
    fl_count_other_buffer(memory);
    return memory;
}

static cl_mem create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                            cl_int *code) {
    cl_mem memory = shared_buffer(context, flags, size, host);
    if (memory) {
        if (code)
            *code = CL_SUCCESS;
        return memory;
    }
    return not_shared(((fn_clCreateBuffer *)fl_patched(context, SLOT_clCreateBuffer))(
        context, flags, size, host, code));
}

static cl_mem create_buffer_with_properties(cl_context context, const cl_mem_properties *properties,
                                            cl_mem_flags flags, size_t size, void *host,
                                            cl_int *code) {
    if (!properties)
        return create_buffer(context, flags, size, host, code);
    fn_clCreateBufferWithProperties *create =
        (fn_clCreateBufferWithProperties *)fl_patched(context, SLOT_clCreateBufferWithProperties);
    return not_shared(create(context, properties, flags, size, host, code));
}

/* What the driver says of a buffer: what it is a part of, and where. NVIDIA's driver counts from
 * the beginning of the outermost one, of which PoCL has no parts of parts. */
static cl_mem parent_of(cl_mem memory, size_t *offset) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
    cl_mem parent = NULL;
    *offset = 0;
    if (ask(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL) != CL_SUCCESS ||
        (parent && ask(memory, CL_MEM_OFFSET, sizeof *offset, offset, NULL) != CL_SUCCESS))
        return NULL;
    return parent;
}

enum { DEEPEST = 8 };

/* Where a buffer lies that is shared. `depth` counts from 0, the driver's import, to parts of parts
 * of it. `offset` is the buffer's in the import, and `slot_offset` that of the part of depth 1 that
 * it is, or is in. */
typedef struct place {
    int depth;
    size_t offset, slot_offset;
    bool is_in_slab;
    cl_mem_flags flags;           /* of the program's buffer */
    uint64_t address;
} place;

/* False: it is not shared. */
static bool locate(cl_mem memory, place *found) {
    size_t offset = 0;
    *found = (place){0};
    while (memory && found->depth < DEEPEST) {
        fl_import import;
        if (fl_find_import(memory, found->slot_offset, &import)) {
            found->is_in_slab = import.is_slab;
            found->flags = import.flags;
            found->address = import.address + found->offset;
            return true;
        }
        memory = parent_of(memory, &offset);
        if (!found->depth++)
            found->offset = offset;
        found->slot_offset = offset;
    }
    return false;
}

uint64_t fl_cuda_address(void *memory) {
    place found;
    return locate(memory, &found) ? found.address : 0;
}

static cl_int answer(const void *value, size_t size, size_t room, void *to, size_t *size_ret) {
    if (to && room < size)
        return CL_INVALID_VALUE;
    if (to && size)
        memcpy(to, value, size);
    if (size_ret)
        *size_ret = size;
    return CL_SUCCESS;
}

/* A slot of a slab is a buffer without a parent, and an import one without properties. */
static cl_int get_info(cl_mem memory, cl_mem_info what, size_t room, void *to, size_t *size_ret) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
    bool concerns = what == CL_MEM_ASSOCIATED_MEMOBJECT || what == CL_MEM_OFFSET ||
                    what == CL_MEM_FLAGS || what == CL_MEM_HOST_PTR || what == CL_MEM_PROPERTIES;
    void *none = NULL;
    cl_mem_flags flags = 0;
    place found;
    if (!concerns || !locate(memory, &found))
        return ask(memory, what, room, to, size_ret);
    bool is_part = found.depth > found.is_in_slab;
    size_t offset = is_part ? found.offset - found.slot_offset : 0;
    if (is_part && what == CL_MEM_FLAGS &&
        ask(memory, what, sizeof flags, &flags, NULL) == CL_SUCCESS)
        found.flags = (flags & SHAREABLE) | (found.flags & CL_MEM_COPY_HOST_PTR); /* of the whole */
    else if (is_part && what != CL_MEM_HOST_PTR && !(what == CL_MEM_OFFSET && found.is_in_slab))
        return ask(memory, what, room, to, size_ret);
    switch (what) {
    case CL_MEM_HOST_PTR:
    case CL_MEM_ASSOCIATED_MEMOBJECT: return answer(&none, sizeof none, room, to, size_ret);
    case CL_MEM_OFFSET: return answer(&offset, sizeof offset, room, to, size_ret);
    case CL_MEM_FLAGS: return answer(&found.flags, sizeof flags, room, to, size_ret);
    default: return answer(NULL, 0, room, to, size_ret);
    }
}

/* A part of a shared buffer must lie in it: behind it others lie, and NVIDIA's driver looks at the
 * beginning alone. */
static cl_mem create_part(cl_mem memory, cl_mem_flags flags, cl_buffer_create_type type,
                          const void *region, cl_int *code) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
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
    return ((fn_clCreateSubBuffer *)fl_patched(memory, SLOT_clCreateSubBuffer))(memory, flags, type,
                                                                                region, code);
}

static cl_int release_context(cl_context context) {
    fn_clReleaseContext *release =
        (fn_clReleaseContext *)fl_patched(context, SLOT_clReleaseContext);
    fl_release_slabs(context);
    return release(context);
}

int fl_share_memory(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import) {
    static const struct {
        int slot;
        void *function;
    } ours[] = {
        {SLOT_clCreateBuffer, (void *)create_buffer},
        {SLOT_clCreateBufferWithProperties, (void *)create_buffer_with_properties},
        {SLOT_clGetMemObjectInfo, (void *)get_info},
        {SLOT_clCreateSubBuffer, (void *)create_part},
        {SLOT_clReleaseContext, (void *)release_context},
    };
    void **table = fl_table_of(opencl_device);
    fl_mapping known = {0};
    if (!fl_add_shared_device(opencl_device, device, import))
        return CL_OUT_OF_RESOURCES;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        int code = fl_patch(table, ours[i].slot, ours[i].function, &known);
        if (code != CL_SUCCESS) {
            fl_unshare_memory(opencl_device);
            return code;
        }
    }
    return CL_SUCCESS;
}

void fl_unshare_memory(void *opencl_device) {
    void **table = fl_table_of(opencl_device);
    fl_mapping known = {0};
    if (fl_remove_shared_device(opencl_device)) {
        fl_unpatch(table, SLOT_clCreateBuffer, &known);
        fl_unpatch(table, SLOT_clCreateBufferWithProperties, &known);
    }
    /* the others stay: buffers that were shared live on */
}
