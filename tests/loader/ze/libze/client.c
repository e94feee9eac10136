/* A C program that is linked with a Level Zero loader. Its argument says what it does; it prints
 * what it sees. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ze_fake.h"

enum { MOST = 8, ROUNDS = 2000, THREADS = 4 };

static ze_driver_handle_t drivers[MOST];
static uint32_t driver_count = MOST;

static void check(const char *what, ze_result_t code) {
    if (code) {
        printf("%s: %#x\n", what, (unsigned)code);
        exit(3);
    }
}

static void start(int old) {
    ze_init_driver_type_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                       .flags = 0xFFFFFFFF};
    uint32_t count = 0;
    if (old) {
        check("zeInit", zeInit(0));
        check("zeDriverGet", zeDriverGet(&count, NULL));
        check("zeDriverGet", zeDriverGet(&driver_count, drivers));
    } else {
        check("zeInitDrivers", zeInitDrivers(&count, NULL, &desc));
        check("zeInitDrivers", zeInitDrivers(&driver_count, drivers, &desc));
    }
    if (count != driver_count)
        printf("counts: %u, then %u\n", count, driver_count);
}

static ze_event_pool_handle_t pool_of(ze_context_handle_t context) {
    ze_event_pool_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 1};
    ze_event_pool_handle_t pool = NULL;
    check("zeEventPoolCreate", zeEventPoolCreate(context, &desc, 0, NULL, &pool));
    return pool;
}

static void use(ze_driver_handle_t driver, int loud) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_device_properties_t properties = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_device_handle_t devices[MOST];
    uint32_t count = MOST;
    check("zeDeviceGet", zeDeviceGet(driver, &count, devices));
    for (uint32_t i = 0; i < count; i++) {
        check("zeDeviceGetProperties", zeDeviceGetProperties(devices[i], &properties));
        if (loud)
            printf("%s\n", properties.name);
    }
    ze_context_handle_t context;
    check("zeContextCreate", zeContextCreate(driver, &desc, &context));
    ze_context_handle_t given = zeDriverGetDefaultContext(driver); /* NULL before 1.14 */
    ze_event_pool_handle_t pool = pool_of(context), other = given ? pool_of(given) : NULL;
    ze_event_handle_t event;
    check("zeEventCreate", zeEventCreate(pool, &event_desc, &event));
    if (zeEventQueryStatus(event) != ZE_RESULT_NOT_READY)
        printf("it is ready\n");
    check("zeEventHostSignal", zeEventHostSignal(event));
    check("zeEventQueryStatus", zeEventQueryStatus(event));
    check("zeEventDestroy", zeEventDestroy(event));
    check("zeEventPoolDestroy", zeEventPoolDestroy(pool));
    if (other)
        check("zeEventPoolDestroy", zeEventPoolDestroy(other));
    check("zeContextDestroy", zeContextDestroy(context));
}

static void *use_all(void *data) {
    for (int i = 0; i < ROUNDS; i++)
        for (uint32_t j = 0; j < driver_count; j++)
            use(drivers[j], 0);
    return data;
}

static void *start_again(void *data) {
    check("zeInit", zeInit(0));
    return data;
}

static void *start_and_use(void *data) {
    ze_driver_handle_t mine[MOST];
    ze_init_driver_type_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                       .flags = 0xFFFFFFFF};
    uint32_t count = MOST;
    check("zeInit", zeInit(0));
    check("zeInitDrivers", zeInitDrivers(&count, mine, &desc));
    for (uint32_t i = 0; i < count; i++)
        use(mine[i], 0);
    return data;
}

/* A client of version 1.`minor` has a table that ends early: nothing behind it may be written. */
static void look(uint32_t minor) {
    void *table[64];
    memset(table, 0x5A, sizeof table);
    check("zeGetDriverProcAddrTable", zeGetDriverProcAddrTable(1u << 16 | minor, table));
    uint32_t written = 0;
    while (written < 64 && table[written] != (void *)0x5A5A5A5A5A5A5A5A)
        written++;
    for (uint32_t i = written; i < 64; i++)
        if (table[i] != (void *)0x5A5A5A5A5A5A5A5A)
            printf("entry %u is written\n", i);
    printf("%u entries\n", written);
}

/* Functions of tools and of Sysman, as their headers have them. */
typedef struct thread {
    uint32_t slice, subslice, eu, thread;
} thread;
extern ze_result_t zesInit(uint32_t flags);
extern ze_result_t zesDriverGet(uint32_t *count, void **drivers);
extern ze_result_t zesDeviceGet(void *driver, uint32_t *count, void **devices);
extern ze_result_t zesDevicePciGetProperties(void *device, void *properties);
extern ze_result_t zesFrequencyOcSetVoltageTarget(void *frequency, double target, double offset);
extern ze_result_t zetDebugReadRegisters(void *session, thread thread, uint32_t type,
                                         uint32_t start, uint32_t count, void *into);
extern ze_result_t zetMetricGroupGet(void *device, uint32_t *count, void **groups);

static void use_tools(void) {
    void *devices[MOST] = {NULL};
    uint32_t there = MOST, room = MOST, sum = 0;
    printf("%#x ", (unsigned)zetMetricGroupGet(&room, &room, devices));
    check("zesInit", zesInit(0));
    check("zesDriverGet", zesDriverGet(&there, (void **)drivers));
    for (uint32_t i = 0; i < there; i++) {
        check("zesDeviceGet", zesDeviceGet(drivers[i], &room, devices));
        check("zesFrequency", zesFrequencyOcSetVoltageTarget(devices[0], 1.5, -0.25));
        check("zetDebug",
              zetDebugReadRegisters(devices[0], (thread){1, 2, 3, 4}, 10, 20, 30, &sum));
        printf("%u ", sum);
    }
    printf("%#x %#x\n", (unsigned)zesDevicePciGetProperties(devices[0], &sum),
           (unsigned)zesDevicePciGetProperties(NULL, &sum));
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    if (!strcmp(what, "early")) {
        printf("%#x %#x\n", (unsigned)zeEventHostSignal(NULL),
               (unsigned)zeDriverGet(&driver_count, drivers));
    } else if (!strcmp(what, "table")) {
        look((uint32_t)atoi(arguments[2]));
    } else if (!strcmp(what, "threads") || !strcmp(what, "together")) {
        pthread_t threads[THREADS];
        start(!strcmp(what, "together"));
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], NULL, !strcmp(what, "threads") ? use_all : start_again,
                           NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        printf("done\n");
    } else if (!strcmp(what, "first")) {
        pthread_t other;
        pthread_create(&other, NULL, start_and_use, NULL);
        start_and_use(NULL);
        pthread_join(other, NULL);
        printf("done\n");
    } else if (!strcmp(what, "wrong")) {
        start(0);
        ze_command_list_handle_t list = (void *)drivers[0];
        printf("%#x %#x %#x ", (unsigned)zeContextCreate(NULL, NULL, NULL),
               (unsigned)zeContextCreate(drivers[0], NULL, NULL),
               (unsigned)zeCommandListAppendMemAdvise(list, (void *)list, list, 1, 1 << 20));
        printf("%#x %#x\n", (unsigned)zeCommandListAppendBarrier(list, NULL, 2, NULL),
               (unsigned)zeCommandListAppendBarrier(list, NULL, 0, NULL));
    } else if (!strcmp(what, "tools")) {
        use_tools();
    } else if (!strcmp(what, "foreign")) {
        ze_result_t (*make)(ze_event_handle_t *event);
        char garbage[64] = "";
        start(0);
        for (uint32_t i = 0; i < driver_count; i++) {
            ze_event_handle_t event;
            check("address",
                  zeDriverGetExtensionFunctionAddress(drivers[i], "zexFakeEvent", (void **)&make));
            check("make", make(&event));
            printf("%#x ", (unsigned)zeEventHostSignal(event));
        }
        printf("%#x %#x %#x\n", (unsigned)zeEventHostSignal((void *)garbage),
               (unsigned)zeEventHostSignal(NULL), (unsigned)zeFenceReset((void *)drivers[0]));
    } else {
        start(!strcmp(what, "old"));
        for (uint32_t i = 0; i < driver_count; i++)
            use(drivers[i], 1);
        if (!strcmp(what, "twice"))
            start(1), start(0);
    }
    return 0;
}
