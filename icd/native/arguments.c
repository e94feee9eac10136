/* What clSetKernelArg put into which kernel, for as long as a block records.
 *
 * A captured launch must be frozen: the program goes on to set other arguments on the same kernel. And every memory object among
 * the arguments must be kept, which OpenCL does not do (clSetKernelArg retains nothing). The handles pass through the driver's own
 * table, so its slots are patched, and what passes is noted here until the last block has ended. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct argument {
    uint8_t kind;        /* fl_arg_kind */
    uint8_t declared;    /* what the program's source says: 0 not asked, 1 memory, 2 local memory, 3 value, 4 sampler, 5 unknown */
    size_t size;
    void *value;         /* copy of `size` bytes, NULL for local memory */
    void *object;        /* the memory object or sampler (retained), or the SVM pointer */
} argument;

enum { NOT_ASKED, MEMORY, LOCAL_MEMORY, VALUE, SAMPLER, UNKNOWN };

/* A clone, and the arguments that it was made with, one after the other. */
typedef struct frozen_kernel {
    uint64_t hash;
    size_t size;
    void *arguments;
    cl_kernel clone;
} frozen_kernel;

typedef struct kernel_state {
    cl_kernel kernel;    /* retained: its address cannot become another kernel's */
    uint32_t count;
    argument *arguments;
    frozen_kernel *frozen;      /* in the order in which they were made: launches with equal arguments share one */
    uint32_t frozen_count, frozen_room;
    uint32_t *places;           /* open addressing by hash: number in `frozen` + 1, 0 where free; always twice the room */
} kernel_state;

static struct {
    pthread_mutex_t lock;
    unsigned watchers;
    kernel_state *states;
    uint32_t count, capacity;   /* open addressing by kernel */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kernel_state *slot_of(kernel_state *states, uint32_t capacity, const void *kernel) {
    uint32_t at = (uint32_t)(((uintptr_t)kernel >> 4) * 2654435761u) & (capacity - 1);
    while (states[at].kernel && states[at].kernel != kernel)
        at = (at + 1) & (capacity - 1);
    return &states[at];
}

static void forget_value(argument *a) {
    if (a->kind == FL_ARG_MEM)
        CALL(fl_table_of(a->object), clReleaseMemObject)(a->object);
    if (a->kind == FL_ARG_SAMPLER)
        CALL(fl_table_of(a->object), clReleaseSampler)(a->object);
    free(a->value);
    *a = (argument){.declared = a->declared};
}

/* The newest first: drivers find a program's newest kernel first. */
static void forget_frozen(kernel_state *state) {
    while (state->frozen_count) {
        frozen_kernel *f = &state->frozen[--state->frozen_count];
        CALL(fl_table_of(f->clone), clReleaseKernel)(f->clone);
        free(f->arguments);
    }
    free(state->frozen);
    free(state->places);
}

static void forget_all(void) {
    for (uint32_t i = 0; i < seen.capacity; i++) {
        kernel_state *state = &seen.states[i];
        if (!state->kernel)
            continue;
        for (uint32_t k = 0; k < state->count; k++)
            forget_value(&state->arguments[k]);
        forget_frozen(state);
        free(state->arguments);
        CALL(fl_table_of(state->kernel), clReleaseKernel)(state->kernel);
    }
    free(seen.states);
    seen.states = NULL;
    seen.count = seen.capacity = 0;
}

int fl_forgotten_kernels(void) {
    pthread_mutex_lock(&seen.lock);
    int nothing = seen.states == NULL;
    pthread_mutex_unlock(&seen.lock);
    return nothing;
}

static bool grow(void) {
    uint32_t capacity = seen.capacity ? seen.capacity * 2 : 32;
    kernel_state *states = calloc(capacity, sizeof *states);
    if (!states)
        return false;
    for (uint32_t i = 0; i < seen.capacity; i++)
        if (seen.states[i].kernel)
            *slot_of(states, capacity, seen.states[i].kernel) = seen.states[i];
    free(seen.states);
    seen.states = states;
    seen.capacity = capacity;
    return true;
}

/* The state of a kernel, made when it is first met; NULL if there is no memory or the kernel is not one. */
static kernel_state *state_of(cl_kernel kernel) {
    if (seen.capacity) {
        kernel_state *state = slot_of(seen.states, seen.capacity, kernel);
        if (state->kernel)
            return state;
    }
    cl_uint count = 0;
    void **table = fl_table_of(kernel);
    if (CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL) != CL_SUCCESS)
        return NULL;
    if (seen.count * 2 >= seen.capacity && !grow())
        return NULL;
    argument *arguments = calloc(count ? count : 1, sizeof *arguments);
    if (!arguments)
        return NULL;
    kernel_state *state = slot_of(seen.states, seen.capacity, kernel);
    *state = (kernel_state){.kernel = kernel, .count = count, .arguments = arguments};
    CALL(table, clRetainKernel)(kernel);
    seen.count++;
    return state;
}

/* What the source declares an argument as, where the driver kept it (CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME). */
static uint8_t declared(kernel_state *state, cl_uint index) {
    argument *a = &state->arguments[index];
    if (a->declared != NOT_ASKED)
        return a->declared;
    fn_clGetKernelArgInfo *info = CALL(fl_table_of(state->kernel), clGetKernelArgInfo);
    cl_uint address = 0;
    char type[64] = "";
    a->declared = UNKNOWN;
    if (info(state->kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) != CL_SUCCESS)
        return a->declared;
    if (address == CL_KERNEL_ARG_ADDRESS_GLOBAL || address == CL_KERNEL_ARG_ADDRESS_CONSTANT)
        a->declared = MEMORY;
    else if (address == CL_KERNEL_ARG_ADDRESS_LOCAL)
        a->declared = LOCAL_MEMORY;
    else if (info(state->kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL) == CL_SUCCESS)
        a->declared = strcmp(type, "sampler_t") == 0 ? SAMPLER : VALUE;
    return a->declared;
}

/* Whether eight bytes that a program set are a memory object, when only the bytes can tell: they must lead to something that begins
 * with this driver's table and that the driver calls a memory object. A number that by chance looks so is retained, no more. */
static bool looks_like_memory(const kernel_state *state, void *object) {
    fl_object head;
    if ((uintptr_t)object % sizeof(void *) || fl_safe_read(object, &head, sizeof head) != sizeof head)
        return false;
    if (head.dispatch != state->kernel->dispatch)
        return false;
    cl_uint type;
    return CALL(fl_table_of(object), clGetMemObjectInfo)(object, CL_MEM_TYPE, sizeof type, &type, NULL) == CL_SUCCESS;
}

static uint8_t kind_of(kernel_state *state, cl_uint index, size_t size, void *object) {
    if (size != sizeof(void *) || !object)
        return FL_ARG_VALUE;
    switch (declared(state, index)) {
    case MEMORY: return FL_ARG_MEM;
    case SAMPLER: return FL_ARG_SAMPLER;
    case UNKNOWN: return looks_like_memory(state, object) ? FL_ARG_MEM : FL_ARG_VALUE;
    default: return FL_ARG_VALUE;
    }
}

static void note(cl_kernel kernel, cl_uint index, size_t size, const void *value, bool svm) {
    pthread_mutex_lock(&seen.lock);
    kernel_state *state = seen.watchers ? state_of(kernel) : NULL;
    if (!state || index >= state->count)
        goto out;
    argument *a = &state->arguments[index];
    if (!svm && a->kind != FL_ARG_UNSEEN && a->kind != FL_ARG_SVM && a->size == size && !a->value == !value &&
        (!value || memcmp(a->value, value, size) == 0))
        goto out;   /* nothing has changed */
    forget_value(a);
    if (svm) {
        a->kind = FL_ARG_SVM;
        a->object = (void *)value;
        goto out;
    }
    if (value && size && !(a->value = malloc(size)))
        goto out;   /* stays unseen */
    if (a->value)
        memcpy(a->value, value, size);
    a->size = size;
    a->object = value && size == sizeof(void *) ? *(void **)a->value : NULL;
    a->kind = kind_of(state, index, size, a->object);
    if (a->kind == FL_ARG_MEM)
        CALL(fl_table_of(a->object), clRetainMemObject)(a->object);
    if (a->kind == FL_ARG_SAMPLER)
        CALL(fl_table_of(a->object), clRetainSampler)(a->object);
out:
    pthread_mutex_unlock(&seen.lock);
}

static cl_int watched_clSetKernelArg(cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void *arg_value) {
    cl_int code = ((fn_clSetKernelArg *)fl_patched(kernel, SLOT_clSetKernelArg))(kernel, arg_index, arg_size, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, arg_size, arg_value, false);
    return code;
}

static cl_int watched_clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint arg_index, const void *arg_value) {
    cl_int code = ((fn_clSetKernelArgSVMPointer *)fl_patched(kernel, SLOT_clSetKernelArgSVMPointer))(kernel, arg_index, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, sizeof arg_value, arg_value, true);
    return code;
}

int fl_watch_arguments(void **table) {
    int code = fl_patch(table, SLOT_clSetKernelArg, (void *)watched_clSetKernelArg);
    if (code == CL_SUCCESS) {
        code = fl_patch(table, SLOT_clSetKernelArgSVMPointer, (void *)watched_clSetKernelArgSVMPointer);
        if (code != CL_SUCCESS)
            fl_unpatch(table, SLOT_clSetKernelArg);
    }
    if (code == CL_SUCCESS) {
        pthread_mutex_lock(&seen.lock);
        seen.watchers++;
        pthread_mutex_unlock(&seen.lock);
    }
    return code;
}

void fl_unwatch_arguments(void **table) {
    fl_unpatch(table, SLOT_clSetKernelArg);
    fl_unpatch(table, SLOT_clSetKernelArgSVMPointer);
    pthread_mutex_lock(&seen.lock);
    if (--seen.watchers == 0)
        forget_all();
    pthread_mutex_unlock(&seen.lock);
}

/* A second kernel made from the same program, with the arguments set again: for drivers without clCloneKernel (before OpenCL 2.1). */
static cl_kernel make_again(kernel_state *state) {
    void **table = fl_table_of(state->kernel);
    cl_program program = NULL;
    char name[512];
    cl_int code = CALL(table, clGetKernelInfo)(state->kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    if (code == CL_SUCCESS)
        code = CALL(table, clGetKernelInfo)(state->kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (code != CL_SUCCESS)
        return NULL;
    cl_kernel kernel = CALL(fl_table_of(program), clCreateKernel)(program, name, &code);
    for (cl_uint i = 0; kernel && i < state->count; i++) {
        const argument *a = &state->arguments[i];
        if (a->kind == FL_ARG_SVM)
            code = ((fn_clSetKernelArgSVMPointer *)fl_patched(kernel, SLOT_clSetKernelArgSVMPointer))(kernel, i, a->object);
        else
            code = ((fn_clSetKernelArg *)fl_patched(kernel, SLOT_clSetKernelArg))(kernel, i, a->size, a->value);
        if (code != CL_SUCCESS) {
            CALL(table, clReleaseKernel)(kernel);
            kernel = NULL;
        }
    }
    return kernel;
}

static cl_kernel clone(kernel_state *state) {
    void **table = fl_table_of(state->kernel);
    cl_int code = CL_INVALID_OPERATION;
    cl_kernel copy = NULL;
    if (table[SLOT_clCloneKernel])
        copy = CALL(table, clCloneKernel)(state->kernel, &code);
    return code == CL_SUCCESS ? copy : NULL;
}

/* The arguments that a kernel has now, one after the other; NULL if there is no memory. */
static void *list_arguments(const kernel_state *state, size_t *size) {
    *size = 0;
    for (uint32_t i = 0; i < state->count; i++)
        *size += sizeof(size_t) + 1 + (state->arguments[i].value ? state->arguments[i].size : sizeof(void *));
    char *list = malloc(*size + 1), *at = list;
    for (uint32_t i = 0; list && i < state->count; i++) {
        const argument *a = &state->arguments[i];
        size_t bytes = a->value ? a->size : sizeof a->object;
        *at++ = (char)a->kind;
        memcpy(at, &a->size, sizeof a->size);
        memcpy(at + sizeof a->size, a->value ? a->value : &a->object, bytes);
        at += sizeof a->size + bytes;
    }
    return list;
}

static uint64_t hash_of(const unsigned char *bytes, size_t size) {
    uint64_t hash = 14695981039346656037u;   /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

static uint32_t frozen_place(const kernel_state *state, uint64_t hash, const void *arguments, size_t size) {
    uint32_t mask = state->frozen_room * 2 - 1, at = (uint32_t)hash & mask;
    for (; state->places[at]; at = (at + 1) & mask) {
        const frozen_kernel *f = &state->frozen[state->places[at] - 1];
        if (f->hash == hash && f->size == size && (!size || memcmp(f->arguments, arguments, size) == 0))
            break;
    }
    return at;
}

static bool grow_frozen(kernel_state *state) {
    uint32_t room = state->frozen_room ? state->frozen_room * 2 : 8;
    frozen_kernel *frozen = realloc(state->frozen, room * sizeof *frozen);
    if (frozen)
        state->frozen = frozen;
    uint32_t *places = frozen ? calloc(room * 2, sizeof *places) : NULL;
    if (!places)
        return false;
    free(state->places);
    state->places = places;
    state->frozen_room = room;
    for (uint32_t i = 0; i < state->frozen_count; i++)
        places[frozen_place(state, frozen[i].hash, frozen[i].arguments, frozen[i].size)] = i + 1;
    return true;
}

/* A clone with the arguments that the kernel has now, made or found; NULL: *reason says why. */
static cl_kernel frozen_of(kernel_state *state, bool unseen, enum fl_reason *reason) {
    size_t size;
    void *arguments = list_arguments(state, &size);
    *reason = FL_NO_MEMORY;
    if (!arguments || (state->frozen_count == state->frozen_room && !grow_frozen(state))) {
        free(arguments);
        return NULL;
    }
    uint64_t hash = hash_of(arguments, size);
    uint32_t at = frozen_place(state, hash, arguments, size);
    if (state->places[at]) {
        free(arguments);
        return state->frozen[state->places[at] - 1].clone;
    }
    cl_kernel made = clone(state);
    if (!made && !unseen)
        made = make_again(state);
    *reason = FL_NO_CLONE;
    if (!made) {
        free(arguments);
        return NULL;
    }
    state->frozen[state->frozen_count] = (frozen_kernel){hash, size, arguments, made};
    state->places[at] = ++state->frozen_count;
    return made;
}

static bool keep_memory(fl_keep *keep, fl_pins *fresh, cl_mem object) {
    int added = fl_keep_add(keep, object, FL_KEEP_MEM, false);
    return added == 0 || (added > 0 && fl_list(fresh, object));
}

cl_kernel fl_freeze(cl_kernel kernel, bool allow_unseen, fl_keep *keep, fl_pins *pins, fl_pins *fresh, enum fl_reason *reason) {
    cl_kernel frozen = NULL;
    bool unseen = false;
    pthread_mutex_lock(&seen.lock);
    kernel_state *state = state_of(kernel);
    *reason = FL_NO_MEMORY;
    if (!state)
        goto out;
    for (cl_uint i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        if (a->kind == FL_ARG_UNSEEN) {
            uint8_t is = declared(state, i);
            unseen = true;
            *reason = FL_UNSEEN_ARGUMENT;
            if (!allow_unseen && is != VALUE && is != LOCAL_MEMORY)
                goto out;
        }
        *reason = FL_NO_MEMORY;
        if (a->kind == FL_ARG_MEM && !keep_memory(keep, fresh, a->object))
            goto out;
        if (a->kind == FL_ARG_SAMPLER && fl_keep_add(keep, a->object, FL_KEEP_SAMPLER, false) < 0)
            goto out;
        if (a->kind == FL_ARG_SVM && !fl_pin(pins, a->object))
            goto out;
    }
    frozen = frozen_of(state, unseen, reason);
    if (frozen) {
        CALL(fl_table_of(frozen), clRetainKernel)(frozen);
        *reason = FL_NOT_REFUSED;
    }
out:
    pthread_mutex_unlock(&seen.lock);
    return frozen;
}
