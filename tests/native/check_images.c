/* Images and samplers in a block: what is recorded, kept alive and replayed, and what wrong
 * arguments answer. */
#include "harness.h"

#include <stdlib.h>
#include <string.h>

static const size_t at[3] = {0, 1, 2}, there[3] = {3, 4, 5}, region[3] = {6, 2, 2};

typedef struct scene {
    cl_mem one, two;
    char host[4096];
} scene;

static void open_scene(world *w, scene *s) {
    s->one = mock_image(w->context, CL_MEM_OBJECT_IMAGE3D, NULL);
    s->two = mock_image(w->context, CL_MEM_OBJECT_IMAGE2D_ARRAY, NULL);
}

static void close_scene(scene *s) {
    OK(CL(s->one, clReleaseMemObject)(s->one));
    OK(CL(s->two, clReleaseMemObject)(s->two));
}

/* Every command of images, in a row. */
static void issue_all(world *w, scene *s) {
    cl_command_queue q = w->queue;
    OK(CL(q, clEnqueueCopyImage)(q, s->one, s->two, at, there, region, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyImageToBuffer)(q, s->one, w->a, at, region, 48, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyBufferToImage)(q, w->a, s->two, 32, there, region, 0, NULL, NULL));
    OK(CL(q, clEnqueueFillImage)(q, s->two, "0123456789abcdef", there, region, 0, NULL, NULL));
    OK(CL(q, clEnqueueReadImage)(q, s->one, CL_FALSE, at, region, 100, 300, s->host, 0, NULL,
                                 NULL));
    OK(CL(q, clEnqueueWriteImage)(q, s->two, CL_FALSE, at, region, 0, 0, s->host, 0, NULL, NULL));
}

static bool same(const mock_entry *a, const mock_entry *b) {
    return a->slot == b->slot && a->source == b->source && a->target == b->target &&
           a->host == b->host && memcmp(a->n, b->n, sizeof a->n) == 0 &&
           a->pattern_size == b->pattern_size &&
           memcmp(a->pattern, b->pattern, sizeof a->pattern) == 0;
}

static void replay(world *w, const fl_recording *r) {
    fl_step steps[64];
    uint32_t failed, count = count_of(r);
    for (uint32_t i = 0; i < count; i++)
        steps[i] = (fl_step){.command = i};
    PROGRAM program = {.commands = command(r, 0), .steps = steps, .step_count = count};
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
}

/* A replay gives the driver what the calls themselves would have given it; and the images need not
 * be the program's any more. */
SCENARIO(images_same_as_calls) {
    scene s;
    open_scene(w, &s);
    issue_all(w, &s);
    int called = mock_count();
    fl_recording *r = begin(w);
    issue_all(w, &s);
    end(w, r);
    EQUAL(mock_count(), called);
    EQUAL(w->trace.refusals, 0);
    EQUAL(w->trace.hosts, 2);
    EQUAL(fl_kept(r), 5);   /* context, queue, two images, a buffer */
    EQUAL(command(r, 4)->host_size, 300 + 100 + 6 * 16);
    EQUAL(command(r, 5)->host_size, 2 * 2 * 6 * 16);
    close_scene(&s);
    replay(w, r);
    for (int i = 0; i < called; i++)
        CHECK(same(mock_log(i), mock_log(called + i)));
    drop(w, r);
}

/* In a 1D array the slice pitch is between rows. */
SCENARIO(images_host_extents) {
    const struct {
        cl_mem_object_type type;
        size_t region[3], row, slice, extent;
    } cases[] = {
        {CL_MEM_OBJECT_IMAGE1D, {5, 1, 1}, 0, 0, 80},
        {CL_MEM_OBJECT_IMAGE1D_BUFFER, {1, 1, 1}, 0, 0, 16},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, {5, 3, 1}, 0, 0, 240},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, {5, 3, 1}, 0, 100, 280},
        {CL_MEM_OBJECT_IMAGE1D_ARRAY, {5, 3, 1}, 90, 0, 260},
        {CL_MEM_OBJECT_IMAGE2D, {5, 3, 1}, 100, 0, 280},
        {CL_MEM_OBJECT_IMAGE3D, {5, 3, 2}, 0, 0, 480},
        {CL_MEM_OBJECT_IMAGE2D_ARRAY, {5, 3, 2}, 100, 0, 580},
    };
    char host[1024];
    fl_recording *r = begin(w);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_mem image = mock_image(w->context, cases[i].type, NULL);
        OK(CL(w->queue, clEnqueueReadImage)(w->queue, image, CL_FALSE, (size_t[3]){0},
                                            cases[i].region, cases[i].row, cases[i].slice, host, 0,
                                            NULL, NULL));
        EQUAL(w->trace.host_size, cases[i].extent);
        OK(CL(image, clReleaseMemObject)(image));
    }
    end(w, r);
    drop(w, r);
}

/* An image and a sampler among the arguments live until the recording is dropped, whether the
 * driver tells what they are or not. */
SCENARIO(images_of_kernels) {
    for (int told = 0; told < 2; told++) {
        mock_hide_argument_info(!told);
        cl_kernel kernel = make_kernel(w, "draws:mmsv");
        cl_mem buffer = mock_buffer(w->context, 4096, NULL);
        cl_mem image = mock_image(w->context, CL_MEM_OBJECT_IMAGE1D_BUFFER, buffer);
        cl_sampler sampler = mock_sampler(w->context);
        fl_recording *r = begin(w);
        OK(CL(kernel, clSetKernelArg)(kernel, 0, sizeof image, &image));
        OK(CL(kernel, clSetKernelArg)(kernel, 1, sizeof w->a, &w->a));
        OK(CL(kernel, clSetKernelArg)(kernel, 2, sizeof sampler, &sampler));
        /* an object, and neither */
        OK(CL(kernel, clSetKernelArg)(kernel, 3, sizeof w->queue, &w->queue));
        OK(launch(w->queue, kernel, 0, NULL, NULL));
        end(w, r);
        OK(CL(image, clReleaseMemObject)(image));
        OK(CL(buffer, clReleaseMemObject)(buffer));
        OK(CL(sampler, clReleaseSampler)(sampler));
        EQUAL(mock_references(w->queue), 2);
        replay(w, r);
        CHECK(mock_log(mock_count() - 1)->arguments[0] == (uintptr_t)image);
        CHECK(mock_log(mock_count() - 1)->arguments[2] == (uintptr_t)sampler);
        drop(w, r);
        OK(CL(kernel, clReleaseKernel)(kernel));
    }
}

/* The buffer that an image is made from is kept with it and let go after it, and the program's
 * memory under it is asked for. */
SCENARIO(images_of_buffers) {
    char behind[64];
    cl_mem buffer = mock_buffer(w->context, sizeof behind, behind);
    cl_mem image = mock_image(w->context, CL_MEM_OBJECT_IMAGE1D_BUFFER, buffer);
    fl_recording *r = begin(w);
    OK(CL(w->queue, clEnqueueFillImage)(w->queue, image, "0123456789abcdef", at, region, 0, NULL,
                                        NULL));
    end(w, r);
    EQUAL(w->trace.mems, 1);
    CHECK(w->trace.host == behind);
    OK(CL(image, clReleaseMemObject)(image));
    OK(CL(buffer, clReleaseMemObject)(buffer));
    replay(w, r);
    drop(w, r);

    buffer = mock_buffer(w->context, sizeof behind, behind);
    image = mock_image(w->context, CL_MEM_OBJECT_IMAGE1D_BUFFER, buffer);
    r = begin(w);
    atomic_store(&w->trace.no_mem, true);
    refused(w,
            CL(w->queue, clEnqueueFillImage)(w->queue, image, "0123456789abcdef", at, region, 0,
                                             NULL, NULL),
            SLOT_clEnqueueFillImage, FL_HOST_MEMORY);
    end(w, r);
    drop(w, r);
    OK(CL(image, clReleaseMemObject)(image));
    OK(CL(buffer, clReleaseMemObject)(buffer));
}

/* A driver that says that an image is made from itself. */
SCENARIO(images_of_themselves) {
    cl_mem image = mock_image(w->context, CL_MEM_OBJECT_IMAGE2D, NULL);
    mock_made_from(image, image);
    fl_recording *r = begin(w);
    OK(CL(w->queue, clEnqueueFillImage)(w->queue, image, "0123456789abcdef", at, region, 0, NULL,
                                        NULL));
    end(w, r);
    EQUAL(mock_references(image), 2);
    drop(w, r);
    OK(CL(image, clReleaseMemObject)(image));
}

/* SPEC clEnqueueFillImage: the colour of a depth image is one number, and no more is read. */
SCENARIO(images_depth) {
    char *colour = malloc(4);   /* a reading behind it would be found */
    memcpy(colour, "abcd", 4);
    cl_mem image = mock_image(w->context, CL_MEM_OBJECT_IMAGE2D, NULL);
    mock_is_depth(image);
    fl_recording *r = begin(w);
    OK(CL(w->queue, clEnqueueFillImage)(w->queue, image, colour, at, region, 0, NULL, NULL));
    free(colour);
    end(w, r);
    EQUAL(command(r, 0)->pattern_size, 4);
    replay(w, r);
    CHECK(memcmp(mock_log(0)->pattern, "abcd", 4) == 0);
    drop(w, r);
    OK(CL(image, clReleaseMemObject)(image));
}

SCENARIO(images_bad_arguments) {
    scene s;
    open_scene(w, &s);
    cl_command_queue q = w->queue;
    cl_sampler sampler = mock_sampler(w->context);
    const size_t none[3] = {4, 0, 1};
    const cl_mem wrong[] = {NULL, w->a, (cl_mem)sampler};
    fl_recording *r = begin(w);
    for (int i = 0; i < 3; i++) {
        cl_mem no = wrong[i];
        EQUAL(CL(q, clEnqueueCopyImage)(q, no, s.two, at, there, region, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueCopyImage)(q, s.one, no, at, there, region, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueCopyImageToBuffer)(q, no, w->a, at, region, 0, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueCopyBufferToImage)(q, w->a, no, 0, at, region, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueFillImage)(q, no, "0123456789abcdef", at, region, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueReadImage)(q, no, CL_FALSE, at, region, 0, 0, s.host, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
        EQUAL(CL(q, clEnqueueWriteImage)(q, no, CL_FALSE, at, region, 0, 0, s.host, 0, NULL, NULL),
              CL_INVALID_MEM_OBJECT);
    }
    EQUAL(CL(q, clEnqueueCopyImageToBuffer)(q, s.one, s.two, at, region, 0, 0, NULL, NULL),
          CL_INVALID_MEM_OBJECT);
    EQUAL(CL(q, clEnqueueCopyBufferToImage)(q, s.one, s.two, 0, at, region, 0, NULL, NULL),
          CL_INVALID_MEM_OBJECT);
    const size_t *const places[][2] = {{NULL, region}, {at, NULL}, {at, none}};
    for (int i = 0; i < 3; i++) {
        const size_t *from = places[i][0], *size = places[i][1];
        EQUAL(CL(q, clEnqueueCopyImage)(q, s.one, s.two, from, at, size, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(CL(q, clEnqueueCopyImage)(q, s.one, s.two, at, from, size, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(CL(q, clEnqueueCopyImageToBuffer)(q, s.one, w->a, from, size, 0, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(CL(q, clEnqueueCopyBufferToImage)(q, w->a, s.two, 0, from, size, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(CL(q, clEnqueueFillImage)(q, s.two, "0123456789abcdef", from, size, 0, NULL, NULL),
              CL_INVALID_VALUE);
        EQUAL(
            CL(q, clEnqueueReadImage)(q, s.one, CL_FALSE, from, size, 0, 0, s.host, 0, NULL, NULL),
            CL_INVALID_VALUE);
        EQUAL(
            CL(q, clEnqueueWriteImage)(q, s.one, CL_FALSE, from, size, 0, 0, s.host, 0, NULL, NULL),
            CL_INVALID_VALUE);
    }
    EQUAL(CL(q, clEnqueueFillImage)(q, s.two, NULL, at, region, 0, NULL, NULL), CL_INVALID_VALUE);
    EQUAL(CL(q, clEnqueueReadImage)(q, s.one, CL_FALSE, at, region, 0, 0, NULL, 0, NULL, NULL),
          CL_INVALID_VALUE);
    EQUAL(w->trace.refusals, 0);
    refused(w,
            CL(q, clEnqueueReadImage)(q, s.one, CL_TRUE, at, region, 0, 0, s.host, 0, NULL, NULL),
            SLOT_clEnqueueReadImage, FL_BLOCKING);
    refused(w,
            CL(q, clEnqueueWriteImage)(q, s.one, CL_TRUE, at, region, 0, 0, s.host, 0, NULL, NULL),
            SLOT_clEnqueueWriteImage, FL_BLOCKING);
    atomic_store(&w->trace.no_host, true);
    refused(w,
            CL(q, clEnqueueWriteImage)(q, s.one, CL_FALSE, at, region, 0, 0, s.host, 0, NULL, NULL),
            SLOT_clEnqueueWriteImage, FL_HOST_MEMORY);
    mock_fail(SLOT_clGetImageInfo, 0, CL_OUT_OF_RESOURCES);
    EQUAL(CL(q, clEnqueueReadImage)(q, s.one, CL_FALSE, at, region, 0, 0, s.host, 0, NULL, NULL),
          CL_OUT_OF_RESOURCES);
    CHECK(mock_has_failed());
    EQUAL(count_of(r), 0);
    EQUAL(mock_count(), 0);
    end(w, r);
    drop(w, r);
    close_scene(&s);
    OK(CL(sampler, clReleaseSampler)(sampler));
}

/* What the driver has not cannot be recorded: OpenCL 1.1 has no fills. */
SCENARIO(images_empty_slots) {
    scene s;
    open_scene(w, &s);
    mock_put_slot(w->m, SLOT_clEnqueueFillImage, NULL);
    fl_recording *r = begin(w);
    EQUAL(CL(w->queue, clEnqueueFillImage)(w->queue, s.one, "0123456789abcdef", at, region, 0, NULL,
                                           NULL),
          CL_INVALID_OPERATION);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
    close_scene(&s);
    mock_put_back_slots(w->m);
}
