/* Memory that is used by its address: allocated, freed, looked up.
 *
 * C knows all of it but memory of the program itself. What C has allocated has an object in Python
 * as soon as Python looks it up (usm/registry.py). From then on only Python frees it. */
#include "calls.h"

#include "../../../loader/base/native/arrays.h"

#include <string.h>

/* In the order of addresses. They do not overlap. */
static struct {
    fl_memory *list;
    uint32_t count, room;
    int32_t hidden;   /* ranges that only Python knows */
    fl_lock lock;
} memory;

/* How many begin at an address or before it. */
static size_t begin_before(uintptr_t address) {
    size_t low = 0, high = memory.count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (memory.list[middle].base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static fl_memory *find(uintptr_t address) {
    size_t before = begin_before(address);
    fl_memory *one = before ? &memory.list[before - 1] : NULL;
    return one && address - one->base < one->size ? one : NULL;
}

bool fl_has_memory(uintptr_t context) {
    FL_HOLD_LOCK(memory.lock);
    for (uint32_t i = 0; i < memory.count; i++)
        if (memory.list[i].context == context)
            return true;
    return false;
}

static bool add(const fl_memory *new) {
    FL_HOLD_LOCK(memory.lock);
    bool has_room = FL_RESERVE(memory.list, memory.room, memory.count + 1);
    if (has_room) {
        size_t at = begin_before(new->base);
        memmove(&memory.list[at + 1], &memory.list[at], (memory.count++ - at) * sizeof *new);
        memory.list[at] = *new;
    }
    return has_room;
}

/* Removes memory that begins at an address, of any owner or only C's of a context. */
static bool take(uintptr_t base, uintptr_t context, fl_memory *taken) {
    FL_HOLD_LOCK(memory.lock);
    fl_memory *one = find(base);
    bool found = one && one->base == base && (!context || (one->of_c && one->context == context));
    if (found) {
        *taken = *one;
        memmove(one, one + 1, (size_t)(&memory.list[memory.count--] - (one + 1)) * sizeof *one);
    }
    return found;
}

bool fl_add_memory(uintptr_t base, size_t size, uintptr_t context, uint32_t kind) {
    return add(&(fl_memory){base, size, context, 0, kind, false});
}

void fl_remove_memory(uintptr_t base) {
    fl_memory taken;
    take(base, 0, &taken);
}

bool fl_adopt_memory(uintptr_t address, uintptr_t context, fl_memory *found) {
    FL_HOLD_LOCK(memory.lock);
    fl_memory *one = find(address);
    bool adopts = one && one->of_c && one->context == context;
    if (adopts) {
        one->of_c = false;
        *found = *one;
    }
    return adopts;
}

uintptr_t fl_find_memory(uintptr_t context) {
    FL_HOLD_LOCK(memory.lock);
    for (uint32_t i = 0; i < memory.count; i++)
        if (memory.list[i].of_c && memory.list[i].context == context)
            return memory.list[i].base;
    return 0;
}

uint32_t fl_kind_of_memory(uintptr_t address) {
    FL_HOLD_LOCK(memory.lock);
    const fl_memory *one = find(address);
    return one ? one->kind : UR_USM_TYPE_UNKNOWN;
}

void fl_add_hidden(int32_t count) { __atomic_fetch_add(&memory.hidden, count, __ATOMIC_SEQ_CST); }

fl_place fl_locate(const fl_context *context, uintptr_t address, size_t size) {
    fl_place place = FL_UNKNOWN_PLACE;
    fl_enter_lock(&memory.lock);
    size_t next = begin_before(address);
    const fl_memory *one = find(address);
    if (one)
        place = one->context == context->cl && size <= one->size - (address - one->base)
                    ? FL_IN_MEMORY : FL_UNKNOWN_PLACE;
    else if (size <= UINTPTR_MAX - address &&
             (next == memory.count || address + size <= memory.list[next].base))
        place = FL_NOWHERE;
    fl_leave_lock(&memory.lock);
    if (place == FL_NOWHERE && __atomic_load_n(&memory.hidden, __ATOMIC_SEQ_CST))
        return FL_UNKNOWN_PLACE;
    return place;
}

/* --- allocations: an address, or 0 --- */

static uintptr_t allocate_by_extension(const fl_context *context, cl_device_id device,
                                       uint32_t kind, size_t size, uint32_t align) {
    const fl_driver *driver = context->driver;
    cl_context cl = (cl_context)context->cl;
    cl_int code = CL_SUCCESS;
    void *made = NULL;
    if (kind == UR_USM_TYPE_HOST && driver->allocate_host)
        made = ((fn_clHostMemAllocINTEL *)driver->allocate_host)(cl, NULL, size, align, &code);
    else if (kind == UR_USM_TYPE_DEVICE && driver->allocate_device)
        made = ((fn_clDeviceMemAllocINTEL *)driver->allocate_device)(cl, device, NULL, size,
                                                                     align, &code);
    else if (kind == UR_USM_TYPE_SHARED && driver->allocate_shared)
        made = ((fn_clSharedMemAllocINTEL *)driver->allocate_shared)(cl, device, NULL, size,
                                                                     align, &code);
    return code ? 0 : (uintptr_t)made;
}

static uintptr_t allocate(const fl_context *context, uintptr_t device, uint32_t kind, size_t size,
                          uint32_t align) {
    if (context->usm == FL_USM_INTEL)
        return allocate_by_extension(context, (cl_device_id)device, kind, size, align);
    cl_svm_mem_flags flags = kind == UR_USM_TYPE_DEVICE ? CL_MEM_READ_WRITE : context->svm_flags;
    return (uintptr_t)CL(context->driver, clSVMAlloc)((cl_context)context->cl, flags, size, align);
}

static bool can_free(const fl_context *context) {
    return context->usm == FL_USM_SVM || context->driver->free;
}

static cl_int free_memory(const fl_context *context, uintptr_t base) {
    if (context->usm == FL_USM_INTEL)
        return ((fn_clMemBlockingFreeINTEL *)context->driver->free)((cl_context)context->cl,
                                                                    (void *)base);
    CL(context->driver, clSVMFree)((cl_context)context->cl, (void *)base);
    return CL_SUCCESS;
}

/* Whether the device, or each device if that is 0, can have such memory. */
static bool can_have(const fl_context *context, uintptr_t device, uint32_t kind, size_t size,
                     uint32_t align) {
    bool found = false;
    for (uint32_t i = 0; i < context->device_count; i++) {
        const fl_usm_device *one = &context->devices[i];
        if (device && one->cl != device)
            continue;
        if (!size || size > one->largest || align > one->align || !(one->kinds & 1u << kind))
            return false;
        found = true;
    }
    return found;
}

static int32_t allocate_in(const fl_context *context, uintptr_t device, uint32_t kind,
                           uint32_t align, size_t size, uintptr_t *out) {
    if (align & (align - 1) || !can_free(context) || !can_have(context, device, kind, size, align))
        return FL_TO_PYTHON;
    const fl_memory made = {allocate(context, device, kind, size, align), size, context->cl, device,
                            kind, true};
    if (made.base && add(&made)) {
        *out = made.base;
        return 0;
    }
    if (made.base)
        free_memory(context, made.base);
    return FL_TO_PYTHON;
}

static int32_t usm_alloc(uint32_t adapter, uintptr_t hContext, uintptr_t device, uint32_t kind,
                         const ur_usm_desc_t *desc, uintptr_t pool, size_t size, uintptr_t *out) {
    if (pool || !out || (desc && (desc->pNext || desc->hints)))
        return FL_TO_PYTHON;
    const fl_context *context = fl_hold_struct(adapter, hContext, kind_ur_context_handle_t);
    if (!context)
        return FL_TO_PYTHON;
    int32_t code = allocate_in(context, device, kind, desc ? desc->align : 0, size, out);
    fl_let_go(adapter, hContext, kind_ur_context_handle_t);
    return code;
}

static int32_t usm_alloc_for(uint32_t adapter, uintptr_t hContext, uintptr_t hDevice, uint32_t kind,
                             const ur_usm_desc_t *desc, uintptr_t pool, size_t size,
                             uintptr_t *out) {
    const uintptr_t *words = fl_get_state(adapter, hDevice, kind_ur_device_handle_t);
    return words ? usm_alloc(adapter, hContext, words[CL_OBJECT], kind, desc, pool, size, out)
                 : FL_TO_PYTHON;
}

int32_t fl_urUSMHostAlloc(PARAMETERS_urUSMHostAlloc) {
    return usm_alloc(adapter, hContext, 0, UR_USM_TYPE_HOST, pUSMDesc, pool, size, ppMem);
}

int32_t fl_urUSMDeviceAlloc(PARAMETERS_urUSMDeviceAlloc) {
    return usm_alloc_for(adapter, hContext, hDevice, UR_USM_TYPE_DEVICE, pUSMDesc, pool, size,
                         ppMem);
}

int32_t fl_urUSMSharedAlloc(PARAMETERS_urUSMSharedAlloc) {
    return usm_alloc_for(adapter, hContext, hDevice, UR_USM_TYPE_SHARED, pUSMDesc, pool, size,
                         ppMem);
}

static int32_t free_in(const fl_context *context, uintptr_t base) {
    fl_memory taken;
    if (!base || !context->device_count || !can_free(context) || !fl_all_finished(context->cl) ||
        !take(base, context->cl, &taken))
        return FL_TO_PYTHON;
    if (!free_memory(context, base))
        return 0;
    if (!add(&taken))
        return UR_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    return FL_TO_PYTHON;
}

int32_t fl_urUSMFree(uint32_t adapter, uintptr_t hContext, uintptr_t pMem) {
    const fl_context *context = fl_hold_struct(adapter, hContext, kind_ur_context_handle_t);
    if (!context)
        return FL_TO_PYTHON;
    int32_t code = free_in(context, pMem);
    fl_let_go(adapter, hContext, kind_ur_context_handle_t);
    return code;
}

/* --- queries --- */

static int32_t describe(const fl_memory *found, ur_usm_alloc_info_t name, size_t size,
                        uintptr_t value, size_t *size_ret) {
    const uint64_t answers[] = {found->kind, found->base, found->size};
    size_t needed = name == UR_USM_ALLOC_INFO_TYPE ? sizeof(uint32_t) : sizeof(uint64_t);
    if (name > UR_USM_ALLOC_INFO_SIZE || !value || size < needed)
        return FL_TO_PYTHON;
    memcpy((void *)value, &answers[name], needed);
    if (size_ret)
        *size_ret = needed;
    return 0;
}

int32_t fl_urUSMGetMemAllocInfo(PARAMETERS_urUSMGetMemAllocInfo) {
    const uintptr_t *words = fl_get_state(adapter, hContext, kind_ur_context_handle_t);
    if (!words)
        return FL_TO_PYTHON;
    uintptr_t context = words[CL_OBJECT];
    fl_enter_lock(&memory.lock);
    const fl_memory *one = find(pMem), copy = one ? *one : (fl_memory){0};
    fl_leave_lock(&memory.lock);
    if (!one || copy.context != context)
        return FL_TO_PYTHON;
    return describe(&copy, propName, propSize, pPropValue, pPropSizeRet);
}
