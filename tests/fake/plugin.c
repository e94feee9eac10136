/* A fake plugin with knobs: a Unified Runtime adapter (INTERFACE 1) or a PI plugin (INTERFACE 2)
 * with platforms and devices, and every way to break the protocol by which a plugin is bound. A
 * knob is a macro given to the compiler (-DLAYOUT=2); conftest.py's fixture `fake_plugin` builds
 * the variants, tests/helpers/plugin_header.py writes the tables of each layout.
 *
 * Environment: FAKE_LOG names a file into which a line is written for each of load, teardown,
 * adapter release, unload. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How well it speaks the protocol. TABLE is the table that is broken, where only one is. */
#ifndef INTERFACE
#define INTERFACE 1
#endif
#ifndef LAYOUT
#define LAYOUT 1 /* the newest of UR.layouts is 1 */
#endif
#ifndef FILL
#define FILL 1 /* 1: what it does not implement answers FIRST_ANSWER + slot, 0: it is NULL */
#endif
#ifndef TABLE
#define TABLE Kernel
#endif
#ifndef VERSION
#define VERSION UR_API_VERSION_0_12 /* the only one that it accepts */
#endif
#ifndef GETTER_ERROR
#define GETTER_ERROR 0 /* what the getter of TABLE, or piPluginInit, answers */
#endif
#ifndef WRITTEN
#define WRITTEN length /* words that are written: length / 2, length + 1, 0 … */
#endif
#ifndef WRITTEN_OF_TABLE
#define WRITTEN_OF_TABLE WRITTEN
#endif
#ifndef NULLS
#define NULLS 0 /* 1: every entry is NULL */
#endif
#ifndef NULL_ENTRY
#define NULL_ENTRY none
#endif
#ifndef WILD
#define WILD none /* a function whose entry leads nowhere */
#endif
#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION "15.47.1"
#endif
#ifndef SHIFTED
#define SHIFTED 0 /* entries of a later version that stand before SHIFT_AT */
#endif
#ifndef SHIFT_AT
#define SHIFT_AT 140
#endif
#ifndef EXPORTS
#define EXPORTS                                                                                    \
    2 /* 2: every PI function, 1: those that this file implements, 0: piPluginInit alone, -1:      \
         nothing, for UR as well */
#endif

/* What it has. COUNT is the number of platforms that it says, PLATFORMS that which it has. */
#ifndef ADAPTERS
#define ADAPTERS 1
#endif
#ifndef ADAPTER_ERROR
#define ADAPTER_ERROR 0
#endif
#ifndef RELEASE_ERROR
#define RELEASE_ERROR 0 /* of urAdapterRelease and piTearDown */
#endif
#ifndef PLATFORMS
#define PLATFORMS 1
#endif
#ifndef COUNT
#define COUNT PLATFORMS
#endif
#ifndef COUNT_ERROR
#define COUNT_ERROR 0
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef DEVICE_TYPE
#define DEVICE_TYPE CODE(DEVICE_TYPE_GPU)
#endif
#ifndef BACKEND
#define BACKEND UR_BACKEND_LEVEL_ZERO
#endif
#ifndef NAME
#define NAME "Fake"
#endif
#ifndef INFO_ERROR
#define INFO_ERROR 0
#endif
#ifndef NAME_SIZE
#define NAME_SIZE size /* the size that is said of a name: (size_t)-1 … */
#endif
#ifndef SUB_DEVICES
#define SUB_DEVICES 2
#endif

/* What it does to the process. */
#ifndef AT_LOAD
#define AT_LOAD /* a statement, such as abort() */
#endif
#ifndef AT_INIT
#define AT_INIT
#endif
#ifndef AT_LIST
#define AT_LIST
#endif
#ifndef AT_DEVICES
#define AT_DEVICES
#endif
#ifndef AT_TEARDOWN
#define AT_TEARDOWN
#endif
#ifndef AT_EXIT
#define AT_EXIT
#endif

#include "plugin_abi.h"

#define NOWHERE ((void *)0x123456789000)
#define EXPORTED __attribute__((visibility("default"), unused))
#define HIDDEN static __attribute__((unused))
#define STRING_(text) #text
#define STRING(text) STRING_(text)
#define POINTER_TO(name) (void *)(intptr_t)name,
#define NAME_OF(name) #name,
#if INTERFACE == 1
#define CODE(name) UR_##name
#define ERROR(name) UR_RESULT_ERROR_##name
#define OWN HIDDEN
#else
#define CODE(name) PI_##name
#define ERROR(name) PI_ERROR_##name
#if EXPORTS > 0
#define OWN EXPORTED
#else
#define OWN HIDDEN
#endif
#endif

HIDDEN void hang(void) {
    for (;;)
        pause();
}

HIDDEN void crash(void) { raise(SIGSEGV); }

static void note(const char *what) {
    const char *path = getenv("FAKE_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s\n", what);
        fclose(file);
    }
}

/* Objects. The first word of each leads to the whole table, as a loader that intercepts needs it.
 */

typedef struct object {
    void **table;
    int number;
    struct object *parent;
    int references;
} object;

static void *whole[1024];
static object adapters[ADAPTERS + 1], platforms[PLATFORMS + 1], devices[PLATFORMS + 1][DEVICES + 1];
static object parts[PLATFORMS + 1][DEVICES + 1][SUB_DEVICES + 1];
EXPORTED int fake_teardowns;
EXPORTED int fake_live_objects;

static int new_object(object *parent, object **into) {
    if (!parent || !into)
        return ERROR(INVALID_VALUE);
    object *made = malloc(sizeof *made);
    *made = (object){whole, 0, parent, 1};
    *into = made;
    fake_live_objects++;
    return 0;
}

static int retain(object *it) {
    it->references++;
    return 0;
}

static int release(object *it) {
    if (--it->references)
        return 0;
    fake_live_objects--;
    free(it);
    return 0;
}

static int list(object *first, int has, uint32_t says, uint32_t room, object **into,
                uint32_t *count) {
    if (count)
        *count = says;
    for (int i = 0; into && i < (int)room && i < has; i++)
        into[i] = &first[i];
    return 0;
}

static int give(const void *value, size_t size, size_t room, void *into, size_t *size_ret) {
    if (size_ret)
        *size_ret = size;
    if (into) {
        if (room < size)
            return ERROR(INVALID_VALUE);
        memcpy(into, value, size);
    }
    return 0;
}

static int give_text(const char *value, size_t room, void *into, size_t *size_ret) {
    return give(value, strlen(value) + 1, room, into, size_ret);
}

static int give_name(const char *what, int number, size_t room, void *into, size_t *size_ret) {
    char numbered[80];
    size_t size = (size_t)snprintf(numbered, sizeof numbered, "%s%s %d", NAME, what, number) + 1;
    int code = into && room >= size ? give(numbered, size, room, into, NULL) : 0;
    if (size_ret)
        *size_ret = NAME_SIZE;
    return code;
}

static int platform_info(object *platform, unsigned name, size_t room, void *into, size_t *size) {
    uint32_t backend = BACKEND;
    if (INFO_ERROR || !platform)
        return INFO_ERROR ? INFO_ERROR : ERROR(INVALID_PLATFORM);
    switch (name) {
    case CODE(PLATFORM_INFO_NAME): return give_name("", platform->number, room, into, size);
    case CODE(PLATFORM_INFO_VERSION): return give_text("1.2 fake", room, into, size);
    case CODE(PLATFORM_INFO_EXTENSIONS): return give_text("ur_fake ur_other", room, into, size);
    case CODE(PLATFORM_INFO_PROFILE): return give_text("FULL_PROFILE", room, into, size);
#if INTERFACE == 1
    case UR_PLATFORM_INFO_VENDOR_NAME: return give_text("fairlead's tests", room, into, size);
    case UR_PLATFORM_INFO_ADAPTER: return give(&platform->parent, sizeof(void *), room, into, size);
    case UR_PLATFORM_INFO_BACKEND: return give(&backend, sizeof backend, room, into, size);
#else
    case PI_PLATFORM_INFO_VENDOR: return give_text("fairlead's tests", room, into, size);
    case PI_EXT_PLATFORM_INFO_BACKEND: return give(&backend, sizeof backend, room, into, size);
#endif
    default: return ERROR(INVALID_VALUE);
    }
}

/* The place of a root device among all of them, -1 for anything else. */
static ptrdiff_t device_number(const object *device) {
    uintptr_t first = (uintptr_t)devices, place = (uintptr_t)device;
    return place >= first && place < first + sizeof devices
               ? (ptrdiff_t)((place - first) / sizeof *device)
               : -1;
}

static int device_info(object *device, unsigned name, size_t room, void *into, size_t *size) {
    uint32_t units = 7, id = 4711;
#if INTERFACE == 1
    uint32_t type = DEVICE_TYPE;
    unsigned char yes = 1;
#else
    uint64_t type = DEVICE_TYPE;
    uint32_t yes = 1;
#endif
    object *parent = device && device_number(device->parent) >= 0 ? device->parent : NULL;
    if (INFO_ERROR || !device)
        return INFO_ERROR ? INFO_ERROR : ERROR(INVALID_DEVICE);
    switch (name) {
    case CODE(DEVICE_INFO_NAME): return give_name(" device", device->number, room, into, size);
    case CODE(DEVICE_INFO_VENDOR): return give_text("fairlead's tests", room, into, size);
    case CODE(DEVICE_INFO_DRIVER_VERSION): return give_text("1.2.3", room, into, size);
    case CODE(DEVICE_INFO_EXTENSIONS): return give_text("cl_khr_fake", room, into, size);
    case CODE(DEVICE_INFO_TYPE): return give(&type, sizeof type, room, into, size);
    case CODE(DEVICE_INFO_VENDOR_ID): return give(&id, sizeof id, room, into, size);
    case CODE(DEVICE_INFO_MAX_COMPUTE_UNITS): return give(&units, sizeof units, room, into, size);
    case CODE(DEVICE_INFO_AVAILABLE): return give(&yes, sizeof yes, room, into, size);
    case CODE(DEVICE_INFO_PARENT_DEVICE): return give(&parent, sizeof parent, room, into, size);
    default: return ERROR(INVALID_VALUE);
    }
}

static int list_devices(object *platform, uint32_t room, object **into, uint32_t *count) {
    AT_DEVICES;
    if (!platform)
        return ERROR(INVALID_PLATFORM);
    return DEVICES ? list(devices[platform->number], DEVICES, DEVICES, room, into, count)
                   : ERROR(DEVICE_NOT_FOUND);
}

static int divide(object *device, uint32_t room, object **into, uint32_t *count) {
    ptrdiff_t place = device_number(device);
    if (!SUB_DEVICES || place < 0)
        return ERROR(DEVICE_PARTITION_FAILED);
    return list(parts[place / (DEVICES + 1)][place % (DEVICES + 1)], SUB_DEVICES, SUB_DEVICES, room,
                into, count);
}

/* Unified Runtime */

#if INTERFACE == 1

#define OWN_urAdapterGet
OWN int urAdapterGet(uint32_t room, object **into, uint32_t *count) {
    for (int i = 0; into && i < ADAPTERS; i++)
        adapters[i].references++;
    return ADAPTER_ERROR ? ADAPTER_ERROR : list(adapters, ADAPTERS, ADAPTERS, room, into, count);
}

#define OWN_urAdapterRetain
OWN int urAdapterRetain(object *adapter) { return retain(adapter); }

#define OWN_urAdapterRelease
OWN int urAdapterRelease(object *adapter) {
    AT_TEARDOWN;
    adapter->references--;
    note("adapter released");
    return RELEASE_ERROR;
}

#define OWN_urAdapterGetInfo
OWN int urAdapterGetInfo(object *adapter, unsigned name, size_t room, void *into, size_t *size) {
    uint32_t backend = BACKEND, references = (uint32_t)adapter->references, version = 3;
    switch (name) {
    case UR_ADAPTER_INFO_BACKEND: return give(&backend, sizeof backend, room, into, size);
    case UR_ADAPTER_INFO_REFERENCE_COUNT:
        return give(&references, sizeof references, room, into, size);
    case UR_ADAPTER_INFO_VERSION: return give(&version, sizeof version, room, into, size);
    default: return ERROR(INVALID_ENUMERATION);
    }
}

#define OWN_urPlatformGet
OWN int urPlatformGet(object *adapter, uint32_t room, object **into, uint32_t *count) {
    AT_LIST;
    if (COUNT_ERROR || !adapter)
        return COUNT_ERROR ? COUNT_ERROR : ERROR(INVALID_NULL_HANDLE);
    return list(platforms, PLATFORMS, COUNT, room, into, count);
}

#define OWN_urPlatformGetInfo
OWN int urPlatformGetInfo(object *platform, unsigned name, size_t room, void *into, size_t *size) {
    return platform_info(platform, name, room, into, size);
}

#define OWN_urDeviceGet
OWN int urDeviceGet(object *platform, uint32_t type, uint32_t room, object **into,
                    uint32_t *count) {
    return type == UR_DEVICE_TYPE_ALL || type == DEVICE_TYPE
               ? list_devices(platform, room, into, count)
               : ERROR(DEVICE_NOT_FOUND);
}

#define OWN_urDeviceGetInfo
OWN int urDeviceGetInfo(object *device, unsigned name, size_t room, void *into, size_t *size) {
    return device_info(device, name, room, into, size);
}

#define OWN_urDevicePartition
OWN int urDevicePartition(object *device, const void *how, uint32_t room, object **into,
                          uint32_t *count) {
    return how ? divide(device, room, into, count) : ERROR(INVALID_NULL_POINTER);
}

#define OWN_urDeviceRetain
OWN int urDeviceRetain(object *device) { return retain(device); }
#define OWN_urDeviceRelease
OWN int urDeviceRelease(object *device) { return --device->references, 0; }

#define OWN_urContextCreate
OWN int urContextCreate(uint32_t count, object *const *on, const void *properties, object **into) {
    (void)properties;
    return count ? new_object(on[0], into) : ERROR(INVALID_VALUE);
}
#define OWN_urContextRetain
OWN int urContextRetain(object *context) { return retain(context); }
#define OWN_urContextRelease
OWN int urContextRelease(object *context) { return release(context); }

#define OWN_urQueueCreate
OWN int urQueueCreate(object *context, object *device, const void *properties, object **into) {
    (void)device, (void)properties;
    return new_object(context, into);
}
#define OWN_urQueueRetain
OWN int urQueueRetain(object *queue) { return retain(queue); }
#define OWN_urQueueRelease
OWN int urQueueRelease(object *queue) { return release(queue); }
#define OWN_urQueueFinish
OWN int urQueueFinish(object *queue) { return queue ? 0 : ERROR(INVALID_NULL_HANDLE); }

#if FILL
#define UR_STUB(name, answer) int name(void); /* in ur_stubs.c */
#else
#define UR_STUB(name, answer) enum { name };
#endif
#include "plugin_abi.h"
#undef UR_STUB

/* Fill one table as the knobs want it. */
static int give_table(const char *table, uint32_t version, void **into, void *const *own,
                      const char *const *names, size_t length) {
    int broken = strcmp(table, STRING(TABLE)) == 0;
    size_t written = broken ? WRITTEN_OF_TABLE : WRITTEN;
    AT_INIT;
    if (version != VERSION)
        return ERROR(UNSUPPORTED_VERSION);
    if (broken && GETTER_ERROR)
        return GETTER_ERROR;
    for (size_t i = 0; i < written; i++) {
        const char *name = i < length ? names[i] : "";
        into[i] = i < length ? own[i] : (void *)crash;
        if (NULLS || strcmp(name, STRING(NULL_ENTRY)) == 0)
            into[i] = NULL;
        else if (strcmp(name, STRING(WILD)) == 0)
            into[i] = NOWHERE;
    }
    return 0;
}

#if EXPORTS >= 0
#define GETTER EXPORTED
#else
#define GETTER HIDDEN
#endif
#define UR_GETTER(table)                                                                \
    GETTER int urGet##table##ProcAddrTable(uint32_t version, void **into) {             \
        static const char *const names[] = {UR_TABLE_##table(NAME_OF)};                 \
        void *const own[] = {UR_TABLE_##table(POINTER_TO)};                             \
        return give_table(#table, version, into, own, names, sizeof own / sizeof *own); \
    }
#include "plugin_abi.h"

static void fill_whole(void) {
    void *const own[] = {UR_EVERY(POINTER_TO)};
    memcpy(whole, own, sizeof own);
}

/* PI */

#else

#define OWN_piPlatformsGet
OWN int piPlatformsGet(uint32_t room, object **into, uint32_t *count) {
    AT_LIST;
    return COUNT_ERROR ? COUNT_ERROR : list(platforms, PLATFORMS, COUNT, room, into, count);
}

#define OWN_piPlatformGetInfo
OWN int piPlatformGetInfo(object *platform, unsigned name, size_t room, void *into, size_t *size) {
    return platform_info(platform, name, room, into, size);
}

#define OWN_piDevicesGet
OWN int piDevicesGet(object *platform, uint64_t type, uint32_t room, object **into,
                     uint32_t *count) {
    return type & DEVICE_TYPE ? list_devices(platform, room, into, count) : ERROR(DEVICE_NOT_FOUND);
}

#define OWN_piDeviceGetInfo
OWN int piDeviceGetInfo(object *device, unsigned name, size_t room, void *into, size_t *size) {
    return device_info(device, name, room, into, size);
}

#define OWN_piDevicePartition
OWN int piDevicePartition(object *device, const intptr_t *how, uint32_t room, object **into,
                          uint32_t *count) {
    return how ? divide(device, room, into, count) : ERROR(INVALID_VALUE);
}

#define OWN_piDeviceRetain
OWN int piDeviceRetain(object *device) { return retain(device); }
#define OWN_piDeviceRelease
OWN int piDeviceRelease(object *device) { return --device->references, 0; }

#define OWN_piContextCreate
OWN int piContextCreate(const intptr_t *properties, uint32_t count, object *const *on, void *notify,
                        void *data, object **into) {
    (void)properties, (void)notify, (void)data;
    return count ? new_object(on[0], into) : ERROR(INVALID_VALUE);
}
#define OWN_piContextRetain
OWN int piContextRetain(object *context) { return retain(context); }
#define OWN_piContextRelease
OWN int piContextRelease(object *context) { return release(context); }

#define OWN_piTearDown
OWN int piTearDown(void *parameter) {
    (void)parameter;
    AT_TEARDOWN;
    fake_teardowns++;
    note("piTearDown");
    return RELEASE_ERROR;
}

#if EXPORTS == 2
#define STUB EXPORTED
#else
#define STUB HIDDEN
#endif
#if FILL
#define PI_STUB(name, answer) \
    STUB int name(void) { return answer; }
#else
#define PI_STUB(name, answer) enum { name };
#endif
#include "plugin_abi.h"

struct plugin {
    char host_version[20], plugin_version[20], *targets;
    void *table[];
};

#if EXPORTS >= 0
EXPORTED
#else
HIDDEN
#endif
int piPluginInit(struct plugin *plugin) {
    void *const own[] = {PI_EVERY(POINTER_TO)};
    static const char *const names[] = {PI_EVERY(NAME_OF)};
    size_t length = sizeof own / sizeof *own, room = sizeof plugin->plugin_version,
           size = sizeof PLUGIN_VERSION;
    size_t written = WRITTEN;
    AT_INIT;
    if (strncmp(plugin->host_version, PLUGIN_VERSION, 3) < 0)
        return PI_ERROR_INVALID_OPERATION;
    if (GETTER_ERROR)
        return GETTER_ERROR;
    memcpy(plugin->plugin_version, PLUGIN_VERSION, size < room ? size : room);
    for (size_t i = 0; i < written; i++) {
        size_t place = i >= SHIFT_AT ? i + SHIFTED : i;
        const char *name = i < length ? names[i] : "";
        plugin->table[place] = i < length ? own[i] : (void *)crash;
        if (NULLS || strcmp(name, STRING(NULL_ENTRY)) == 0)
            plugin->table[place] = NULL;
        else if (strcmp(name, STRING(WILD)) == 0)
            plugin->table[place] = NOWHERE;
    }
    for (int i = 0; i < SHIFTED; i++)
        plugin->table[SHIFT_AT + i] = (void *)crash;
    return 0;
}

static void fill_whole(void) {}

#endif

static void make_objects(void) {
    for (int i = 0; i < ADAPTERS; i++)
        adapters[i] = (object){whole, i, NULL, 0};
    for (int i = 0; i < PLATFORMS; i++) {
        platforms[i] = (object){whole, i, &adapters[0], 1};
        for (int j = 0; j < DEVICES; j++) {
            devices[i][j] = (object){whole, j, &platforms[i], 1};
            for (int k = 0; k < SUB_DEVICES; k++)
                parts[i][j][k] = (object){whole, k, &devices[i][j], 1};
        }
    }
}

__attribute__((constructor)) static void load(void) {
    AT_LOAD;
    note("load");
    fill_whole();
    make_objects();
}

__attribute__((destructor)) static void unload(void) {
    AT_EXIT;
    note("unload");
}
