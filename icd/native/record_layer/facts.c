/* What the driver says of queues, memory, samplers, programs and kernels: once in each log. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

static fl_record record;

/* A number that a query answers, 0 if it does not. */
#define ASK(next, routine, handle, name)                                                           \
    ({                                                                                             \
        uint64_t number_ = 0;                                                                      \
        if (NEXT(next, routine)(handle, name, sizeof number_, &number_, NULL))                     \
            number_ = 0;                                                                           \
        number_;                                                                                   \
    })

typedef cl_int query(void *handle, uint32_t name, size_t size, void *into, size_t *size_ret);
typedef cl_int query_of(void *handle, void *device, uint32_t name, size_t size, void *into,
                        size_t *size_ret);
typedef cl_int query_at(void *handle, uint32_t index, uint32_t name, size_t size, void *into,
                        size_t *size_ret);

/* A piece with all that a query answers; of no bytes if it does not. Returns whether it has any. */
static bool add_answer(void *function, void *handle, uint32_t name, uint32_t tag) {
    query *ask = (query *)function;
    size_t size = 0;
    char *room = ask(handle, name, 0, NULL, &size) || !size ? NULL : fl_room(NULL, size);
    bool has = room && !ask(handle, name, size, room, NULL);
    fl_add_piece(&record, tag, has ? room : "", has ? size : 0);
    has = has && (size > 1 || *room);
    free(room);
    return has;
}

static cl_device_id device_of(fl_table next, fl_seen *queue) {
    return HANDLE(cl_device_id,
                  ASK(next, clGetCommandQueueInfo, queue->handle, CL_QUEUE_DEVICE));
}

void fl_note_queue(fl_table next, fl_seen *queue) {
    if (queue->is_noted)
        return;
    queue->is_noted = true;
    cl_device_id device = device_of(next, queue);
    void *platform = NULL;
    void *ask = next[SLOT_clGetDeviceInfo];
    NEXT(next, clGetDeviceInfo)(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, NULL);
    fl_add_word(&record, queue->serial);
    fl_add_word(&record, ASK(next, clGetCommandQueueInfo, queue->handle, CL_QUEUE_PROPERTIES));
    add_answer(ask, device, CL_DEVICE_NAME, 0);
    add_answer(ask, device, CL_DRIVER_VERSION, 1);
    add_answer(ask, device, CL_DEVICE_VERSION, 2);
    add_answer(next[SLOT_clGetPlatformInfo], platform, CL_PLATFORM_NAME, 3);
    add_answer(ask, device, CL_DEVICE_TYPE, 4);
    fl_write_record(&record, FL_R_QUEUE);
}

/* Whether it is memory that files have. */
bool fl_note_memory(fl_table next, fl_seen *memory) {
    if (memory->is_noted)
        return memory->whole != NULL;
    if (memory->kind == FL_K_SVM) {
        memory->is_noted = true;
        uint64_t words[] = {memory->serial, 0, memory->flags, memory->size, 0, 0};
        for (int i = 0; i < 6; i++)
            fl_add_word(&record, words[i]);
        fl_write_record(&record, FL_R_MEMORY);
        return true;
    }
    cl_mem handle = memory->handle;
    void *of = HANDLE(void *, ASK(next, clGetMemObjectInfo, handle, CL_MEM_ASSOCIATED_MEMOBJECT));
    fl_seen *whole = of ? fl_find(of, FL_K_MEMORY) : memory;
    memory->is_noted = true;
    memory->type = (uint32_t)ASK(next, clGetMemObjectInfo, handle, CL_MEM_TYPE);
    memory->size = ASK(next, clGetMemObjectInfo, handle, CL_MEM_SIZE);
    if (!whole || (whole != memory && !fl_note_memory(next, whole)) || !memory->size)
        return false;
    memory->whole = whole == memory ? memory : whole->whole;
    fl_add_word(&record, memory->serial);
    fl_add_word(&record, memory->type);
    fl_add_word(&record, ASK(next, clGetMemObjectInfo, handle, CL_MEM_FLAGS));
    fl_add_word(&record, memory->size);
    fl_add_word(&record, whole == memory ? 0 : whole->serial);
    fl_add_word(&record, ASK(next, clGetMemObjectInfo, handle, CL_MEM_OFFSET));
    if (memory->type != CL_MEM_OBJECT_BUFFER) {
        uint64_t format = ASK(next, clGetImageInfo, handle, CL_IMAGE_FORMAT);
        uint64_t layers = ASK(next, clGetImageInfo, handle, CL_IMAGE_ARRAY_SIZE);
        memory->element = ASK(next, clGetImageInfo, handle, CL_IMAGE_ELEMENT_SIZE);
        memory->extent[0] = ASK(next, clGetImageInfo, handle, CL_IMAGE_WIDTH);
        memory->extent[1] = ASK(next, clGetImageInfo, handle, CL_IMAGE_HEIGHT);
        memory->extent[2] = ASK(next, clGetImageInfo, handle, CL_IMAGE_DEPTH);
        if (memory->type == CL_MEM_OBJECT_IMAGE1D_ARRAY)
            memory->extent[1] = layers, memory->extent[2] = 1;
        else if (memory->type == CL_MEM_OBJECT_IMAGE2D_ARRAY)
            memory->extent[2] = layers;
        for (int i = 0; i < 3; i++)
            if (!memory->extent[i])
                memory->extent[i] = 1;
        fl_add_word(&record, format);
        fl_add_word(&record, memory->element);
        fl_add_word(&record, ASK(next, clGetImageInfo, handle, CL_IMAGE_ROW_PITCH));
        for (int i = 0; i < 3; i++)
            fl_add_word(&record, memory->extent[i]);
        memory->size = memory->element * memory->extent[0] * memory->extent[1] * memory->extent[2];
    }
    fl_write_record(&record, FL_R_MEMORY);
    return true;
}

void fl_note_sampler(fl_table next, fl_seen *sampler) {
    if (sampler->is_noted)
        return;
    sampler->is_noted = true;
    fl_add_word(&record, sampler->serial);
    fl_add_word(&record,
                ASK(next, clGetSamplerInfo, sampler->handle, CL_SAMPLER_NORMALIZED_COORDS));
    fl_add_word(&record, ASK(next, clGetSamplerInfo, sampler->handle, CL_SAMPLER_ADDRESSING_MODE));
    fl_add_word(&record, ASK(next, clGetSamplerInfo, sampler->handle, CL_SAMPLER_FILTER_MODE));
    fl_write_record(&record, FL_R_SAMPLER);
}

/* The binary for the first device, if there is no source and no IL. */
static void add_binary(fl_table next, cl_program program) {
    size_t size = 0, sizes[64] = {0};
    unsigned char *places[64] = {NULL};
    fn_clGetProgramInfo *ask = NEXT(next, clGetProgramInfo);
    if (!ask(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, &size) && sizes[0]) {
        for (size_t i = 0; i < size / sizeof *sizes; i++)
            places[i] = fl_room(NULL, sizes[i]);
        if (!ask(program, CL_PROGRAM_BINARIES, size, places, NULL) && places[0])
            fl_add_piece(&record, 3, places[0], sizes[0]);
        for (size_t i = 0; i < size / sizeof *sizes; i++)
            free(places[i]);
    }
}

/* The build options, of the first device that has any. No piece if the driver tells none. */
static void add_options(fl_table next, cl_program program, const cl_device_id *devices) {
    query_of *ask = (query_of *)next[SLOT_clGetProgramBuildInfo];
    char *options = NULL;
    size_t size = 0, longest = 0;
    for (; *devices && longest < 2; devices++) {
        if (ask(program, *devices, CL_PROGRAM_BUILD_OPTIONS, 0, NULL, &size))
            continue;
        free(options);
        options = fl_room(NULL, size + 1);
        longest = size;
        if (options && ask(program, *devices, CL_PROGRAM_BUILD_OPTIONS, size, options, NULL))
            *options = 0;
    }
    if (options)
        fl_add_piece(&record, 2, options, longest);
    free(options);
}

static fl_seen *note_program(fl_table next, cl_program program) {
    fl_seen *seen = fl_find(program, FL_K_PROGRAM);
    cl_device_id devices[65] = {NULL};
    if (!seen)
        seen = fl_see(program, FL_K_PROGRAM);
    if (!seen || seen->is_noted)
        return seen;
    seen->is_noted = true;
    void *ask = next[SLOT_clGetProgramInfo];
    fl_add_word(&record, seen->serial);
    bool has_text = add_answer(ask, program, CL_PROGRAM_SOURCE, 0);
    has_text |= add_answer(ask, program, CL_PROGRAM_IL, 1);
    NEXT(next, clGetProgramInfo)
    (program, CL_PROGRAM_DEVICES, sizeof devices - sizeof *devices, devices, NULL);
    add_options(next, program, devices);
    if (!has_text) /* PoCL compiles all kernels for all local sizes when it is asked */
        add_binary(next, program);
    fl_write_record(&record, FL_R_PROGRAM);
    return seen;
}

static void add_argument(fl_table next, cl_kernel kernel, uint32_t index, uint32_t *address) {
    static const uint32_t names[] = {CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_NAME};
    query_at *ask = (query_at *)next[SLOT_clGetKernelArgInfo];
    uint64_t numbers[3] = {0};
    ask(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, 4, &numbers[0], NULL);
    ask(kernel, index, CL_KERNEL_ARG_ACCESS_QUALIFIER, 4, &numbers[1], NULL);
    ask(kernel, index, CL_KERNEL_ARG_TYPE_QUALIFIER, 8, &numbers[2], NULL);
    fl_add_piece(&record, index, numbers, sizeof numbers);
    for (int i = 0; i < 2; i++) {
        size_t size = 0;
        bool has = !ask(kernel, index, names[i], 0, NULL, &size) && size;
        char *text = has ? fl_room(NULL, size) : NULL;
        if (text && !ask(kernel, index, names[i], size, text, NULL))
            fl_add_piece(&record, index, text, size);
        else
            fl_add_piece(&record, index, "", 0);
        free(text);
    }
    *address = (uint32_t)numbers[0];
}

void fl_note_kernel(fl_table next, fl_seen *kernel) {
    cl_kernel handle = kernel->handle;
    fn_clGetKernelInfo *ask = NEXT(next, clGetKernelInfo);
    if (kernel->is_noted)
        return;
    kernel->is_noted = true;
    uint64_t of = ASK(next, clGetKernelInfo, handle, CL_KERNEL_PROGRAM);
    fl_seen *program = note_program(next, HANDLE(cl_program, of));
    uint32_t count = (uint32_t)ASK(next, clGetKernelInfo, handle, CL_KERNEL_NUM_ARGS);
    size_t size = 0;
    if (!kernel->arguments) {
        kernel->arguments = fl_room(NULL, ((size_t)count + 1) * sizeof *kernel->arguments);
        kernel->address_of = fl_room(NULL, ((size_t)count + 1) * sizeof *kernel->address_of);
        kernel->count = kernel->arguments && kernel->address_of ? count : 0;
        ask(handle, CL_KERNEL_FUNCTION_NAME, 0, NULL, &size);
        kernel->name = fl_room(NULL, size + 1);
        if (kernel->name)
            ask(handle, CL_KERNEL_FUNCTION_NAME, size, kernel->name, NULL);
    }
    fl_add_word(&record, kernel->serial);
    fl_add_word(&record, program ? program->serial : 0);
    fl_add_word(&record, kernel->count);
    const char *name = kernel->name ? kernel->name : "";
    fl_add_piece(&record, 0, name, strlen(name));
    if (program && program->refused)
        kernel->refused = program->refused;
    for (uint32_t i = 0; i < kernel->count; i++)
        add_argument(next, handle, i, &kernel->address_of[i]);
    fl_write_record(&record, FL_R_KERNEL);
}
