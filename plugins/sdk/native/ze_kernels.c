/* What is set on kernels. The reference adapter's kernel keeps the arguments (kernels.c). */
#include "ze_calls.h"
#include "ur_types.h"
#include "ze_entries_in_c.h"

const fl_sdk_functions *fl_sdk;
const fl_functions *fl_ze_icd;

void fl_ze_use(const void *functions) {
    fl_sdk = functions;
    fl_ze_icd = fl_sdk->icd;
}

static fl_ze_kernel *kernel_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_kernel_handle_t);
}

int32_t fl_zeKernelSetArgumentValue(PARAMETERS_zeKernelSetArgumentValue) {
    fl_ze_kernel *k = kernel_of(driver, hKernel);
    if (!k || !k->kernel || argIndex >= k->count)
        return FL_TO_PYTHON;
    switch (fl_ze_kind(k, argIndex, argSize, pArgValue)) {
    case FL_ZE_VALUE:
        if (!pArgValue)
            break;
        return fl_sdk->set_argument(k->kernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_VALUE, argSize,
                                    pArgValue);
    case FL_ZE_LOCAL:
        if (pArgValue)
            break;
        return fl_sdk->set_argument(k->kernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_LOCAL, argSize, 0);
    case FL_ZE_POINTER:
        if (argSize != sizeof(void *))
            break;
        uintptr_t address = 0;
        if (pArgValue)
            memcpy(&address, (const void *)pArgValue, sizeof address);
        return fl_sdk->set_argument(k->kernel, argIndex, UR_EXP_KERNEL_ARG_TYPE_POINTER, 0,
                                    address);
    }
    return FL_TO_PYTHON;
}

int32_t fl_zeKernelSetGroupSize(PARAMETERS_zeKernelSetGroupSize) {
    fl_ze_kernel *k = kernel_of(driver, hKernel);
    const uint64_t sizes[3] = {groupSizeX, groupSizeY, groupSizeZ};
    uint64_t items = 1;
    if (!k)
        return FL_TO_PYTHON;
    for (unsigned i = 0; i < 3; i++) {
        if (!sizes[i] || sizes[i] > k->limits[i] || sizes[i] > k->most ||
            (k->required[0] && sizes[i] != k->required[i]))
            return FL_TO_PYTHON;
        items *= sizes[i];   /* of two numbers below 2**32 */
        if (items > k->most)
            return FL_TO_PYTHON;
    }
    memcpy(k->sizes, sizes, sizeof sizes);
    return 0;
}

int32_t fl_zeKernelSetGlobalOffsetExp(PARAMETERS_zeKernelSetGlobalOffsetExp) {
    fl_ze_kernel *k = kernel_of(driver, hKernel);
    if (!k)
        return FL_TO_PYTHON;
    k->offsets[0] = offsetX, k->offsets[1] = offsetY, k->offsets[2] = offsetZ;
    return 0;
}
