/* A program without Python that uses an adapter: how long it takes to start, and calls. `entry_call
 * LIBRARY ROUNDS CALLS` prints JSON. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec * 1e-3;
}

static void *opened, *adapter, *platform, *device, *context, *queue;

static void *function(const char *name) {
    void *found = dlsym(opened, name);
    if (!found)
        exit(2);
    return found;
}

static void check(int32_t code) {
    if (code) {
        fprintf(stderr, "code %d\n", code);
        exit(3);
    }
}

/* What is timed. The functions are looked up beforehand, as in a table. */
static int32_t (*retain)(void *), (*release)(void *), (*release_event)(void *);
static int32_t (*info)(void *, uint32_t, size_t, void *, size_t *);
static int32_t (*copy)(void *, _Bool, void *, const void *, size_t, uint32_t, void *const *,
                       void **);

static void references(void) {
    check(retain(queue));
    check(release(queue));
}

static void query(void) {
    char name[64];
    size_t size;
    check(info(device, 0 /* UR_DEVICE_INFO_TYPE */, sizeof name, name, &size));
}

static void command(void) {
    char from[8] = {0}, to[8];
    void *event;
    check(copy(queue, 1, to, from, sizeof from, 0, NULL, &event));
    check(release_event(event));
}

static void rounds(const char *name, void (*call)(void), int count, int calls, int each) {
    printf(", \"%s\": [", name);
    for (int round = -2; round < count; round++) {
        double start = microseconds();
        for (int i = 0; i < calls; i++)
            call();
        if (round >= 0)
            printf("%s%.4f", round ? ", " : "", (microseconds() - start) / calls / each);
    }
    printf("]");
}

int main(int count, char **arguments) {
    if (count != 4)
        return 1;
    double start = microseconds();
    void *table[100];
    opened = dlopen(arguments[1], RTLD_LAZY | RTLD_LOCAL);
    if (!opened)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    check(((int32_t (*)(uint32_t, void **))function("urGetAdapterProcAddrTable"))(12, table));
    check(((int32_t (*)(uint32_t, void **, uint32_t *))table[0])(1, &adapter, NULL));
    printf("{\"start\": %.1f", microseconds() - start);
    int number = atoi(arguments[2]), calls = atoi(arguments[3]);
    if (number) {
        check(((int32_t (*)(void *, uint32_t, void **, uint32_t *))function("urPlatformGet"))(
            adapter, 1, &platform, NULL));
        check(((int32_t (*)(void *, int, uint32_t, void **, uint32_t *))function("urDeviceGet"))(
            platform, 2, 1, &device, NULL));
        check(((int32_t (*)(uint32_t, void **, void *, void **))function("urContextCreate"))(
            1, &device, NULL, &context));
        check(((int32_t (*)(void *, void *, void *, void **))function("urQueueCreate"))(
            context, device, NULL, &queue));
        retain = function("urQueueRetain"), release = function("urQueueRelease"),
        release_event = function("urEventRelease");
        info = function("urDeviceGetInfo"), copy = function("urEnqueueUSMMemcpy");
        rounds("references", references, number, calls, 2);
        rounds("query", query, number, calls, 1);
        rounds("command", command, number, calls, 1);
    }
    printf("}\n");
    return 0;
}
