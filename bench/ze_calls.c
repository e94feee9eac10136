/* Single calls of a Level Zero driver from a C program, which opens the driver by its path.
 *
 * Prints the name of each call and the least of its batches, in nanoseconds. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *handle;
static void *driver;

/* Calls a function of the driver, which has to succeed. */
#define CALL(name, parameters, ...)                                       \
    do {                                                                  \
        static int32_t(*function) parameters;                             \
        if (!function)                                                    \
            function = dlsym(driver, #name);                              \
        int32_t code = function ? function(__VA_ARGS__) : -1;             \
        if (code) {                                                       \
            printf("%s: %#x\n", #name, (unsigned)code);                   \
            exit(1);                                                      \
        }                                                                 \
    } while (0)

struct desc { uint32_t stype; const void *next; };
struct module_desc { struct desc base; uint32_t format; size_t size; const uint8_t *input;
                     const char *flags; const void *constants; };
struct kernel_desc { struct desc base; uint32_t flags; const char *name; };
struct queue_desc { struct desc base; uint32_t ordinal, index, flags, mode, priority; };
struct list_desc { struct desc base; uint32_t ordinal, flags; };
struct flags_desc { struct desc base; uint32_t flags; };
struct memory_desc { struct desc base; uint32_t flags, ordinal; };
struct pool_desc { struct desc base; uint32_t flags, count; };
struct event_desc { struct desc base; uint32_t index, signal, wait; };
struct argument_desc { struct desc base; uint64_t command; uint32_t index; size_t size;
                       const void *value; };
struct count { uint32_t x, y, z; };

static const char source[] =
    "kernel void add(global int *out, int value) { out[get_global_id(0)] += value; }";

enum { LAUNCHES = 1000, CALLS = 1000 };
static int batches;
static double begun;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Runs statements CALLS times in each batch. `before` is not timed. */
#define MEASURE(what, before, ...)                                        \
    do {                                                                  \
        double least = 1e18;                                              \
        for (int batch = 0; batch < batches; batch++) {                   \
            before;                                                       \
            begun = now();                                                \
            for (int i = 0; i < CALLS; i++) {                             \
                __VA_ARGS__;                                              \
            }                                                             \
            double took = (now() - begun) / CALLS;                        \
            least = took < least ? took : least;                          \
        }                                                                 \
        printf("%s %.2f\n", what, least);                                 \
    } while (0)

static handle context, device, kernel, queue, list, mutable, event;
static int *memory;
static const struct count groups = {1, 1, 1};

static void launch(handle to) {
    CALL(zeCommandListAppendLaunchKernel,
         (handle, handle, const void *, handle, uint32_t, handle *), to, kernel, &groups, NULL, 0,
         NULL);
}

static void close_list(handle one) { CALL(zeCommandListClose, (handle), one); }

static void run(handle one) {
    CALL(zeCommandQueueExecuteCommandLists, (handle, uint32_t, handle *, handle), queue, 1, &one,
         NULL);
}

static void finish(void) { CALL(zeCommandQueueSynchronize, (handle, uint64_t), queue, UINT64_MAX); }

static void set(int value) {
    CALL(zeKernelSetArgumentValue, (handle, uint32_t, size_t, const void *), kernel, 1,
         sizeof value, &value);
}

static void reset(void) {
    CALL(zeCommandListReset, (handle), list);
    launch(list);   /* the list gets its kernel */
}

static void update(uint64_t command, int value) {
    struct argument_desc argument = {{0x20019, NULL}, command, 1, sizeof value, &value};
    struct flags_desc changes = {{0x20018, &argument}, 0};
    CALL(zeCommandListUpdateMutableCommandsExp, (handle, const void *), mutable, &changes);
}

static void begin(const char *path) {
    handle drivers[8], module, pool;
    uint32_t count = 1;
    begun = now();
    driver = dlopen(path, RTLD_NOW);
    if (!driver) {
        puts(dlerror());
        exit(1);
    }
    CALL(zeInit, (uint32_t), 0);
    CALL(zeDriverGet, (uint32_t *, handle *), &count, drivers);
    count = 1;
    CALL(zeDeviceGet, (handle, uint32_t *, handle *), drivers[0], &count, &device);
    printf("start %.0f\n", now() - begun);
    struct flags_desc context_desc = {{0xd, NULL}, 0};
    CALL(zeContextCreate, (handle, const void *, handle *), drivers[0], &context_desc, &context);
    struct module_desc module_desc = {{0x1b, NULL}, 1, strlen(source), (const uint8_t *)source,
                                      NULL, NULL};
    CALL(zeModuleCreate, (handle, handle, const void *, handle *, handle *), context, device,
         &module_desc, &module, NULL);
    struct kernel_desc kernel_desc = {{0x1d, NULL}, 0, "add"};
    CALL(zeKernelCreate, (handle, const void *, handle *), module, &kernel_desc, &kernel);
    struct memory_desc device_desc = {{0x15, NULL}, 0, 0};
    struct flags_desc host_desc = {{0x16, NULL}, 0};
    CALL(zeMemAllocShared,
         (handle, const void *, const void *, size_t, size_t, handle, void **), context,
         &device_desc, &host_desc, 64, 0, device, (void **)&memory);
    CALL(zeKernelSetArgumentValue, (handle, uint32_t, size_t, const void *), kernel, 0,
         sizeof memory, &memory);
    set(1);
    struct queue_desc queue_desc = {{0xe, NULL}, 0, 0, 0, 0, 0};
    CALL(zeCommandQueueCreate, (handle, handle, const void *, handle *), context, device,
         &queue_desc, &queue);
    struct list_desc list_desc = {{0xf, NULL}, 0, 8};
    CALL(zeCommandListCreate, (handle, handle, const void *, handle *), context, device, &list_desc,
         &list);
    struct flags_desc mutable_desc = {{0x20016, NULL}, 0};
    list_desc.base.next = &mutable_desc;
    CALL(zeCommandListCreate, (handle, handle, const void *, handle *), context, device, &list_desc,
         &mutable);
    struct pool_desc pool_desc = {{0x10, NULL}, 1, 1};
    CALL(zeEventPoolCreate, (handle, const void *, uint32_t, handle *, handle *), context,
         &pool_desc, 0, NULL, &pool);
    struct event_desc event_desc = {{0x11, NULL}, 0, 0, 0};
    CALL(zeEventCreate, (handle, const void *, handle *), pool, &event_desc, &event);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        puts("usage: ze_calls DRIVER BATCHES");
        return 1;
    }
    batches = atoi(argv[2]);
    begin(argv[1]);
    MEASURE("zeKernelSetArgumentValue", , set(i));
    MEASURE("zeKernelSetGroupSize", ,
            CALL(zeKernelSetGroupSize, (handle, uint32_t, uint32_t, uint32_t), kernel, 1, 1, 1));
    MEASURE("zeCommandListAppendLaunchKernel", reset(), launch(list));
    MEASURE("append-with-argument", reset(), set(i); launch(list));
    MEASURE("zeCommandListAppendBarrier", reset(),
            CALL(zeCommandListAppendBarrier, (handle, handle, uint32_t, handle *), list, NULL, 0,
                 NULL));
    MEASURE("zeEventQueryStatus", CALL(zeEventHostSignal, (handle), event),
            CALL(zeEventQueryStatus, (handle), event));
    MEASURE("zeEventHostSignal-and-Reset", , CALL(zeEventHostSignal, (handle), event);
            CALL(zeEventHostReset, (handle), event));

    uint64_t ids[LAUNCHES];
    for (int i = 0; i < LAUNCHES; i++) {
        struct flags_desc id_desc = {{0x20017, NULL}, 0};
        CALL(zeCommandListGetNextCommandIdExp, (handle, const void *, uint64_t *), mutable,
             &id_desc, &ids[i]);
        launch(mutable);
    }
    close_list(mutable);
    for (int i = 0; i < 40; i++) {   /* until engines have been tried */
        run(mutable);
        finish();
    }
    MEASURE("update", update(ids[0], 0); close_list(mutable), update(ids[i % LAUNCHES], i));
    close_list(mutable);
    MEASURE("update-and-close", , update(ids[i % LAUNCHES], i); close_list(mutable));
    double least = 1e18;
    for (int i = 0; i < 20 * batches; i++) {
        begun = now();
        run(mutable);
        double took = now() - begun;
        least = took < least ? took : least;
        finish();
    }
    printf("execute-1000 %.1f\n", least);
    least = 1e18;
    for (int i = 0; i < 20 * batches; i++) {
        begun = now();
        run(mutable);
        finish();
        double took = now() - begun;
        least = took < least ? took : least;
    }
    printf("execute-and-synchronize-1000 %.1f\n", least);
    return 0;
}
