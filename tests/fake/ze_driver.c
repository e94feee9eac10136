/* A fake Level Zero driver: a driver handle, devices, contexts, event pools and events, with the
 * checks that the specification lists for them. A knob is a macro given to the compiler
 * (-DINIT_CODE=...) that breaks one rule; tests/helpers/ze_header.py writes the tables. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 17 /* the minor version of its tables: what came later is not written */
#endif
#ifndef STRICT
#define STRICT 0 /* 1: refuses any newer version than its own */
#endif
#ifndef NAME
#define NAME "Fake"
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef MORE_DEVICES
#define MORE_DEVICES 0 /* how many more it counts than it has */
#endif
#ifndef AT_LOAD
#define AT_LOAD /* a statement, such as crash() */
#endif
#ifndef AT_INIT
#define AT_INIT /* in zeInit and zeInitDrivers */
#endif
#ifndef AT_GETTER
#define AT_GETTER
#endif
#ifndef GETTER_CODE
#define GETTER_CODE ZE_RESULT_SUCCESS
#endif
#ifndef INIT_CODE
#define INIT_CODE ZE_RESULT_SUCCESS
#endif
#ifndef PROPERTIES_CODE
#define PROPERTIES_CODE ZE_RESULT_SUCCESS
#endif
#ifndef BEYOND
#define BEYOND 0 /* words that a getter writes behind the newest table that it knows */
#endif
#ifndef TOOLS
#define TOOLS 0 /* 1: it has a little of Sysman and of the tools */
#endif
#ifndef NULL_AFTER
#define NULL_AFTER 1000 /* entries of a table from this one on are NULL */
#endif

#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wtype-limits"
#define ZE_FAKE
#include "ze_fake.h"

#define NEED(condition, code)             \
    do {                                  \
        if (!(condition))                 \
            return ZE_RESULT_ERROR_##code; \
    } while (0)

static __attribute__((unused)) void crash(void) { raise(SIGSEGV); }
static __attribute__((unused)) void hang(void) {
    for (;;)
        pause();
}

/* A child that is forked while the driver is initialized starts Level Zero itself. The parent
 * crashes if the child fails. */
static __attribute__((unused)) void fork_once(void) {
    static int done;
    int status = 0;
    if (done++)
        return;
    pid_t child = fork();
    if (!child)
        _exit(zeInit(0) != ZE_RESULT_SUCCESS);
    if (waitpid(child, &status, 0) != child || status)
        crash();
}

/* From the second time on two threads are in here together. */
static __attribute__((unused)) void meet(void) {
    static atomic_bool begun;
    static pthread_barrier_t both;
    if (begun)
        pthread_barrier_wait(&both);
    else
        begun = !pthread_barrier_init(&both, NULL, 2);
}

/* The first two threads that come are in here together. */
static __attribute__((unused)) void meet_first(void) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t both = PTHREAD_COND_INITIALIZER;
    static int come;
    pthread_mutex_lock(&lock);
    come++;
    pthread_cond_broadcast(&both);
    while (come < 2)
        pthread_cond_wait(&both, &lock);
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void at_load(void) { AT_LOAD; }

static ze_result_t fill(uint32_t version, void **table, void *const *entries, const uint8_t *since,
                        uint32_t count) {
    AT_GETTER;
    if (GETTER_CODE)
        return GETTER_CODE;
    NEED(table, INVALID_NULL_POINTER);
    NEED(version >> 16 == 1 && !(STRICT && (version & 0xFFFF) > VERSION), UNSUPPORTED_VERSION);
    for (uint32_t i = 0; i < count; i++)
        if (since[i] <= VERSION && since[i] <= (version & 0xFFFF))
            table[i] = i < NULL_AFTER ? entries[i] : NULL;
    for (uint32_t i = 0; i < BEYOND; i++)
        table[count + i] = (void *)crash;
    return ZE_RESULT_SUCCESS;
}

/* What a handle leads to. */
typedef struct object {
    const void *file; /* as of a C++ object: a table of functions in the driver's file */
    uint32_t kind; /* 1 driver, 2 device, 3 context, 4 event pool, 5 event */
    uint32_t signaled;
    struct object *parent;
} object;

static const char here[] = "the driver's file";
static object driver = {.file = here, .kind = 1}, devices[DEVICES ? DEVICES : 1];
static atomic_int initialized;

static int is(const void *handle, uint32_t kind) {
    return handle && ((const object *)handle)->kind == kind;
}

static object *new_object(uint32_t kind, void *parent) {
    object *made = calloc(1, sizeof *made);
    *made = (object){.file = here, .kind = kind, .parent = parent};
    return made;
}

/* Level Zero's way to list: the number for a count of 0, else no more than there is room for. */
static ze_result_t list(uint32_t *count, void **into, object *from, uint32_t there) {
    NEED(count, INVALID_NULL_POINTER);
    if (!*count || !into) {
        *count = there + MORE_DEVICES * (from == devices);
        return ZE_RESULT_SUCCESS;
    }
    *count = *count < there ? *count : there;
    for (uint32_t i = 0; i < *count; i++)
        into[i] = &from[i];
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeInit(ze_init_flags_t flags) {
    AT_INIT;
    initialized = INIT_CODE == ZE_RESULT_SUCCESS;
    return INIT_CODE;
}

ze_result_t fake_zeDriverGet(uint32_t *count, ze_driver_handle_t *drivers) {
    NEED(initialized, UNINITIALIZED);
    return list(count, (void **)drivers, &driver, 1);
}

#ifndef NO_INITDRIVERS
ze_result_t fake_zeInitDrivers(uint32_t *count, ze_driver_handle_t *drivers,
                               ze_init_driver_type_desc_t *desc) {
    NEED(count && desc, INVALID_NULL_POINTER);
    NEED(desc->stype == ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC && desc->flags, INVALID_ARGUMENT);
    ze_result_t code = fake_zeInit(0);
    return code ? code : list(count, (void **)drivers, &driver, 1);
}
#endif

ze_result_t fake_zeDriverGetApiVersion(ze_driver_handle_t hDriver, ze_api_version_t *version) {
    NEED(hDriver, INVALID_NULL_HANDLE);
    *version = 1u << 16 | VERSION;
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeDriverGetProperties(ze_driver_handle_t hDriver,
                                       ze_driver_properties_t *properties) {
    NEED(hDriver, INVALID_NULL_HANDLE);
    properties->driverVersion = 7;
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeDriverGetExtensionProperties(ze_driver_handle_t hDriver, uint32_t *count,
                                                ze_driver_extension_properties_t *into) {
    NEED(hDriver, INVALID_NULL_HANDLE);
    if (*count && into)
        *into = (ze_driver_extension_properties_t){"ZE_fake", 1u << 16 | 2};
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

/* An extension's function, which makes an object that no loader has seen. */
static ze_result_t make_event(ze_event_handle_t *event) {
    *event = (void *)new_object(5, NULL);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t hDriver, const char *name,
                                                     void **address) {
    NEED(hDriver, INVALID_NULL_HANDLE);
    NEED(!strcmp(name, "zexFakeEvent"), UNSUPPORTED_FEATURE);
    *address = (void *)make_event;
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeDeviceGet(ze_driver_handle_t hDriver, uint32_t *count,
                             ze_device_handle_t *into) {
    NEED(hDriver, INVALID_NULL_HANDLE);
    NEED(is(hDriver, 1), INVALID_ARGUMENT);
    for (int i = 0; i < DEVICES; i++)
        devices[i] = (object){.file = here, .kind = 2, .parent = &driver};
    return list(count, (void **)into, devices, DEVICES);
}

ze_result_t fake_zeDeviceGetProperties(ze_device_handle_t hDevice,
                                       ze_device_properties_t *properties) {
    if (PROPERTIES_CODE)
        return PROPERTIES_CODE;
    NEED(is(hDevice, 2), INVALID_ARGUMENT);
    NEED(properties->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES ||
             properties->stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2,
         INVALID_ARGUMENT);
    properties->type = ZE_DEVICE_TYPE_GPU, properties->vendorId = 0x8086;
    snprintf(properties->name, sizeof properties->name, "%s %d", NAME,
             (int)((object *)hDevice - devices));
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeContextCreate(ze_driver_handle_t hDriver, const ze_context_desc_t *desc,
                                 ze_context_handle_t *context) {
    NEED(is(hDriver, 1), INVALID_ARGUMENT);
    *context = (void *)new_object(3, hDriver);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeContextDestroy(ze_context_handle_t context) {
    NEED(is(context, 3), INVALID_ARGUMENT);
    free(context);
    return ZE_RESULT_SUCCESS;
}

ze_context_handle_t fake_zeDriverGetDefaultContext(ze_driver_handle_t hDriver) {
    static object context = {.file = here, .kind = 3, .parent = &driver};
    return (void *)&context;
}

ze_result_t fake_zeEventPoolCreate(ze_context_handle_t context, const ze_event_pool_desc_t *desc,
                                   uint32_t count, ze_device_handle_t *of,
                                   ze_event_pool_handle_t *pool) {
    NEED(is(context, 3), INVALID_ARGUMENT);
    *pool = (void *)new_object(4, context);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeEventPoolDestroy(ze_event_pool_handle_t pool) {
    NEED(is(pool, 4), INVALID_ARGUMENT);
    free(pool);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t *desc,
                               ze_event_handle_t *event) {
    NEED(is(pool, 4), INVALID_ARGUMENT);
    *event = (void *)new_object(5, pool);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeEventDestroy(ze_event_handle_t event) {
    NEED(is(event, 5), INVALID_ARGUMENT);
    free(event);
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeEventHostSignal(ze_event_handle_t event) {
    NEED(is(event, 5), INVALID_ARGUMENT);
    ((object *)event)->signaled = 1;
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeEventQueryStatus(ze_event_handle_t event) {
    NEED(is(event, 5), INVALID_ARGUMENT);
    return ((object *)event)->signaled ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

/* What Intel's adapters ask of a device before they list it. */

ze_result_t fake_zeDeviceGetSubDevices(ze_device_handle_t hDevice, uint32_t *count,
                                       ze_device_handle_t *into) {
    NEED(is(hDevice, 2), INVALID_ARGUMENT);
    *count = 0;
    return ZE_RESULT_SUCCESS;
}

ze_result_t fake_zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t hDevice, uint32_t *count,
                                                        ze_command_queue_group_properties_t *into) {
    NEED(is(hDevice, 2), INVALID_ARGUMENT);
    if (*count && into)
        into->flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE |
                      ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
        into->numQueues = 1;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

#if TOOLS
/* Sysman has its own start, and its handles are those of the core API. */
static atomic_int sysman;

static ze_result_t fake_zesInit(uint32_t flags) {
    sysman = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zesDriverGet(uint32_t *count, void **drivers) {
    NEED(sysman, UNINITIALIZED);
    return list(count, drivers, &driver, 1);
}

static ze_result_t fake_zesDeviceGet(ze_driver_handle_t hDriver, uint32_t *count,
                                     ze_device_handle_t *into) {
    return fake_zeDeviceGet(hDriver, count, into);
}

static ze_result_t fake_zesFrequencyOcSetVoltageTarget(void *hFrequency, double target,
                                                       double offset) {
    NEED(is(hFrequency, 2) && target == 1.5 && offset == -0.25, INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

typedef struct fake_thread {
    uint32_t slice, subslice, eu, thread;
} fake_thread;

static ze_result_t fake_zetDebugReadRegisters(void *session, fake_thread thread, uint32_t type,
                                              uint32_t start, uint32_t count, uint32_t *into) {
    NEED(is(session, 2) && thread.slice == 1 && thread.thread == 4, INVALID_ARGUMENT);
    *into = type + start + count;
    return ZE_RESULT_SUCCESS;
}

#define FAKE_EXPORT __attribute__((visibility("default")))

/* The tables as far as they are filled, by the places that the specification gives. */
FAKE_EXPORT ze_result_t zesGetGlobalProcAddrTable(uint32_t version, void **table) {
    table[0] = (void *)fake_zesInit;
    return ZE_RESULT_SUCCESS;
}

FAKE_EXPORT ze_result_t zesGetDriverProcAddrTable(uint32_t version, void **table) {
    table[2] = (void *)fake_zesDriverGet;
    return ZE_RESULT_SUCCESS;
}

FAKE_EXPORT ze_result_t zesGetDeviceProcAddrTable(uint32_t version, void **table) {
    table[29] = (void *)fake_zesDeviceGet;
    return ZE_RESULT_SUCCESS;
}

FAKE_EXPORT ze_result_t zesGetFrequencyProcAddrTable(uint32_t version, void **table) {
    table[10] = (void *)fake_zesFrequencyOcSetVoltageTarget;
    return ZE_RESULT_SUCCESS;
}

FAKE_EXPORT ze_result_t zetGetDebugProcAddrTable(uint32_t version, void **table) {
    table[9] = (void *)fake_zetDebugReadRegisters;
    return ZE_RESULT_SUCCESS;
}
#endif
