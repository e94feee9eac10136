/* A C module that is given a queue: it calls the OpenCL loader that it was linked with, and knows
 * nothing of captures. It makes the kernel and the buffer between, and gives both up at once. */
#include "opencl_abi.h"

fn_clCreateKernel clCreateKernel;
fn_clSetKernelArg clSetKernelArg;
fn_clCreateBuffer clCreateBuffer;
fn_clEnqueueNDRangeKernel clEnqueueNDRangeKernel;
fn_clEnqueueCopyBuffer clEnqueueCopyBuffer;
fn_clReleaseKernel clReleaseKernel;
fn_clReleaseMemObject clReleaseMemObject;
fn_clReleaseEvent clReleaseEvent;

#define DO(call)       \
    if ((code = call)) \
        return code

/* Add 1, 2 … `steps` to `count` numbers of `memory`, by way of another buffer. */
__attribute__((visibility("default"))) cl_int add_steps(cl_context context, cl_command_queue queue,
                                                        cl_program program, cl_mem memory,
                                                        size_t count, cl_int steps) {
    cl_int code = 0;
    cl_event first = NULL;
    size_t size = count * sizeof(cl_int);
    cl_mem between = clCreateBuffer(context, CL_MEM_READ_WRITE, size, NULL, &code);
    if (code)
        return code;
    cl_kernel add = clCreateKernel(program, "add", &code);
    if (code)
        return code;
    DO(clEnqueueCopyBuffer(queue, memory, between, 0, 0, size, 0, NULL, &first));
    for (cl_int step = 1; step <= steps; step++) {
        DO(clSetKernelArg(add, 0, sizeof between, &between));
        DO(clSetKernelArg(add, 1, sizeof step, &step));
        DO(clEnqueueNDRangeKernel(queue, add, 1, NULL, &count, NULL, step == 1,
                                  step == 1 ? &first : NULL, NULL));
    }
    DO(clEnqueueCopyBuffer(queue, between, memory, 0, 0, size, 0, NULL, NULL));
    DO(clReleaseEvent(first));
    DO(clReleaseKernel(add));
    return clReleaseMemObject(between);
}
