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

typedef struct kernel_state {
    cl_kernel kernel;           /* retained: its address cannot become another kernel's */
    cl_kernel copy;             /* what replays copy again: ours alone, so nobody changes its arguments */
    uint32_t count;
    argument *arguments;
    fl_arguments **lists;       /* what launches had; launches with equal arguments share one */
    uint32_t list_count, list_room;
    uint32_t *places;           /* open addressing by hash: number in `lists` + 1, 0 where free; always twice the room */
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

static void forget_lists(kernel_state *state) {
    for (uint32_t i = 0; i < state->list_count; i++)
        fl_release_arguments(state->lists[i]);
    free(state->lists);
    free(state->places);
    if (state->copy)
        CALL(fl_table_of(state->copy), clReleaseKernel)(state->copy);
}

static void forget_all(void) {
    for (uint32_t i = 0; i < seen.capacity; i++) {
        kernel_state *state = &seen.states[i];
        if (!state->kernel)
            continue;
        for (uint32_t k = 0; k < state->count; k++)
            forget_value(&state->arguments[k]);
        forget_lists(state);
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

/* Another kernel of the same function: with the arguments that it has (clCloneKernel, OpenCL 2.1), else without any. */
cl_kernel fl_copy_kernel(cl_kernel kernel, bool *with_arguments) {
    void **table = fl_table_of(kernel);
    cl_program program = NULL;
    char name[512];
    cl_int code = CL_INVALID_OPERATION;
    cl_kernel copy = table[SLOT_clCloneKernel] ? CALL(table, clCloneKernel)(kernel, &code) : NULL;
    *with_arguments = code == CL_SUCCESS && copy;
    if (*with_arguments)
        return copy;
    code = CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    if (code == CL_SUCCESS)
        code = CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (code != CL_SUCCESS)
        return NULL;
    copy = CALL(fl_table_of(program), clCreateKernel)(program, name, &code);
    return code == CL_SUCCESS ? copy : NULL;
}

void fl_release_arguments(fl_arguments *list) {
    if (list && atomic_fetch_sub(&list->users, 1) == 1)
        free(list);
}

bool fl_same_argument(const fl_argument *a, const fl_argument *b) {
    if (a->kind != b->kind || a->size != b->size)
        return false;
    if (a->kind == FL_ARG_SVM || !a->value || !b->value)
        return a->value == b->value;
    return memcmp(a->value, b->value, a->size) == 0;
}

static bool same_list(const fl_arguments *a, const fl_arguments *b) {
    for (uint32_t i = 0; i < a->count; i++)
        if (!fl_same_argument(&a->list[i], &b->list[i]))
            return false;
    return true;
}

/* The arguments that a kernel has now, in one piece of memory; NULL if there is none. */
static fl_arguments *list_arguments(const kernel_state *state) {
    size_t bytes = 0, head = sizeof(fl_arguments) + state->count * sizeof(fl_argument);
    for (uint32_t i = 0; i < state->count; i++)
        bytes += state->arguments[i].value ? state->arguments[i].size : 0;
    fl_arguments *list = malloc(head + bytes);
    if (!list)
        return NULL;
    unsigned char *at = (unsigned char *)list + head;
    *list = (fl_arguments){.users = 1, .count = state->count, .hash = 14695981039346656037u};   /* FNV-1a over all values */
    for (uint32_t i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        list->list[i] = (fl_argument){a->kind, a->size, a->value ? at : a->kind == FL_ARG_SVM ? a->object : NULL};
        const unsigned char *from = a->value ? a->value : (const unsigned char *)&a->object;
        for (size_t k = 0; k < (a->value ? a->size : sizeof a->object); k++)
            list->hash = (list->hash ^ from[k]) * 1099511628211u;
        if (a->value) {
            memcpy(at, a->value, a->size);
            at += a->size;
        }
    }
    list->hash ^= list->hash >> 32;
    return list;
}

static uint32_t list_place(const kernel_state *state, const fl_arguments *list) {
    uint32_t mask = state->list_room * 2 - 1, at = (uint32_t)list->hash & mask;
    for (; state->places[at]; at = (at + 1) & mask) {
        const fl_arguments *other = state->lists[state->places[at] - 1];
        if (other->hash == list->hash && same_list(other, list))
            break;
    }
    return at;
}

static bool grow_lists(kernel_state *state) {
    uint32_t room = state->list_room ? state->list_room * 2 : 8;
    fl_arguments **lists = realloc(state->lists, room * sizeof *lists);
    if (lists)
        state->lists = lists;
    uint32_t *places = lists ? calloc(room * 2, sizeof *places) : NULL;
    if (!places)
        return false;
    free(state->places);
    state->places = places;
    state->list_room = room;
    for (uint32_t i = 0; i < state->list_count; i++)
        places[list_place(state, lists[i])] = i + 1;
    return true;
}

/* The list of the arguments that the kernel has now, made or found; the state keeps it. */
static fl_arguments *present_arguments(kernel_state *state) {
    fl_arguments *list = list_arguments(state);
    if (!list || (state->list_count == state->list_room && !grow_lists(state))) {
        free(list);
        return NULL;
    }
    uint32_t at = list_place(state, list);
    if (state->places[at]) {
        free(list);
        return state->lists[state->places[at] - 1];
    }
    state->lists[state->list_count] = list;
    state->places[at] = ++state->list_count;
    return list;
}

static bool keep_memory(fl_keep *keep, fl_pins *fresh, cl_mem object) {
    int added = fl_keep_add(keep, object, FL_KEEP_MEM, false);
    return added == 0 || (added > 0 && fl_list(fresh, object));
}

enum fl_reason fl_freeze(cl_kernel *kernel, fl_arguments **arguments, bool allow_unseen, fl_keep *keep, fl_pins *pins,
                         fl_pins *fresh) {
    enum fl_reason reason = FL_NO_MEMORY;
    bool unseen = false, with_arguments = true;
    pthread_mutex_lock(&seen.lock);
    kernel_state *state = state_of(*kernel);
    if (!state)
        goto out;
    for (cl_uint i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        if (a->kind == FL_ARG_UNSEEN) {
            uint8_t is = declared(state, i);
            unseen = true;
            reason = FL_UNSEEN_ARGUMENT;
            if (!allow_unseen && is != VALUE && is != LOCAL_MEMORY)
                goto out;
        }
        reason = FL_NO_MEMORY;
        if (a->kind == FL_ARG_MEM && !keep_memory(keep, fresh, a->object))
            goto out;
        if (a->kind == FL_ARG_SAMPLER && fl_keep_add(keep, a->object, FL_KEEP_SAMPLER, false) < 0)
            goto out;
        if (a->kind == FL_ARG_SVM && !fl_pin(pins, a->object))
            goto out;
    }
    if (!state->copy) {
        state->copy = fl_copy_kernel(*kernel, &with_arguments);
        reason = FL_NO_CLONE;
        if (!state->copy)
            goto out;
        if (unseen && !with_arguments) {   /* what was set before the block is lost in such a copy */
            CALL(fl_table_of(state->copy), clReleaseKernel)(state->copy);
            state->copy = NULL;
            goto out;
        }
        reason = FL_NO_MEMORY;
    }
    *arguments = present_arguments(state);
    if (!*arguments || fl_keep_add(keep, state->copy, FL_KEEP_KERNEL, false) < 0)
        goto out;
    atomic_fetch_add(&(*arguments)->users, 1);
    *kernel = state->copy;
    reason = FL_NOT_REFUSED;
out:
    pthread_mutex_unlock(&seen.lock);
    return reason;
}
