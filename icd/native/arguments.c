/* Freezes captured launches: what clSetKernelArg put into which kernel, for as long as a block records.
 *
 * A captured launch must be frozen: the program goes on to set other arguments on the same kernel. And every memory object among
 * the arguments must be kept, which OpenCL does not do (clSetKernelArg retains nothing). The handles pass through the driver's own
 * table, so its slots are patched, and what passes is noted here until the last block has ended. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct argument {
    uint8_t kind;        /* enum fl_argument_kind */
    uint8_t declared;    /* what the program's source says: 0 not asked, 1 memory, 2 local memory, 3 value, 4 sampler, 5 unknown */
    size_t size;
    void *value;         /* copy of `size` bytes, NULL for local memory */
    void *object;        /* the memory object or sampler (retained), or the SVM pointer */
    fl_cell *cell;       /* of the Parameter that it is, a reference; NULL: it is none */
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

/* Set while this thread copies a kernel: a driver that does it through its own table is not the program. */
static _Thread_local bool copying;
/* The memory object that fl_set_memory sets: nobody has to find out what it is. */
static _Thread_local const void *known_memory;

static struct {
    pthread_mutex_t lock;
    kernel_state *states;
    uint32_t count, capacity;   /* open addressing by kernel */
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static kernel_state *slot_of(kernel_state *states, uint32_t capacity, const void *kernel) {
    uint32_t at = (uint32_t)(((uintptr_t)kernel >> 4) * 2654435761u) & (capacity - 1);
    while (states[at].kernel && states[at].kernel != kernel)
        at = (at + 1) & (capacity - 1);
    return &states[at];
}

/* A reference to what an argument is, if it is an object. */
static void retain(uint8_t kind, void *object) {
    if (kind == FL_ARG_MEM && object)
        CALL(fl_table_of(object), clRetainMemObject)(object);
    if (kind == FL_ARG_SAMPLER && object)
        CALL(fl_table_of(object), clRetainSampler)(object);
}

static void release(uint8_t kind, void *object) {
    if (kind == FL_ARG_MEM && object)
        CALL(fl_table_of(object), clReleaseMemObject)(object);
    if (kind == FL_ARG_SAMPLER && object)
        CALL(fl_table_of(object), clReleaseSampler)(object);
}

/* What releases objects is called without the lock: a driver may call the program back (clSetMemObjectDestructorCallback). */
static void release_value(const argument *a) {
    release(a->kind, a->object);
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

/* The state of a kernel, made when it is first met; NULL if there is no memory or the kernel is not one, and *code says which. */
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

/* What the source declares an argument as, where the driver kept it (CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME). */
static uint8_t declaration(cl_kernel kernel, cl_uint index) {
    fn_clGetKernelArgInfo *info = (fn_clGetKernelArgInfo *)fl_slot(fl_table_of(kernel), SLOT_clGetKernelArgInfo);
    cl_uint address = 0;
    char type[64] = "";
    bool has_type = info(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL) == CL_SUCCESS;
    if (has_type && strcmp(type, "sampler_t") == 0)
        return SAMPLER;   /* whatever address space it has */
    if (info(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof address, &address, NULL) != CL_SUCCESS)
        return UNKNOWN;
    if (address == CL_KERNEL_ARG_ADDRESS_GLOBAL || address == CL_KERNEL_ARG_ADDRESS_CONSTANT)
        return MEMORY;
    if (address == CL_KERNEL_ARG_ADDRESS_LOCAL)
        return LOCAL_MEMORY;
    return !has_type ? UNKNOWN : strncmp(type, "image", 5) == 0 ? MEMORY : VALUE;
}

static uint8_t declared(kernel_state *state, cl_uint index) {
    argument *a = &state->arguments[index];
    if (a->declared == NOT_ASKED)
        a->declared = declaration(state->kernel, index);
    return a->declared;
}

/* What eight bytes that a program set are, when only the bytes can tell: an object leads to something that begins with this driver's table,
 * and what the driver says of it must be what it says of such objects. Drivers do not always check what kind of object they are asked
 * about, so an answer alone proves nothing: what they say has to make sense. */
static bool looks_like_object(cl_kernel kernel, void *object) {
    fl_object head;
    return (uintptr_t)object % sizeof(void *) == 0 && fl_safe_read(object, &head, sizeof head) == sizeof head &&
           head.dispatch == kernel->dispatch;
}

static cl_context context_of(cl_kernel kernel) {
    cl_context context = NULL;
    CALL(fl_table_of(kernel), clGetKernelInfo)(kernel, CL_KERNEL_CONTEXT, sizeof context, &context, NULL);
    return context;
}

/* Its context, its type, its size and its use count. */
static bool looks_like_memory(cl_kernel kernel, void *object) {
    cl_context context = NULL;
    fn_clGetMemObjectInfo *info = (fn_clGetMemObjectInfo *)fl_slot(fl_table_of(object), SLOT_clGetMemObjectInfo);
    cl_uint type = 0, uses = 0;
    size_t size = 0;
    bool answers = info(object, CL_MEM_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_TYPE, sizeof type, &type, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_REFERENCE_COUNT, sizeof uses, &uses, NULL) == CL_SUCCESS &&
                   info(object, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS;
    return answers && context && context == context_of(kernel) && type >= CL_MEM_OBJECT_BUFFER && type <= CL_MEM_OBJECT_PIPE && uses > 0 && uses < 1u << 24 && size > 0;
}

/* Its context and its modes. */
static bool looks_like_sampler(cl_kernel kernel, void *object) {
    fn_clGetSamplerInfo *info = (fn_clGetSamplerInfo *)fl_slot(fl_table_of(object), SLOT_clGetSamplerInfo);
    cl_context context = NULL;
    cl_addressing_mode addressing = 0;
    cl_filter_mode filter = 0;
    bool answers = info(object, CL_SAMPLER_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS &&
                   info(object, CL_SAMPLER_ADDRESSING_MODE, sizeof addressing, &addressing, NULL) == CL_SUCCESS &&
                   info(object, CL_SAMPLER_FILTER_MODE, sizeof filter, &filter, NULL) == CL_SUCCESS;
    return answers && context && context == context_of(kernel) && addressing >= CL_ADDRESS_NONE && addressing <= CL_ADDRESS_MIRRORED_REPEAT &&
           filter >= CL_FILTER_NEAREST && filter <= CL_FILTER_LINEAR;
}

/* A sampler is the smaller object. NVIDIA's driver reads what it takes for memory beyond the end of a sampler, where released memory may lie. So
 * samplers are asked for first. */
static uint8_t looks_like(cl_kernel kernel, void *object) {
    if (!looks_like_object(kernel, object))
        return FL_ARG_VALUE;
    return looks_like_sampler(kernel, object) ? FL_ARG_SAMPLER : looks_like_memory(kernel, object) ? FL_ARG_MEM : FL_ARG_VALUE;
}

static uint8_t kind_by(uint8_t declared_as, cl_kernel kernel, void *object) {
    switch (declared_as) {
    case MEMORY: return FL_ARG_MEM;
    case SAMPLER: return FL_ARG_SAMPLER;
    case UNKNOWN: return looks_like(kernel, object);
    default: return FL_ARG_VALUE;
    }
}

static uint8_t kind_of(kernel_state *state, cl_uint index, size_t size, void *object) {
    if (size != sizeof(void *) || !object)
        return FL_ARG_VALUE;
    return object == known_memory ? FL_ARG_MEM : kind_by(declared(state, index), state->kernel, object);
}

int fl_kind_of_argument(void *kernel, uint32_t index, void *object) { return kind_by(declaration(kernel, index), kernel, object); }

/* Take over what an argument was set to. */
static void take_value(kernel_state *state, cl_uint index, size_t size, const void *value, bool svm) {
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
    retain(a->kind, a->object);
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
    kernel_state *state = fl_is_patched(kernel, SLOT_clSetKernelArg) ? state_of(kernel, &code) : NULL;
    if (state && index < state->count) {
        old = state->arguments[index];
        take_value(state, index, size, value, svm);
        state->arguments[index].cell = cell;
        cell = NULL;
        if (state->arguments[index].kind == FL_ARG_MEM)
            memory = state->arguments[index].object;
        if (old.kind == FL_ARG_UNSEEN || state->arguments[index].kind == FL_ARG_UNSEEN) {
            copy = state->copy;   /* it holds the unseen value for the launches before; those after need another */
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

cl_int fl_set_memory(void *kernel, uint32_t index, void *memory) {
    known_memory = memory;
    cl_int code = ((fn_clSetKernelArg *)fl_slot(fl_table_of(kernel), SLOT_clSetKernelArg))(kernel, index, sizeof memory, &memory);
    known_memory = NULL;
    return code;
}

int fl_watch_arguments(void **table, fl_mapping *known) {
    pthread_mutex_lock(&seen.lock);
    int code = fl_patch(table, SLOT_clSetKernelArg, (void *)watched_clSetKernelArg, known);
    if (code == CL_SUCCESS) {
        code = fl_patch(table, SLOT_clSetKernelArgSVMPointer, (void *)watched_clSetKernelArgSVMPointer, known);
        if (code != CL_SUCCESS)
            fl_unpatch(table, SLOT_clSetKernelArg, known);
    }
    pthread_mutex_unlock(&seen.lock);
    return code;
}

/* With the last watcher of a table what was seen through it is forgotten: from now on nobody sees it change. Other drivers' kernels
 * stay, unless there is no memory to keep them apart: then they count as unseen, which is refused and never wrong. */
void fl_unwatch_arguments(void **table, fl_mapping *known) {
    pthread_mutex_lock(&seen.lock);
    fl_unpatch(table, SLOT_clSetKernelArgSVMPointer, known);
    kernel_state *old = NULL, *rest = NULL;
    uint32_t capacity = seen.capacity;
    if (fl_unpatch(table, SLOT_clSetKernelArg, known) == 0 && seen.states) {
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

/* Another kernel of the same function: with the arguments that it has (clCloneKernel, OpenCL 2.1), else without any. */
cl_kernel fl_copy_kernel(cl_kernel kernel, bool *with_arguments) {
    void **table = fl_table_of(kernel);
    cl_program program = NULL;
    char name[512];
    cl_int code = CL_INVALID_OPERATION;
    cl_kernel copy = ((fn_clCloneKernel *)fl_slot(table, SLOT_clCloneKernel))(kernel, &code);
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

/* The memory object or the sampler that an argument of a list is, NULL for what is neither, or is a cell's. */
static void *object_in(const fl_argument *a) {
    void *object = NULL;
    if (!a->cell && (a->kind == FL_ARG_MEM || a->kind == FL_ARG_SAMPLER) && a->value)
        memcpy(&object, a->value, sizeof object);
    return object;
}

void fl_release_arguments(fl_arguments *list) {
    if (!list || atomic_fetch_sub(&list->users, 1) != 1)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        fl_release_cell(list->list[i].cell);
        if (list->holds)
            release(list->list[i].kind, object_in(&list->list[i]));
    }
    free(list);
}

bool fl_same_argument(const fl_argument *a, const fl_argument *b) {
    if (a->kind != b->kind || a->size != b->size || a->cell != b->cell)
        return false;
    if (a->cell)
        return true;
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

/* Whether a list has its own copy of a value: a pointer is the value itself, and a Parameter's value is in its cell. */
static bool is_copied(const fl_argument *a) { return a->kind != FL_ARG_SVM && a->value && !a->cell; }

/* A larger one stays too large for any device. */
static uint32_t size_in_list(size_t size) { return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX; }

/* A list of arguments in one piece of memory: their values lie behind them. It holds no objects but cells. */
static fl_arguments *new_list(const fl_argument *arguments, uint32_t count) {
    size_t bytes = 0, head = sizeof(fl_arguments) + count * sizeof *arguments;
    for (uint32_t i = 0; i < count; i++)
        bytes += is_copied(&arguments[i]) ? arguments[i].size : 0;
    fl_arguments *list = malloc(head + bytes);
    if (!list)
        return NULL;
    unsigned char *at = (unsigned char *)list + head;
    *list = (fl_arguments){.users = 1, .count = count, .hash = 14695981039346656037u};   /* FNV-1a over all values */
    for (uint32_t i = 0; i < count; i++) {
        const fl_argument *a = &arguments[i];
        bool copied = is_copied(a);
        list->list[i] = (fl_argument){a->kind, a->size, a->cell ? a->cell->bytes : copied ? at : a->value, fl_retain_cell(a->cell)};
        const unsigned char *from = copied ? a->value : (const unsigned char *)&list->list[i].value;
        for (size_t k = 0; k < (copied ? a->size : sizeof a->value); k++)
            list->hash = (list->hash ^ from[k]) * 1099511628211u;
        if (copied) {
            memcpy(at, a->value, a->size);
            at += a->size;
        }
    }
    list->hash ^= list->hash >> 32;
    return list;
}

/* The arguments that a kernel has now; NULL if there is no memory. */
static fl_arguments *list_arguments(const kernel_state *state) {
    fl_argument *arguments = calloc(state->count + 1, sizeof *arguments);
    if (!arguments)
        return NULL;
    for (uint32_t i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        arguments[i] = (fl_argument){a->kind, size_in_list(a->size), a->kind == FL_ARG_SVM ? a->object : a->value, a->cell};
    }
    fl_arguments *list = new_list(arguments, state->count);
    free(arguments);
    return list;
}

static fl_arguments *new_holding_list(const fl_argument *arguments, uint32_t count) {
    fl_arguments *list = new_list(arguments, count);
    for (uint32_t i = 0; list && i < count; i++)
        retain(list->list[i].kind, object_in(&list->list[i]));
    if (list)
        list->holds = true;
    return list;
}

fl_arguments *fl_change_arguments(const fl_arguments *base, uint32_t count, const fl_change *changes, uint32_t change_count) {
    fl_argument few[16] = {0}, *arguments = count <= 16 ? few : calloc(count, sizeof *arguments);
    if (!arguments)
        return NULL;
    if (base)
        memcpy(arguments, base->list, count * sizeof *arguments);
    for (uint32_t i = 0; i < change_count; i++)
        if (changes[i].index < count)
            arguments[changes[i].index] = (fl_argument){(uint8_t)changes[i].kind, size_in_list(changes[i].size), changes[i].value, NULL};
    fl_arguments *list = new_holding_list(arguments, count);
    if (arguments != few)
        free(arguments);
    return list;
}

int fl_bind_arguments(fl_command *command, fl_cell *const *cells, uint32_t cell_count) {
    const fl_arguments *base = command->arguments;
    uint32_t count = base ? base->count : 0, bound = 0;
    fl_argument *arguments = calloc(count + 1, sizeof *arguments);
    if (!arguments)
        return CL_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        arguments[i] = base->list[i];
        const fl_cell *old = arguments[i].cell;
        for (uint32_t k = 0; old && k < cell_count; k++)
            if (cells[k] != old && cells[k]->id == old->id && cells[k]->conversion == old->conversion && cells[k]->size == old->size) {
                arguments[i].cell = cells[k];
                bound++;
            }
    }
    fl_arguments *list = bound ? new_holding_list(arguments, count) : NULL;
    free(arguments);
    if (bound && !list)
        return CL_OUT_OF_HOST_MEMORY;
    if (list) {
        fl_release_arguments(command->arguments);
        command->arguments = list;
    }
    return CL_SUCCESS;
}

int fl_set_argument(fl_command *command, uint32_t index, uint32_t kind, size_t size, const void *value) {
    fl_arguments *list = command->arguments;
    if (!list || index >= list->count)
        return CL_INVALID_ARG_INDEX;
    fl_argument *a = &list->list[index];
    bool in_place = list->holds && atomic_load(&list->users) == 1 && a->kind == kind && a->size == size && !a->cell;
    if (in_place && (kind == FL_ARG_SVM || (a->value && value))) {
        retain((uint8_t)kind, object_in(&(fl_argument){(uint8_t)kind, size_in_list(size), value, NULL}));
        release(a->kind, object_in(a));
        if (kind == FL_ARG_SVM)
            a->value = value;
        else
            memcpy((void *)a->value, value, size);   /* it lies behind the list */
        return CL_SUCCESS;
    }
    fl_arguments *changed = fl_change_arguments(list, list->count, &(fl_change){index, kind, size, value}, 1);
    if (!changed)
        return CL_OUT_OF_HOST_MEMORY;
    command->arguments = changed;
    fl_release_arguments(list);
    return CL_SUCCESS;
}

int fl_get_argument(const fl_arguments *list, uint32_t index, fl_change *argument) {
    if (!list || index >= list->count)
        return CL_INVALID_ARG_INDEX;
    *argument = (fl_change){index, list->list[index].kind, list->list[index].size, list->list[index].value};
    return CL_SUCCESS;
}

uint64_t fl_parameter_of(const fl_arguments *list, uint32_t index) {
    return list && index < list->count && list->list[index].cell ? list->list[index].cell->id : 0;
}

bool fl_has_cell(const fl_arguments *list, const fl_cell *cell) {
    for (uint32_t i = 0; list && i < list->count; i++)
        if (list->list[i].cell == cell)
            return true;
    return false;
}

uint64_t fl_cell_bits(const fl_arguments *list) {
    uint64_t bits = 0;
    for (uint32_t i = 0; list && i < list->count && i < 64; i++)
        bits |= (uint64_t)(list->list[i].cell != NULL) << i;
    return bits;
}

uint32_t fl_argument_count(const fl_arguments *list) { return list ? list->count : 0; }

void *fl_clone_kernel(void *kernel) {
    bool with_arguments;
    return fl_copy_kernel(kernel, &with_arguments);
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

cl_int fl_freeze(cl_kernel *kernel, fl_arguments **arguments, bool allow_unseen, fl_keep *keep, fl_pins *pins, enum fl_reason *reason) {
    cl_int code;
    bool unseen = false, with_arguments = true;
    *reason = FL_NOT_REFUSED;
    pthread_mutex_lock(&seen.lock);
    kernel_state *state = state_of(*kernel, &code);
    if (!state)
        goto out;
    code = CL_OUT_OF_HOST_MEMORY;
    for (cl_uint i = 0; i < state->count; i++) {
        const argument *a = &state->arguments[i];
        uint8_t is = a->kind == FL_ARG_UNSEEN ? declared(state, i) : VALUE;
        unseen |= a->kind == FL_ARG_UNSEEN;
        if (!allow_unseen && is != VALUE && is != LOCAL_MEMORY) {
            *reason = FL_UNSEEN_ARGUMENT;
            goto out;
        }
        int added = a->kind == FL_ARG_MEM ? fl_keep_add_memory(keep, a->object) : 0;
        if (added < 0) {
            code = added;
            goto out;
        }
        if (a->kind == FL_ARG_SAMPLER && fl_keep_add(keep, a->object, FL_KEEP_SAMPLER, false) < 0)
            goto out;
        if (a->kind == FL_ARG_SVM && !fl_pin(pins, a->object))
            goto out;
    }
    copying = true;
    if (!state->copy)
        state->copy = fl_copy_kernel(*kernel, &with_arguments);
    copying = false;
    if (state->copy && unseen && !with_arguments) {   /* what was set before the block is lost in such a copy */
        CALL(fl_table_of(state->copy), clReleaseKernel)(state->copy);
        state->copy = NULL;
    }
    if (!state->copy) {
        *reason = FL_NO_CLONE;
        goto out;
    }
    *arguments = present_arguments(state);
    if (!*arguments || fl_keep_add(keep, state->copy, FL_KEEP_KERNEL, false) < 0)
        goto out;
    atomic_fetch_add(&(*arguments)->users, 1);
    *kernel = state->copy;
    code = CL_SUCCESS;
out:
    pthread_mutex_unlock(&seen.lock);
    return *reason == FL_NOT_REFUSED ? code : CL_SUCCESS;
}
