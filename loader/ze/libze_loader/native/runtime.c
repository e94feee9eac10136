/* The functions of the runtime (zer…). They concern the default driver, which is the first one. A
 * driver without them is asked by functions of the core API: a device's identifier is its place
 * among the driver's devices. */
#include "loader.h"

bool zelCheckIsLoaderInTearDown(void);

enum { MOST_DEVICES = 256 };

/* A driver's own function, NULL if it has none. */
static void *function_of_first(unsigned tool) {
    const fl_drivers *kept = zelCheckIsLoaderInTearDown() ? NULL : fl_kept_drivers();
    return kept && kept->count ? kept->all[0]->tools[tool] : NULL;
}

#define CALL(name) ((fn_##name *)__atomic_load_n(&fl_untraced[SLOT_##name], __ATOMIC_ACQUIRE))

static ze_result_t find_driver(ze_driver_handle_t *driver) {
    uint32_t one = 1;
    *driver = NULL;
    return zelCheckIsLoaderInTearDown() ? ZE_RESULT_ERROR_UNINITIALIZED
                                        : fl_driver_get(&one, driver);
}

static uint32_t list_devices(ze_device_handle_t *into) {
    ze_driver_handle_t driver;
    uint32_t count = MOST_DEVICES;
    return find_driver(&driver) || CALL(zeDeviceGet)(driver, &count, into) ? 0 : count;
}

static ze_result_t last_error(const char **text) {
    ze_result_t (*its)(const char **) = function_of_first(TOOL_zerGetLastErrorDescription);
    ze_driver_handle_t driver;
    if (!text)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    ze_result_t code = its ? its(text) : find_driver(&driver);
    return its || code ? code : CALL(zeDriverGetLastErrorDescription)(driver, text);
}

static uint32_t identifier_of(ze_device_handle_t device) {
    uint32_t (*its)(ze_device_handle_t) =
        function_of_first(TOOL_zerTranslateDeviceHandleToIdentifier);
    ze_device_handle_t devices[MOST_DEVICES];
    if (its)
        return its(device);
    for (uint32_t i = 0, count = list_devices(devices); i < count; i++)
        if (devices[i] == device)
            return i;
    return UINT32_MAX;
}

static ze_device_handle_t device_of(uint32_t identifier) {
    ze_device_handle_t (*its)(uint32_t) =
        function_of_first(TOOL_zerTranslateIdentifierToDeviceHandle);
    ze_device_handle_t devices[MOST_DEVICES];
    if (its)
        return its(identifier);
    return identifier < list_devices(devices) ? devices[identifier] : NULL;
}

static ze_context_handle_t default_context(void) {
    ze_context_handle_t (*its)(void) = function_of_first(TOOL_zerGetDefaultContext);
    ze_driver_handle_t driver;
    if (its)
        return its();
    return find_driver(&driver) ? NULL : CALL(zeDriverGetDefaultContext)(driver);
}

/* --- exported, with the callbacks of tracers --- */

#define EXPORT(number, kind, name, declared, given, ...)                                           \
    FL_EXPORT kind zer##name declared {                                                            \
        void *params[] = {__VA_ARGS__};                                                            \
        fl_traced_call call;                                                                       \
        bool is_seen = fl_is_traced() && fl_begin_call(&call, FL_SLOTS + number, params);          \
        kind result = given;                                                                       \
        if (is_seen)                                                                               \
            fl_end_call(&call, params, (uintptr_t)result);                                         \
        return result;                                                                             \
    }                                                                                              \
    FL_EXPORT ze_result_t zelTracer##name##RegisterCallback(void *tracer, uint32_t place,          \
                                                            void *callback) {                      \
        return fl_register(tracer, place, FL_SLOTS + number, callback);                            \
    }

EXPORT(0, ze_result_t, GetLastErrorDescription, (const char **text), last_error(text), &text)
EXPORT(1, uint32_t, TranslateDeviceHandleToIdentifier, (ze_device_handle_t device),
       identifier_of(device), &device)
EXPORT(2, ze_device_handle_t, TranslateIdentifierToDeviceHandle, (uint32_t identifier),
       device_of(identifier), &identifier)
EXPORT(3, ze_context_handle_t, GetDefaultContext, (void), default_context(), NULL)

FL_EXPORT ze_result_t zerGetGlobalProcAddrTable(uint32_t version, void **table) {
    if (!table)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (version >> 16 != 1 || version > FL_VERSION)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    table[0] = (void *)zerGetLastErrorDescription;
    table[1] = (void *)zerTranslateDeviceHandleToIdentifier;
    table[2] = (void *)zerTranslateIdentifierToDeviceHandle;
    table[3] = (void *)zerGetDefaultContext;
    return ZE_RESULT_SUCCESS;
}
