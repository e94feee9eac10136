/* Kernels and their arguments: frozen at the launch, kept alive, and refused where they were not
 * seen. */
#include "harness.h"

#include <sys/wait.h>
#include <unistd.h>

static const mock_entry *replayed(world *w, const fl_recording *r, uint32_t number) {
    fl_step step = {.command = number};
    PROGRAM program = {.commands = command(r, 0), .steps = &step, .step_count = 1};
    uint32_t failed;
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
    return mock_log(mock_count() - 1);
}

static bool launched_with(world *w, const fl_recording *r, uint32_t number, const void *first,
                          const void *second) {
    const mock_entry *e = replayed(w, r, number);
    return e->arguments[0] == (uintptr_t)first && e->arguments[1] == (uintptr_t)second;
}

/* A launch has the arguments of its moment; launches with the same arguments share one list, and
 * all share one copied kernel. */
SCENARIO(arguments_frozen) {
    fl_recording *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    set_arguments(w, w->kernel, w->a, w->b, 1);   /* set again, the same */
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(mock_calls(SLOT_clCloneKernel), 1);
    set_arguments(w, w->kernel, w->b, w->a, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(mock_calls(SLOT_clCloneKernel), 1);
    set_arguments(w, w->kernel, w->b, w->a, 2);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(mock_calls(SLOT_clCloneKernel), 1);
    end(w, r);
    set_arguments(w, w->kernel, w->b, w->b, 9);
    CHECK(command(r, 0)->arguments == command(r, 1)->arguments &&
          command(r, 3)->arguments == command(r, 4)->arguments);
    CHECK(command(r, 0)->arguments != command(r, 2)->arguments &&
          command(r, 0)->kernel == command(r, 4)->kernel);
    CHECK(launched_with(w, r, 0, w->a, w->b) && launched_with(w, r, 2, w->b, w->a) &&
          launched_with(w, r, 3, w->b, w->a));
    CHECK(replayed(w, r, 2)->arguments[2] != replayed(w, r, 3)->arguments[2]);
    drop(w, r);
    EQUAL(mock_references(w->kernel), 1);
}

SCENARIO(arguments_unseen) {
    cl_kernel values = make_kernel(w, "values:lv");
    set_arguments(w, w->kernel, w->a, w->b, 1);
    float value = 1;
    OK(CL(values, clSetKernelArg)(values, 0, 16, NULL));
    OK(CL(values, clSetKernelArg)(values, 1, sizeof value, &value));
    fl_recording *r = begin(w);
    refused(w, launch(w->queue, w->kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel,
            FL_UNSEEN_ARGUMENT);
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 0, sizeof w->a, &w->a));
    refused(w, launch(w->queue, w->kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel,
            FL_UNSEEN_ARGUMENT);
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 1, sizeof w->b, &w->b));
    /* the value was set before: it is in the clone */
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    OK(launch(w->queue, values, 0, NULL, NULL));
    end(w, r);
    EQUAL(count_of(r), 2);
    CHECK(launched_with(w, r, 0, w->a, w->b));
    drop(w, r);
    OK(CL(values, clReleaseKernel)(values));
}

SCENARIO(arguments_unseen_allowed) {
    set_arguments(w, w->kernel, w->a, w->b, 1);
    fl_recording *r = begin_on(w, &w->queue, 1, true);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    CHECK(launched_with(w, r, 0, w->a, w->b));
    EQUAL(mock_references(w->a), 1);   /* the caller keeps it alive */
    drop(w, r);
}

static void set_pointer(cl_kernel kernel, cl_uint index, const void *value) {
    OK(CL(kernel, clSetKernelArg)(kernel, index, sizeof value, &value));
}

/* Every kind: a memory object, local memory, a value as large as a pointer, a sampler, and no
 * memory object. */
SCENARIO(arguments_kinds) {
    cl_kernel kernel = make_kernel(w, "kinds:mlvsm");
    cl_sampler sampler = mock_sampler(w->context);
    fl_recording *r = begin(w);
    set_pointer(kernel, 0, w->a);
    OK(CL(kernel, clSetKernelArg)(kernel, 1, 256, NULL));
    set_pointer(kernel, 2, w->b);   /* a number that looks like an object is a value all the same */
    set_pointer(kernel, 3, sampler);
    set_pointer(kernel, 4, NULL);
    OK(launch(w->queue, kernel, 0, NULL, NULL));
    EQUAL(CL(kernel, clSetKernelArg)(kernel, 5, 4, &r), CL_INVALID_ARG_INDEX);
    EQUAL(CL(kernel, clSetKernelArg)(kernel, 0, 4, &r), CL_INVALID_ARG_SIZE);
    OK(launch(w->queue, kernel, 0, NULL, NULL));   /* what the driver refused changed nothing */
    EQUAL(mock_calls(SLOT_clCloneKernel), 1);
    end(w, r);
    EQUAL(mock_references(w->a), 2);
    EQUAL(mock_references(w->b), 1);
    EQUAL(mock_references(sampler), 2);
    OK(CL(sampler, clReleaseSampler)(sampler));
    replayed(w, r, 0);   /* the driver looks that all are there */
    drop(w, r);
    OK(CL(kernel, clReleaseKernel)(kernel));
}

/* Without clGetKernelArgInfo the bytes have to tell: those of a memory object do, others lead
 * nowhere or to something else. */
SCENARIO(arguments_not_told) {
    mock_hide_argument_info(true);
    cl_kernel kernel = make_kernel(w, "secret:mvvvvv");
    int64_t elsewhere[2] = {0};   /* as many bytes as an object begins with */
    fl_recording *r = begin(w);
    refused(w, launch(w->queue, kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel,
            FL_UNSEEN_ARGUMENT);
    set_pointer(kernel, 0, w->a);
    set_pointer(kernel, 1, (void *)8);
    set_pointer(kernel, 2, (void *)-8);
    set_pointer(kernel, 3, (char *)w->b + 1);
    set_pointer(kernel, 4, elsewhere);
    set_pointer(kernel, 5, w->context);   /* an object of the driver, no memory object */
    OK(launch(w->queue, kernel, 0, NULL, NULL));
    end(w, r);
    EQUAL(mock_references(w->a), 2);
    EQUAL(mock_references(w->b), 1);
    replayed(w, r, 0);
    drop(w, r);
    OK(CL(kernel, clReleaseKernel)(kernel));
}

/* A sampler is none of memory, whatever its address space is and whatever a driver says that checks
 * no kinds. */
SCENARIO(arguments_sampler_like_memory) {
    for (int told = 0; told < 2; told++) {
        mock_hide_argument_info(!told);
        mock_confuse_samplers(true);
        cl_kernel kernel = make_kernel(w, "confused:ms");
        cl_sampler sampler = mock_sampler(w->context);
        fl_recording *r = begin(w);
        set_pointer(kernel, 0, w->a);
        set_pointer(kernel, 1, sampler);
        OK(launch(w->queue, kernel, 0, NULL, NULL));
        end(w, r);
        CHECK(mock_references(sampler) >= 2 && mock_references(w->a) >= 2);
        drop(w, r);
        mock_confuse_samplers(false);
        OK(CL(kernel, clReleaseKernel)(kernel));
        OK(CL(sampler, clReleaseSampler)(sampler));
    }
}

/* Before OpenCL 2.1 there is no clCloneKernel: the kernel is made again and its arguments set
 * again. */
SCENARIO(arguments_no_clone) {
    for (int how = 0; how < 2; how++) {
        if (how == 0)
            mock_put_slot(w->m, SLOT_clCloneKernel, NULL);
        cl_kernel kernel = make_kernel(w, "again:mlvs");
        cl_sampler sampler = mock_sampler(w->context);
        float value = 3;
        mock_clear();
        fl_recording *r = begin(w);
        set_pointer(kernel, 0, w->a);
        OK(CL(kernel, clSetKernelArg)(kernel, 1, 32, NULL));
        OK(CL(kernel, clSetKernelArg)(kernel, 2, sizeof value, &value));
        set_pointer(kernel, 3, sampler);
        if (how == 1)
            /* it is there and does not work */
            mock_fail(SLOT_clCloneKernel, 0, CL_INVALID_OPERATION);
        OK(launch(w->queue, kernel, 0, NULL, NULL));
        EQUAL(mock_has_failed(), how == 1);
        EQUAL(mock_calls(SLOT_clCreateKernel), 1);
        OK(launch(w->queue, kernel, 0, NULL, NULL));
        EQUAL(mock_calls(SLOT_clCreateKernel), 1);
        end(w, r);
        set_pointer(kernel, 0, w->b);
        EQUAL(replayed(w, r, 1)->arguments[0], (uintptr_t)w->a);
        drop(w, r);
        mock_put_back_slots(w->m);
        OK(CL(sampler, clReleaseSampler)(sampler));
        OK(CL(kernel, clReleaseKernel)(kernel));
    }
}

SCENARIO(arguments_no_clone_unseen) {
    mock_put_slot(w->m, SLOT_clCloneKernel, NULL);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    fl_recording *r = begin(w);
    set_pointer(w->kernel, 0, w->a);
    set_pointer(w->kernel, 1, w->b);
    refused(w, launch(w->queue, w->kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel,
            FL_NO_CLONE);
    mock_fail(SLOT_clSetKernelArg, 1, CL_OUT_OF_RESOURCES);
    set_pointer(w->kernel, 0, w->b);
    EQUAL(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof(float), &(float){2}),
          CL_OUT_OF_RESOURCES);
    CHECK(mock_has_failed());
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof(float), &(float){2}));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    CHECK(launched_with(w, r, 0, w->b, w->b));
    drop(w, r);
    mock_put_back_slots(w->m);
}

static int status_of_child = -1;

/* A process may be forked while a launch is frozen. */
static cl_kernel fork_and_fail(cl_kernel kernel, cl_int *code) {
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        fl_forgotten_kernels();
        _exit(0);
    }
    waitpid(child, &status_of_child, 0);
    *code = CL_INVALID_OPERATION;
    return NULL;
}

SCENARIO(arguments_forked) {
    mock_put_slot(w->m, SLOT_clCloneKernel, (void *)fork_and_fail);
    fl_recording *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(status_of_child, 0);
    end(w, r);
    drop(w, r);
    mock_put_back_slots(w->m);
}

SCENARIO(arguments_svm) {
    char *svm = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0),
         *other = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0);
    fl_recording *r = begin(w);
    float value = 1;
    OK(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 0, svm));
    OK(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 1, svm));
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof value, &value));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    OK(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 1, other));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    set_pointer(w->kernel, 0, w->a);   /* and a memory object in its place */
    OK(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 1, NULL));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    CL(w->context, clSVMFree)(w->context, svm);
    end(w, r);
    CL(w->context, clSVMFree)(w->context, other);
    CHECK(launched_with(w, r, 0, svm, svm) && launched_with(w, r, 1, svm, other) &&
          launched_with(w, r, 2, w->a, NULL));
    drop(w, r);
    EQUAL(mock_living_svm(), 0);
}

/* What was seen of one driver's kernels is forgotten with the last block of that driver, also while
 * another driver's goes on. */
SCENARIO(arguments_two_drivers) {
    world *v = world_new(w->variant, 1);
    fl_recording *outer = begin(v), *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->a, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    CHECK(launched_with(w, r, 0, w->a, w->a));
    drop(w, r);
    set_arguments(w, w->kernel, w->b, w->b, 2);   /* nobody sees it */
    r = begin(w);
    refused(w, launch(w->queue, w->kernel, 0, NULL, NULL), SLOT_clEnqueueNDRangeKernel,
            FL_UNSEEN_ARGUMENT);
    set_pointer(w->kernel, 0, w->a);
    set_pointer(w->kernel, 1, w->b);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    CHECK(launched_with(w, r, 0, w->a, w->b));
    drop(w, r);
    end(v, outer);
    drop(v, outer);
    EQUAL(mock_references(w->kernel), 1);
    world_end(v);
}

/* A buffer is gone and another has its address, while a block goes on that remembers launches: the
 * same bytes, another argument. */
SCENARIO(arguments_address_again) {
    cl_mem mem = mock_buffer(w->context, 64, NULL);
    fl_recording *outer = begin_free(w), *r = begin(w);
    set_arguments(w, w->kernel, mem, w->b, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    fl_end(r);
    fl_drop(r);
    set_pointer(w->kernel, 0, w->a);
    OK(CL(mem, clReleaseMemObject)(mem));
    bool gone = mock_references(mem) == 0;
    if (gone)
        mock_buffer_again(w->context, mem);
    r = begin(w);
    set_pointer(w->kernel, 0, mem);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    if (gone)
        OK(CL(mem, clReleaseMemObject)(mem));
    fl_end(r);
    CHECK(launched_with(w, r, 0, mem, w->b));
    fl_drop(r);
    end(w, outer);
    drop(w, outer);
}

/* The program lets go of everything in the block; the graph has it. */
SCENARIO(arguments_released) {
    cl_mem a = mock_buffer(w->context, 64, NULL), b = mock_buffer(w->context, 64, NULL);
    cl_kernel kernel = make_kernel(w, "gone:mmv");
    fl_recording *r = begin(w);
    set_arguments(w, kernel, a, b, 1);
    OK(launch(w->queue, kernel, 0, NULL, NULL));
    OK(CL(b, clReleaseMemObject)(b));
    set_pointer(kernel, 1, w->b);   /* b is the frozen kernel's only */
    OK(CL(kernel, clReleaseKernel)(kernel));
    OK(CL(a, clReleaseMemObject)(a));
    end(w, r);
    EQUAL(mock_references(b), 1);
    CHECK(launched_with(w, r, 0, a, b));
    drop(w, r);
}
