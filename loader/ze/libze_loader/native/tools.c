/* The functions of tools (zet…) and of Sysman (zes…). They are not described further than
 * loader/ze/tools.abi, and so pass through: the driver is the one of the first handle. */
#include "loader.h"

bool zelCheckIsLoaderInTearDown(void);

static ze_result_t answer_early(void) { return ZE_RESULT_ERROR_UNINITIALIZED; }
static ze_result_t answer_missing(void) { return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE; }
static ze_result_t answer_null(void) { return ZE_RESULT_ERROR_INVALID_NULL_HANDLE; }
static ze_result_t answer_unknown(void) { return ZE_RESULT_ERROR_INVALID_ARGUMENT; }

static bool has_begun(const fl_driver *driver) {
    return __atomic_load_n(&driver->ready, __ATOMIC_ACQUIRE) ||
           __atomic_load_n(&driver->has_sysman, __ATOMIC_ACQUIRE);
}

static void *function_of(const fl_driver *driver, unsigned tool) {
    return driver->tools[tool] ? driver->tools[tool] : (void *)answer_missing;
}

void *fl_find_tool(unsigned tool, uintptr_t handle) {
    const fl_drivers *drivers = zelCheckIsLoaderInTearDown() ? NULL : fl_open_drivers();
    const fl_driver *found = NULL;
    unsigned count = 0;
    for (unsigned i = 0; drivers && i < drivers->count; i++)
        if (has_begun(drivers->all[i]))
            found = drivers->all[i], count++;
    if (!count)
        return (void *)answer_early;
    if (!handle)
        return (void *)answer_null;
    if (count > 1)
        found = fl_driver_of((const void *)handle);
    return found ? function_of(found, tool) : (void *)answer_unknown;
}

/* A program may use Sysman without zeInit. A driver without Sysman is left out here, and not
 * elsewhere. */
FL_EXPORT ze_result_t zesInit(uint32_t flags) {
    typedef ze_result_t init(uint32_t flags);
    const fl_drivers *drivers = fl_open_drivers();
    ze_result_t first = ZE_RESULT_ERROR_UNINITIALIZED;
    bool any = false;
    if (fl_busy)
        return ZE_RESULT_ERROR_UNINITIALIZED;
    fl_busy = true;
    for (unsigned i = 0; drivers && i < drivers->count; i++) {
        fl_driver *driver = drivers->all[i];
        init *function = (init *)driver->tools[TOOL_zesInit];
        ze_result_t code = function ? function(flags) : ZE_RESULT_ERROR_UNINITIALIZED;
        if (code == ZE_RESULT_SUCCESS)
            any = true, __atomic_store_n(&driver->has_sysman, true, __ATOMIC_RELEASE);
        else if (first == ZE_RESULT_ERROR_UNINITIALIZED)
            first = code;
    }
    fl_busy = false;
    return any ? ZE_RESULT_SUCCESS : first;
}

static ze_result_t list_sysman(fl_driver *driver, uint32_t *count, ze_driver_handle_t *into,
                               const void *data) {
    typedef ze_result_t get(uint32_t *count, ze_driver_handle_t *into);
    (void)data;
    return ((get *)function_of(driver, TOOL_zesDriverGet))(count, into);
}

FL_EXPORT ze_result_t zesDriverGet(uint32_t *count, ze_driver_handle_t *drivers) {
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    const fl_drivers *all = fl_open_drivers();
    fl_drivers some = {0};
    for (unsigned i = 0; all && i < all->count; i++)
        if (__atomic_load_n(&all->all[i]->has_sysman, __ATOMIC_ACQUIRE))
            some.all[some.count++] = all->all[i];
    return fl_list_handles(&some, list_sysman, count, drivers);
}
