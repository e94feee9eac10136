/* What the program has set on kernels, so that a launch can be recorded with the arguments of its
 * moment.
 *
 * OpenCL cannot be asked for a kernel's arguments. So every call that sets one is seen here. A
 * kernel's memory may become another kernel's: what was seen is forgotten when a kernel is made at
 * its address. */
#include "hooks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096 };

typedef struct value {
    uint32_t kind;
    size_t size;
    void *bytes; /* a copy, or NULL; of FL_SET_POINTER the pointer itself */
} value;

typedef struct seen_kernel {
    struct seen_kernel *other;
    const void *kernel;
    value *arguments;
    uint32_t count, exec_count, exec_changes;
    struct exec_info {
        uint32_t name;
        value value;
    } *exec_infos;
} seen_kernel;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static seen_kernel *buckets[BUCKETS];
FL_FREE_IN_CHILD(lock)

static seen_kernel **bucket_of(const void *kernel) {
    return &buckets[((uintptr_t)kernel >> 4) * 2654435761u % BUCKETS];
}

static seen_kernel *find(const void *kernel) {
    seen_kernel *at = *bucket_of(kernel);
    while (at && at->kernel != kernel)
        at = at->other;
    return at;
}

static seen_kernel *find_or_make(const void *kernel) {
    seen_kernel *found = find(kernel);
    if (!found && (found = calloc(1, sizeof *found))) {
        seen_kernel **bucket = bucket_of(kernel);
        found->kernel = kernel;
        found->other = *bucket;
        *bucket = found;
    }
    return found;
}

static void drop(value *v) {
    if (v->kind == FL_SET)
        free(v->bytes);
    *v = (value){0};
}

/* Without memory it counts as unset, which is refused and never wrong. */
static void set(value *v, uint32_t kind, size_t size, const void *bytes) {
    void *copy = (void *)bytes;
    if (kind == FL_SET && bytes) {
        if (v->kind == FL_SET && v->bytes && v->size == size) {
            memcpy(v->bytes, bytes, size);
            return;
        }
        copy = malloc(size ? size : 1);
        if (copy)
            memcpy(copy, bytes, size);
        else
            kind = FL_UNSET;
    }
    drop(v);
    *v = (value){kind, size, copy};
}

static void note(const void *kernel, uint32_t index, uint32_t kind, size_t size,
                 const void *bytes) {
    FL_HOLD(lock);
    seen_kernel *seen = find_or_make(kernel);
    if (seen && index >= seen->count) { /* the driver has taken it, so there are so many */
        value *more = realloc(seen->arguments, (index + 1) * sizeof *more);
        if (more) {
            memset(more + seen->count, 0, (index + 1 - seen->count) * sizeof *more);
            seen->arguments = more;
            seen->count = index + 1;
        }
    }
    if (seen && index < seen->count)
        set(&seen->arguments[index], kind, size, bytes);
}

static void forget(seen_kernel *seen) {
    for (uint32_t i = 0; i < seen->count; i++)
        drop(&seen->arguments[i]);
    for (uint32_t i = 0; i < seen->exec_count; i++)
        drop(&seen->exec_infos[i].value);
    seen->exec_changes += seen->exec_count != 0;
    seen->exec_count = 0;
}

static void begin(const void *kernel) {
    FL_HOLD(lock);
    seen_kernel *seen = find(kernel);
    if (seen)
        forget(seen);
}

/* The caller has the lock. */
static void set_exec_info(seen_kernel *seen, uint32_t name, size_t size, const void *bytes) {
    uint32_t at = 0;
    while (seen && at < seen->exec_count && seen->exec_infos[at].name != name)
        at++;
    if (seen && at == seen->exec_count) {
        struct exec_info *more = realloc(seen->exec_infos, (at + 1) * sizeof *more);
        if (more) {
            more[at] = (struct exec_info){.name = name};
            seen->exec_infos = more;
            seen->exec_count++;
        }
    }
    if (seen && at < seen->exec_count) {
        set(&seen->exec_infos[at].value, FL_SET, size, bytes);
        seen->exec_changes++;
    }
}

static void note_exec_info(const void *kernel, uint32_t name, size_t size, const void *bytes) {
    FL_HOLD(lock);
    set_exec_info(find_or_make(kernel), name, size, bytes);
}

/* --- what the program calls --- */

cl_kernel hook_clCreateKernel(fl_next next, PARAMETERS_clCreateKernel) {
    cl_kernel made = NEXT(clCreateKernel)(program, kernel_name, errcode_ret);
    if (made)
        begin(made);
    return made;
}

cl_int hook_clCreateKernelsInProgram(fl_next next, PARAMETERS_clCreateKernelsInProgram) {
    cl_uint count = 0;
    cl_int code = NEXT(clCreateKernelsInProgram)(program, num_kernels, kernels, &count);
    for (cl_uint i = 0; code == CL_SUCCESS && kernels && i < count; i++)
        begin(kernels[i]);
    if (code == CL_SUCCESS && num_kernels_ret)
        *num_kernels_ret = count;
    return code;
}

/* A copy has the arguments of its original, and what clSetKernelExecInfo has set. */
cl_kernel hook_clCloneKernel(fl_next next, cl_kernel source_kernel, cl_int *errcode_ret) {
    cl_kernel made = NEXT(clCloneKernel)(source_kernel, errcode_ret);
    if (!made)
        return NULL;
    begin(made);
    FL_HOLD(lock);
    const seen_kernel *from = find(source_kernel);
    seen_kernel *seen = from ? find_or_make(made) : NULL;
    value *more = seen && seen->count < from->count
                      ? realloc(seen->arguments, from->count * sizeof *more)
                      : NULL;
    if (more) {
        memset(more + seen->count, 0, (from->count - seen->count) * sizeof *more);
        seen->arguments = more;
        seen->count = from->count;
    }
    for (uint32_t i = 0; seen && i < from->count && i < seen->count; i++)
        if (from->arguments[i].kind)
            set(&seen->arguments[i], from->arguments[i].kind, from->arguments[i].size,
                from->arguments[i].bytes);
    for (uint32_t i = 0; seen && i < from->exec_count; i++)
        if (from->exec_infos[i].value.kind)
            set_exec_info(seen, from->exec_infos[i].name, from->exec_infos[i].value.size,
                          from->exec_infos[i].value.bytes);
    return made;
}

cl_int hook_clSetKernelArg(fl_next next, PARAMETERS_clSetKernelArg) {
    cl_int code = NEXT(clSetKernelArg)(kernel, arg_index, arg_size, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, FL_SET, arg_size, arg_value);
    return code;
}

cl_int hook_clSetKernelArgSVMPointer(fl_next next, PARAMETERS_clSetKernelArgSVMPointer) {
    cl_int code = NEXT(clSetKernelArgSVMPointer)(kernel, arg_index, arg_value);
    if (code == CL_SUCCESS)
        note(kernel, arg_index, FL_SET_POINTER, 0, arg_value);
    return code;
}

cl_int hook_clSetKernelExecInfo(fl_next next, PARAMETERS_clSetKernelExecInfo) {
    cl_int code = NEXT(clSetKernelExecInfo)(kernel, param_name, param_value_size, param_value);
    if (code == CL_SUCCESS)
        note_exec_info(kernel, param_name, param_value_size, param_value);
    return code;
}

/* --- what Python calls --- */

static uint32_t look(const value *v, void *room, size_t size, size_t *needed, void **pointer) {
    *needed = v->size;
    *pointer = v->bytes;
    if (v->kind == FL_SET && v->bytes && v->size <= size)
        memcpy(room, v->bytes, v->size);
    return v->kind;
}

uint32_t fl_seen_argument(void *kernel, uint32_t index, void *room, size_t size, size_t *needed,
                          void **pointer) {
    FL_HOLD(lock);
    const seen_kernel *seen = find(kernel);
    return seen && index < seen->count
               ? look(&seen->arguments[index], room, size, needed, pointer)
               : FL_UNSET;
}

uint32_t fl_exec_changes(void *kernel) {
    FL_HOLD(lock);
    const seen_kernel *seen = find(kernel);
    return seen ? seen->exec_changes : 0;
}

uint32_t fl_seen_exec_info(void *kernel, uint32_t index, void *room, size_t size, size_t *needed) {
    void *pointer;
    FL_HOLD(lock);
    const seen_kernel *seen = find(kernel);
    bool is_there =
        seen && index < seen->exec_count && seen->exec_infos[index].value.kind == FL_SET;
    uint32_t name = is_there ? seen->exec_infos[index].name : 0;
    if (is_there)
        look(&seen->exec_infos[index].value, room, size, needed, &pointer);
    return name;
}
