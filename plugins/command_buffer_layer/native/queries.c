/* What platforms and devices say of the extensions, and the addresses of their functions.
 *
 * A device is served unless its driver has all three extensions in these versions or later. Its
 * list then has them in these versions, whatever the driver says. Other extensions of the driver's
 * own command-buffers are left out: their functions do not know ours. */
#include "hooks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64 };
#define VERSION(major, minor, patch) ((uint32_t)(major) << 22 | (minor) << 12 | (patch))

typedef struct name_version {
    uint32_t version;
    char name[NAME_SIZE];
} name_version;

static const name_version ours[] = {
    {VERSION(0, 9, 8), "cl_khr_command_buffer"},
    {VERSION(0, 9, 5), "cl_khr_command_buffer_mutable_dispatch"},
    {VERSION(0, 9, 2), "cl_khr_command_buffer_multi_device"},
};
enum { OURS = sizeof ours / sizeof *ours };

static bool is_replaced(const char *name, size_t length) {
    for (size_t i = 0; i + 14 <= length; i++)
        if (memcmp(name + i, "command_buffer", 14) == 0)
            return true;
    return false;
}

/* A query of a platform or of a device, which have the same form. */
typedef struct query {
    fn_clGetDeviceInfo *ask; /* clGetPlatformInfo has its type but for the handle's */
    void *object;
    cl_uint names, versions; /* CL_…_EXTENSIONS, CL_…_EXTENSIONS_WITH_VERSION */
} query;

/* The whole answer, with a zero behind it, to be freed; NULL: there is none. */
static void *ask(const query *q, cl_uint param_name, size_t *size, cl_int *code) {
    char *value = NULL;
    *size = 0;
    *code = q->ask(q->object, param_name, 0, NULL, size);
    if (*code == CL_SUCCESS && !(value = calloc(1, *size + 1)))
        *code = CL_OUT_OF_HOST_MEMORY;
    if (value && *size)
        *code = q->ask(q->object, param_name, *size, value, NULL);
    if (*code != CL_SUCCESS) {
        free(value);
        value = NULL;
    }
    return value;
}

static bool is_as_new(const query *q) {
    size_t size;
    cl_int code;
    unsigned found = 0;
    name_version *list = ask(q, q->versions, &size, &code);
    for (size_t i = 0; list && i < size / sizeof *list; i++)
        for (unsigned k = 0; k < OURS; k++)
            found += strncmp(list[i].name, ours[k].name, NAME_SIZE) == 0 &&
                     list[i].version >= ours[k].version;
    free(list);
    return found == OURS;
}

/* The extensions require OpenCL 1.2. */
static bool is_old(const query *q) {
    size_t size;
    cl_int code;
    int major = 0, minor = 0;
    char *version = ask(q, CL_DEVICE_VERSION, &size, &code);
    bool known = version && sscanf(version, "OpenCL %d.%d", &major, &minor) == 2;
    free(version);
    return !known || major * 10 + minor < 12;
}

static query of_device(fl_next next, cl_device_id device) {
    return (query){NEXT(clGetDeviceInfo), device, CL_DEVICE_EXTENSIONS,
                   CL_DEVICE_EXTENSIONS_WITH_VERSION};
}

static bool serves_device(fl_next next, cl_device_id device) {
    query q = of_device(next, device);
    return device && !is_old(&q) && !is_as_new(&q);
}

bool fl_serves_platform(fl_next next, cl_platform_id platform) {
    cl_device_id devices[64];
    cl_uint found = 0;
    if (NEXT(clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 64, devices, &found) != CL_SUCCESS)
        return false;
    for (cl_uint i = 0; i < found && i < 64; i++)
        if (serves_device(next, devices[i]))
            return true;
    return false;
}

static cl_int answer_names(const query *q, size_t room, void *into, size_t *size_ret) {
    size_t size, used = 0;
    cl_int code;
    char *theirs = ask(q, q->names, &size, &code),
         *list = theirs ? malloc(size + (NAME_SIZE + 1) * OURS + 1) : NULL;
    for (const char *name = theirs; list && *name;) {
        size_t length = strcspn(name, " ");
        if (length && !is_replaced(name, length)) {
            memcpy(list + used, name, length);
            used += length;
            list[used++] = ' ';
        }
        name += length + strspn(name + length, " ");
    }
    for (unsigned k = 0; list && k < OURS; k++)
        used += (size_t)sprintf(list + used, k + 1 < OURS ? "%s " : "%s", ours[k].name);
    if (theirs)
        code = list ? fl_answer(list, used + 1, room, into, size_ret) : CL_OUT_OF_HOST_MEMORY;
    free(list);
    free(theirs);
    return code;
}

static cl_int answer_versions(const query *q, size_t room, void *into, size_t *size_ret) {
    size_t size, used = 0;
    cl_int code;
    name_version *theirs = ask(q, q->versions, &size, &code),
                 *list = theirs ? malloc(size + sizeof ours) : NULL;
    for (size_t i = 0; list && i < size / sizeof *list; i++)
        if (!is_replaced(theirs[i].name, strnlen(theirs[i].name, NAME_SIZE)))
            list[used++] = theirs[i];
    if (list)
        memcpy(list + used, ours, sizeof ours);
    if (theirs)
        code = list ? fl_answer(list, used * sizeof *list + sizeof ours, room, into, size_ret)
                    : CL_OUT_OF_HOST_MEMORY;
    free(list);
    free(theirs);
    return code;
}

static uint64_t bits_of(const query *q, cl_uint param_name) {
    size_t size;
    cl_int code;
    uint64_t bits = 0;
    void *value = ask(q, param_name, &size, &code);
    if (value)
        memcpy(&bits, value, size < sizeof bits ? size : sizeof bits);
    free(value);
    return bits;
}

/* Queues run what the driver's own queues run, so a launch may print, and may enqueue if the device
 * can. */
static uint64_t capabilities(const query *q) {
    bool enqueues = bits_of(q, CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) & CL_DEVICE_QUEUE_SUPPORTED;
    return CL_COMMAND_BUFFER_CAPABILITY_KERNEL_PRINTF_KHR |
           CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR |
           CL_COMMAND_BUFFER_CAPABILITY_MULTIPLE_QUEUE_KHR |
           (enqueues ? CL_COMMAND_BUFFER_CAPABILITY_DEVICE_SIDE_ENQUEUE_KHR : 0);
}

static uint64_t mutable_fields(const query *q) {
    bool has_svm = bits_of(q, CL_DEVICE_SVM_CAPABILITIES) != 0;
    return CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR | CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR |
           CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR | CL_MUTABLE_DISPATCH_ARGUMENTS_KHR |
           (has_svm ? CL_MUTABLE_DISPATCH_EXEC_INFO_KHR : 0);
}

/* The device's answer to a question of the extensions. Devices wait for each other by events, so
 * none is listed as one that can do it natively (CL_COMMAND_BUFFER_PLATFORM_UNIVERSAL_SYNC_KHR). */
static cl_int answer_device(const query *q, cl_uint param_name, size_t room, void *into,
                            size_t *size_ret) {
    uint64_t bits = 0;
    size_t size = sizeof bits;
    switch (param_name) {
    case CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR: bits = capabilities(q); break;
    case CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR:
        bits = bits_of(q, CL_DEVICE_QUEUE_ON_HOST_PROPERTIES);
        break;
    case CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR: break;
    case CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR: bits = mutable_fields(q); break;
    case CL_DEVICE_COMMAND_BUFFER_NUM_SYNC_DEVICES_KHR: size = sizeof(cl_uint); break;
    case CL_DEVICE_COMMAND_BUFFER_SYNC_DEVICES_KHR: size = 0; break;
    default: return CL_INVALID_VALUE;
    }
    return fl_answer(&bits, size, room, into, size_ret);
}

cl_int hook_clGetDeviceInfo(fl_next next, PARAMETERS_clGetDeviceInfo) {
    bool lists =
        param_name == CL_DEVICE_EXTENSIONS || param_name == CL_DEVICE_EXTENSIONS_WITH_VERSION;
    bool asks = param_name == CL_DEVICE_COMMAND_BUFFER_SUPPORTED_QUEUE_PROPERTIES_KHR ||
                (param_name >= CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR &&
                 param_name <= CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR);
    if ((lists || asks) && serves_device(next, device)) {
        query q = of_device(next, device);
        if (param_name == CL_DEVICE_EXTENSIONS)
            return answer_names(&q, param_value_size, param_value, param_value_size_ret);
        if (lists)
            return answer_versions(&q, param_value_size, param_value, param_value_size_ret);
        return answer_device(&q, param_name, param_value_size, param_value, param_value_size_ret);
    }
    return NEXT(clGetDeviceInfo)(ARGUMENTS_clGetDeviceInfo);
}

cl_int hook_clGetPlatformInfo(fl_next next, PARAMETERS_clGetPlatformInfo) {
    static const uint64_t bits = CL_COMMAND_BUFFER_PLATFORM_UNIVERSAL_SYNC_KHR |
                                 CL_COMMAND_BUFFER_PLATFORM_REMAP_QUEUES_KHR |
                                 CL_COMMAND_BUFFER_PLATFORM_AUTOMATIC_REMAP_KHR;
    bool is_ours = param_name == CL_PLATFORM_EXTENSIONS ||
                   param_name == CL_PLATFORM_EXTENSIONS_WITH_VERSION ||
                   param_name == CL_PLATFORM_COMMAND_BUFFER_CAPABILITIES_KHR;
    if (is_ours && fl_serves_platform(next, platform)) {
        query q = {(fn_clGetDeviceInfo *)NEXT(clGetPlatformInfo), platform, CL_PLATFORM_EXTENSIONS,
                   CL_PLATFORM_EXTENSIONS_WITH_VERSION};
        if (param_name == CL_PLATFORM_EXTENSIONS)
            return answer_names(&q, param_value_size, param_value, param_value_size_ret);
        if (param_name == CL_PLATFORM_EXTENSIONS_WITH_VERSION)
            return answer_versions(&q, param_value_size, param_value, param_value_size_ret);
        return fl_answer(&bits, sizeof bits, param_value_size, param_value, param_value_size_ret);
    }
    return NEXT(clGetPlatformInfo)(ARGUMENTS_clGetPlatformInfo);
}

void *hook_clGetExtensionFunctionAddress(fl_next next, const char *func_name) {
    void *found = func_name ? fl_own_function(func_name) : NULL;
    return found ? found : NEXT(clGetExtensionFunctionAddress)(func_name);
}

void *hook_clGetExtensionFunctionAddressForPlatform(fl_next next, cl_platform_id platform,
                                                    const char *func_name) {
    void *found = func_name ? fl_own_function(func_name) : NULL;
    return found && fl_serves_platform(next, platform)
               ? found
               : NEXT(clGetExtensionFunctionAddressForPlatform)(platform, func_name);
}
