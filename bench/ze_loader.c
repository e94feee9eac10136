/* With -DDRIVER: a Level Zero driver that does nothing. Else a program, LIBRARY HOW CALLS: it
 * prints the nanoseconds of a zeEventQueryStatus, the least of its batches. HOW is "table", by the
 * driver's own table, "jump", by that and one direct jump, "pointer", by a jump as the loader has
 * it, or "loader", by the exported function of a loader. With -DLINKED the program is linked with a
 * loader, and calls its function by name. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ze_abi.h"

#define EXPORTED __attribute__((visibility("default")))
enum { VERSION = 1 << 16 | 17, BATCHES = 20, ROOM = 64 };

#ifdef DRIVER
static ze_result_t init_drivers(uint32_t *count, ze_driver_handle_t *into,
                                ze_init_driver_type_desc_t *desc) {
    static char handle[64];
    if (into && *count)
        *into = (void *)handle;
    *count = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t query(ze_event_handle_t event) {
    return event ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

EXPORTED ze_result_t zeGetGlobalProcAddrTable(uint32_t version, void **table) {
    table[1] = (void *)init_drivers;
    return ZE_RESULT_SUCCESS;
}

EXPORTED ze_result_t zeGetEventProcAddrTable(uint32_t version, void **table) {
    table[SLOT_zeEventQueryStatus - SLOT_zeEventCreate] = (void *)query;
    return ZE_RESULT_SUCCESS;
}
#else
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* A function that only jumps to another one: what a loader can put between at least. It begins at a
 * line of the cache. It jumps directly, or by a pointer as the loader's exported functions do.
 * NULL: this processor has another jump, or there is no room near enough. */
static void *jump_to(void *target, int by_pointer) {
    enum { PAGE = 4096, AWAY = 1 << 24 };
#ifdef __x86_64__
    void *hint = (void *)(((uintptr_t)target - AWAY) & ~(uintptr_t)(PAGE - 1));
    unsigned char *page =
        mmap(hint, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    static const unsigned char direct[] = {0xe9}, indirect[] = {0xff, 0x25};
    size_t length = by_pointer ? sizeof indirect : sizeof direct;
    memcpy(page, by_pointer ? indirect : direct, length);
    memcpy(page + PAGE, &target, sizeof target);
    unsigned char *to = by_pointer ? page + PAGE : target;
    intptr_t distance = (intptr_t)to - (intptr_t)(page + length + sizeof(int32_t));
    int32_t near = (int32_t)distance;
    memcpy(page + length, &near, sizeof near);
    return near == distance && !mprotect(page, PAGE, PROT_READ | PROT_EXEC) ? page : NULL;
#else
    (void)target, (void)by_pointer;
    return NULL;
#endif
}

#ifdef LINKED
fn_zeInitDrivers zeInitDrivers;
fn_zeEventQueryStatus zeEventQueryStatus;
#define QUERY zeEventQueryStatus
#else
#define QUERY query
#endif

int main(int count, char **arguments) {
    void *library = count > 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    if (!library)
        return fprintf(stderr, "%s\n", count > 3 ? dlerror() : "LIBRARY HOW CALLS"), 1;
    uint32_t drivers = 1;
    ze_driver_handle_t driver = NULL;
    ze_init_driver_type_desc_t desc = {.stype = FL_STYPE_INIT_DRIVER_TYPE_DESC, .flags = 1};
    void *table[ROOM] = {NULL};
    fn_zeInitDrivers *init;
    fn_zeEventQueryStatus *volatile query;
    if (strcmp(arguments[2], "loader")) {
        ((ze_result_t (*)(uint32_t, void **))dlsym(library, "zeGetGlobalProcAddrTable"))(VERSION,
                                                                                         table);
        init = (fn_zeInitDrivers *)table[1];
        ((ze_result_t (*)(uint32_t, void **))dlsym(library, "zeGetEventProcAddrTable"))(VERSION,
                                                                                        table);
        void *own = table[SLOT_zeEventQueryStatus - SLOT_zeEventCreate];
        int by_pointer = !strcmp(arguments[2], "pointer");
        int jumps = by_pointer || !strcmp(arguments[2], "jump");
        query = (fn_zeEventQueryStatus *)(jumps ? jump_to(own, by_pointer) : own);
        if (!query)
            return fprintf(stderr, "no jump\n"), 1;
    } else {
        init = (fn_zeInitDrivers *)dlsym(library, "zeInitDrivers");
        query = (fn_zeEventQueryStatus *)dlsym(library, "zeEventQueryStatus");
    }
    if (init(&drivers, &driver, &desc) || query((void *)driver))
        return fprintf(stderr, "the driver does not work\n"), 1;
    long calls = atol(arguments[3]);
    double least = 1e18;
    for (int batch = 0; batch < BATCHES; batch++) {
        double begin = now();
        for (long i = 0; i < calls / BATCHES; i++)
            QUERY((void *)driver);
        double took = (now() - begin) / (double)(calls / BATCHES);
        least = took < least ? took : least;
    }
    printf("%.4f\n", least);
    return 0;
}
#endif
