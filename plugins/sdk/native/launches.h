/* The updates of launches in command-buffers, as the generated entry point calls them. */
#pragma once

#include "counts.h"
#include "ur_types.h"

typedef int32_t fl_update_body(uint32_t adapter, uintptr_t buffer, uint32_t count,
                               const ur_exp_command_buffer_update_kernel_launch_desc_t *updates);

/* urCommandBufferUpdateKernelLaunchExp. Updates of arguments alone need no GIL. `python` does all
 * other updates, those of a command-buffer that another thread uses, and wrong ones. */
int32_t fl_entry_update(uint32_t adapter, uintptr_t buffer, uint32_t count,
                        const ur_exp_command_buffer_update_kernel_launch_desc_t *updates,
                        fl_update_body *python, fl_counting_body *python_release);
