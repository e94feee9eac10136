/* The bound of a replay of one fused kernel on an OpenCL CPU driver, in plain C: one launch of the
 * ten array operations of bench/fusion.py on an in-order queue, and one wait.
 *
 *     cc -O1 -o bound bench/launch_bound.c -lOpenCL
 *     ./bound            # all sizes, on the first platform's CPU
 *
 * "nothing" is an empty kernel, "unused" one that does not use its arguments. "items" has a
 * work-item for each float, in work-groups of so many. "loops" has so many work-items, of which
 * each loops over its part. Times are microseconds: the tenth part of the rounds is faster, and the
 * median. All ways take turns. In each round a way runs three times, and the last time counts. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ARGUMENTS                                                                                  \
    "(global const float *restrict x, global const float *restrict y,\n"                           \
    " global const float *restrict z, global float *restrict out, ulong n) {\n"
#define BODY                                                                                       \
    "float a = x[i] * y[i]; a = a + z[i]; float b = a * x[i]; b = b - y[i];\n"                     \
    "float c = b * z[i]; c = c + a; float d = x[i] * b; d = c - d; d = d * y[i]; out[i] = d + c;\n"
static const char *source =
    "kernel void nothing(void) {}\n"
    "kernel void unused" ARGUMENTS "}\n"
    "kernel void items" ARGUMENTS "size_t i = get_global_id(0);\n" BODY "}\n"
    "kernel void loops" ARGUMENTS "size_t part = (n - 1) / get_global_size(0) + 1;\n"
    "size_t first = get_global_id(0) * part, end = min(n, (ulong)(first + part));\n"
    "for (size_t i = first; i < end; i++) {\n" BODY "}\n}\n";

/* `group` is of "items"; 0: the driver's choice. `count` is of the others. */
static const struct way {
    const char *name;
    size_t count, group;
} ways[] = {{"nothing", 1, 1},  {"unused", 1, 1},    {"items", 0, 0},
            {"items", 0, 256},  {"items", 0, 1024},  {"items", 0, 4096},
            {"items", 0, 8192}, {"loops", 1, 1},     {"loops", 2, 1},
            {"loops", 4, 1},    {"loops", 16, 1}};
enum { WAYS = sizeof ways / sizeof *ways, ROUNDS = 1500, BUFFERS = 4 };

static void check(cl_int code, const char *what) {
    if (code == CL_SUCCESS)
        return;
    fprintf(stderr, "%s: %d\n", what, code);
    exit(2);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

/* A wait for the launch's event, or clFinish. */
static double run(cl_command_queue queue, cl_kernel kernel, const struct way *way, size_t n,
                  int by_event) {
    size_t size = way->count ? way->count : n;
    cl_event event = NULL;
    double begin = now();
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, way->group ? &way->group : NULL, 0,
                                 NULL, by_event ? &event : NULL), "clEnqueueNDRangeKernel");
    check(by_event ? clWaitForEvents(1, &event) : clFinish(queue), "wait");
    if (event)
        clReleaseEvent(event);
    return now() - begin;
}

static void measure(cl_context context, cl_command_queue queue, cl_program program, size_t n) {
    static double times[WAYS][2][ROUNDS];
    int rounds = n <= 1 << 16 ? ROUNDS : n <= 1 << 20 ? 100 : 9, again = n <= 1 << 16 ? 3 : 1;
    cl_kernel kernels[WAYS];
    cl_mem buffers[BUFFERS];
    cl_ulong count = n;
    cl_float one = 1;
    cl_int code;
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, n * sizeof one, NULL, &code);
        check(code, "clCreateBuffer");
        check(clEnqueueFillBuffer(queue, buffers[i], &one, sizeof one, 0, n * sizeof one, 0, NULL,
                                  NULL), "clEnqueueFillBuffer");
    }
    for (int w = 0; w < WAYS; w++) {
        kernels[w] = clCreateKernel(program, ways[w].name, &code);
        check(code, "clCreateKernel");
        for (cl_uint i = 0; w && i < BUFFERS; i++)
            check(clSetKernelArg(kernels[w], i, sizeof *buffers, &buffers[i]), "clSetKernelArg");
        if (w)
            check(clSetKernelArg(kernels[w], BUFFERS, sizeof count, &count), "clSetKernelArg");
    }
    clFinish(queue);
    for (int round = 0; round < rounds; round++)
        for (int w = 0; w < WAYS; w++)
            for (int by_event = 0; by_event < 2 && ways[w].group <= n; by_event++)
                for (int i = 0; i < again; i++)
                    times[w][by_event][round] = run(queue, kernels[w], &ways[w], n, by_event);
    for (int w = 0; w < WAYS; w++) {
        if (ways[w].group > n)
            continue;
        printf("%9zu floats  %-8s %5zu", n, ways[w].name,
               ways[w].count ? ways[w].count : ways[w].group);
        for (int by_event = 0; by_event < 2; by_event++) {
            double *sorted = times[w][by_event];
            qsort(sorted, (size_t)rounds, sizeof *sorted, compare);
            printf("  %s %9.2f %9.2f", by_event ? "clWaitForEvents" : "clFinish",
                   sorted[rounds / 10], sorted[rounds / 2]);
        }
        puts("");
        clReleaseKernel(kernels[w]);
    }
    for (int i = 0; i < BUFFERS; i++)
        clReleaseMemObject(buffers[i]);
}

int main(void) {
    cl_platform_id platform;
    cl_device_id device;
    cl_int code;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_CPU, 1, &device, NULL), "clGetDeviceIDs");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    static const int powers[] = {10, 16, 20, 24};
    for (int i = 0; i < 4; i++)
        measure(context, queue, program, (size_t)1 << powers[i]);
    return 0;
}
