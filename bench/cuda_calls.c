/* What command-buffers of the adapter for CUDA cost in a C program: `cuda_calls ADAPTER LIBCUDA`.
 *
 * Writes one line for each call: its name and nanoseconds, the median of the rounds. A bare launch
 * is cuGraphLaunch of an executable graph that is made of the same graph, on a stream of its own.
 * cuda_calls_abi.h is made of the ABI data (cuda_calls.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_calls_abi.h"

enum { NODES = 1000, FEW = 10, ITEMS = 1000, ROUNDS = 15, LAUNCHES = 50 };

static void *adapter_library, *driver_library;

static void *function(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "there is no %s\n", name);
        exit(2);
    }
    return found;
}

static void check_code(int32_t code, int line) {
    if (code) {
        fprintf(stderr, "line %d: code %d\n", line, code);
        exit(3);
    }
}

/* A call that has to succeed. Functions are looked up once. */
#define CALL(library, name)                                                                        \
    ({                                                                                             \
        static fn_##name *known;                                                                   \
        known ? known : (known = (fn_##name *)function(library, #name));                           \
    })
#define OK(name, ...) check_code(CALL(adapter_library, name)(__VA_ARGS__), __LINE__)
#define CU(name, ...) check_code(CALL(driver_library, name)(__VA_ARGS__), __LINE__)

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *name, double *took) {
    qsort(took, ROUNDS, sizeof *took, ascending);
    printf("%s\t%.1f\n", name, took[ROUNDS / 2]);
}

/* --- what runs --- */

static uintptr_t device;
static uintptr_t context;
static uintptr_t queue;
static uintptr_t kernel;
static uintptr_t y, x;
static uintptr_t current;
static uintptr_t stream;
static const char source[] = "kernel void axpy(global float *y, global const float *x, float a) { "
                             "size_t i = get_global_id(0); y[i] += a * x[i]; }";

/* The adapter starts when it is asked for a table, as every loader does. */
static void start_adapter(void) {
    void *table[64];
    int32_t (*get)(uint32_t, void **) =
        (int32_t (*)(uint32_t, void **))function(adapter_library, "urGetAdapterProcAddrTable");
    check_code(get(UR_API_VERSION_CURRENT, table), __LINE__);
}

static void begin(void) {
    uintptr_t adapter;
    uintptr_t platform;
    uintptr_t program;
    int32_t number;
    start_adapter();
    OK(urAdapterGet, 1, &adapter, NULL);
    OK(urPlatformGet, adapter, 1, &platform, NULL);
    OK(urDeviceGet, platform, UR_DEVICE_TYPE_ALL, 1, &device, NULL);
    OK(urContextCreate, 1, &device, NULL, &context);
    OK(urQueueCreate, context, device, NULL, &queue);
    OK(urProgramCreateWithIL, context, (uintptr_t)source, sizeof source - 1, NULL, &program);
    OK(urProgramBuild, context, program, NULL);
    OK(urKernelCreate, program, "axpy", &kernel);
    OK(urUSMDeviceAlloc, context, device, NULL, 0, 4 * ITEMS, &y);
    OK(urUSMDeviceAlloc, context, device, NULL, 0, 4 * ITEMS, &x);
    CU(cuDeviceGet, &number, 0);
    CU(cuDevicePrimaryCtxRetain, &current, number);
    CU(cuCtxPushCurrent_v2, current);
    CU(cuStreamCreate, &stream, 1);
}

static uintptr_t new_buffer(bool updatable) {
    ur_exp_command_buffer_desc_t how = {.stype = UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_DESC,
                                        .isUpdatable = updatable,
                                        .isInOrder = true};
    uintptr_t made;
    OK(urCommandBufferCreateExp, context, device, &how, &made);
    return made;
}

static void append(uintptr_t buffer, float factor, uintptr_t *command) {
    static const size_t whole = ITEMS;
    ur_exp_kernel_arg_properties_t rows[3] = {{.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_POINTER},
                                              {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_POINTER,
                                               .index = 1},
                                              {.stype = UR_STRUCTURE_TYPE_EXP_KERNEL_ARG_PROPERTIES,
                                               .type = UR_EXP_KERNEL_ARG_TYPE_VALUE,
                                               .index = 2,
                                               .size = 4}};
    uint32_t point;
    rows[0].value.pointer = y, rows[1].value.pointer = x, rows[2].value.value = (uintptr_t)&factor;
    OK(urCommandBufferAppendKernelLaunchWithArgsExp, buffer, kernel, 1, NULL, &whole, NULL, 3, rows,
       0, NULL, 0, NULL, 0, NULL, &point, NULL, command);
}

static uintptr_t build(unsigned nodes) {
    uintptr_t buffer = new_buffer(false);
    for (unsigned i = 0; i < nodes; i++)
        append(buffer, 1, NULL);
    OK(urCommandBufferFinalizeExp, buffer);
    return buffer;
}

/* --- what is measured --- */

static void measure_building(void) {
    double appends[ROUNDS], finalizes[ROUNDS], bare[ROUNDS];
    for (unsigned round = 0; round < ROUNDS; round++) {
        uintptr_t buffer = new_buffer(false);
        uintptr_t graph;
        uintptr_t made;
        double start = now();
        for (unsigned i = 0; i < NODES; i++)
            append(buffer, 1, NULL);
        appends[round] = (now() - start) / NODES;
        start = now();
        OK(urCommandBufferFinalizeExp, buffer);
        finalizes[round] = (now() - start) / NODES;
        OK(urCommandBufferGetNativeHandleExp, buffer, &graph);
        start = now();
        CU(cuGraphInstantiateWithFlags, &made, graph, 0);
        bare[round] = (now() - start) / NODES;
        CU(cuGraphExecDestroy, made);
        OK(urCommandBufferReleaseExp, buffer);
    }
    print("append of a launch", appends);
    print("finalize, a node", finalizes);
    print("cuGraphInstantiate, a node", bare);
}

static void measure_launches(unsigned nodes) {
    double ours[ROUNDS], bare[ROUNDS];
    uintptr_t buffer = build(nodes);
    uintptr_t graph;
    uintptr_t made;
    char name[64];
    OK(urCommandBufferGetNativeHandleExp, buffer, &graph);
    CU(cuGraphInstantiateWithFlags, &made, graph, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = now();
        for (unsigned i = 0; i < LAUNCHES; i++)
            OK(urEnqueueCommandBufferExp, queue, buffer, 0, NULL, NULL);
        ours[round] = (now() - start) / LAUNCHES;
        OK(urQueueFinish, queue);
        start = now();
        for (unsigned i = 0; i < LAUNCHES; i++)
            CU(cuGraphLaunch, made, stream);
        bare[round] = (now() - start) / LAUNCHES;
        CU(cuStreamSynchronize, stream);
    }
    snprintf(name, sizeof name, "enqueue of %u nodes", nodes);
    print(name, ours);
    snprintf(name, sizeof name, "cuGraphLaunch of %u nodes", nodes);
    print(name, bare);
    OK(urCommandBufferReleaseExp, buffer);
}

static void measure_updates(void) {
    double took[ROUNDS];
    uintptr_t buffer = new_buffer(true);
    uintptr_t commands[FEW];
    for (unsigned i = 0; i < FEW; i++)
        append(buffer, 1, &commands[i]);
    OK(urCommandBufferFinalizeExp, buffer);
    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = now();
        for (unsigned i = 0; i < NODES; i++) {
            float factor = (float)i;
            ur_exp_command_buffer_update_value_arg_desc_t value = {
                .stype = UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_VALUE_ARG_DESC,
                .argIndex = 2,
                .argSize = 4,
                .pNewValueArg = (uintptr_t)&factor};
            ur_exp_command_buffer_update_kernel_launch_desc_t update = {
                .stype = UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC,
                .hCommand = commands[i % FEW],
                .newWorkDim = 1,
                .numNewValueArgs = 1,
                .pNewValueArgList = &value};
            OK(urCommandBufferUpdateKernelLaunchExp, buffer, 1, &update);
        }
        took[round] = (now() - start) / NODES;
    }
    print("update of one argument", took);
    OK(urCommandBufferReleaseExp, buffer);
}

/* What the driver alone takes for it. */
static void measure_bare_updates(void) {
    struct {
        uintptr_t function;
        uint32_t grid[3], block[3], shared;
        void **values, **extra;
        uintptr_t kernel, context;
    } launch = {.grid = {1, 1, 1}, .block = {ITEMS, 1, 1}};
    double took[ROUNDS];
    float factor = 1;
    void *values[] = {&y, &x, &factor};
    uintptr_t graph, executable, nodes[FEW];
    OK(urKernelGetNativeHandle, kernel, &launch.function);
    launch.values = values;
    CU(cuGraphCreate, &graph, 0);
    for (unsigned i = 0; i < FEW; i++)
        CU(cuGraphAddKernelNode_v2, &nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0, &launch);
    CU(cuGraphInstantiateWithFlags, &executable, graph, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = now();
        for (unsigned i = 0; i < NODES; i++) {
            factor = (float)i;
            CU(cuGraphExecKernelNodeSetParams_v2, executable, nodes[i % FEW], &launch);
        }
        took[round] = (now() - start) / NODES;
    }
    print("cuGraphExecKernelNodeSetParams", took);
    CU(cuGraphExecDestroy, executable);
    CU(cuGraphDestroy, graph);
}

int main(int argument_count, char **arguments) {
    if (argument_count != 3 || !(driver_library = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL)) ||
        !(adapter_library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL))) {
        fprintf(stderr, "cuda_calls ADAPTER LIBCUDA: %s\n", dlerror());
        return 2;
    }
    begin();
    build(FEW);
    measure_building();
    measure_launches(FEW);
    measure_launches(NODES);
    measure_updates();
    measure_bare_updates();
    return 0;
}
