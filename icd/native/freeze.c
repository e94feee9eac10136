/* Freezes captured launches: what clSetKernelArg put into which kernel, for as long as a block
 * records. record.c calls `fl_freeze`, and appends the frozen launch as an `fl_command`.
 *
 * A captured launch must be frozen: the program goes on to set other arguments on the same kernel.
 * And every memory object among the arguments must be kept, which OpenCL does not do
 * (clSetKernelArg retains nothing). The handles pass through the driver's own table, so its slots
 * are patched. What passes is noted here until the last block has ended. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct argument {
    uint8_t kind;        /* enum fl_argument_kind */
    uint8_t declared;    /* enum fl_declared */
    size_t size;
    void *value;         /* copy of `size` bytes, NULL for local memory */
    void *object;        /* the memory object or sampler (retained), or the SVM pointer */
    fl_cell *cell;       /* of the Parameter that it is, a reference; NULL: it is none */
} argument;

typedef struct kernel_state {
    cl_kernel kernel;           /* retained: its address cannot become another kernel's */
    cl_kernel copy; /* what replays copy again: ours alone, so nobody changes its arguments */
    uint32_t count;
    argument *arguments;
    fl_arguments **lists;       /* what launches had; launches with equal arguments share one */
    uint32_t list_count, list_room;
    uint32_t *places; /* open addressing by hash: number in `lists` + 1, 0 where free; always twice
                         the room */
} kernel_state;

/* Set while this thread copies a kernel: a driver that does it through its own table is not the
 * program. */
static _Thread_local bool copying;
/* The memory object that fl_set_memory sets: nobody has to find out what it is. */
static _Thread_local const void *known_memory;

static struct {
    pthread_mutex_t lock;
    kernel_state *states;
    uint32_t count, capacity;   /* open addressing by kernel */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(seen.lock)

static kernel_state *slot_of(kernel_state *states, uint32_t capacity, const void *kernel) {
    uint32_t at = (uint32_t)(((uintptr_t)kernel >> 4) * 2654435761u) & (capacity - 1);
    while (states[at].kernel && states[at].kernel != kernel)
        at = (at + 1) & (capacity - 1);
    return &states[at];
}

/* What releases objects is called without the lock: a driver may call the program back
 * (clSetMemObjectDestructorCallback). */
static void release_value(const argument *a) {
    fl_release_object(a->kind, a->object);
    fl_release_cell(a->cell);
    free(a->value);
}

static void forget_lists(kernel_state *state) {
    for (uint32_t i = 0; i < state->list_count; i++)
        fl_release_arguments(state->lists[i]);
    free(state->lists);
    free(state->places);
    if (state->copy)
        CALL(fl_table_of(state->copy), clReleaseKernel)(state->copy);
}

static void release_states(kernel_state *states, uint32_t capacity) {
    for (uint32_t i = 0; i < capacity; i++) {
        kernel_state *state = &states[i];
        for (uint32_t k = 0; k < state->count; k++)
            release_value(&state->arguments[k]);
        free(state->arguments);
        forget_lists(state);
        if (state->kernel)
            CALL(fl_table_of(state->kernel), clReleaseKernel)(state->kernel);
    }
    free(states);
}

int fl_forgotten_kernels(void) {
    FL_HOLD(seen.lock);
    return seen.states == NULL;
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

/* The state of a kernel, made when it is first met; NULL if there is no memory or the kernel is not
 * one, and *code says which. */
static kernel_state *state_of(cl_kernel kernel, cl_int *code) {
    if (seen.capacity) {
        kernel_state *state = slot_of(seen.states, seen.capacity, kernel);
        if (state->kernel)
            return state;
    }
    cl_uint count = 0;
    void **table = fl_table_of(kernel);
    *code = CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
    if (*code != CL_SUCCESS)
        return NULL;
    *code = CL_OUT_OF_HOST_MEMORY;
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

static uint8_t declared(kernel_state *state, cl_uint index) {
    argument *a = &state->arguments[index];
    if (a->declared == FL_NOT_ASKED)
        a->declared = fl_declaration(state->kernel, index);
    return a->declared;
}

static uint8_t kind_of(kernel_state *state, cl_uint index, size_t size, void *object) {
    if (size != sizeof(void *) || !object)
        return FL_ARG_VALUE;
    return object == known_memory ? FL_ARG_MEM
                                  : fl_kind_by(declared(state, index), state->kernel, object);
}

/* Take over what an argument was set to. */
static void take_value(kernel_state *state, cl_uint index, size_t size, const void *value,
                       bool svm) {
    argument *a = &state->arguments[index];
    *a = (argument){.declared = a->declared};
    if (svm) {
        a->kind = FL_ARG_SVM;
        a->object = (void *)value;
        return;
    }
    if (value && size && !(a->value = malloc(size)))
        return;   /* unseen */
    if (a->value)
        memcpy(a->value, value, size);
    a->size = size;
    a->object = value && size == sizeof(void *) ? *(void **)a->value : NULL;
    a->kind = kind_of(state, index, size, a->object);
    fl_retain_object(a->kind, a->object);
}

static void note(cl_kernel kernel, cl_uint index, size_t size, const void *value, bool svm) {
    argument old = {0};
    cl_kernel copy = NULL;
    cl_mem memory = NULL;
    cl_int code;
    uint64_t parameter = 0;
    if (copying)
        return;
    fl_cell *cell = svm ? NULL : fl_cell_for(kernel, size, value, &parameter);
    pthread_mutex_lock(&seen.lock);
    kernel_state *state =
        fl_is_patched(kernel, SLOT_clSetKernelArg) ? state_of(kernel, &code) : NULL;
    if (state && index < state->count) {
        old = state->arguments[index];
        take_value(state, index, size, value, svm);
        state->arguments[index].cell = cell;
        cell = NULL;
        if (state->arguments[index].kind == FL_ARG_MEM)
            memory = state->arguments[index].object;
        if (old.kind == FL_ARG_UNSEEN || state->arguments[index].kind == FL_ARG_UNSEEN) {
            copy = state->copy; /* it holds the unseen value for the launches before; those after
                                   need another */
            state->copy = NULL;
        }
    }
    pthread_mutex_unlock(&seen.lock);
    release_value(&old);
    if (copy)
        CALL(fl_table_of(copy), clReleaseKernel)(copy);
    fl_release_cell(cell);
    if (memory)
        fl_tell_memory(memory);
    if (parameter)
        fl_tell_parameter(parameter);
}

static cl_int watched_clSetKernelArg(PARAMETERS_clSetKernelArg) {
    fl_replace_stand_in(&arg_size, &arg_value);
    cl_int code = DRIVER(kernel, clSetKernelArg)(kernel, arg_index, arg_size, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, arg_size, arg_value, false);
    return code;
}

static cl_int watched_clSetKernelArgSVMPointer(PARAMETERS_clSetKernelArgSVMPointer) {
    cl_int code = DRIVER(kernel, clSetKernelArgSVMPointer)(kernel, arg_index, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, sizeof arg_value, arg_value, true);
    return code;
}

cl_int fl_set_memory(void *kernel, uint32_t index, void *memory) {
    known_memory = memory;
    cl_int code =
        IN_SLOT(fl_table_of(kernel), clSetKernelArg)(kernel, index, sizeof memory, &memory);
    known_memory = NULL;
    return code;
}

static const fl_watched watched[] = {
    {SLOT_clSetKernelArg, (void *)watched_clSetKernelArg, false},
    {SLOT_clSetKernelArgSVMPointer, (void *)watched_clSetKernelArgSVMPointer, false},
};

int fl_watch_arguments(void **table, fl_mapping *known) {
    FL_HOLD(seen.lock);
    return fl_patch_all(table, watched, 2, known);
}

/* With the last watcher of a table what was seen through it is forgotten: from now on nobody sees
 * it change. Other drivers' kernels stay, unless there is no memory to keep them apart: then they
 * count as unseen, which is refused and never wrong. */
void fl_unwatch_arguments(void **table, fl_mapping *known) {
    pthread_mutex_lock(&seen.lock);
    kernel_state *old = NULL, *rest = NULL;
    uint32_t capacity = seen.capacity;
    if (fl_unpatch_all(table, watched, 2, known) == 0 && seen.states) {
        old = seen.states;
        rest = calloc(capacity, sizeof *rest);
        seen.states = rest;
        seen.count = 0;
        for (uint32_t i = 0; rest && i < capacity; i++) {
            cl_kernel kernel = old[i].kernel;
            if (!kernel || kernel->dispatch == table || kernel->dispatch_data == table)
                continue;
            *slot_of(rest, capacity, kernel) = old[i];
            old[i] = (kernel_state){0};
            seen.count++;
        }
        if (seen.count == 0) {
            free(rest);
            seen.states = NULL;
            seen.capacity = 0;
        }
    }
    pthread_mutex_unlock(&seen.lock);
    release_states(old, old ? capacity : 0);
}

/* Another kernel of the same function: with the arguments that it has (clCloneKernel, OpenCL 2.1),
 * else without any. */
cl_kernel fl_copy_kernel(cl_kernel kernel, bool *with_arguments) {
    void **table = fl_table_of(kernel);
    cl_program program = NULL;
    char name[512];
    cl_int code = CL_INVALID_OPERATION;
    cl_kernel copy = IN_SLOT(table, clCloneKernel)(kernel, &code);
    *with_arguments = code == CL_SUCCESS && copy;
    if (*with_arguments)
        return copy;
    code = CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    if (code == CL_SUCCESS)
        code =
            CALL(table, clGetKernelInfo)(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
    if (code != CL_SUCCESS)
        return NULL;
    copy = CALL(fl_table_of(program), clCreateKernel)(program, name, &code);
    return code == CL_SUCCESS ? copy : NULL;
}

/* The arguments that a kernel has now; NULL if there is no memory. */
static fl_arguments *list_arguments(const kernel_state *state) {
    fl_argument *arguments = calloc(state->count + 1, sizeof *arguments);
    if (!arguments)
        return NULL;
    for (uint32_t i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        arguments[i] = (fl_argument){a->kind, fl_size_in_list(a->size),
                                     a->kind == FL_ARG_SVM ? a->object : a->value, a->cell};
    }
    fl_arguments *list = fl_new_list(arguments, state->count);
    free(arguments);
    return list;
}

void *fl_clone_kernel(void *kernel) {
    bool with_arguments;
    return fl_copy_kernel(kernel, &with_arguments);
}

static uint32_t list_place(const kernel_state *state, const fl_arguments *list) {
    uint32_t mask = state->list_room * 2 - 1, at = (uint32_t)list->hash & mask;
    for (; state->places[at]; at = (at + 1) & mask) {
        const fl_arguments *other = state->lists[state->places[at] - 1];
        if (other->hash == list->hash && fl_same_list(other, list))
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
        fl_release_arguments(list);
        return NULL;
    }
    uint32_t at = list_place(state, list);
    if (state->places[at]) {
        fl_release_arguments(list);
        return state->lists[state->places[at] - 1];
    }
    state->lists[state->list_count] = list;
    state->places[at] = ++state->list_count;
    return list;
}

cl_int fl_freeze(cl_kernel *kernel, fl_arguments **arguments, bool allow_unseen, fl_keep *keep,
                 fl_pins *pins, enum fl_reason *reason) {
    cl_int code;
    bool unseen = false, with_arguments = true;
    *reason = FL_NOT_REFUSED;
    FL_HOLD(seen.lock);
    kernel_state *state = state_of(*kernel, &code);
    if (!state)
        return code;
    for (cl_uint i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        uint8_t is = a->kind == FL_ARG_UNSEEN ? declared(state, i) : FL_DECLARED_VALUE;
        unseen |= a->kind == FL_ARG_UNSEEN;
        if (!allow_unseen && is != FL_DECLARED_VALUE && is != FL_DECLARED_LOCAL_MEMORY) {
            *reason = FL_UNSEEN_ARGUMENT;
            return CL_SUCCESS;
        }
        int added = a->kind == FL_ARG_MEM ? fl_keep_add_memory(keep, a->object) : 0;
        if (added < 0)
            return added;
        if (a->kind == FL_ARG_SAMPLER && fl_keep_add(keep, a->object, FL_KEEP_SAMPLER, false) < 0)
            return CL_OUT_OF_HOST_MEMORY;
        if (a->kind == FL_ARG_SVM && !fl_pin(pins, a->object))
            return CL_OUT_OF_HOST_MEMORY;
    }
    copying = true;
    if (!state->copy)
        state->copy = fl_copy_kernel(*kernel, &with_arguments);
    copying = false;
    if (state->copy && unseen &&
        !with_arguments) { /* what was set before the block is lost in such a copy */
        CALL(fl_table_of(state->copy), clReleaseKernel)(state->copy);
        state->copy = NULL;
    }
    if (!state->copy) {
        *reason = FL_NO_CLONE;
        return CL_SUCCESS;
    }
    *arguments = present_arguments(state);
    if (!*arguments || fl_keep_add(keep, state->copy, FL_KEEP_KERNEL, false) < 0)
        return CL_OUT_OF_HOST_MEMORY;
    atomic_fetch_add(&(*arguments)->users, 1);
    *kernel = state->copy;
    return CL_SUCCESS;
}
