/* Contexts of root devices, which live as long as the process. Python makes an object of a context
 * as soon as anything is made in it. Before that C has all that there is. */
#include "calls.h"

#include <stdlib.h>

void fl_free_context(fl_context *context) { free(context); }

/* What is known of a context of one device. */
static void describe_memory(uint32_t adapter, fl_context *context, uintptr_t device) {
    const uintptr_t *words = fl_get_state(adapter, device, kind_ur_device_handle_t);
    const fl_device_memory *memory = words ? (const fl_device_memory *)words[THIRD] : NULL;
    if (!memory || __atomic_load_n(&memory->usm, __ATOMIC_ACQUIRE) == FL_USM_OTHER)
        return;
    context->usm = memory->usm, context->svm_flags = memory->svm_flags;
    context->devices = &memory->device, context->device_count = 1;
}

static void end_context(const uintptr_t *words) {
    fl_context *context = (fl_context *)words[STRUCT];
    if (fl_has_memory(context->cl))   /* memory keeps its context */
        return;
    void *gil = fl_let_gil_go();   /* the program may have asked for a callback at its end */
    CL(context->driver, clReleaseContext)((cl_context)words[CL_OBJECT]);
    fl_take_gil(gil);
    fl_free_context(context);
    fl_free_answers((fl_answers *)words[FOURTH]);
}

__attribute__((constructor)) static void begin(void) {
    fl_end_by(kind_ur_context_handle_t, end_context);
}

/* The root devices of a platform: their cl_device_id, and the driver. NULL: other devices. */
static const fl_driver *read_devices(uint32_t adapter, uint32_t count, const uintptr_t *handles,
                                     cl_device_id *devices) {
    const fl_driver *driver = NULL;
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t *words = fl_get_state(adapter, handles[i], kind_ur_device_handle_t);
        if (!words || !fl_is_fixed(handles[i]) ||
            (driver && (const fl_driver *)words[STRUCT] != driver))
            return NULL;
        driver = (const fl_driver *)words[STRUCT];
        devices[i] = (cl_device_id)words[CL_OBJECT];
    }
    return driver;
}

static bool create(const fl_driver *driver, uint32_t count, const cl_device_id *devices,
                   fl_context *context) {
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)driver->platform, 0};
    cl_int code;
    context->cl = (uintptr_t)CL(driver, clCreateContext)(properties, count, devices, NULL, NULL,
                                                         &code);
    context->driver = driver;
    return code == CL_SUCCESS;
}

int32_t fl_urContextCreate(PARAMETERS_urContextCreate) {
    cl_device_id devices[FL_DEVICES];
    if (pProperties || !phDevices || !phContext || !DeviceCount || DeviceCount > FL_DEVICES)
        return FL_TO_PYTHON;
    const fl_driver *driver = read_devices(adapter, DeviceCount, phDevices, devices);
    uintptr_t handle = driver ? fl_reserve(adapter) : 0;
    fl_context *context = handle ? calloc(1, sizeof *context) : NULL;
    fl_answers *answers = context ? fl_new_answers() : NULL;
    if (!answers || !create(driver, DeviceCount, devices, context)) {
        fl_free_answers(answers);
        fl_free_context(context);
        fl_give_back(adapter, handle);
        return FL_TO_PYTHON;
    }
    for (uint32_t i = 0; i < DeviceCount; i++)
        context->handles[i] = phDevices[i];
    context->handle_count = DeviceCount;
    if (DeviceCount == 1)
        describe_memory(adapter, context, *phDevices);
    const uintptr_t words[] = {context->cl, (uintptr_t)context, 0, (uintptr_t)answers};
    fl_begin_made(handle, adapter, kind_ur_context_handle_t, words);
    *phContext = handle;
    return 0;
}
