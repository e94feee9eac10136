/* Threads that wait for OpenCL's queues at the same time, each for its own. Intel's CPU driver
 * stands still if one of the queues is out of order (the habit `out-of-order-waits-hang`).
 *
 *     cc -o waits bench/out_of_order_waits.c -lOpenCL -lpthread
 *     for i in 1 2 3 4; do ./waits oIII 100 & done; wait
 *
 * Each letter is a thread: O is on an out-of-order queue and I on an in-order one, and both call
 * clFinish. o and i call clWaitForEvents. The number is of seconds. It runs on the first
 * platform. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 64, LAUNCHES = 3, STILL = 15 };   /* threads; in a round; seconds until it has hung */
static cl_context context;
static cl_device_id device;
static cl_program program;
static const char *kinds;
static atomic_long rounds[MOST];
static atomic_int over;

static void check(cl_int code, const char *what) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "%s: %d\n", what, code);
        _exit(2);
    }
}

static void run_round(cl_command_queue queue, cl_kernel kernel, char kind) {
    size_t size = 64;
    cl_event last = NULL;
    for (int i = 0; i < LAUNCHES; i++) {
        cl_event before = last;
        check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &size, NULL, before != NULL,
                                     before ? &before : NULL, &last), "clEnqueueNDRangeKernel");
        if (before)
            clReleaseEvent(before);
    }
    check(isupper((unsigned char)kind) ? clFinish(queue) : clWaitForEvents(1, &last), "wait");
    clReleaseEvent(last);
}

static void *work(void *number) {
    size_t mine = (size_t)number;
    cl_int code;
    int free_order = tolower((unsigned char)kinds[mine]) == 'o';
    cl_command_queue queue = clCreateCommandQueue(
        context, device, free_order ? CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE : 0, &code);
    check(code, "clCreateCommandQueue");
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 256, NULL, &code);
    check(code, "clCreateBuffer");
    cl_kernel kernel = clCreateKernel(program, "add", &code);
    check(code, "clCreateKernel");
    check(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), "clSetKernelArg");
    for (; !over; rounds[mine]++)
        run_round(queue, kernel, kinds[mine]);
    return NULL;
}

static int end(const char *how, int seconds) {
    over = 1;
    printf("%s after %d s; rounds:", how, seconds);
    for (size_t i = 0; kinds[i]; i++)
        printf(" %c %ld", kinds[i], (long)rounds[i]);
    puts("");
    fflush(stdout);
    _exit(*how == 'h');
}

int main(int count, char **arguments) {
    static const char *source = "kernel void add(global int *a) { a[get_global_id(0)] += 1; }";
    kinds = count > 1 ? arguments[1] : "oIII";
    int seconds = count > 2 ? atoi(arguments[2]) : 100;
    size_t threads = strlen(kinds);
    long last[MOST] = {0};
    int still[MOST] = {0};
    cl_platform_id platform;
    cl_int code;
    if (threads > MOST)
        return 2;
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "clCreateContext");
    program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check(code, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    for (size_t i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, (void *)i);
    }
    for (int second = 0; second < seconds; second++) {
        sleep(1);
        for (size_t i = 0; i < threads; i++) {
            still[i] = rounds[i] == last[i] ? still[i] + 1 : 0;
            last[i] = rounds[i];
            if (still[i] >= STILL)
                return end("hung", second + 1 - STILL);
        }
    }
    return end("ran on", seconds);
}
