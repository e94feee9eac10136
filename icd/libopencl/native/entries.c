/* The functions that do not simply go to the driver of their first argument. */
#define _GNU_SOURCE
#include "loader.h"

#include "answer.h"

#include <stdlib.h>
#include <string.h>

enum { ICDL_OCL_VERSION = 1, ICDL_VERSION, ICDL_NAME, ICDL_VENDOR };
enum { CONTEXT_PLATFORM = 0x1084 };

#define SLOT_OF(object, name) ((fn_##name *)fl_table(object)[SLOT_##name])

/* Which platform stands for NULL: that of OCL_ICD_DEFAULT_PLATFORM, else the first one. NULL if
 * there is none, or if FAIRLEAD_NULL_PLATFORM is "error". */
cl_platform_id fl_default_platform(void) {
    const char *rule = secure_getenv("FAIRLEAD_NULL_PLATFORM"),
               *number = secure_getenv("OCL_ICD_DEFAULT_PLATFORM");
    char *end;
    if (!fl_start() || (rule && strcmp(rule, "error") == 0))
        return NULL;
    unsigned long index = number && *number ? strtoul(number, &end, 10) : 0;
    if (number && *number && (*end || *number < '0' || *number > '9'))
        return NULL;
    return index < fl_platform_count ? fl_platforms[index].handle : NULL;
}

/* The exported functions lead here a moment before the start has ended: fl_start waits for it. */
cl_int dispatch_clGetPlatformIDs(PARAMETERS_clGetPlatformIDs) {
    cl_uint count = fl_start() ? fl_platform_count : 0;
    if ((!num_entries && platforms) || (!platforms && !num_platforms))
        return CL_INVALID_VALUE;
    fl_keep_tables();
    if (num_platforms)
        *num_platforms = count;
    for (cl_uint i = 0; platforms && i < num_entries; i++)
        if (i < count || !count)
            platforms[i] = i < count ? fl_platforms[i].handle : NULL;
    return count ? CL_SUCCESS : CL_PLATFORM_NOT_FOUND_KHR;
}

static void *fail(cl_int code, cl_int *errcode_ret) {
    if (errcode_ret)
        *errcode_ret = code;
    return NULL;
}

cl_context dispatch_clCreateContext(PARAMETERS_clCreateContext) {
    if (!num_devices || !devices)
        return fail(CL_INVALID_VALUE, errcode_ret);
    if (!devices[0])
        return fail(CL_INVALID_DEVICE, errcode_ret);
    fl_keep_tables();
    fn_clCreateContext *create = SLOT_OF(devices[0], clCreateContext);
    return create ? create(properties, num_devices, devices, pfn_notify, user_data, errcode_ret)
                  : fail(CL_INVALID_OPERATION, errcode_ret);
}

/* The platform that properties name, NULL if they name none. */
static cl_platform_id platform_of(const cl_context_properties *properties) {
    for (; properties && *properties; properties += 2)
        if (*properties == CONTEXT_PLATFORM)
            return (cl_platform_id)properties[1];
    return NULL;
}

cl_context dispatch_clCreateContextFromType(PARAMETERS_clCreateContextFromType) {
    cl_platform_id platform = properties ? platform_of(properties) : fl_default_platform();
    if (!platform)
        return fail(CL_INVALID_PLATFORM, errcode_ret);
    fl_keep_tables();
    fn_clCreateContextFromType *create = SLOT_OF(platform, clCreateContextFromType);
    return create ? create(properties, device_type, pfn_notify, user_data, errcode_ret)
                  : fail(CL_INVALID_OPERATION, errcode_ret);
}

cl_int dispatch_clGetGLContextInfoKHR(PARAMETERS_clGetGLContextInfoKHR) {
    cl_platform_id platform = platform_of(properties);
    if (!platform)
        return CL_INVALID_PLATFORM;
    fl_keep_tables();
    if (fl_lacks_slot((void *const *)platform->dispatch, SLOT_clGetGLContextInfoKHR))
        return CL_INVALID_OPERATION;
    fn_clGetGLContextInfoKHR *ask = SLOT_OF(platform, clGetGLContextInfoKHR);
    return ask ? ask(properties, param_name, param_value_size, param_value, param_value_size_ret)
               : CL_INVALID_OPERATION;
}

/* It names no platform, and a compiler that stays loaded does no harm. */
cl_int dispatch_clUnloadCompiler(void) { return CL_SUCCESS; }

cl_int dispatch_clWaitForEvents(cl_uint num_events, const cl_event *event_list) {
    if (!num_events || !event_list)
        return CL_INVALID_VALUE;
    if (!event_list[0])
        return CL_INVALID_EVENT;
    fn_clWaitForEvents *wait = SLOT_OF(event_list[0], clWaitForEvents);
    return wait ? wait(num_events, event_list) : CL_INVALID_OPERATION;
}

/* cl_loader_info: how a program asks which loader it uses. */
static cl_int loader_info(cl_uint name, size_t size, void *into, size_t *size_ret) {
    static const char *const answers[] = {[ICDL_OCL_VERSION] = "OpenCL 3.1",
                                          [ICDL_VERSION] = FL_VERSION,
                                          [ICDL_NAME] = "fairlead",
                                          [ICDL_VENDOR] = "fairlead"};
    if (name < ICDL_OCL_VERSION || name > ICDL_VENDOR)
        return CL_INVALID_VALUE;
    return fl_answer(answers[name], strlen(answers[name]) + 1, size, into, size_ret);
}

/* What the loader answers itself, whatever the platform. */
static void *own(const char *name) {
    return strcmp(name, "clGetICDLoaderInfoOCLICD") == 0 ? (void *)loader_info
                                                         : fl_own_extension(name);
}

/* The functions between a loader and a driver are nobody else's. */
static bool is_private(const char *name) { return strncmp(name, "clIcd", 5) == 0; }

/* The table's function for a platform is of OpenCL 1.2; before, the library's own answers. */
static void *ask_platform(cl_platform_id platform, const char *func_name) {
    fl_keep_tables();
    const unsigned slot = SLOT_clGetExtensionFunctionAddressForPlatform;
    if (!fl_lacks_slot((void *const *)platform->dispatch, slot) && fl_table(platform)[slot])
        return ((fn_clGetExtensionFunctionAddressForPlatform *)fl_table(platform)[slot])(platform,
                                                                                         func_name);
    for (cl_uint i = 0; i < fl_platform_count; i++)
        if (fl_platforms[i].handle == platform && fl_platforms[i].extension)
            return fl_platforms[i].extension(func_name);
    return NULL;
}

/* A vendor's function ends in the suffix of the vendor's platform. The library answers, as in other
 * loaders: what it knows need not be known to the function of a platform. */
void *dispatch_clGetExtensionFunctionAddress(const char *func_name) {
    void *found = func_name ? own(func_name) : NULL;
    if (!func_name || found || is_private(func_name) || !fl_start())
        return found;
    size_t length = strlen(func_name);
    for (cl_uint i = 0; i < fl_platform_count; i++) {
        const fl_platform *one = &fl_platforms[i];
        size_t end = strlen(one->suffix);
        if (end && end <= length && strcmp(func_name + length - end, one->suffix) == 0)
            return one->extension ? one->extension(func_name)
                                  : ask_platform(one->handle, func_name);
    }
    return NULL;
}

void *dispatch_clGetExtensionFunctionAddressForPlatform(cl_platform_id platform,
                                                        const char *func_name) {
    void *found = func_name ? own(func_name) : NULL;
    if (!func_name || found || is_private(func_name))
        return found;
    if (!platform && !(platform = fl_default_platform()))
        return NULL;
    return ask_platform(platform, func_name);
}
