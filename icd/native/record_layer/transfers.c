/* The memory that transfers use: how many bytes of the host's, which mappings there are, and the
 * contents of memory objects. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

static size_t rows(const size_t *region, size_t length, size_t row, size_t slice) {
    return (region[2] - 1) * slice + (region[1] - 1) * row + length;
}

/* SPEC clEnqueueReadImage: the rows of a 1D image array are slices. */
static size_t image_bytes(const fl_seen *image, const size_t *region, size_t row, size_t slice) {
    size_t length = region[0] * image->element;
    row = row ? row : length;
    if (!slice)
        slice = region[1] * row;
    else if (image->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
        row = slice;
    return rows(region, length, row, slice);
}

static size_t rectangle_bytes(const size_t *origin, const size_t *region, size_t row,
                              size_t slice) {
    row = row ? row : region[0];
    slice = slice ? slice : region[1] * row;
    return origin[2] * slice + origin[1] * row + origin[0] + rows(region, region[0], row, slice);
}

/* The bytes of the host's that a write reads, from its pointer on. */
size_t fl_host_bytes(const fl_call *call, const fl_seen *memory) {
    const uint64_t *a = call->arguments;
    if (call->function == SLOT_clEnqueueWriteBuffer)
        return a[4];
    if (call->function == SLOT_clEnqueueWriteBufferRect)
        return rectangle_bytes(HANDLE(size_t *, a[4]), HANDLE(size_t *, a[5]), a[8], a[9]);
    return image_bytes(memory, HANDLE(size_t *, a[4]), a[5], a[6]);
}

/* Whether a write's region is one of the memory. If not, there may be no such memory of the host's,
 * either. */
bool fl_fits(const fl_call *call, const fl_seen *memory) {
    const uint64_t *a = call->arguments;
    if (call->function == SLOT_clEnqueueWriteBuffer)
        return a[3] <= memory->size && a[4] <= memory->size - a[3];
    bool is_image = call->function == SLOT_clEnqueueWriteImage;
    const size_t *region = HANDLE(size_t *, is_image ? a[4] : a[5]);
    size_t left = memory->size;
    for (int i = 0; i < 3; i++) {
        if (!region[i] || region[i] > (is_image ? memory->extent[i] : left))
            return false;
        left /= region[i];
    }
    return true;
}

/* Whether a transfer writes all of a memory: then nobody needs to know what it held. */
bool fl_overwrites(const fl_call *call, const fl_seen *memory) {
    const uint64_t *a = call->arguments;
    uint64_t target = a[1], offset, size;
    switch (call->function) {
    case SLOT_clEnqueueWriteBuffer:
        offset = a[3], size = a[4];
        break;
    case SLOT_clEnqueueFillBuffer:
        offset = a[4], size = a[5];
        break;
    case SLOT_clEnqueueCopyBuffer:
        target = a[2], offset = a[4], size = a[5];
        break;
    case SLOT_clEnqueueSVMMemcpy:
        target = a[2], offset = 0, size = a[4];
        break;
    case SLOT_clEnqueueSVMMemFill:
        offset = 0, size = a[4];
        break;
    default:
        return false;
    }
    return target == WORD(memory->handle) && !offset && size == memory->size;
}

static fl_mapping *mappings;

void fl_add_mapping(const fl_call *call, const fl_seen *memory, void *pointer) {
    const uint64_t *a = call->arguments;
    fl_mapping *made = fl_room(NULL, sizeof *made);
    if (!made)
        return;
    *made = (fl_mapping){.other = mappings, .pointer = pointer, .memory = memory->handle,
        .flags = a[3]};
    if (call->function == SLOT_clEnqueueSVMMap) {
        made->flags = a[2];
        made->numbers[0] = WORD(pointer) - WORD(memory->handle);
        made->numbers[1] = made->bytes = a[4];
    } else if (call->function == SLOT_clEnqueueMapBuffer) {
        made->numbers[0] = a[4], made->numbers[1] = made->bytes = a[5];
    } else {
        const size_t *row = HANDLE(size_t *, a[6]), *slice = HANDLE(size_t *, a[7]);
        memcpy(made->numbers, HANDLE(void *, a[4]), 3 * sizeof(size_t));
        memcpy(made->numbers + 3, HANDLE(void *, a[5]), 3 * sizeof(size_t));
        made->numbers[6] = *row, made->numbers[7] = slice ? *slice : 0;
        made->bytes = image_bytes(memory, HANDLE(size_t *, a[5]), made->numbers[6],
                                  made->numbers[7]);
    }
    mappings = made;
}

/* A mapping, which ends; the caller frees it. NULL: it was not seen. */
fl_mapping *fl_take_mapping(const void *memory, const void *pointer) {
    for (fl_mapping **one = &mappings; *one; one = &(*one)->other)
        if ((*one)->memory == memory && (*one)->pointer == pointer) {
            fl_mapping *found = *one;
            *one = found->other;
            return found;
        }
    return NULL;
}

/* The host may not read some buffers: a copy of one can be read. */
static cl_int read_copy(fl_table next, cl_command_queue queue, const fl_seen *memory, void *into) {
    cl_context context = NULL;
    cl_int code;
    NEXT(next, clGetMemObjectInfo)(memory->handle, CL_MEM_CONTEXT, sizeof context, &context, NULL);
    cl_mem copy = NEXT(next, clCreateBuffer)(context, CL_MEM_READ_WRITE, memory->size, NULL, &code);
    if (!copy)
        return code;
    code = NEXT(next, clEnqueueCopyBuffer)(queue, memory->handle, copy, 0, 0, memory->size, 0,
                                           NULL, NULL);
    if (!code)
        code = NEXT(next, clFinish)(queue);
    if (!code)
        code = NEXT(next, clEnqueueReadBuffer)(queue, copy, 1, 0, memory->size, into, 0, NULL,
                                               NULL);
    NEXT(next, clReleaseMemObject)(copy);
    return code;
}

/* Log the contents of a memory object, behind everything in the queue. */
cl_int fl_read_contents(fl_table next, cl_command_queue queue, const fl_seen *memory,
                        uint64_t *number) {
    static const size_t origin[3];
    void *into = fl_new_data(memory->size);
    cl_int code;
    if (!into)
        return CL_OUT_OF_HOST_MEMORY;
    if (memory->kind == FL_K_SVM) {
        code = NEXT(next, clEnqueueSVMMemcpy)(queue, 1, into, memory->handle, memory->size, 0, NULL,
                                              NULL);
    } else if (memory->element) {
        code = NEXT(next, clEnqueueReadImage)(queue, memory->handle, 1, origin, memory->extent, 0,
                                              0, into, 0,
                                              NULL, NULL);
    } else {
        code = NEXT(next, clEnqueueReadBuffer)(queue, memory->handle, 1, 0, memory->size, into, 0,
                                               NULL, NULL);
        if (code == CL_INVALID_OPERATION)
            code = read_copy(next, queue, memory, into);
    }
    if (!code)
        code = NEXT(next, clFinish)(queue); /* some drivers' blocking reads return early */
    if (!code)
        *number = fl_keep_data(into);
    return code;
}
