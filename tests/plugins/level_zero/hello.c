/* A program for Level Zero that opens a driver by its path, as in the specification's introduction:
 * a kernel adds a number to every element, and a mutable list runs it again with another number. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef void *handle;
static void *driver;

/* Calls a function of the driver, which has to succeed. */
#define CALL(name, parameters, ...)                                       \
    do {                                                                  \
        int32_t(*function) parameters = dlsym(driver, #name);             \
        int32_t code = function ? function(__VA_ARGS__) : -1;             \
        if (code) {                                                       \
            printf("%s: %#x\n", #name, (unsigned)code);                   \
            return 1;                                                     \
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
struct argument_desc { struct desc base; uint64_t command; uint32_t index; size_t size;
                       const void *value; };
struct count { uint32_t x, y, z; };

static const char source[] =
    "kernel void add(global int *out, int value) { out[get_global_id(0)] += value; }";

int main(int argc, char **argv) {
    if (argc != 2 || !(driver = dlopen(argv[1], RTLD_NOW))) {
        puts("usage: hello DRIVER");
        return 1;
    }
    handle drivers[1], devices[1], context, module, kernel, queue, list;
    uint32_t count = 1;
    CALL(zeInit, (uint32_t), 0);
    CALL(zeDriverGet, (uint32_t *, handle *), &count, drivers);
    count = 1;
    CALL(zeDeviceGet, (handle, uint32_t *, handle *), drivers[0], &count, devices);
    struct flags_desc context_desc = {{0xd, NULL}, 0};
    CALL(zeContextCreate, (handle, const void *, handle *), drivers[0], &context_desc, &context);

    struct module_desc module_desc = {{0x1b, NULL}, 1, strlen(source), (const uint8_t *)source,
                                      NULL, NULL};
    CALL(zeModuleCreate, (handle, handle, const void *, handle *, handle *), context, devices[0],
         &module_desc, &module, NULL);
    struct kernel_desc kernel_desc = {{0x1d, NULL}, 0, "add"};
    CALL(zeKernelCreate, (handle, const void *, handle *), module, &kernel_desc, &kernel);
    CALL(zeKernelSetGroupSize, (handle, uint32_t, uint32_t, uint32_t), kernel, 8, 1, 1);

    struct memory_desc device_desc = {{0x15, NULL}, 0, 0};
    struct flags_desc host_desc = {{0x16, NULL}, 0};
    int *numbers, value = 2, other = 40;
    CALL(zeMemAllocShared, (handle, const void *, const void *, size_t, size_t, handle, void **),
         context, &device_desc, &host_desc, 64 * sizeof *numbers, 0, devices[0],
         (void **)&numbers);
    memset(numbers, 0, 64 * sizeof *numbers);
    CALL(zeKernelSetArgumentValue, (handle, uint32_t, size_t, const void *), kernel, 0,
         sizeof numbers, &numbers);
    CALL(zeKernelSetArgumentValue, (handle, uint32_t, size_t, const void *), kernel, 1,
         sizeof value, &value);

    struct queue_desc queue_desc = {{0xe, NULL}, 0, 0, 0, 0, 0};
    CALL(zeCommandQueueCreate, (handle, handle, const void *, handle *), context, devices[0],
         &queue_desc, &queue);
    struct flags_desc mutable_desc = {{0x20016, NULL}, 0}, id_desc = {{0x20017, NULL}, 0};
    struct list_desc list_desc = {{0xf, &mutable_desc}, 0, 0};
    CALL(zeCommandListCreate, (handle, handle, const void *, handle *), context, devices[0],
         &list_desc, &list);
    uint64_t command;
    struct count groups = {8, 1, 1};
    CALL(zeCommandListGetNextCommandIdExp, (handle, const void *, uint64_t *), list, &id_desc,
         &command);
    CALL(zeCommandListAppendLaunchKernel,
         (handle, handle, const void *, handle, uint32_t, handle *), list, kernel, &groups, NULL, 0,
         NULL);
    CALL(zeCommandListClose, (handle), list);
    CALL(zeCommandQueueExecuteCommandLists, (handle, uint32_t, handle *, handle), queue, 1, &list,
         NULL);
    CALL(zeCommandQueueSynchronize, (handle, uint64_t), queue, UINT64_MAX);

    struct argument_desc argument = {{0x20019, NULL}, command, 1, sizeof other, &other};
    struct flags_desc changes = {{0x20018, &argument}, 0};
    CALL(zeCommandListUpdateMutableCommandsExp, (handle, const void *), list, &changes);
    CALL(zeCommandListClose, (handle), list);
    CALL(zeCommandQueueExecuteCommandLists, (handle, uint32_t, handle *, handle), queue, 1, &list,
         NULL);
    CALL(zeCommandQueueSynchronize, (handle, uint64_t), queue, UINT64_MAX);
    printf("%d %d\n", numbers[0], numbers[63]);

    CALL(zeCommandListDestroy, (handle), list);
    CALL(zeCommandQueueDestroy, (handle), queue);
    CALL(zeMemFree, (handle, void *), context, numbers);
    CALL(zeKernelDestroy, (handle), kernel);
    CALL(zeModuleDestroy, (handle), module);
    CALL(zeContextDestroy, (handle), context);
    return 0;
}
