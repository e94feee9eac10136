/* Launches are appended to command-buffers by the thousand. A call from Python takes longer than
 * what it does, so this makes the calls for many. */
#include <stddef.h>
#include <stdint.h>

#include "launches.cdef.h"
#include "ur_append.h"

typedef ur_exp_kernel_arg_properties_t argument;

/* The first element of a list is its length. Returns that, and moves to the elements. */
#define TAKE(list) ((list) ? *(list)++ : 0)

int32_t fl_append_launches(fl_new_launches *l) {
    fn_urCommandBufferAppendKernelLaunchWithArgsExp *append =
        (fn_urCommandBufferAppendKernelLaunchWithArgsExp *)l->append;
    argument *arguments = l->arguments;
    uint32_t *after = l->after;
    uintptr_t *others = l->alternatives;
    for (uint32_t i = 0; i < l->count; i++, l->number++) {
        const fl_range *r = &l->ranges[i];
        uint32_t count = l->argument_counts[i], waits = TAKE(after);
        uint32_t alternatives = (uint32_t)TAKE(others);
        for (uint32_t j = 0; j < count; j++)
            arguments[j].index = j;
        for (uint32_t j = 0; j < waits; j++)
            after[j] = l->points[after[j]];
        int32_t code = (int32_t)append(
            (ur_exp_command_buffer_handle_t)l->buffer, (ur_kernel_handle_t)l->kernels[i],
            r->dimensions, r->has_offset ? r->offset : NULL, r->size,
            r->has_local ? r->local : NULL, count, count ? arguments : NULL, alternatives,
            alternatives ? (ur_kernel_handle_t *)others : NULL, waits, waits ? after : NULL, 0,
            NULL, &l->points[l->number], NULL,
            l->handles ? (ur_exp_command_buffer_command_handle_t *)&l->handles[l->number] : NULL);
        if (code)
            return code;
        arguments += count;
        after = after ? after + waits : NULL;
        others = others ? others + alternatives : NULL;
    }
    return 0;
}
