/* Transfers of buffers and of memory that is used by its address. */
#define _GNU_SOURCE
#include "calls.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LARGEST_PATTERN = 128 };   /* SPEC clEnqueueFillBuffer */

/* The kernel reads a byte, so nothing crashes. It reads a set of signals before it looks at what is
 * to be done with it, which is nothing that there is. That is the cheapest call that reads. */
static bool is_readable(uintptr_t address) {
    enum { WORD = 8, NOTHING = -1 };
    int before = errno;
    bool readable = syscall(SYS_rt_sigprocmask, NOTHING, address & ~(uintptr_t)(WORD - 1), NULL,
                            WORD) == -1 && errno == EINVAL;
    errno = before;
    return readable;
}

/* The first and the last byte can be read. */
static bool are_readable(uintptr_t address, size_t size) {
    enum { PAGE = 4096 };
    uintptr_t last = address + size - 1;
    return is_readable(address) && (address / PAGE == last / PAGE || is_readable(last));
}

/* Bytes of the host may be used, too. */
static bool can_use(const fl_context *context, uintptr_t address, size_t size) {
    if (!address || !size)
        return false;
    fl_place place = fl_locate(context, address, size);
    return place == FL_IN_MEMORY || (place == FL_NOWHERE && are_readable(address, size));
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

int32_t fl_urEnqueueUSMMemcpy(PARAMETERS_urEnqueueUSMMemcpy) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, blocking ? FL_BLOCKING : FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    const fl_context *context = e.queue->context;
    copy_function *copy = copy_of(context);
    if (!copy || !can_use(context, pDst, size) || !can_use(context, pSrc, size))
        return fl_leave_enqueue(&e);
    fl_set_size(&e, size);
    cl_int code = copy(e.cl, e.blocks, (void *)pDst, (const void *)pSrc, size, e.count, e.list,
                       e.wanted);
    return fl_end_enqueue(&e, code, UR_COMMAND_USM_MEMCPY);
}

static bool is_pattern(size_t pattern, size_t offset, size_t size) {
    return pattern && !(pattern & (pattern - 1)) && pattern <= LARGEST_PATTERN &&
           offset % pattern == 0 && size % pattern == 0;
}

int32_t fl_urEnqueueUSMFill(PARAMETERS_urEnqueueUSMFill) {
    fl_enqueue e;
    if (!pPattern || !is_pattern(patternSize, pMem, size) ||
        !fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    const fl_context *context = e.queue->context;
    fill_function *fill = fill_of(context);
    if (!fill || !size || fl_locate(context, pMem, size) != FL_IN_MEMORY)   /* not the host's */
        return fl_leave_enqueue(&e);
    fl_set_size(&e, size);
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

int32_t fl_urEnqueueMemBufferRead(PARAMETERS_urEnqueueMemBufferRead) {
    fl_enqueue e;
    if (!pDst ||
        !fl_begin_enqueue(&e, adapter, hQueue, blockingRead ? FL_BLOCKING : FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    fl_set_size(&e, size);
    cl_int code = CL(e.queue->context->driver, clEnqueueReadBuffer)(
        e.cl, buffer, e.blocks, offset, size, (void *)pDst, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_READ);
}

int32_t fl_urEnqueueMemBufferWrite(PARAMETERS_urEnqueueMemBufferWrite) {
    fl_enqueue e;
    if (!pSrc || !fl_begin_enqueue(&e, adapter, hQueue,
                                   blockingWrite ? FL_BLOCKING_WRITE : FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    fl_set_size(&e, size);
    cl_int code = CL(e.queue->context->driver, clEnqueueWriteBuffer)(
        e.cl, buffer, e.blocks, offset, size, (const void *)pSrc, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_WRITE);
}

int32_t fl_urEnqueueMemBufferCopy(PARAMETERS_urEnqueueMemBufferCopy) {
    fl_enqueue e;
    if (!fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, FL_ENDS))
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

int32_t fl_urEnqueueMemBufferFill(PARAMETERS_urEnqueueMemBufferFill) {
    fl_enqueue e;
    if (!pPattern || !is_pattern(patternSize, offset, size) ||
        !fl_begin_enqueue(&e, adapter, hQueue, FL_NO_BLOCK, FL_ENDS))
        return FL_TO_PYTHON;
    cl_mem buffer = hold_buffer(&e, hBuffer, offset, size);
    if (!buffer)
        return fl_leave_enqueue(&e);
    cl_int code = CL(e.queue->context->driver, clEnqueueFillBuffer)(
        e.cl, buffer, (const void *)pPattern, patternSize, offset, size, e.count, e.list, e.wanted);
    let_buffer_go(&e, hBuffer);
    return fl_end_enqueue(&e, code, UR_COMMAND_MEM_BUFFER_FILL);
}
