/* Arguments of kernels, and launches.
 *
 * OpenCL keeps arguments in the cl_kernel, and two threads must not set them at the same time. C
 * tries to get a kernel and does not wait: the other thread may need the GIL. What C sets it also
 * keeps. Python reads that when it gets the kernel next (URKernel.lock). */
#include "calls.h"

#include <string.h>

typedef ur_exp_kernel_arg_properties_t row;

static bool try_kernel(fl_kernel *kernel) { return fl_try_lock(kernel->busy); }

void fl_enter_kernel(fl_kernel *kernel) { fl_enter_lock(kernel->busy); }

void fl_leave_kernel(fl_kernel *kernel) { fl_leave_lock(kernel->busy); }

/* Holds a kernel, and keeps other threads away. NULL: Python makes the call. */
static fl_kernel *begin(uint32_t adapter, uintptr_t handle) {
    fl_kernel *kernel = fl_hold_struct(adapter, handle, kind_ur_kernel_handle_t);
    bool ready = kernel && try_kernel(kernel);
    if (ready && !kernel->in_python)
        return kernel;
    if (ready)
        fl_leave_kernel(kernel);
    if (kernel)
        fl_let_go(adapter, handle, kind_ur_kernel_handle_t);
    return NULL;
}

static void end(uint32_t adapter, uintptr_t handle, fl_kernel *kernel) {
    fl_leave_kernel(kernel);
    fl_let_go(adapter, handle, kind_ur_kernel_handle_t);
}

/* --- one argument: OpenCL's code, or FL_TO_PYTHON --- */

static cl_int set(const fl_kernel *k, uint32_t index, size_t size, const void *value) {
    return CL(k->context->driver, clSetKernelArg)((cl_kernel)k->cl, index, size, value);
}

static int32_t set_pointer(const fl_kernel *k, uint32_t index, uintptr_t address) {
    const fl_driver *driver = k->context->driver;
    if (k->context->usm == FL_USM_INTEL && driver->set_pointer)
        return ((fn_clSetKernelArgMemPointerINTEL *)driver->set_pointer)((cl_kernel)k->cl, index,
                                                                         (void *)address);
    if (k->context->usm != FL_USM_SVM)
        return FL_TO_PYTHON;
    if (!address)   /* NVIDIA's driver refuses NULL for SVM */
        return set(k, index, sizeof(cl_mem), NULL);
    return CL(driver, clSetKernelArgSVMPointer)((cl_kernel)k->cl, index, (void *)address);
}

static int32_t set_memory(uint32_t adapter, const fl_kernel *k, uint32_t index, uintptr_t handle,
                          uint64_t *number) {
    if (!handle)
        return set(k, index, sizeof(cl_mem), NULL);
    const uintptr_t *words = fl_hold(adapter, handle, kind_ur_mem_handle_t);
    if (!words)
        return FL_TO_PYTHON;
    int32_t code = words[STRUCT] == k->context->cl ? set(k, index, sizeof(cl_mem), words)
                                                   : FL_TO_PYTHON;
    *number = ((const fl_handle *)handle)->number;
    fl_let_go(adapter, handle, kind_ur_mem_handle_t);
    return code;
}

/* Sets an argument, and notes in `kept` what it is. */
static int32_t set_argument(uint32_t adapter, const fl_kernel *k, uint32_t index, uint32_t type,
                            size_t size, uintptr_t value, fl_kept_argument *kept) {
    bool is_value = type == UR_EXP_KERNEL_ARG_TYPE_VALUE;
    if (index >= k->count || (is_value && value && size > FL_INSIDE))
        return FL_TO_PYTHON;
    kept->size = size, kept->value = value, kept->number = 0;
    if (type == UR_EXP_KERNEL_ARG_TYPE_POINTER) {
        kept->kind = FL_KEPT_POINTER;
        return set_pointer(k, index, value);
    }
    if (type == UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ) {
        kept->kind = FL_KEPT_MEM;
        return set_memory(adapter, k, index, value, &kept->number);
    }
    if (!is_value && type != UR_EXP_KERNEL_ARG_TYPE_LOCAL)
        return FL_TO_PYTHON;
    const void *bytes = is_value ? (const void *)value : NULL;
    kept->kind = bytes ? FL_KEPT_VALUE : FL_KEPT_LOCAL;
    if (bytes)
        memcpy(kept->bytes, bytes, size);
    return set(k, index, size, bytes);
}

/* Most values have 4 or 8 bytes, and need no call. */
static inline void copy(char *to, const void *from, size_t size) {
    if (size == 4)
        memcpy(to, from, 4);
    else if (size == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, size);
}

static void keep(fl_kernel *k, uint32_t index, const fl_kept_argument *argument) {
    fl_kept_argument *place = &k->arguments[index];
    memcpy(place, argument, offsetof(fl_kept_argument, bytes));
    if (argument->kind == FL_KEPT_VALUE)
        copy(place->bytes, argument->bytes, argument->size);
    k->changed |= UINT64_C(1) << index;
    k->had_pointers |= argument->kind == FL_KEPT_POINTER;
}

static int32_t set_one(uint32_t adapter, uintptr_t handle, uint32_t index, uint32_t type,
                       size_t size, uintptr_t value) {
    fl_kept_argument kept;
    fl_kernel *k = begin(adapter, handle);
    if (!k)
        return FL_TO_PYTHON;
    int32_t code = set_argument(adapter, k, index, type, size, value, &kept);
    if (!code)
        keep(k, index, &kept);
    end(adapter, handle, k);
    return code ? FL_TO_PYTHON : 0;
}

static int32_t set_alone(fl_kernel *k, uint32_t index, uint32_t type, size_t size,
                         uintptr_t value) {
    fl_kept_argument kept;
    if (!try_kernel(k))
        return FL_TO_PYTHON;
    int32_t code = set_argument(0, k, index, type, size, value, &kept);
    if (!code)
        keep(k, index, &kept);
    fl_leave_kernel(k);
    return code ? FL_TO_PYTHON : 0;
}

/* What it needs is there once an adapter of OpenCL has begun, which may be later. */
static int32_t get_status(void *event) { return fl_icd_waits->status(event); }

const fl_sdk_functions *fl_exported_by_sdk(void) {
    static fl_sdk_functions exported;
    exported = (fl_sdk_functions){
        fl_get_state,     set_alone,       try_kernel,      fl_leave_kernel,
        fl_wait_in_order, get_status,       fl_retain_event, fl_icd,
        fl_enter_lock,    fl_leave_lock,
    };
    return &exported;
}

int32_t fl_urKernelSetArgValue(PARAMETERS_urKernelSetArgValue) {
    const void *value = (const void *)pArgValue;
    fl_kernel *k = value && argSize <= FL_INSIDE ? begin(adapter, hKernel) : NULL;
    if (!k)
        return FL_TO_PYTHON;
    bool done = argIndex < k->count && !set(k, argIndex, argSize, value);
    if (done) {
        fl_kept_argument *kept = &k->arguments[argIndex];
        kept->kind = FL_KEPT_VALUE, kept->size = argSize;
        copy(kept->bytes, value, argSize);
        k->changed |= UINT64_C(1) << argIndex;
    }
    end(adapter, hKernel, k);
    return done ? 0 : FL_TO_PYTHON;
}

int32_t fl_urKernelSetArgLocal(PARAMETERS_urKernelSetArgLocal) {
    return set_one(adapter, hKernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_LOCAL, argSize, 0);
}

int32_t fl_urKernelSetArgPointer(PARAMETERS_urKernelSetArgPointer) {
    return set_one(adapter, hKernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_POINTER, 0, pArgValue);
}

int32_t fl_urKernelSetArgMemObj(PARAMETERS_urKernelSetArgMemObj) {
    if (pProperties)
        return FL_TO_PYTHON;
    return set_one(adapter, hKernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ, sizeof(cl_mem),
                   hArgValue);
}

/* --- launches --- */

typedef struct launch {
    uint32_t dimensions;
    const size_t *offset, *size, *local;
} launch;

/* A memory object that was released must not be used any more. */
static bool arguments_exist(uint32_t adapter, const fl_kernel *k) {
    for (uint32_t i = 0; i < k->count; i++) {
        const fl_kept_argument *a = &k->arguments[i];
        bool exists = a->kind != FL_KEPT_NOTHING;
        if (a->kind == FL_KEPT_MEM && a->value)
            exists = fl_get_state(adapter, a->value, kind_ur_mem_handle_t) &&
                     ((const fl_handle *)a->value)->number == a->number;
        if (!exists)
            return false;
    }
    return true;
}

static bool is_plain(const launch *l, const fl_kernel *k, const fl_queue *q,
                     const ur_kernel_launch_ext_properties_t *properties) {
    if (!l->size || l->dimensions < 1 || l->dimensions > 3 || k->context->cl != q->context->cl ||
        (properties && (properties->flags || properties->pNext)) ||
        (!l->local && k->device != q->device))
        return false;
    for (uint32_t i = 0; i < l->dimensions; i++)
        if (!l->size[i] || (l->local && !l->local[i]))
            return false;
    return true;
}

static cl_int enqueue(fl_enqueue *e, const fl_kernel *k, const launch *l) {
    const size_t *local = l->local ? l->local : k->required[0] ? k->required : NULL;
    return CL(k->context->driver, clEnqueueNDRangeKernel)(e->cl, (cl_kernel)k->cl, l->dimensions,
                                                          l->offset, l->size, local, e->count,
                                                          e->list, e->wanted);
}

/* Sets all arguments of a launch. They are kept only if all are accepted. */
static bool set_rows(uint32_t adapter, fl_kernel *k, const row *rows, uint32_t count) {
    fl_kept_argument kept[FL_ARGUMENTS];
    if (!rows || count != k->count || count > FL_ARGUMENTS)
        return false;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        uintptr_t value;
        memcpy(&value, &rows[i].value, sizeof value);
        size_t size = rows[i].type == UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ ? sizeof(cl_mem)
                      : rows[i].type == UR_EXP_KERNEL_ARG_TYPE_POINTER ? 0 : rows[i].size;
        if (set_argument(adapter, k, rows[i].index, rows[i].type, size, value, &kept[i]))
            return false;
        seen |= UINT64_C(1) << rows[i].index;
    }
    if (count && seen != UINT64_MAX >> (64 - count))
        return false;
    for (uint32_t i = 0; i < count; i++)
        keep(k, rows[i].index, &kept[i]);
    return true;
}

/* A number for a kernel and sizes, which is never 0. */
static uint64_t key_of(uintptr_t kernel, const launch *l) {
    uint64_t key = ((const fl_handle *)kernel)->number;
    for (uint32_t i = 0; i < l->dimensions; i++)
        key = (key ^ l->size[i]) * UINT64_C(0x9e3779b97f4a7c15) ^ (l->local ? l->local[i] : 0);
    return key | UINT64_C(1) << 63;
}

static int32_t launch_kernel(uint32_t adapter, uintptr_t hQueue, uintptr_t hKernel,
                             const launch *l, uint32_t numArgs, const row *pArgs, bool with_args,
                             const ur_kernel_launch_ext_properties_t *properties, uint32_t count,
                             const uintptr_t *list, uintptr_t *out) {
    fl_enqueue e;
    fl_kernel *k = begin(adapter, hKernel);
    if (!k)
        return FL_TO_PYTHON;
    int32_t code = FL_TO_PYTHON;
    if (fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, count, list, out)) {
        bool ready = is_plain(l, k, e.queue, properties) &&
                     (with_args && numArgs ? set_rows(adapter, k, pArgs, numArgs)
                                           : arguments_exist(adapter, k));
        if (ready)
            fl_set_launch(&e, key_of(hKernel, l));
        code = ready ? fl_end_enqueue(&e, enqueue(&e, k, l), UR_COMMAND_KERNEL_LAUNCH)
                     : fl_leave_enqueue(&e);
    }
    end(adapter, hKernel, k);
    return code;
}

int32_t fl_urEnqueueKernelLaunch(PARAMETERS_urEnqueueKernelLaunch) {
    const launch l = {workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize};
    return launch_kernel(adapter, hQueue, hKernel, &l, 0, NULL, false, launchPropList, FL_ENDS);
}

int32_t fl_urEnqueueKernelLaunchWithArgsExp(PARAMETERS_urEnqueueKernelLaunchWithArgsExp) {
    const launch l = {workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize};
    return launch_kernel(adapter, hQueue, hKernel, &l, numArgs, pArgs, true, launchPropList,
                         FL_ENDS);
}
