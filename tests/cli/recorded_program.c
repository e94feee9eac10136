/* A program that knows nothing of fairlead: it adds numbers and multiplies them, in a loop.
 *
 * Usage: recorded_program PLATFORM WHAT [ROUNDS]
 * WHAT is "plain"; "image", "map", "rect", "two" queues, "unordered"; how it ends: "abort", "exit",
 * "segfault"; or what cannot be recorded: "native", "user", "atomics". "svm" and "fine" use memory
 * that the host sees, too. "again" writes the same megabytes often. "threads" launches from two at
 * once. "refused" makes calls that drivers refuse, of memory that is not there.
 * It prints a sum of what it read. */
#define CL_TARGET_OPENCL_VERSION 200
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 64 };

static const char *source =
    "kernel void add(global int *x, int by) { x[get_global_id(0)] += by; }\n"
    "kernel void scale(global int *x, global const int *y, local int *t) {\n"
    "    size_t i = get_global_id(0), l = get_local_id(0);\n"
    "    t[l] = y[i]; barrier(CLK_LOCAL_MEM_FENCE); x[i] = x[i] * 3 + t[l];\n"
    "}\n"
    "kernel void look(read_only image2d_t from, sampler_t how, global int *x) {\n"
    "    int i = get_global_id(0);\n"
    "    x[i] += read_imagei(from, how, (int2)(i % 8, i / 8)).x;\n"
    "}\n";

static void must(cl_int code, int line) {
    if (code) {
        fprintf(stderr, "line %d: %d\n", line, code);
        exit(3);
    }
}
#define MUST(call) must(call, __LINE__)

static void must_fail(cl_int code, int line) {
    if (!code) {
        fprintf(stderr, "line %d: it was not refused\n", line);
        exit(3);
    }
}
#define MUST_FAIL(call) must_fail(call, __LINE__)

static void nothing(void *unused) { (void)unused; }

static int sum(const int *numbers) {
    unsigned all = 0;
    for (int i = 0; i < COUNT; i++)
        all = all * 31 + (unsigned)numbers[i];
    return (int)all;
}

typedef struct work {
    cl_context context;
    cl_device_id device;
    cl_program program;
    int rounds;
} work;

/* Launch on a queue of this thread's, each time with another buffer. */
static void *launch(void *given) {
    work *work = given;
    cl_int code;
    cl_command_queue queue = clCreateCommandQueue(work->context, work->device, 0, &code);
    cl_kernel add = clCreateKernel(work->program, "add", &code);
    MUST(code);
    size_t global = COUNT;
    for (int round = 0; round < work->rounds; round++) {
        int zeros[COUNT] = {0};
        cl_mem made = clCreateBuffer(work->context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR,
                                     sizeof zeros, zeros, &code);
        MUST(code);
        MUST(clSetKernelArg(add, 0, sizeof made, &made));
        MUST(clSetKernelArg(add, 1, sizeof round, &round));
        MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &global, NULL, 0, NULL, NULL));
        MUST(clFinish(queue));
        MUST(clReleaseMemObject(made));
    }
    clReleaseKernel(add);
    clReleaseCommandQueue(queue);
    return NULL;
}

int main(int argc, char **argv) {
    cl_platform_id platforms[16];
    cl_device_id device;
    cl_int code;
    const char *what = argv[2];
    int rounds = argc > 3 ? atoi(argv[3]) : 3, is = 0;
    MUST(clGetPlatformIDs(16, platforms, NULL));
    MUST(clGetDeviceIDs(platforms[atoi(argv[1])], CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    cl_command_queue_properties order =
        strcmp(what, "unordered") ? 0 : CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
    cl_command_queue queue = clCreateCommandQueue(context, device, order, &code), other;
    MUST(code);
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    MUST(clBuildProgram(program, 1, &device, "-DUNUSED=(1+2);{3}", NULL, NULL));
    cl_kernel add = clCreateKernel(program, "add", &code),
              scale = clCreateKernel(program, "scale", &code);
    cl_kernel look = clCreateKernel(program, "look", &code);
    MUST(code);
    int numbers[COUNT], more[COUNT], out[2 * COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        numbers[i] = i, more[i] = 7 * i - 5;
    cl_mem x = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof numbers, NULL, &code);
    cl_mem y =
        clCreateBuffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, sizeof more, more, &code);
    MUST(code);
    size_t global = COUNT, local = 8;
    cl_event event = NULL, second = NULL;
    MUST(clEnqueueWriteBuffer(queue, x, CL_FALSE, 0, sizeof numbers, numbers, 0, NULL, &event));
    MUST(clWaitForEvents(1, &event));
    MUST(clSetKernelArg(scale, 0, sizeof x, &x));
    MUST(clSetKernelArg(scale, 1, sizeof y, &y));
    MUST(clSetKernelArg(scale, 2, 8 * sizeof(int), NULL));
    MUST(clSetKernelArg(add, 0, sizeof x, &x));
    for (int round = 0; round < rounds; round++) {
        cl_event before = event;
        MUST(clSetKernelArg(add, 1, sizeof round, &round));
        MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &global, NULL, 1, &before, &second));
        MUST(clEnqueueNDRangeKernel(queue, scale, 1, NULL, &global, &local, 1, &second, &event));
        clReleaseEvent(before);
        clReleaseEvent(second);
    }
    if (!strcmp(what, "image")) {
        cl_image_format format = {CL_R, CL_SIGNED_INT32};
        cl_image_desc shape = {
            .image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 8, .image_height = 8};
        size_t origin[3] = {0}, region[3] = {8, 8, 1};
        cl_mem image = clCreateImage(context, CL_MEM_READ_ONLY, &format, &shape, NULL, &code);
        MUST(code);
        cl_sampler sampler =
            clCreateSampler(context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &code);
        MUST(clEnqueueWriteImage(queue, image, CL_TRUE, origin, region, 0, 0, more, 0, NULL, NULL));
        MUST(clSetKernelArg(look, 0, sizeof image, &image));
        MUST(clSetKernelArg(look, 1, sizeof sampler, &sampler));
        MUST(clSetKernelArg(look, 2, sizeof x, &x));
        MUST(clEnqueueNDRangeKernel(queue, look, 1, NULL, &global, NULL, 0, NULL, NULL));
    } else if (!strcmp(what, "threads")) {
        work work = {context, device, program, rounds};
        pthread_t thread;
        if (pthread_create(&thread, NULL, launch, &work))
            return 3;
        launch(&work);
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "map")) {
        int *mapped = clEnqueueMapBuffer(queue, x, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 16, 64, 0,
                                         NULL, NULL, &code);
        MUST(code);
        for (int i = 0; i < 16; i++)
            mapped[i] = mapped[i] / 2 + i;
        MUST(clEnqueueUnmapMemObject(queue, x, mapped, 0, NULL, NULL));
    } else if (!strcmp(what, "rect")) {
        size_t from[3] = {8, 1, 0}, to[3] = {0, 2, 0}, region[3] = {16, 2, 1};
        cl_buffer_region part = {0, 128};
        MUST(clEnqueueWriteBufferRect(queue, x, CL_TRUE, to, from, region, 32, 0, 64, 0, more, 0,
                                      NULL, NULL));
        MUST(clEnqueueReadBufferRect(queue, x, CL_TRUE, to, from, region, 32, 0, 64, 0,
                                     out + COUNT / 2, 0, NULL, NULL));
        cl_mem half =
            clCreateSubBuffer(x, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &part, &code);
        MUST(code);
        MUST(clEnqueueFillBuffer(queue, half, &is, 1, 8, 16, 0, NULL, NULL));
        MUST(clEnqueueCopyBuffer(queue, y, half, 64, 32, 32, 0, NULL, NULL));
    } else if (!strcmp(what, "two")) {
        other = clCreateCommandQueue(context, device, 0, &code);
        MUST(clFinish(queue));
        MUST(clEnqueueNDRangeKernel(other, add, 1, NULL, &global, NULL, 0, NULL, &second));
        MUST(clEnqueueNDRangeKernel(queue, scale, 1, NULL, &global, &local, 1, &second, NULL));
    } else if (!strcmp(what, "svm") || !strcmp(what, "fine") || !strcmp(what, "atomics")) {
        cl_svm_mem_flags flags = CL_MEM_READ_WRITE;
        flags |= strcmp(what, "svm") ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0;
        flags |= strcmp(what, "atomics") ? 0 : CL_MEM_SVM_ATOMICS;
        int *svm = clSVMAlloc(context, flags, 2 * sizeof more, 0), *part = svm + COUNT / 2;
        if (!svm)
            return 4;
        for (int round = 0; round < 3; round++) {
            if (!strcmp(what, "svm"))
                MUST(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_WRITE | CL_MAP_READ, svm,
                                     2 * sizeof more, 0, NULL, NULL));
            for (int i = 0; i < 2 * COUNT; i++)
                svm[i] = round ? svm[i] / 3 + round : i;
            if (!strcmp(what, "svm"))
                MUST(clEnqueueSVMUnmap(queue, svm, 0, NULL, NULL));
            MUST(clSetKernelArgSVMPointer(add, 0, part));
            MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &global, NULL, 0, NULL, NULL));
            MUST(clEnqueueSVMMemFill(queue, svm + 40, &round, 4, 16, 0, NULL, NULL));
            MUST(clEnqueueSVMMemcpy(queue, CL_FALSE, svm + 50, more, 64, 0, NULL, NULL));
            MUST(clEnqueueSVMMemcpy(queue, CL_TRUE, svm + 70, svm + 20, 40, 0, NULL, NULL));
            MUST(clSetKernelArgSVMPointer(scale, 1, part));
            MUST(clEnqueueNDRangeKernel(queue, scale, 1, NULL, &global, &local, 0, NULL, NULL));
            MUST(clFinish(queue));
        }
        MUST(clEnqueueSVMMemcpy(queue, CL_TRUE, out, part, sizeof numbers, 0, NULL, NULL));
        clSVMFree(context, svm);
    } else if (!strcmp(what, "again")) {
        enum { BYTES = 1 << 20, TIMES = 16 };
        char *much = calloc(2, BYTES);
        much[BYTES / 2] = 1;
        cl_mem large = clCreateBuffer(context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
        for (int i = 0; i < 2 * TIMES; i++)
            MUST(clEnqueueWriteBuffer(queue, large, CL_TRUE, 0, BYTES, much + i % 2 * BYTES, 0,
                                      NULL, NULL));
        MUST(clEnqueueCopyBuffer(queue, large, x, 0, 0, 4, 0, NULL, NULL));
        free(much);
    } else if (!strcmp(what, "refused")) {
        const size_t much = (size_t)1 << 40, origin[3] = {0}, no_slices[3] = {COUNT, 1, 0};
        cl_uint found;
        cl_kernel kernels[16];
        cl_event none = NULL, user = clCreateUserEvent(context, &code);
        MUST_FAIL(clEnqueueWriteBuffer(queue, x, CL_TRUE, 0, much, more, 0, NULL, NULL));
        MUST_FAIL(clEnqueueWriteBufferRect(queue, x, CL_TRUE, origin, origin, no_slices, 0, 0, 0, 0,
                                           more, 0, NULL, NULL));
        MUST_FAIL(clEnqueueFillBuffer(queue, x, more, much, 0, sizeof more, 0, NULL, NULL));
        MUST_FAIL(clEnqueueFillBuffer(queue, x, more, 4, 0, sizeof more, 1, &none, NULL));
        MUST(clSetUserEventStatus(user, CL_COMPLETE));
        MUST_FAIL(clSetUserEventStatus(user, CL_COMPLETE));
        memset(kernels, 0x5A, sizeof kernels); /* there is room for more than the program has */
        MUST(clCreateKernelsInProgram(program, 16, kernels, &found));
        MUST(clSetKernelArg(kernels[0], 0, sizeof x, &x));
        for (cl_uint i = 0; i < found; i++)
            clReleaseKernel(kernels[i]);
    } else if (!strcmp(what, "native")) {
        code = clEnqueueNativeKernel(queue, nothing, NULL, 0, 0, NULL, NULL, 0, NULL, NULL);
    } else if (!strcmp(what, "user")) {
        cl_event user = clCreateUserEvent(context, &code);
        MUST(clEnqueueNDRangeKernel(queue, add, 1, NULL, &global, NULL, 1, &user, NULL));
        MUST(clSetUserEventStatus(user, CL_COMPLETE));
    }
    if (!strcmp(what, "unordered"))
        MUST(clEnqueueReadBuffer(queue, x, CL_TRUE, 0, sizeof numbers, out, 1, &event, NULL));
    else
        MUST(clEnqueueReadBuffer(queue, x, CL_TRUE, 0, sizeof numbers, out, 0, NULL, NULL));
    printf("%d\n", sum(out));
    fflush(stdout);
    if (!strcmp(what, "abort"))
        abort();
    if (!strcmp(what, "exit"))
        _exit(5);
    if (!strcmp(what, "segfault"))
        raise(SIGSEGV);
    clReleaseMemObject(x);
    clReleaseMemObject(y);
    clReleaseKernel(add);
    clReleaseKernel(scale);
    clReleaseKernel(look);
    clReleaseProgram(program);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return 0;
}
