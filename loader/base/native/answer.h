/* The answer to a query of OpenCL. */
#pragma once

#include <stddef.h>
#include <string.h>

#include "opencl_abi.h"

/* Answer with `size` bytes at `value`; `room` is how many `into` can take, if it is not NULL. */
static inline cl_int fl_answer(const void *value, size_t size, size_t room, void *into,
                               size_t *size_ret) {
    if (into && room < size)
        return CL_INVALID_VALUE;
    if (into && size)
        memcpy(into, value, size);
    if (size_ret)
        *size_ret = size;
    return CL_SUCCESS;
}
