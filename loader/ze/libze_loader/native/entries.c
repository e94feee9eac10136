/* The functions that concern all drivers, the getters of tables, and what programs ask of a loader
 * itself. */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ALL_TYPES = 3 /* GPU and NPU */, MOST_HANDLES = 1 << 16, MOST_CALLBACKS = 64 };

/* --- start --- */

/* A forked child has no other threads: whatever they held is free again. */
FL_IN_CHILD(fl_free_drivers(); fl_free_handles(); fl_free_tracers())

/* The handles that were gathered from drivers. */
typedef struct gathered {
    ze_driver_handle_t *handles;
    uint32_t count;
    ze_result_t code; /* the first error of a driver */
} gathered;

/* Append a driver's handles. It is asked for their number first. */
static ze_result_t gather(gathered *all, fl_driver *driver, fl_list_function *list,
                          const void *data) {
    uint32_t count = 0;
    ze_result_t code = list(driver, &count, NULL, data);
    if (code || !count || count > MOST_HANDLES)
        return code ? code : count ? ZE_RESULT_ERROR_UNKNOWN : ZE_RESULT_ERROR_UNINITIALIZED;
    ze_driver_handle_t *room = realloc(all->handles, (all->count + count) * sizeof *room);
    if (!room)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    all->handles = room;
    uint32_t got = count;
    memset(room + all->count, 0, count * sizeof *room);
    if ((code = list(driver, &got, room + all->count, data)))
        return code;
    for (uint32_t i = 0; i < got && i < count; i++)
        fl_learn(driver, room[all->count + i]);
    all->count += got < count ? got : count;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t answer(gathered *all, uint32_t *count, ze_driver_handle_t *into) {
    if (into && *count) {
        *count = *count < all->count ? *count : all->count;
        memcpy(into, all->handles, *count * sizeof *into);
    } else
        *count = all->count;
    free(all->handles);
    return ZE_RESULT_SUCCESS;
}

typedef ze_result_t init_function(gathered *all, fl_driver *driver, const void *data);

/* Initialize every driver by a function, and gather its handles if there is a list. */
static ze_result_t initialize_all(gathered *all, const fl_drivers *drivers, init_function *one,
                                  const void *data) {
    ze_result_t first = ZE_RESULT_ERROR_UNINITIALIZED;
    bool any = false;
    fl_busy = true;
    for (unsigned i = 0; i < drivers->count; i++) {
        ze_result_t code = one(all, drivers->all[i], data);
        any |= code == ZE_RESULT_SUCCESS;
        if (code == ZE_RESULT_SUCCESS)
            __atomic_store_n(&drivers->all[i]->ready, true, __ATOMIC_RELEASE);
        else if (first == ZE_RESULT_ERROR_UNINITIALIZED)
            first = code;
    }
    fl_busy = false;
    return any ? ZE_RESULT_SUCCESS : first;
}

/* The drivers that fail the first time are left out for good. Threads may make the first init
 * together: no lock is held while a driver is called. One of them says which drivers were ready,
 * and the others begin again with those. */
static ze_result_t initialize(gathered *all, init_function *one, const void *data) {
    if (fl_busy) /* a driver calls Level Zero while it is initialized */
        return ZE_RESULT_ERROR_UNINITIALIZED;
    fl_read_tracing();
    for (;;) {
        const fl_drivers *kept = fl_kept_drivers(), *drivers = kept ? kept : fl_open_drivers();
        if (!drivers)
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        if (all)
            all->count = 0;
        ze_result_t code = initialize_all(all, drivers, one, data);
        if (code || kept || fl_keep_ready_drivers(drivers))
            return code;
    }
}

#define CALL(driver, name) ((fn_##name *)(driver)->table[SLOT_##name])

static ze_result_t list_by_init(fl_driver *driver, uint32_t *count, ze_driver_handle_t *into,
                                const void *desc) {
    return CALL(driver, zeInitDrivers)(count, into, (ze_init_driver_type_desc_t *)desc);
}

static ze_result_t list_by_get(fl_driver *driver, uint32_t *count, ze_driver_handle_t *into,
                               const void *data) {
    (void)data;
    return CALL(driver, zeDriverGet)(count, into);
}

/* zeInit. A driver that only has zeInitDrivers gets that. */
static ze_result_t init_one(gathered *all, fl_driver *driver, const void *data) {
    const ze_init_flags_t *flags = data;
    if (fl_has(driver, SLOT_zeInit) && fl_has(driver, SLOT_zeDriverGet)) {
        uint32_t count = 0;
        ze_result_t code = CALL(driver, zeInit)(*flags);
        return code                                                ? code
               : CALL(driver, zeDriverGet)(&count, NULL) || !count ? ZE_RESULT_ERROR_UNINITIALIZED
                                                                   : ZE_RESULT_SUCCESS;
    }
    ze_init_driver_type_desc_t desc = {.stype = FL_STYPE_INIT_DRIVER_TYPE_DESC, .flags = ALL_TYPES};
    uint32_t count = 0;
    (void)all;
    return CALL(driver, zeInitDrivers)(&count, NULL, &desc);
}

/* zeInitDrivers. A driver of before 1.10 gets zeInit: GPU is bit 0 of both, and NPU is bit 1, there
 * called VPU. */
static ze_result_t init_and_list_one(gathered *all, fl_driver *driver, const void *data) {
    const ze_init_driver_type_desc_t *desc = data;
    if (fl_has(driver, SLOT_zeInitDrivers))
        return gather(all, driver, list_by_init, desc);
    uint32_t types = desc->flags & 3;
    ze_result_t code = CALL(driver, zeInit)(types == 3 ? 0 : types);
    return code ? code : gather(all, driver, list_by_get, NULL);
}

ze_result_t fl_init(ze_init_flags_t flags) { return initialize(NULL, init_one, &flags); }

ze_result_t fl_init_drivers(uint32_t *count, ze_driver_handle_t *drivers,
                            ze_init_driver_type_desc_t *desc) {
    if (!count || !desc)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (!desc->flags)
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    gathered all = {0};
    ze_result_t code = initialize(&all, init_and_list_one, desc);
    if (code) {
        free(all.handles);
        return code;
    }
    return answer(&all, count, drivers);
}

ze_result_t fl_list_handles(const fl_drivers *drivers, fl_list_function *list, uint32_t *count,
                            ze_driver_handle_t *into) {
    gathered all = {0};
    ze_result_t code = ZE_RESULT_ERROR_UNINITIALIZED;
    bool any = false;
    for (unsigned i = 0; drivers && i < drivers->count; i++) {
        ze_result_t one = gather(&all, drivers->all[i], list, NULL);
        any |= one == ZE_RESULT_SUCCESS;
        code = one && code == ZE_RESULT_ERROR_UNINITIALIZED ? one : code;
    }
    if (!any) {
        free(all.handles);
        return code;
    }
    return answer(&all, count, into);
}

/* By zeDriverGet, or by zeInitDrivers if a driver only has that. */
static ze_result_t list_again(fl_driver *driver, uint32_t *count, ze_driver_handle_t *into,
                              const void *data) {
    ze_result_t code = list_by_get(driver, count, into, data);
    ze_init_driver_type_desc_t desc = {.stype = FL_STYPE_INIT_DRIVER_TYPE_DESC, .flags = ALL_TYPES};
    return code == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE ? list_by_init(driver, count, into, &desc)
                                                       : code;
}

ze_result_t fl_driver_get(uint32_t *count, ze_driver_handle_t *drivers) {
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    return fl_list_handles(fl_kept_drivers(), list_again, count, drivers);
}

/* --- tables for clients --- */

ze_result_t fl_pass_on(const char *getter, uint32_t version, void *table) {
    typedef ze_result_t get(uint32_t version, void *into);
    if (!table)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (version >> 16 != 1 || version > FL_VERSION)
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    const fl_drivers *kept = fl_kept_drivers(), *drivers = kept ? kept : fl_open_drivers();
    get *its =
        drivers && drivers->count == 1 ? (get *)dlsym(drivers->all[0]->library, getter) : NULL;
    if (its)
        its(version, table); /* what it does not fill stays NULL, which clients check */
    return ZE_RESULT_SUCCESS;
}

/* --- what programs ask of a loader --- */

typedef struct version {
    char name[64];
    uint32_t api;
    int major, minor, patch;
} version;

/* The version of the Level Zero loader whose functions these are: static loaders in programs
 * compare it. */
static const version ours[] = {{"loader", FL_VERSION, 1, 32, 0},
                               {"tracing layer", FL_VERSION, 1, 32, 0}};

FL_EXPORT ze_result_t zeLoaderInit(void) {
    const fl_drivers *drivers = fl_open_drivers();
    return drivers && drivers->count ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNINITIALIZED;
}

FL_EXPORT ze_result_t zelGetLoaderVersion(version *into) {
    if (!into)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *into = ours[0];
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelLoaderGetVersion(version *into) { return zelGetLoaderVersion(into); }

FL_EXPORT ze_result_t zelLoaderGetVersions(size_t *count, version *into) {
    if (!count)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    if (into && !*count)
        return ZE_RESULT_ERROR_INVALID_SIZE;
    size_t there = fl_is_traced() ? 2 : 1;
    *count = into && *count < there ? *count : there;
    if (into)
        memcpy(into, ours, *count * sizeof *into);
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelLoaderGetVersionsInternal(size_t *count, version *into) {
    return zelLoaderGetVersions(count, into);
}

/* Handles are the drivers' own. */
FL_EXPORT ze_result_t zelLoaderTranslateHandle(uint32_t type, void *handle, void **into) {
    (void)type;
    if (!into)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    *into = handle;
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT ze_result_t zelLoaderTranslateHandleInternal(uint32_t type, void *handle, void **into) {
    return zelLoaderTranslateHandle(type, handle, into);
}

/* A static loader asks whether any driver can be used, before it calls zeInit or zeInitDrivers
 * itself. */
FL_EXPORT ze_result_t zelLoaderDriverCheck(ze_init_flags_t flags, ze_init_driver_type_desc_t *desc,
                                           void *global, void *sysman, bool *again,
                                           bool sysman_only) {
    (void)flags, (void)desc, (void)global, (void)sysman, (void)again, (void)sysman_only;
    return zeLoaderInit();
}

/* --- the end --- */

typedef void teardown_callback(void);
static teardown_callback *callbacks[MOST_CALLBACKS];
static bool ended;

static void forget_callback(uint32_t index) {
    if (index < MOST_CALLBACKS)
        __atomic_store_n(&callbacks[index], NULL, __ATOMIC_RELEASE);
}

FL_EXPORT ze_result_t zelRegisterTeardownCallback(teardown_callback *callback,
                                                  void (**done)(uint32_t), uint32_t *index) {
    if (!callback || !done || !index)
        return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
    for (uint32_t i = 0; i < MOST_CALLBACKS; i++) {
        teardown_callback *nothing = NULL;
        if (__atomic_compare_exchange_n(&callbacks[i], &nothing, callback, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            *done = forget_callback, *index = i;
            return ZE_RESULT_SUCCESS;
        }
    }
    return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
}

FL_EXPORT bool zelCheckIsLoaderInTearDown(void) {
    return __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
}

/* A driver goes away, as the process ends: no call reaches one from now on. */
FL_EXPORT ze_result_t zelSetDriverTeardown(void) {
    __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
    fl_hide_drivers();
    return ZE_RESULT_SUCCESS;
}

FL_EXPORT void zelSetDelayLoaderContextTeardown(void) {}

FL_EXPORT void zelLoaderContextTeardown(void) {}

__attribute__((destructor)) static void end(void) {
    __atomic_store_n(&ended, true, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < MOST_CALLBACKS; i++) {
        teardown_callback *callback = __atomic_load_n(&callbacks[i], __ATOMIC_ACQUIRE);
        if (callback)
            callback();
    }
}
