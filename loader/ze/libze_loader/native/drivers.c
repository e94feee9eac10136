/* Finds and opens drivers, and makes a whole table of each. */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1024 /* entries that a getter may write: several times the longest table */ };

/* The names that the Level Zero loader knows, in its order (loader/ze/discovery.py). */
static const char *const names[] = {"libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1",
                                    "libze_intel_vpu.so.1", "libze_intel_npu.so.1"};

static fl_drivers *opened, *kept, ready;
static pthread_mutex_t showing =
    PTHREAD_MUTEX_INITIALIZER; /* of `kept` and `fl_current`; no driver is called with it */
_Thread_local bool fl_busy;

bool fl_is_set(const char *variable) {
    const char *value = secure_getenv(variable);
    return value && strcmp(value, "1") == 0;
}

void fl_note(const char *format, ...) {
    if (!fl_is_set("ZE_ENABLE_LOADER_DEBUG_TRACE"))
        return;
    va_list arguments;
    va_start(arguments, format);
    flockfile(stderr);
    fputs("fairlead: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
}

bool fl_has(const fl_driver *driver, unsigned slot) {
    return driver->table[slot] != fl_unsupported[slot];
}

/* The newest version of a table that a driver gives, and its entries; -1 if it gives none. */
static int ask(void *library, const char *name, void **entries) {
    typedef ze_result_t get(uint32_t version, void **into);
    get *getter = (get *)dlsym(library, name);
    for (int minor = getter ? FL_MINOR : -1; minor >= 0; minor--) {
        memset(entries, 0, ROOM * sizeof *entries);
        ze_result_t code = getter(1u << 16 | (uint32_t)minor, entries);
        if (code == ZE_RESULT_SUCCESS)
            return minor;
        if (code != ZE_RESULT_ERROR_UNSUPPORTED_VERSION)
            break;
    }
    return -1;
}

static void fill(fl_driver *driver) {
    void *entries[ROOM];
    memcpy(driver->table, fl_unsupported, sizeof driver->table);
    for (unsigned table = 0; fl_first_slots[table] < FL_SLOTS; table++) {
        int minor = ask(driver->library, fl_getter_names[table], entries);
        for (unsigned first = fl_first_slots[table], slot = first; slot < fl_first_slots[table + 1];
             slot++)
            if (minor >= fl_since[slot] && entries[slot - first])
                driver->table[slot] = entries[slot - first];
    }
    for (unsigned table = 0; fl_first_tools[table] < FL_TOOLS; table++) {
        unsigned first = fl_first_tools[table], count = fl_first_tools[table + 1] - first;
        if (ask(driver->library, fl_tool_getters[table], entries) >= 0)
            memcpy(driver->tools + first, entries, count * sizeof *entries);
    }
}

/* Where the file of a driver is mapped. */
static int find_range(struct dl_phdr_info *info, size_t size, void *data) {
    fl_driver *driver = data;
    struct link_map *map = NULL;
    (void)size;
    if (dlinfo(driver->library, RTLD_DI_LINKMAP, &map) || !map || map->l_addr != info->dlpi_addr)
        return 0;
    driver->start = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr,
                  end = start + info->dlpi_phdr[i].p_memsz;
        driver->start = start < driver->start ? start : driver->start;
        driver->end = end > driver->end ? end : driver->end;
    }
    return 1;
}

static bool is_open(const fl_drivers *among, void *library) {
    for (unsigned i = 0; i < among->count; i++)
        if (among->all[i]->library == library)
            return true;
    return false;
}

/* Open a driver. What is not found stays unsaid unless the user named it. */
static void open_driver(fl_drivers *into, const char *name, bool named) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        if (named)
            fl_note("%s is left out: %s", name, dlerror());
        return;
    }
    fl_driver *driver =
        is_open(into, library) || into->count == FL_MOST_DRIVERS ? NULL : calloc(1, sizeof *driver);
    if (!driver || dlsym(library, "zelLoaderGetVersions")) {
        fl_note("%s is left out: it is %s", name,
                driver ? "a loader" : "open already, or one too many");
        free(driver);
        dlclose(library);
        return;
    }
    driver->library = library;
    snprintf(driver->name, sizeof driver->name, "%s", name);
    fill(driver);
    if (!fl_has(driver, SLOT_zeInitDrivers) &&
        !(fl_has(driver, SLOT_zeInit) && fl_has(driver, SLOT_zeDriverGet))) {
        fl_note("%s is left out: it has no zeInitDrivers, and not both zeInit and zeDriverGet",
                name);
        free(driver); /* the library stays: it may have started threads */
        return;
    }
    dl_iterate_phdr(find_range, driver);
    into->all[into->count++] = driver;
}

/* fairlead's own driver: `plugins` lies beside `loader`, of which this library is
 * loader/ze/libze_loader/libze_loader.so.1. */
static void open_own_driver(fl_drivers *into) {
    Dl_info info;
    char path[PATH_MAX + 64];
    if (!dladdr((void *)open_own_driver, &info) || !realpath(info.dli_fname, path))
        return;
    for (int i = 0; i < 4; i++)
        if (strrchr(path, '/'))
            *strrchr(path, '/') = '\0';
    strcat(path, "/plugins/libze_fairlead.so.1");
    open_driver(into, path, false);
}

static void open_all(fl_drivers *into) {
    const char *named = secure_getenv("ZE_ENABLE_ALT_DRIVERS");
    if (fl_is_set("ZE_ENABLE_NULL_DRIVER")) /* of Intel's loader, first as there */
        open_driver(into, "libze_null.so.1", true);
    if (!named) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            open_driver(into, names[i], false);
        open_own_driver(into);
        return;
    }
    char *list = strdup(named);
    for (char *rest = list, *name; (name = strsep(&rest, ","));) {
        name += strspn(name, " ");
        for (size_t size = strlen(name); size && name[size - 1] == ' ';)
            name[--size] = '\0';
        if (*name)
            open_driver(into, name, true);
    }
    free(list);
}

static void close_all(fl_drivers *drivers) {
    for (unsigned i = 0; i < drivers->count; i++) {
        dlclose(drivers->all[i]->library);
        free(drivers->all[i]);
    }
    free(drivers);
}

/* Nobody waits for another thread that opens drivers, because a driver may need a lock that the
 * waiting thread has, such as Python's. Of threads that open them at the same time, the first one
 * that is done opens them for all. */
const fl_drivers *fl_open_drivers(void) {
    fl_drivers *there = __atomic_load_n(&opened, __ATOMIC_ACQUIRE);
    if (there || fl_busy)
        return there;
    fl_drivers *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    fl_busy = true;
    open_all(made);
    fl_busy = false;
    if (__atomic_compare_exchange_n(&opened, &there, made, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        return made;
    close_all(made);
    return there;
}

const fl_drivers *fl_kept_drivers(void) { return __atomic_load_n(&kept, __ATOMIC_ACQUIRE); }

/* The functions that concern all drivers are always those of entries.c. */
static bool concerns_all(unsigned slot) {
    return slot == SLOT_zeInit || slot == SLOT_zeDriverGet || slot == SLOT_zeInitDrivers;
}

/* What stays is not written: another thread may be in the call of it. */
static void put(void **entry, void *function) {
    if (__atomic_load_n(entry, __ATOMIC_RELAXED) != function)
        __atomic_store_n(entry, function, __ATOMIC_RELEASE);
}

static void show(void *const *untraced) {
    void *const *first = fl_is_traced() ? fl_traced : fl_untraced;
    for (unsigned slot = 0; slot < FL_SLOTS; slot++) {
        if (!concerns_all(slot))
            put(&fl_untraced[slot], untraced[slot]);
        put(&fl_current[slot], first[slot]);
    }
}

void fl_show(void) {
    FL_HOLD(showing);
    show(fl_untraced);
}

void fl_hide_drivers(void) {
    FL_HOLD(showing);
    show(fl_start);
}

bool fl_keep_ready_drivers(const fl_drivers *from) {
    FL_HOLD(showing);
    bool first = !kept;
    for (unsigned i = 0; first && i < from->count; i++)
        if (__atomic_load_n(&from->all[i]->ready, __ATOMIC_ACQUIRE))
            ready.all[ready.count++] = from->all[i];
        else
            fl_note("%s is left out: it has no device, or fails to start", from->all[i]->name);
    if (first) {
        memcpy(fl_bottom, ready.count == 1 ? ready.all[0]->table : fl_several, sizeof fl_bottom);
        show(fl_is_set("ZE_ENABLE_PARAMETER_VALIDATION") ? fl_valid : fl_bottom);
        __atomic_store_n(&kept, &ready, __ATOMIC_RELEASE);
    }
    return first;
}

void fl_free_drivers(void) {
    pthread_mutex_init(&showing, NULL);
    fl_busy = false;
}
