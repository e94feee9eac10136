/* Transfers of buffers and of memory that is used by its address. */
#define _GNU_SOURCE
#include "calls.h"
#include "counts.cdef.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LARGEST_PATTERN = 128 };   /* SPEC clEnqueueFillBuffer */

/* --- allocations, in the order of their addresses; they do not overlap --- */

static struct {
    fl_memory *list;
    size_t count, room;
    int32_t hidden;   /* ranges that only Python knows */
    fl_lock lock;
} memory;

/* How many allocations begin at an address or before it. */
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

static bool make_room(void) {
    if (memory.count < memory.room)
        return true;
    size_t room = memory.room ? 2 * memory.room : 64;
    fl_memory *list = realloc(memory.list, room * sizeof *list);
    if (list)
        memory.list = list, memory.room = room;
    return list != NULL;
}

bool fl_add_memory(uintptr_t base, size_t size, uintptr_t context) {
    fl_enter_lock(&memory.lock);
    bool has_room = make_room();
    if (has_room) {
        size_t at = begin_before(base);
        memmove(&memory.list[at + 1], &memory.list[at], (memory.count++ - at) * sizeof(fl_memory));
        memory.list[at] = (fl_memory){base, size, context};
    }
    fl_leave_lock(&memory.lock);
    return has_room;
}

void fl_remove_memory(uintptr_t base) {
    fl_enter_lock(&memory.lock);
    size_t at = begin_before(base);
    if (at && memory.list[at - 1].base == base)
        memmove(&memory.list[at - 1], &memory.list[at], (memory.count-- - at) * sizeof(fl_memory));
    fl_leave_lock(&memory.lock);
}

void fl_add_hidden(int32_t count) { __atomic_fetch_add(&memory.hidden, count, __ATOMIC_SEQ_CST); }

typedef enum { NOWHERE, IN_MEMORY, UNKNOWN } place;

/* Returns where some bytes lie: all in an allocation of the context, or in none. */
static place locate(const fl_context *context, uintptr_t address, size_t size) {
    fl_enter_lock(&memory.lock);
    size_t before = begin_before(address), next = before;
    const fl_memory *one = before ? &memory.list[before - 1] : NULL;
    place found = UNKNOWN;
    if (one && address - one->base < one->size)
        found = one->context == context->cl && size <= one->size - (address - one->base)
                    ? IN_MEMORY : UNKNOWN;
    else if (size <= UINTPTR_MAX - address &&
             (next == memory.count || address + size <= memory.list[next].base))
        found = NOWHERE;
    fl_leave_lock(&memory.lock);
    return found;
}

/* The first and the last byte can be read. The kernel reads them, so nothing crashes. */
static bool is_readable(uintptr_t address, size_t size) {
    char bytes[2];
    struct iovec from[] = {{(void *)address, 1}, {(void *)(address + size - 1), 1}};
    struct iovec to = {bytes, sizeof bytes};
    return process_vm_readv(getpid(), &to, 1, from, 2, 0) == 2;
}

static bool can_use(const fl_context *context, uintptr_t address, size_t size) {
    if (!address || !size)
        return false;
    place found = locate(context, address, size);
    return found == IN_MEMORY ||
           (found == NOWHERE && !__atomic_load_n(&memory.hidden, __ATOMIC_SEQ_CST) &&
            is_readable(address, size));
}

/* --- memory by its address --- */

typedef cl_int copy_function(cl_command_queue, cl_uint, void *, const void *, size_t, cl_uint,
                             const cl_event *, cl_event *);
typedef cl_int fill_function(cl_command_queue, void *, const void *, size_t, size_t, cl_uint,
                             const cl_event *, cl_event *);

static copy_function *copy_of(const fl_context *context) {
    if (context->usm == FL_USM_INTEL)
        return (copy_function *)context->driver->copy;
    return context->usm == FL_USM_SVM ? (copy_function *)CL(context->driver, clEnqueueSVMMemcpy)
                                      : NULL;
}

static fill_function *fill_of(const fl_context *context) {
    if (context->usm == FL_USM_INTEL)
        return (fill_function *)context->driver->fill;
    return context->usm == FL_USM_SVM ? (fill_function *)CL(context->driver, clEnqueueSVMMemFill)
                                      : NULL;
}

int32_t fl_urEnqueueUSMMemcpy(uint32_t adapter, uintptr_t hQueue, bool blocking, uintptr_t pDst,
                              uintptr_t pSrc, size_t size, uint32_t numEventsInWaitList,
                              const uintptr_t *phEventWaitList, uintptr_t *phEvent) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, blocking, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    const fl_context *context = e.queue->context;
    copy_function *copy = copy_of(context);
    if (!copy || !can_use(context, pDst, size) || !can_use(context, pSrc, size))
        return fl_leave_enqueue(&e);
    cl_int code = copy(e.cl, e.blocks, (void *)pDst, (const void *)pSrc, size, e.count, e.list,
                       e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_USM_MEMCPY);
}

static bool is_pattern(size_t pattern, size_t offset, size_t size) {
    return pattern && !(pattern & (pattern - 1)) && pattern <= LARGEST_PATTERN &&
           offset % pattern == 0 && size % pattern == 0;
}

int32_t fl_urEnqueueUSMFill(uint32_t adapter, uintptr_t hQueue, uintptr_t pMem,
                            size_t patternSize, uintptr_t pPattern, size_t size,
                            uint32_t numEventsInWaitList, const uintptr_t *phEventWaitList,
                            uintptr_t *phEvent) {
    fl_enqueue e;
    if (!pPattern || !is_pattern(patternSize, pMem, size) ||
        !fl_begin_enqueue(&e, adapter, hQueue, false, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    const fl_context *context = e.queue->context;
    fill_function *fill = fill_of(context);
    if (!fill || !can_use(context, pMem, size))
        return fl_leave_enqueue(&e);
    cl_int code = fill(e.cl, (void *)pMem, (const void *)pPattern, patternSize, size, e.count,
                       e.list, e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_USM_FILL);
}

/* --- buffers --- */

/* Holds a buffer of the queue's context in which a range lies. */
static cl_mem hold_buffer(const fl_enqueue *e, uintptr_t handle, size_t offset, size_t size) {
    const uintptr_t *words = fl_hold(e->adapter, handle, kind_ur_mem_handle_t);
    if (!words)
        return NULL;
    bool good = words[STRUCT] == e->queue->context->cl && words[THIRD] && size &&
                offset <= words[FOURTH] && size <= words[FOURTH] - offset;
    if (!good)
        fl_let_go(e->adapter, handle, kind_ur_mem_handle_t);
    return good ? (cl_mem)words[CL_OBJECT] : NULL;
}

static void let_buffer_go(const fl_enqueue *e, uintptr_t handle) {
    fl_let_go(e->adapter, handle, kind_ur_mem_handle_t);
}

int32_t fl_urEnqueueMemBufferRead(uint32_t adapter, uintptr_t hQueue, uintptr_t hBuffer,
                                  bool blockingRead, size_t offset, size_t size, uintptr_t pDst,
                                  uint32_t numEventsInWaitList, const uintptr_t *phEventWaitList,
                                  uintptr_t *phEvent) {
    fl_enqueue e;
    if (!pDst || !fl_begin_enqueue(&e, adapter, hQueue, blockingRead, numEventsInWaitList,
                                   phEventWaitList, phEvent))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    cl_int code = CL(e.queue->context->driver, clEnqueueReadBuffer)(
        e.cl, buffer, e.blocks, offset, size, (void *)pDst, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_READ);
}

int32_t fl_urEnqueueMemBufferWrite(uint32_t adapter, uintptr_t hQueue, uintptr_t hBuffer,
                                   bool blockingWrite, size_t offset, size_t size, uintptr_t pSrc,
                                   uint32_t numEventsInWaitList, const uintptr_t *phEventWaitList,
                                   uintptr_t *phEvent) {
    fl_enqueue e;
    if (!pSrc || !fl_begin_enqueue(&e, adapter, hQueue, blockingWrite, numEventsInWaitList,
                                   phEventWaitList, phEvent))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    cl_int code = CL(e.queue->context->driver, clEnqueueWriteBuffer)(
        e.cl, buffer, e.blocks, offset, size, (const void *)pSrc, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_WRITE);
}

int32_t fl_urEnqueueMemBufferCopy(uint32_t adapter, uintptr_t hQueue, uintptr_t hBufferSrc,
                                  uintptr_t hBufferDst, size_t srcOffset, size_t dstOffset,
                                  size_t size, uint32_t numEventsInWaitList,
                                  const uintptr_t *phEventWaitList, uintptr_t *phEvent) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, false, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    cl_mem source = hold_buffer(&e, hBufferSrc, srcOffset, size);
    cl_mem target = source ? hold_buffer(&e, hBufferDst, dstOffset, size) : NULL;
    cl_int code = FL_TO_PYTHON;
    if (target) {
        code = CL(e.queue->context->driver, clEnqueueCopyBuffer)(
            e.cl, source, target, srcOffset, dstOffset, size, e.count, e.list, e.wanted);
        let_buffer_go(&e, hBufferDst);
    }
    if (source)
        let_buffer_go(&e, hBufferSrc);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_COPY);
}

int32_t fl_urEnqueueMemBufferFill(uint32_t adapter, uintptr_t hQueue, uintptr_t hBuffer,
                                  uintptr_t pPattern, size_t patternSize, size_t offset,
                                  size_t size, uint32_t numEventsInWaitList,
                                  const uintptr_t *phEventWaitList, uintptr_t *phEvent) {
    fl_enqueue e;
    if (!pPattern || !is_pattern(patternSize, offset, size) ||
        !fl_begin_enqueue(&e, adapter, hQueue, false, numEventsInWaitList, phEventWaitList,
                          phEvent))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    cl_int code = CL(e.queue->context->driver, clEnqueueFillBuffer)(
        e.cl, buffer, (const void *)pPattern, patternSize, offset, size, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_FILL);
}
