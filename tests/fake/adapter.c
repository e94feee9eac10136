/* A fake Unified Runtime adapter that keeps the rules: an adapter, a platform, a device and
 * contexts, with every check that the specification lists for them. A knob is a macro given to the
 * compiler (-DRETAIN_STEP=2) that breaks one rule; tests/helpers/plugin_header.py writes the
 * tables. What it does not implement answers UNSUPPORTED_FEATURE. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef LAYOUT
#define LAYOUT 1
#endif
#ifndef AT_LOAD
#define AT_LOAD /* a statement, such as crash() */
#endif
#ifndef AT_LAST_RELEASE
#define AT_LAST_RELEASE /* of the adapter */
#endif
#ifndef AT_NUM_DEVICES
#define AT_NUM_DEVICES /* in urContextGetInfo */
#endif
#ifndef AT_PROPERTIES
#define AT_PROPERTIES /* in urContextCreate with properties */
#endif
#ifndef AT_DELETER
#define AT_DELETER /* in urContextSetExtendedDeleter */
#endif
#ifndef RETAIN_STEP
#define RETAIN_STEP 1 /* references that urContextRetain adds */
#endif
#ifndef CHECK_RETAIN
#define CHECK_RETAIN 1 /* 0: urContextRetain takes NULL for a context */
#endif
#ifndef NO_DEVICES
#define NO_DEVICES ERROR(INVALID_SIZE) /* what urContextCreate answers for 0 devices */
#endif
#ifndef NO_DELETER
#define NO_DELETER ERROR(INVALID_NULL_POINTER) /* what urContextSetExtendedDeleter answers for 0 */
#endif
#ifndef BEYOND
#define BEYOND 0 /* bytes that urContextGetInfo writes behind the value */
#endif
#ifndef SECOND_PLATFORM
#define SECOND_PLATFORM 0 /* 1: every urPlatformGet gives another handle */
#endif

#include "plugin_abi.h"

#define EXPORTED __attribute__((visibility("default"), unused))
#define HIDDEN static __attribute__((unused))
#define ERROR(name) UR_RESULT_ERROR_##name
#define NEED(condition, code)   \
    do {                        \
        if (!(condition))       \
            return ERROR(code); \
    } while (0)

HIDDEN void crash(void) { raise(SIGSEGV); }

HIDDEN void hang(void) {
    for (;;)
        pause();
}

/* Objects are never freed, so that a handle that was released can be told from one that was not. */

enum kind { NONE, ADAPTER = 0x4144, PLATFORM, DEVICE, CONTEXT };

typedef void (*deleter_function)(void *);

typedef struct {
    void **table;
    enum kind kind;
    uint32_t references;
    deleter_function deleter;
    void *data;
} object;

static void *whole[1024];
static object the_adapter = {whole, ADAPTER, 0, NULL, NULL};
static object the_platforms[2] = {{whole, PLATFORM, 1, NULL, NULL},
                                  {whole, PLATFORM, 1, NULL, NULL}};
static object the_device = {whole, DEVICE, 1, NULL, NULL};

#define CHECK(handle, of, code)         \
    do {                                \
        NEED(handle, INVALID_NULL_HANDLE); \
        NEED((handle)->kind == (of), code); \
    } while (0)

static int give(const void *value, size_t size, size_t room, void *into, size_t *returned) {
    NEED(into || returned, INVALID_NULL_POINTER);
    NEED(into || !room, INVALID_NULL_POINTER);
    NEED(!into || room >= size, INVALID_SIZE);
    if (into)
        memcpy(into, value, size);
    if (returned)
        *returned = size;
    return 0;
}

static int give_text(const char *text, size_t room, void *into, size_t *returned) {
    return give(text, strlen(text) + 1, room, into, returned);
}

static int give_number(uint32_t number, size_t room, void *into, size_t *returned) {
    return give(&number, sizeof number, room, into, returned);
}

static int give_one(object *it, uint32_t room, object **into, uint32_t *count) {
    NEED(room || !into, INVALID_SIZE);
    if (into)
        into[0] = it;
    if (count)
        *count = 1;
    return 0;
}

/* Adapter */

#define OWN_urAdapterGet
HIDDEN int urAdapterGet(uint32_t room, object **into, uint32_t *count) {
    NEED(room || !into, INVALID_SIZE);
    the_adapter.references += into != NULL;
    return give_one(&the_adapter, room, into, count);
}

#define OWN_urAdapterRetain
HIDDEN int urAdapterRetain(object *adapter) {
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    adapter->references++;
    return 0;
}

#define OWN_urAdapterRelease
HIDDEN int urAdapterRelease(object *adapter) {
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    if (!--adapter->references) {
        AT_LAST_RELEASE;
    }
    return 0;
}

#define OWN_urAdapterGetLastError
HIDDEN int urAdapterGetLastError(object *adapter, const char **message, int32_t *number) {
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    NEED(message && number, INVALID_NULL_POINTER);
    *message = "";
    *number = 0;
    return 0;
}

#define OWN_urAdapterGetInfo
HIDDEN int urAdapterGetInfo(object *adapter, uint32_t name, size_t room, void *into,
                            size_t *returned) {
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    switch (name) {
    case UR_ADAPTER_INFO_BACKEND: return give_number(UR_BACKEND_NATIVE_CPU, room, into, returned);
    case UR_ADAPTER_INFO_REFERENCE_COUNT:
        return give_number(adapter->references, room, into, returned);
    case UR_ADAPTER_INFO_VERSION: return give_number(1, room, into, returned);
    default: return ERROR(INVALID_ENUMERATION);
    }
}

#define OWN_urAdapterSetLoggerCallback
HIDDEN int urAdapterSetLoggerCallback(object *adapter, void *callback, void *data, uint32_t level) {
    (void)data;
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    NEED(callback, INVALID_NULL_POINTER);
    NEED(level <= UR_LOGGER_LEVEL_QUIET, INVALID_ENUMERATION);
    return 0;
}

#define OWN_urAdapterSetLoggerCallbackLevel
HIDDEN int urAdapterSetLoggerCallbackLevel(object *adapter, uint32_t level) {
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    NEED(level <= UR_LOGGER_LEVEL_QUIET, INVALID_ENUMERATION);
    return 0;
}

/* Platform */

#define OWN_urPlatformGet
HIDDEN int urPlatformGet(object *adapter, uint32_t room, object **into, uint32_t *count) {
    static int calls;
    CHECK(adapter, ADAPTER, INVALID_VALUE);
    NEED(into || count, INVALID_VALUE);
    return give_one(&the_platforms[SECOND_PLATFORM && into ? calls++ % 2 : 0], room, into, count);
}

#define OWN_urPlatformGetInfo
HIDDEN int urPlatformGetInfo(object *platform, uint32_t name, size_t room, void *into,
                             size_t *returned) {
    object *adapter = &the_adapter;
    CHECK(platform, PLATFORM, INVALID_PLATFORM);
    switch (name) {
    case UR_PLATFORM_INFO_NAME: return give_text("Fake", room, into, returned);
    case UR_PLATFORM_INFO_VENDOR_NAME: return give_text("fairlead's tests", room, into, returned);
    case UR_PLATFORM_INFO_VERSION: return give_text("1.0", room, into, returned);
    case UR_PLATFORM_INFO_EXTENSIONS: return give_text("", room, into, returned);
    case UR_PLATFORM_INFO_PROFILE: return give_text("FULL_PROFILE", room, into, returned);
    case UR_PLATFORM_INFO_BACKEND: return give_number(UR_BACKEND_NATIVE_CPU, room, into, returned);
    case UR_PLATFORM_INFO_ADAPTER: return give(&adapter, sizeof adapter, room, into, returned);
    default: return ERROR(INVALID_ENUMERATION);
    }
}

#define OWN_urPlatformGetApiVersion
HIDDEN int urPlatformGetApiVersion(object *platform, uint32_t *version) {
    CHECK(platform, PLATFORM, INVALID_PLATFORM);
    NEED(version, INVALID_NULL_POINTER);
    *version = UR_API_VERSION_0_12;
    return 0;
}

#define OWN_urPlatformGetBackendOption
HIDDEN int urPlatformGetBackendOption(object *platform, const char *option, const char **into) {
    CHECK(platform, PLATFORM, INVALID_PLATFORM);
    NEED(option && into, INVALID_NULL_POINTER);
    NEED(!*option || strncmp(option, "-O", 2) == 0, INVALID_VALUE);
    *into = "";
    return 0;
}

/* Device */

#define OWN_urDeviceGet
HIDDEN int urDeviceGet(object *platform, uint32_t type, uint32_t room, object **into,
                       uint32_t *count) {
    CHECK(platform, PLATFORM, INVALID_PLATFORM);
    NEED(type && type <= UR_DEVICE_TYPE_CUSTOM, INVALID_ENUMERATION);
    NEED(into || !room, INVALID_NULL_POINTER);
    NEED(type == UR_DEVICE_TYPE_ALL || type == UR_DEVICE_TYPE_DEFAULT || type == UR_DEVICE_TYPE_CPU,
         DEVICE_NOT_FOUND);
    return give_one(&the_device, room, into, count);
}

#define OWN_urDeviceGetInfo
HIDDEN int urDeviceGetInfo(object *device, uint32_t name, size_t room, void *into,
                           size_t *returned) {
    object *platform = &the_platforms[0], *parent = NULL;
    CHECK(device, DEVICE, INVALID_DEVICE);
    switch (name) {
    case UR_DEVICE_INFO_TYPE: return give_number(UR_DEVICE_TYPE_CPU, room, into, returned);
    case UR_DEVICE_INFO_NAME: return give_text("Fake device", room, into, returned);
    case UR_DEVICE_INFO_DRIVER_VERSION: return give_text("1.2.3", room, into, returned);
    case UR_DEVICE_INFO_PLATFORM: return give(&platform, sizeof platform, room, into, returned);
    case UR_DEVICE_INFO_PARENT_DEVICE: return give(&parent, sizeof parent, room, into, returned);
    case UR_DEVICE_INFO_REFERENCE_COUNT: return give_number(1, room, into, returned);
    default:
        return name <= UR_DEVICE_INFO_ENQUEUE_HOST_TASK_SUPPORT_EXP ? ERROR(UNSUPPORTED_ENUMERATION)
                                                                    : ERROR(INVALID_ENUMERATION);
    }
}

#define OWN_urDeviceRetain
HIDDEN int urDeviceRetain(object *device) {
    CHECK(device, DEVICE, INVALID_DEVICE);
    return 0;
}

#define OWN_urDeviceRelease
HIDDEN int urDeviceRelease(object *device) { return urDeviceRetain(device); }

/* Context */

typedef struct {
    uint32_t stype;
    void *next;
    uint32_t flags;
} context_properties;

#define OWN_urContextCreate
HIDDEN int urContextCreate(uint32_t count, object *const *devices, const context_properties *how,
                           object **into) {
    NEED(devices && into, INVALID_NULL_POINTER);
    if (how) {
        AT_PROPERTIES;
        NEED(!(how->flags & ~1u), INVALID_ENUMERATION);
    }
    if (!count)
        return NO_DEVICES;
    CHECK(devices[0], DEVICE, INVALID_DEVICE);
    *into = malloc(sizeof **into);
    **into = (object){whole, CONTEXT, 1, NULL, NULL};
    return 0;
}

#define OWN_urContextRetain
HIDDEN int urContextRetain(object *context) {
    if (CHECK_RETAIN)
        CHECK(context, CONTEXT, INVALID_CONTEXT);
    __atomic_add_fetch(&context->references, RETAIN_STEP, __ATOMIC_SEQ_CST);
    return 0;
}

#define OWN_urContextRelease
HIDDEN int urContextRelease(object *context) {
    CHECK(context, CONTEXT, INVALID_CONTEXT);
    if (!__atomic_sub_fetch(&context->references, 1, __ATOMIC_SEQ_CST)) {
        context->kind = NONE;
        if (context->deleter)
            context->deleter(context->data);
    }
    return 0;
}

#define OWN_urContextGetInfo
HIDDEN int urContextGetInfo(object *context, uint32_t name, size_t room, void *into,
                            size_t *returned) {
    object *device = &the_device;
    int code;
    CHECK(context, CONTEXT, INVALID_CONTEXT);
    switch (name) {
    case UR_CONTEXT_INFO_NUM_DEVICES:
        AT_NUM_DEVICES;
        code = give_number(1, room, into, returned);
        break;
    case UR_CONTEXT_INFO_DEVICES: code = give(&device, sizeof device, room, into, returned); break;
    case UR_CONTEXT_INFO_REFERENCE_COUNT:
        code = give_number(context->references, room, into, returned);
        break;
    default:
        return name <= UR_CONTEXT_INFO_USM_FILL2D_SUPPORT ? ERROR(UNSUPPORTED_ENUMERATION)
                                                          : ERROR(INVALID_ENUMERATION);
    }
    if (!code && into)
        memset((char *)into + room, 0, BEYOND);
    return code;
}

#define OWN_urContextSetExtendedDeleter
HIDDEN int urContextSetExtendedDeleter(object *context, deleter_function deleter, void *data) {
    AT_DELETER;
    CHECK(context, CONTEXT, INVALID_CONTEXT);
    if (!deleter)
        return NO_DELETER;
    context->deleter = deleter;
    context->data = data;
    return 0;
}

/* Tables */

#define UR_STUB(name, answer) \
    HIDDEN int name(void) { return ERROR(UNSUPPORTED_FEATURE); }
#include "plugin_abi.h"
#undef UR_STUB

#define POINTER_TO(name) (void *)(intptr_t)name,
#define UR_GETTER(table)                                                             \
    EXPORTED int urGet##table##ProcAddrTable(uint32_t version, void **into) {        \
        void *const own[] = {UR_TABLE_##table(POINTER_TO)};                          \
        NEED(version == UR_API_VERSION_0_12, UNSUPPORTED_VERSION);                   \
        memcpy(into, own, sizeof own);                                               \
        return 0;                                                                    \
    }
#include "plugin_abi.h"

__attribute__((constructor)) static void loaded(void) {
    void *const own[] = {UR_EVERY(POINTER_TO)};
    memcpy(whole, own, sizeof own);
    AT_LOAD;
}
