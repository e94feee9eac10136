/* Appends of launches to command-buffers.
 *
 * Python appends the first launch of a kernel. It copies the kernel, checks the work-group, and
 * asks the driver which values it takes. C appends the launches after that for which this holds,
 * too. Python learns of these when it uses the command-buffer next (URCommandBuffer.recording). */
#include "calls.h"

#include "../../../loader/base/native/arrays.h"

#include <string.h>

typedef ur_exp_kernel_arg_properties_t row;

enum { MOST_AFTER = 64 };

void fl_enter_recording(unsigned *lock) { fl_enter_lock(lock); }

void fl_leave_recording(unsigned *lock) { fl_leave_lock(lock); }

void fl_free_launches(fl_launches *l) { free(l->after); }

/* --- what Python knows --- */

static bool takes_group(const fl_launches *l, const fl_kernel *k, uint32_t dim,
                        const size_t *local) {
    if (!local)
        return k->device == l->device && !k->required[0];
    return k->group_device == l->device && k->group_dimensions == dim &&
           !memcmp(local, k->group, dim * sizeof *local);
}

static bool takes_values(const fl_kernel *k, const row *rows, uint32_t count) {
    if (count != k->count || count == FL_ARGUMENTS || (count && !rows))   /* there may be more */
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        if (r->type == UR_EXP_KERNEL_ARG_TYPE_VALUE &&
            (r->index >= count || !r->value.value || !r->size || r->size != k->sizes[r->index]))
            return false;
    }
    return true;
}

static uint64_t addresses_of(const row *rows, uint32_t count) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].type == UR_EXP_KERNEL_ARG_TYPE_POINTER && rows[i].value.pointer)
            found |= UINT64_C(1) << (rows[i].index & 63);
    return found;
}

static void *copy_of(const fl_launches *l, uint64_t number, const fl_kernel *k, const row *rows,
                     uint32_t count) {
    const fl_copy *copy = &l->copies[number % FL_COPIES];
    bool is = copy->number == number && copy->settings == k->settings &&
              (!l->sticks || copy->addresses == addresses_of(rows, count));
    return is ? copy->cl : NULL;
}

/* --- the order --- */

/* Writes what the next command comes after, each once, behind their number. The list does not have
 * it before it is counted. */
static bool read_order(fl_launches *l, uint32_t commands, uint32_t count, const uint32_t *points) {
    if (!points != !count || count > MOST_AFTER ||
        !FL_RESERVE(l->after, l->after_room, l->after_count + 1 + MOST_AFTER))
        return false;
    uint32_t *to = l->after + l->after_count, *last = to;
    if (l->in_order && commands)
        *++last = commands - 1;
    for (uint32_t i = 0; i < count && !l->in_order; i++) {
        if (!points[i] || points[i] > commands)
            return false;
        uint32_t *same = to + 1;
        while (same <= last && *same != points[i] - 1)
            same++;
        if (same > last)
            *++last = points[i] - 1;
    }
    *to = (uint32_t)(last - to);
    return true;
}

/* --- the entry point --- */

/* Returns the sync-point, 0 for Python. The command-buffer is this thread's. */
static uint32_t append(fl_launches *l, const fl_kernel *k, uint64_t number,
                       const fl_append *one) {
    void *copy = copy_of(l, number, k, one->rows, one->count);
    uint32_t commands = fl_count_commands(l);
    if (l->buffer || l->part || !copy || !takes_group(l, k, one->dim, one->local) ||
        !takes_values(k, one->rows, one->count) ||
        !read_order(l, commands, one->point_count, one->points) ||
        fl_append_launch(l, one->dim, one->offset, one->size, one->local, one->rows, one->count,
                         k->count, false, copy)
            .code)
        return 0;
    l->after_count += 1 + l->after[l->after_count];
    l->appended++;
    return commands + 1;
}

int32_t fl_urCommandBufferAppendKernelLaunchWithArgsExp(
    PARAMETERS_urCommandBufferAppendKernelLaunchWithArgsExp) {
    if (numKernelAlternatives || phKernelAlternatives || numEventsInWaitList || phEventWaitList ||
        phEvent || workDim < 1 || workDim > 3 || !pGlobalWorkSize)
        return FL_TO_PYTHON;
    const fl_append one = {workDim, pGlobalWorkOffset, pGlobalWorkSize, pLocalWorkSize, pArgs,
                           numArgs, numSyncPointsInWaitList, pSyncPointWaitList, phCommand};
    enum { BUFFER = kind_ur_exp_command_buffer_handle_t, KERNEL = kind_ur_kernel_handle_t };
    const uintptr_t *words = fl_hold(adapter, hCommandBuffer, BUFFER);
    if (!words)
        return FL_TO_PYTHON;
    fl_launches *l = (fl_launches *)words[CL_OBJECT];
    fl_kernel *k = l && !phCommand ? fl_hold_struct(adapter, hKernel, KERNEL) : NULL;
    const struct handle *kernel = fl_find(hKernel, adapter, KERNEL);
    uint32_t point = 0;
    if (words[STRUCT] && kernel)
        point =
            fl_append_to_gpu_graph(adapter, (fl_gpu_graph *)words[STRUCT], kernel->number, &one);
    if (k && fl_try_lock(&l->lock)) {
        point = append(l, k, ((const fl_handle *)hKernel)->number, &one);
        fl_leave_lock(&l->lock);
    }
    if (k)
        fl_let_go(adapter, hKernel, KERNEL);
    fl_let_go(adapter, hCommandBuffer, BUFFER);
    if (point && pSyncPoint)
        *pSyncPoint = point;
    return point ? 0 : FL_TO_PYTHON;
}
