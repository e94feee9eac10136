/* What the C for graphs of CUDA and HIP shares: calls of a driver in a device's context. */
#pragma once

#include "calls.h"

/* What a thread had before fl_enter_gpu. */
typedef struct fl_gpu_before {
    bool other;                /* another context than the device's */
    int32_t device;            /* HIP's */
} fl_gpu_before;

static inline void *fl_gpu_slot(const fl_gpu_device *d, uint32_t number) {
    return (*d->table)[number];
}

/* Makes the device's context that of this thread. False: the driver refuses it. */
bool fl_enter_gpu(const fl_gpu_device *device, fl_gpu_before *before);
void fl_leave_gpu(const fl_gpu_device *device, fl_gpu_before before);

/* urCommandBufferUpdateKernelLaunchExp of a graph. False: nothing has changed, and it is Python's,
 * or the reference adapter's. */
bool fl_update_gpu_graph(uint32_t adapter, uintptr_t buffer, uint32_t count,
                         const ur_exp_command_buffer_update_kernel_launch_desc_t *updates);
/* urQueueFinish of a queue on one stream. False: Python waits. */
bool fl_finish_gpu_queue(uint32_t adapter, uintptr_t queue);
