/* What is recorded, what is refused, and what wrong arguments answer. */
#include "harness.h"

SCENARIO(record_every_command) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    float value = 1;
    char host[256];
    const char pattern[4] = {'a', 'b', 'c', 'd'};
    const size_t offset[3] = {1, 2, 3}, global[3] = {8, 4, 2}, local[3] = {4, 2, 1};
    const size_t at[3] = {0, 1, 2}, there[3] = {3, 4, 5}, region[3] = {6, 2, 2};
    void *svm = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0),
         *other = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0);
    void *freed[] = {other};
    set_arguments(w, w->kernel, w->a, w->b, value);

    OK(CL(q, clEnqueueNDRangeKernel)(q, w->kernel, 3, offset, global, local, 0, NULL, NULL));
    OK(CL(q, clEnqueueTask)(q, w->kernel, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyBuffer)(q, w->a, w->b, 1, 2, 3, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyBufferRect)(q, w->a, w->b, at, there, region, 10, 20, 30, 40, 0, NULL,
                                      NULL));
    OK(CL(q, clEnqueueFillBuffer)(q, w->a, pattern, sizeof pattern, 4, 8, 0, NULL, NULL));
    OK(CL(q, clEnqueueReadBuffer)(q, w->a, CL_FALSE, 5, 6, host, 0, NULL, NULL));
    OK(CL(q, clEnqueueWriteBuffer)(q, w->a, CL_FALSE, 7, 8, host, 0, NULL, NULL));
    OK(CL(q, clEnqueueReadBufferRect)(q, w->a, CL_FALSE, at, there, region, 10, 20, 30, 200, host,
                                      0, NULL, NULL));
    OK(CL(q, clEnqueueWriteBufferRect)(q, w->a, CL_FALSE, at, there, region, 0, 0, 0, 0, host, 0,
                                       NULL, NULL));
    OK(CL(q, clEnqueueSVMMemcpy)(q, CL_FALSE, svm, other, 16, 0, NULL, NULL));
    OK(CL(q, clEnqueueSVMMemFill)(q, svm, pattern, sizeof pattern, 32, 0, NULL, NULL));
    OK(CL(q, clEnqueueMarkerWithWaitList)(q, 0, NULL, NULL));
    OK(CL(q, clEnqueueBarrierWithWaitList)(q, 0, NULL, NULL));
    OK(CL(q, clEnqueueMarker)(q, NULL));
    OK(CL(q, clEnqueueBarrier)(q));
    OK(CL(q, clEnqueueMigrateMemObjects)(q, 1, &w->a, 0, 0, NULL, NULL));
    OK(CL(q, clEnqueueSVMMigrateMem)(q, 1, (const void **)freed, NULL, 0, 0, NULL, NULL));
    OK(CL(q, clFlush)(q));
    OK(CL(q, clEnqueueSVMFree)(q, 1, freed, NULL, NULL, 0, NULL, NULL));
    EQUAL(mock_count(), 0);   /* nothing reached the driver */
    end(w, r);

    static const uint16_t ops[] = {FL_KERNEL,   FL_KERNEL, FL_COPY,      FL_COPY_RECT,  FL_FILL,
                                   FL_READ,     FL_WRITE,  FL_READ_RECT, FL_WRITE_RECT, FL_SVM_COPY,
                                   FL_SVM_FILL, FL_MARKER, FL_BARRIER,   FL_MARKER,     FL_BARRIER,
                                   FL_HINT,     FL_HINT};
    EQUAL(count_of(r), sizeof ops / sizeof *ops);
    EQUAL(w->trace.nodes, count_of(r));
    EQUAL(w->trace.refusals, 0);
    for (uint32_t i = 0; i < count_of(r); i++)
        EQUAL(command(r, i)->op, ops[i]);
    EQUAL(command(r, 0)->n[8], local[2]);
    EQUAL(command(r, 1)->n[3], 1);
    CHECK(command(r, 0)->kernel == command(r, 1)->kernel &&
          command(r, 0)->kernel != (void *)w->kernel);
    EQUAL(command(r, 3)->n[12], 40);
    CHECK(command(r, 4)->pattern != (void *)pattern);
    CHECK(command(r, 5)->host == host);
    EQUAL(command(r, 7)->host_size, (5 + 2 - 1) * 200 + (4 + 2 - 1) * 30 + 3 + 6);
    EQUAL(command(r, 8)->host_size, (5 + 2 - 1) * 12 + (4 + 2 - 1) * 6 + 3 + 6);
    EQUAL(w->trace.hosts, 4);
    EQUAL(w->trace.svms, 3);
    EQUAL(fl_kept(r), 5);   /* context, queue, two buffers, one frozen kernel */
    CHECK(mock_svm_lives(other));
    drop(w, r);
    CHECK(!mock_svm_lives(other));
    CL(w->context, clSVMFree)(w->context, svm);
}

static void *mapped(cl_command_queue q, cl_mem image, cl_int *code) {
    *code = 1;
    return CL(q, clEnqueueMapImage)(q, image, CL_FALSE, 0, NULL, NULL, NULL, NULL, 0, NULL, NULL,
                                    code);
}

/* All of them, and each by what its own signature has for an error. That no slot is forgotten is
 * counted in the table itself. */
SCENARIO(record_refuses_other_commands) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    cl_int code = 1;
    int slots = 0, tried = 0;
    void **table = q->dispatch, **driver = fl_table_of(q);
    for (int slot = 1; slot < FL_SLOTS; slot++)
        slots += table[slot] != (driver[slot] ? driver[slot] : fl_stubs[slot]);
    if (w->variant == MOCK_ICD2 || w->variant == MOCK_ICD2_BARE)
        slots -= table[SLOT_clUnloadCompiler] != driver[SLOT_clUnloadCompiler];

    CHECK(CL(q, clEnqueueMapBuffer)(q, w->a, CL_TRUE, 0, 0, 8, 0, NULL, NULL, &code) == NULL);
    refused(w, code, SLOT_clEnqueueMapBuffer, FL_CANNOT_CAPTURE), tried++;
    CHECK(CL(q, clEnqueueMapBuffer)(q, w->a, CL_TRUE, 0, 0, 8, 0, NULL, NULL, NULL) == NULL);
    EQUAL(atomic_exchange(&w->trace.refusals, 0), 1);
    CHECK(mapped(q, w->a, &code) == NULL);
    refused(w, code, SLOT_clEnqueueMapImage, FL_CANNOT_CAPTURE), tried++;
#define REFUSED(name, ...)                                                                         \
    refused(w, CL(q, name)(q, __VA_ARGS__, 0, NULL, NULL), SLOT_##name, FL_CANNOT_CAPTURE), tried++
    REFUSED(clEnqueueUnmapMemObject, w->a, NULL);
    REFUSED(clEnqueueNativeKernel, NULL, NULL, 0, 0, NULL, NULL);
    REFUSED(clEnqueueSVMMap, CL_TRUE, 0, NULL, 0);
    REFUSED(clEnqueueSVMUnmap, NULL);
    REFUSED(clEnqueueAcquireGLObjects, 0, NULL);
    REFUSED(clEnqueueReleaseGLObjects, 0, NULL);
    REFUSED(clEnqueueAcquireEGLObjectsKHR, 0, NULL);
    REFUSED(clEnqueueReleaseEGLObjectsKHR, 0, NULL);
    REFUSED(clEnqueueAcquireD3D10ObjectsKHR, 0, NULL);
    REFUSED(clEnqueueReleaseD3D10ObjectsKHR, 0, NULL);
    REFUSED(clEnqueueAcquireD3D11ObjectsKHR, 0, NULL);
    REFUSED(clEnqueueReleaseD3D11ObjectsKHR, 0, NULL);
    REFUSED(clEnqueueAcquireDX9MediaSurfacesKHR, 0, NULL);
    REFUSED(clEnqueueReleaseDX9MediaSurfacesKHR, 0, NULL);
#undef REFUSED
    /* the calls of record_every_command, clEnqueueWaitForEvents and clFinish; those of images */
    const int recorded = 21 + 6;
    EQUAL(slots, tried + recorded);
    EQUAL(count_of(r), 0);
    EQUAL(mock_count(), 0);
    end(w, r);
    drop(w, r);
}

SCENARIO(record_refuses_blocking) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    char host[64];
    const size_t at[3] = {0, 0, 0}, region[3] = {4, 4, 1};
    refused(w, CL(q, clEnqueueReadBuffer)(q, w->a, CL_TRUE, 0, 8, host, 0, NULL, NULL),
            SLOT_clEnqueueReadBuffer, FL_BLOCKING);
    refused(w, CL(q, clEnqueueWriteBuffer)(q, w->a, CL_TRUE, 0, 8, host, 0, NULL, NULL),
            SLOT_clEnqueueWriteBuffer, FL_BLOCKING);
    refused(w,
            CL(q, clEnqueueReadBufferRect)(q, w->a, CL_TRUE, at, at, region, 0, 0, 0, 0, host, 0,
                                           NULL, NULL),
            SLOT_clEnqueueReadBufferRect, FL_BLOCKING);
    refused(w,
            CL(q, clEnqueueWriteBufferRect)(q, w->a, CL_TRUE, at, at, region, 0, 0, 0, 0, host, 0,
                                            NULL, NULL),
            SLOT_clEnqueueWriteBufferRect, FL_BLOCKING);
    refused(w, CL(q, clEnqueueSVMMemcpy)(q, CL_TRUE, host, host, 8, 0, NULL, NULL),
            SLOT_clEnqueueSVMMemcpy, FL_BLOCKING);
    refused(w, CL(q, clFinish)(q), SLOT_clFinish, FL_WAITS);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
}

SCENARIO(record_bad_arguments) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    char host[64];
    const size_t one = 1, at[3] = {0, 0, 0}, region[3] = {4, 4, 1}, none[3] = {4, 0, 1};
    cl_event nothing = NULL, event = NULL;
    set_arguments(w, w->kernel, w->a, w->b, 1);
    EQUAL(launch(q, NULL, 0, NULL, NULL), CL_INVALID_KERNEL);
    EQUAL(CL(q, clEnqueueNDRangeKernel)(q, w->kernel, 0, NULL, &one, NULL, 0, NULL, NULL),
          CL_INVALID_WORK_DIMENSION);
    EQUAL(CL(q, clEnqueueNDRangeKernel)(q, w->kernel, 4, NULL, &one, NULL, 0, NULL, NULL),
          CL_INVALID_WORK_DIMENSION);
    EQUAL(CL(q, clEnqueueCopyBuffer)(q, NULL, w->b, 0, 0, 8, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EQUAL(CL(q, clEnqueueCopyBuffer)(q, w->a, NULL, 0, 0, 8, 0, NULL, NULL), CL_INVALID_MEM_OBJECT);
    EQUAL(
        CL(q, clEnqueueCopyBufferRect)(q, w->a, w->b, NULL, at, region, 0, 0, 0, 0, 0, NULL, NULL),
        CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueReadBufferRect)(q, w->a, CL_FALSE, at, NULL, region, 0, 0, 0, 0, host, 0,
                                         NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueWriteBufferRect)(q, w->a, CL_FALSE, at, at, NULL, 0, 0, 0, 0, host, 0,
                                          NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueReadBufferRect)(q, w->a, CL_FALSE, at, at, none, 0, 0, 0, 0, host, 0, NULL,
                                         NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueWriteBufferRect)(q, w->a, CL_FALSE, at, at, none, 0, 0, 0, 0, host, 0,
                                          NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueReadBuffer)(q, w->a, CL_FALSE, 0, 8, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueWriteBuffer)(q, NULL, CL_FALSE, 0, 8, host, 0, NULL, NULL),
          CL_INVALID_MEM_OBJECT);
    EQUAL(CL(q, clEnqueueSVMMemcpy)(q, CL_FALSE, NULL, host, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueSVMMemFill)(q, NULL, "ab", 2, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueWaitForEvents)(q, 0, NULL), CL_INVALID_VALUE);
    EQUAL(marker(q, 1, NULL, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EQUAL(marker(q, 0, &nothing, NULL), CL_INVALID_EVENT_WAIT_LIST);
    EQUAL(marker(q, 1, &nothing, &event), CL_INVALID_EVENT_WAIT_LIST);
    CHECK(event == NULL);
    EQUAL(count_of(r), 0);
    EQUAL(w->trace.nodes, 0);
    EQUAL(w->trace.refusals, 0);
    OK(marker(q, 0, NULL, NULL));   /* a mistake leaves the block as it was */
    end(w, r);
    EQUAL(count_of(r), 1);
    WAITS_FOR_NOTHING(r, 0);
    drop(w, r);
}

/* A handle of another kind: the driver knows it, and its answer is the answer. */
SCENARIO(record_bad_objects) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    cl_sampler sampler = mock_sampler(w->context);
    EQUAL(fill(q, (cl_mem)sampler, NULL), CL_INVALID_MEM_OBJECT);
    EQUAL(CL(q, clEnqueueCopyBuffer)(q, w->a, (cl_mem)sampler, 0, 0, 8, 0, NULL, NULL),
          CL_INVALID_MEM_OBJECT);
    EQUAL(launch(q, (cl_kernel)sampler, 0, NULL, NULL), CL_INVALID_KERNEL);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
    EQUAL(mock_references(sampler), 1);
    CL(sampler, clReleaseSampler)(sampler);
}

/* SPEC clEnqueueFillBuffer: 1, 2, 4 … 128 bytes. No other size may be read from the program's
 * memory. */
SCENARIO(record_bad_patterns) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    const size_t wrong[] = {0, 3, 129, 256, (size_t)1 << 20, SIZE_MAX};
    char one = 'x';
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        EQUAL(CL(q, clEnqueueFillBuffer)(q, w->a, &one, wrong[i], 0, 8, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(CL(q, clEnqueueSVMMemFill)(q, &one, &one, wrong[i], 8, 0, NULL, NULL),
              CL_INVALID_VALUE);
    }
    EQUAL(CL(q, clEnqueueFillBuffer)(q, w->a, NULL, 4, 0, 8, 0, NULL, NULL), CL_INVALID_VALUE);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
}

SCENARIO(record_host_memory) {
    char host[64], behind[128];
    cl_mem mem = mock_buffer(w->context, sizeof behind, behind);
    cl_command_queue q = w->queue;
    fl_recording *r = begin(w);
    atomic_store(&w->trace.no_host, true);
    refused(w, CL(q, clEnqueueReadBuffer)(q, w->a, CL_FALSE, 0, 8, host, 0, NULL, NULL),
            SLOT_clEnqueueReadBuffer, FL_HOST_MEMORY);
    atomic_store(&w->trace.no_host, false);
    OK(CL(q, clEnqueueReadBuffer)(q, w->a, CL_FALSE, 0, 8, host, 0, NULL, NULL));
    CHECK(w->trace.host == host && w->trace.host_size == 8);
    OK(fill(q, mem, NULL));
    OK(fill(q, mem, NULL));
    EQUAL(w->trace.mems, 1);   /* asked once for a memory object */
    CHECK(w->trace.host == behind && w->trace.host_size == sizeof behind);
    end(w, r);
    drop(w, r);

    atomic_store(&w->trace.no_mem, true);
    r = begin(w);
    refused(w, fill(q, mem, NULL), SLOT_clEnqueueFillBuffer, FL_HOST_MEMORY);
    end(w, r);
    drop(w, r);
    r = begin(w);
    set_arguments(w, w->kernel, w->a, mem, 1);
    refused(w, launch(q, w->kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel, FL_HOST_MEMORY);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
    OK(CL(mem, clReleaseMemObject)(mem));
}
