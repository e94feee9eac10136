/* An OpenCL program with command-buffers that knows nothing of fairlead. It uses them as
 * LeelaChessZero does: one command-buffer for each batch size, recorded when the size is first met,
 * and from then on enqueued again with other buffers. It prints "right" if every result is that of
 * plain launches, bit for bit. The first argument is how many rounds there are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_abi.h"

fn_clGetPlatformIDs clGetPlatformIDs;
fn_clGetDeviceIDs clGetDeviceIDs;
fn_clGetDeviceInfo clGetDeviceInfo;
fn_clCreateContext clCreateContext;
fn_clCreateCommandQueue clCreateCommandQueue;
fn_clCreateProgramWithSource clCreateProgramWithSource;
fn_clBuildProgram clBuildProgram;
fn_clCreateKernel clCreateKernel;
fn_clSetKernelArg clSetKernelArg;
fn_clCreateBuffer clCreateBuffer;
fn_clEnqueueNDRangeKernel clEnqueueNDRangeKernel;
fn_clEnqueueWriteBuffer clEnqueueWriteBuffer;
fn_clEnqueueReadBuffer clEnqueueReadBuffer;
fn_clWaitForEvents clWaitForEvents;
fn_clReleaseEvent clReleaseEvent;
fn_clReleaseKernel clReleaseKernel;
fn_clFinish clFinish;
fn_clGetExtensionFunctionAddressForPlatform clGetExtensionFunctionAddressForPlatform;

typedef struct argument {
    cl_uint arg_index;
    size_t arg_size;
    const void *arg_value;
} argument;

typedef struct config {
    cl_mutable_command_khr command;
    cl_uint num_args, num_svm_args, num_exec_infos, work_dim;
    const argument *arg_list, *arg_svm_list;
    const void *exec_info_list;
    const size_t *global_work_offset, *global_work_size, *local_work_size;
} config;

enum { LAYERS = 20, WIDTH = 64, BATCHES = 4, SETS = 3 };

static const char source[] =
    "kernel void layer(global const float *in, global float *out, float weight) {\n"
    "    size_t i = get_global_id(0);\n"
    "    out[i] = fma(in[i], weight, in[i ^ 1] * 0.5f);\n"
    "}\n";

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_kernel layer;
static cl_mem buffers[SETS][2]; /* input and output of a request */
static cl_mem between[2];       /* what layers hand on, as in a network */

static void check(cl_int code, const char *what) {
    if (code) {
        printf("%s: %d\n", what, code);
        exit(1);
    }
}

#define LOAD(name) ((fn_##name *)clGetExtensionFunctionAddressForPlatform(platform, #name))

static void begin(void) {
    cl_int code;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &code);
    check(code, "clCreateCommandQueue");
    const char *text = source;
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    layer = clCreateKernel(program, "layer", &code);
    check(code, "clCreateKernel");
    size_t size = BATCHES * WIDTH * sizeof(float);
    for (int i = 0; i < SETS; i++)
        for (int k = 0; k < 2; k++)
            buffers[i][k] = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &code);
    for (int k = 0; k < 2; k++)
        between[k] = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &code);
    check(code, "clCreateBuffer");
}

/* Sets the arguments of a layer of the network. */
static void set(int number, int request) {
    cl_mem in = number ? between[number & 1] : buffers[request][0];
    cl_mem out = number + 1 < LAYERS ? between[~number & 1] : buffers[request][1];
    float weight = 0.25f + (float)number / 64;
    check(clSetKernelArg(layer, 0, sizeof in, &in), "clSetKernelArg");
    check(clSetKernelArg(layer, 1, sizeof out, &out), "clSetKernelArg");
    check(clSetKernelArg(layer, 2, sizeof weight, &weight), "clSetKernelArg");
}

static void write_input(int request, int round, size_t count) {
    float input[BATCHES * WIDTH];
    for (size_t i = 0; i < count; i++)
        input[i] = (float)((i * 37 + (size_t)round * 11) % 101) / 8;
    check(clEnqueueWriteBuffer(queue, buffers[request][0], 1, 0, count * sizeof *input, input, 0,
                               NULL, NULL),
          "clEnqueueWriteBuffer");
}

static void read_output(int request, size_t count, float *output) {
    check(clEnqueueReadBuffer(queue, buffers[request][1], 1, 0, count * sizeof *output, output, 0,
                              NULL, NULL),
          "clEnqueueReadBuffer");
}

static struct captured {
    cl_command_buffer_khr buffer;
    cl_mutable_command_khr first, last;
} captured[BATCHES + 1];

static void capture(int batch, int request) {
    fn_clCreateCommandBufferKHR *create = LOAD(clCreateCommandBufferKHR);
    fn_clCommandNDRangeKernelKHR *launch = LOAD(clCommandNDRangeKernelKHR);
    fn_clFinalizeCommandBufferKHR *finalize = LOAD(clFinalizeCommandBufferKHR);
    struct captured *made = &captured[batch];
    uint64_t mutable[] = {CL_COMMAND_BUFFER_FLAGS_KHR, CL_COMMAND_BUFFER_MUTABLE_KHR, 0};
    size_t size = (size_t)batch * WIDTH;
    cl_int code;
    if (!create || !launch || !finalize) {
        printf("no command-buffers\n");
        exit(1);
    }
    made->buffer = create(1, &queue, mutable, &code);
    check(code, "clCreateCommandBufferKHR");
    for (int i = 0; i < LAYERS; i++) {
        cl_mutable_command_khr *handle = i == 0            ? &made->first
                                         : i + 1 == LAYERS ? &made->last
                                                           : NULL;
        set(i, request);
        check(launch(made->buffer, NULL, NULL, layer, 1, NULL, &size, NULL, 0, NULL, NULL, handle),
              "clCommandNDRangeKernelKHR");
    }
    check(finalize(made->buffer), "clFinalizeCommandBufferKHR");
}

static void redirect(int batch, int request) {
    fn_clUpdateMutableCommandsKHR *update = LOAD(clUpdateMutableCommandsKHR);
    argument in = {0, sizeof(cl_mem), &buffers[request][0]},
             out = {1, sizeof(cl_mem), &buffers[request][1]};
    config first = {.command = captured[batch].first, .num_args = 1, .arg_list = &in};
    config last = {.command = captured[batch].last, .num_args = 1, .arg_list = &out};
    cl_uint types[2] = {0, 0};
    const void *configs[2] = {&first, &last};
    check(update(captured[batch].buffer, 2, types, configs), "clUpdateMutableCommandsKHR");
}

static void run(int batch, int request, int round) {
    fn_clEnqueueCommandBufferKHR *enqueue = LOAD(clEnqueueCommandBufferKHR);
    size_t count = (size_t)batch * WIDTH;
    float expected[BATCHES * WIDTH], found[BATCHES * WIDTH];
    cl_event done;
    write_input(request, round, count);
    for (int i = 0; i < LAYERS; i++) {
        set(i, request);
        check(clEnqueueNDRangeKernel(queue, layer, 1, NULL, &count, NULL, 0, NULL, NULL),
              "clEnqueueNDRangeKernel");
    }
    read_output(request, count, expected);
    memset(found, 0, sizeof found);
    check(clEnqueueWriteBuffer(queue, buffers[request][1], 1, 0, count * sizeof *found, found, 0,
                               NULL, NULL),
          "clEnqueueWriteBuffer");
    check(enqueue(0, NULL, captured[batch].buffer, 0, NULL, &done), "clEnqueueCommandBufferKHR");
    check(clWaitForEvents(1, &done), "clWaitForEvents");
    check(clReleaseEvent(done), "clReleaseEvent");
    check(enqueue(0, NULL, captured[batch].buffer, 0, NULL, NULL), "clEnqueueCommandBufferKHR");
    read_output(request, count, found);
    if (memcmp(found, expected, count * sizeof *found)) {
        printf("wrong: batch %d, request %d, round %d\n", batch, request, round);
        exit(1);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    begin();
    for (int round = 0; round < rounds; round++) {
        int batch = round % BATCHES + 1, request = round % SETS;
        if (captured[batch].buffer)
            redirect(batch, request);
        else
            capture(batch, request);
        run(batch, request, round);
    }
    if (argc > 2)
        for (int batch = 1; batch <= BATCHES; batch++)
            check(LOAD(clReleaseCommandBufferKHR)(captured[batch].buffer),
                  "clReleaseCommandBufferKHR");
    printf("right\n");
    return 0;
}
