/* What an argument of a kernel is: memory, a sampler or a value. The source says it, or the bytes
 * do. */
#include "native.h"

#include <string.h>

/* What the source declares an argument as, where the driver kept it
 * (CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME). */
uint8_t fl_declaration(cl_kernel kernel, cl_uint index) {
    fn_clGetKernelArgInfo *info = IN_SLOT(fl_table_of(kernel), clGetKernelArgInfo);
    cl_uint address = 0;
    char type[64] = "";
    bool has_type =
        info(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL) == CL_SUCCESS;
    if (has_type && strcmp(type, "sampler_t") == 0)
        return FL_DECLARED_SAMPLER;   /* whatever address space it has */
    if (info(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) !=
        CL_SUCCESS)
        return FL_DECLARED_UNKNOWN;
    if (address == CL_KERNEL_ARG_ADDRESS_GLOBAL || address == CL_KERNEL_ARG_ADDRESS_CONSTANT)
        return FL_DECLARED_MEMORY;
    if (address == CL_KERNEL_ARG_ADDRESS_LOCAL)
        return FL_DECLARED_LOCAL_MEMORY;
    return !has_type                        ? FL_DECLARED_UNKNOWN
           : strncmp(type, "image", 5) == 0 ? FL_DECLARED_MEMORY
                                            : FL_DECLARED_VALUE;
}

/* What eight bytes that a program set are, when only the bytes can tell: an object begins with this
 * driver's table, and the driver must say of it what it says of such objects. Drivers do not always
 * check what kind of object they are asked about, so an answer alone proves nothing: what they say
 * has to make sense. */
static bool looks_like_object(cl_kernel kernel, void *object) {
    fl_object head;
    return (uintptr_t)object % sizeof(void *) == 0 &&
           fl_safe_read(object, &head, sizeof head) == sizeof head &&
           head.dispatch == kernel->dispatch;
}

static cl_context context_of(cl_kernel kernel) {
    cl_context context = NULL;
    CALL(fl_table_of(kernel), clGetKernelInfo)(kernel, CL_KERNEL_CONTEXT, sizeof context, &context,
                                               NULL);
    return context;
}

/* Its context, its type, its size and its use count. */
static bool looks_like_memory(cl_kernel kernel, void *object) {
    cl_context context = NULL;
    fn_clGetMemObjectInfo *info = IN_SLOT(fl_table_of(object), clGetMemObjectInfo);
    cl_uint type = 0, uses = 0;
    size_t size = 0;
    bool answers = info(object, CL_MEM_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_TYPE, sizeof type, &type, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_REFERENCE_COUNT, sizeof uses, &uses, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS;
    return answers && context && context == context_of(kernel) && type >= CL_MEM_OBJECT_BUFFER &&
           type <= CL_MEM_OBJECT_PIPE && uses > 0 && uses < 1u << 24 && size > 0;
}

/* Its context and its modes. */
static bool looks_like_sampler(cl_kernel kernel, void *object) {
    fn_clGetSamplerInfo *info = IN_SLOT(fl_table_of(object), clGetSamplerInfo);
    cl_context context = NULL;
    cl_addressing_mode addressing = 0;
    cl_filter_mode filter = 0;
    bool answers = info(object, CL_SAMPLER_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS &&
                   info(object, CL_SAMPLER_ADDRESSING_MODE, sizeof addressing, &addressing, NULL) ==
                       CL_SUCCESS &&
                   info(object, CL_SAMPLER_FILTER_MODE, sizeof filter, &filter, NULL) == CL_SUCCESS;
    return answers && context && context == context_of(kernel) && addressing >= CL_ADDRESS_NONE &&
           addressing <= CL_ADDRESS_MIRRORED_REPEAT && filter >= CL_FILTER_NEAREST &&
           filter <= CL_FILTER_LINEAR;
}

/* A sampler is the smaller object. NVIDIA's driver reads what it takes for memory beyond the end of
 * a sampler, where released memory may lie. So samplers are asked for first. */
static uint8_t looks_like(cl_kernel kernel, void *object) {
    if (!looks_like_object(kernel, object))
        return FL_ARG_VALUE;
    return looks_like_sampler(kernel, object)  ? FL_ARG_SAMPLER
           : looks_like_memory(kernel, object) ? FL_ARG_MEM
                                               : FL_ARG_VALUE;
}

uint8_t fl_kind_by(uint8_t declared_as, cl_kernel kernel, void *object) {
    switch (declared_as) {
    case FL_DECLARED_MEMORY: return FL_ARG_MEM;
    case FL_DECLARED_SAMPLER: return FL_ARG_SAMPLER;
    case FL_DECLARED_UNKNOWN: return looks_like(kernel, object);
    default: return FL_ARG_VALUE;
    }
}

int fl_suits_declaration(void *kernel, uint32_t index, uint32_t kind) {
    uint8_t declared = fl_declaration(kernel, index);
    if (declared != FL_DECLARED_UNKNOWN)
        return fl_kind_by(declared, kernel, NULL) == kind;
    /* only pointers take no value (SPEC clSetKernelArg); who sets an argument next forgets this */
    return kind == FL_ARG_MEM ||
           DRIVER(kernel, clSetKernelArg)(kernel, index, sizeof(void *), NULL) != CL_SUCCESS;
}

int fl_kind_of_argument(void *kernel, uint32_t index, void *object) {
    return fl_kind_by(fl_declaration(kernel, index), kernel, object);
}
