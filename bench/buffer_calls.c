/* What calls about small buffers cost in a C program. bench/buffer_calls.py compiles it and calls
 * `measure`.
 *
 * Calls go through the objects' dispatch tables, as a loader makes them. Each figure is the least
 * of ROUNDS rounds, in ns a call. */
#include "opencl_abi.h"

#include <stdint.h>
#include <stdio.h>
#include <time.h>

enum { COUNT = 128, ROUNDS = 40, SIZE = 256, PLACE = 512 };

#define CL(object, name) ((fn_##name *)((object)->dispatch[SLOT_##name]))

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Drivers may call it in a thread of theirs, and later. */
static void gone(cl_mem memory, void *data) {
    (void)memory;
    (void)data;
}

enum { CREATE, RELEASE, CREATE_PART, RELEASE_PART, CALLBACK, ASK_CONTEXT, FIGURES };

static void keep_least(double *least, double begin) {
    double took = (now() - begin) / COUNT;
    if (!*least || took < *least)
        *least = took;
}

/* Returns an error code. `figures` has room for FIGURES. */
int measure(cl_context context, double *figures) {
    static cl_mem made[COUNT];
    cl_int code = CL_SUCCESS;
    size_t size;
    cl_device_id devices[16];
    cl_mem parent =
        CL(context, clCreateBuffer)(context, CL_MEM_READ_WRITE, (size_t)2 << 20, NULL, &code);
    for (int round = 0; round < ROUNDS && !code; round++) {
        double begin = now();
        for (int i = 0; i < COUNT && !code; i++)
            made[i] = CL(context, clCreateBuffer)(context, CL_MEM_READ_WRITE, SIZE, NULL, &code);
        keep_least(&figures[CREATE], begin);
        if (code)
            break;
        begin = now();
        for (int i = 0; i < COUNT; i++)
            CL(made[i], clReleaseMemObject)(made[i]);
        keep_least(&figures[RELEASE], begin);
        begin = now();
        for (int i = 0; i < COUNT && !code; i++) {
            struct {
                size_t origin, size;
            } region = {(size_t)i * PLACE, SIZE};
            made[i] = CL(parent, clCreateSubBuffer)(parent, CL_MEM_READ_WRITE,
                                                    CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
        }
        keep_least(&figures[CREATE_PART], begin);
        if (code)
            break;
        begin = now();
        for (int i = 0; i < COUNT; i++)
            CL(made[i], clSetMemObjectDestructorCallback)(made[i], (void *)gone, NULL);
        keep_least(&figures[CALLBACK], begin);
        begin = now();
        for (int i = 0; i < COUNT; i++)
            CL(made[i], clReleaseMemObject)(made[i]);
        keep_least(&figures[RELEASE_PART], begin);
        begin = now();
        for (int i = 0; i < COUNT; i++)
            code = CL(context, clGetContextInfo)(context, CL_CONTEXT_DEVICES, sizeof devices,
                                                 devices, &size);
        keep_least(&figures[ASK_CONTEXT], begin);
    }
    CL(parent, clReleaseMemObject)(parent);
    return code;
}
