/* Failures: no memory at any allocation, a driver that refuses any call, and addresses that lead
 * nowhere. After each one everything is as it was, and nothing is left over. */
#include "harness.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LAUNCHES = 70, MOST_STEPS = 128 };   /* launches: past the first size of every array */

/* The event of a call is the program's if the call succeeded, and only then. */
static void take(cl_int code, cl_event *event) {
    if (code == CL_SUCCESS && *event)
        release_event(*event);
    *event = NULL;
}

static void replay_all(world *w, const fl_recording *r) {
    fl_step steps[MOST_STEPS];
    uint32_t count, failed;
    const fl_command *commands = fl_commands(r, &count);
    CHECK(count <= MOST_STEPS);
    for (uint32_t i = 0; i < count; i++)
        steps[i] = (fl_step){.command = i};
    PROGRAM program = {.commands = commands, .steps = steps, .step_count = count};
    fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed);
}

/* An image of a buffer, and a sampler among a launch's arguments: the program gives all of them up
 * at once. */
static void images(world *w, cl_command_queue q) {
    const size_t at[3] = {0, 0, 0}, region[3] = {2, 1, 1};
    char host[64];
    cl_mem buffer = mock_buffer(w->context, 64, NULL),
           image = mock_image(w->context, CL_MEM_OBJECT_IMAGE1D_BUFFER, buffer);
    cl_sampler sampler = mock_sampler(w->context);
    cl_kernel kernel = CL(w->program, clCreateKernel)(w->program, "draws:ms", NULL);
    if (kernel) {
        CL(kernel, clSetKernelArg)(kernel, 0, sizeof image, &image);
        CL(kernel, clSetKernelArg)(kernel, 1, sizeof sampler, &sampler);
        launch(q, kernel, 0, NULL, NULL);
        CL(kernel, clReleaseKernel)(kernel);
    }
    CL(q, clEnqueueFillImage)(q, image, "0123456789abcdef", at, region, 0, NULL, NULL);
    CL(q, clEnqueueCopyImageToBuffer)(q, image, w->b, at, region, 0, 0, NULL, NULL);
    CL(q, clEnqueueReadImage)(q, image, CL_FALSE, at, region, 0, 0, host, 0, NULL, NULL);
    CL(sampler, clReleaseSampler)(sampler);
    CL(image, clReleaseMemObject)(image);
    CL(buffer, clReleaseMemObject)(buffer);
}

/* A program's block that does everything and stops at nothing. `mine` are the SVM allocations that
 * are still the program's. */
static void block(world *w, fl_recording *r, cl_event *pending, void *unknown, void **mine) {
    cl_command_queue q = w->free_queue;
    cl_event e = NULL;
    char host[64];
    float value = 1;
    void *known = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0);
    CL(w->kernel, clSetKernelArg)(w->kernel, 0, sizeof w->a, &w->a);
    CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 1, known);
    for (int i = 0; i < LAUNCHES; i++) {
        value += 1;
        CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof value, &value);
        take(launch(q, w->kernel, i == 3, i == 3 ? pending : NULL, &e), &e);
    }
    fill(q, w->b, NULL);
    CL(q, clEnqueueReadBuffer)(q, w->b, CL_FALSE, 0, 8, host, 0, NULL, NULL);
    images(w, q);
    bool used =
        unknown && CL(q, clEnqueueSVMMemFill)(q, unknown, "ab", 2, 8, 0, NULL, NULL) == CL_SUCCESS;
    cl_int code = marker(q, 0, NULL, &e);
    if (code == CL_SUCCESS)
        CL(e, clWaitForEvents)(1, &e);
    take(code, &e);
    if (known && CL(q, clEnqueueSVMFree)(q, 1, &known, NULL, NULL, 0, NULL, NULL) != CL_SUCCESS)
        *mine = known;
    if (unknown)
        /* cannot fail; without memory it may come to nothing, but not too early */
        CL(w->context, clSVMFree)(w->context, unknown);
    CHECK(!used || mock_svm_lives(unknown));
    fl_end(r);
    CHECK(!fl_is_captured(w->queue) && !fl_is_captured(w->free_queue));
    replay_all(w, r);
}

/* Whether the failure that was asked for came. */
static bool session(world *w) {
    cl_command_queue both[] = {w->queue, w->free_queue};
    cl_event pending = mock_pending(w->context);
    void *mine = NULL, *unknown = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0);
    int code;
    fl_recording *r = try_begin(w, both, 2, &code);
    EQUAL(r == NULL, code != CL_SUCCESS);
    if (r) {
        block(w, r, &pending, unknown, &mine);
        fl_drop(r);
    }
    bool failed = memory_has_failed() | mock_has_failed();
    if (mine)
        CL(w->context, clSVMFree)(w->context, mine);
    if (unknown && mock_svm_lives(unknown))
        CL(w->context, clSVMFree)(w->context, unknown);
    if (pending)
        release_event(pending);
    return failed;
}

static void let_memory_fail(int n) { memory_fails(n, false); }
static void let_memory_run_out(int n) { memory_fails(n, true); }
static void let_driver_fail(int n) { mock_fail(-1, n, CL_OUT_OF_RESOURCES); }

/* One failure after the other, until a session ends before it comes. */
static void fail_anywhere(world *w, void (*let_fail)(int n)) {
    int n = 0;
    for (bool failed = true; failed; n++) {
        world *v = world_new(w->variant, 1);
        let_fail(n);
        failed = session(v);
        if (mock_living_svm() || mock_references(v->context) != 1 ||
            mock_references(v->kernel) != 1 || mock_references(v->a) != 1)
            DIE("failure number %d left something over: %d SVM allocations, %d references to the "
                "context",
                n, mock_living_svm(), mock_references(v->context));
        drop(v, begin(v));   /* what failed has no bearing on the next block */
        world_end(v);        /* looks for all the rest */
        CHECK(n < 2000);
    }
    CHECK(n > 20);
}

SCENARIO(memory_fails_anywhere) { fail_anywhere(w, let_memory_fail); }
SCENARIO(memory_fails_from_anywhere) { fail_anywhere(w, let_memory_run_out); }
SCENARIO(driver_fails_anywhere) { fail_anywhere(w, let_driver_fail); }

SCENARIO(memory_of_replay) {
    static const fl_step steps[] = {{.command = 0, .signals = 1}, {.command = 0, .wait_count = 1}};
    static const uint32_t waits[] = {0};
    fl_recording *r = begin(w);
    OK(fill(w->queue, w->a, NULL));
    end(w, r);
    PROGRAM program = {.commands = command(r, 0), .steps = steps, .step_count = 2, .waits = waits};
    for (int n = 0; n < 2; n++) {
        cl_event e = NULL;
        uint32_t failed = 0;
        memory_fails(n, false);
        EQUAL(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, (void **)&e, &failed),
              CL_OUT_OF_HOST_MEMORY);
        CHECK(memory_has_failed());
        CHECK(e == NULL);
        EQUAL(failed, UINT32_MAX);
        EQUAL(mock_count(), 0);
    }
    drop(w, r);
}

/* A list of frees that there is no memory to look at: an error, and what a graph uses stays. */
SCENARIO(memory_of_free) {
    fl_recording *r = begin(w);
    void *list[] = {CL(w->context, clSVMAlloc)(w->context, 0, 64, 0),
                    CL(w->context, clSVMAlloc)(w->context, 0, 64, 0)};
    OK(CL(w->queue, clEnqueueSVMMemFill)(w->queue, list[0], "ab", 2, 16, 0, NULL, NULL));
    end(w, r);
    memory_fails(0, false);
    EQUAL(CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, NULL, NULL, 0, NULL, NULL),
          CL_OUT_OF_HOST_MEMORY);
    CHECK(memory_has_failed());
    EQUAL(mock_living_svm(), 2);
    OK(CL(w->queue, clEnqueueSVMFree)(w->queue, 2, list, NULL, NULL, 0, NULL, NULL));
    EQUAL(mock_living_svm(), 1);
    drop(w, r);
}

SCENARIO(safe_reads) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char into[256],
        *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED);
    memset(two, 'x', 2 * page);
    CHECK(mprotect(two + page, page, PROT_NONE) == 0);
    for (int again = 0; again < 3; again++) {   /* nothing of one answer stays for the next */
        memset(into, 0, sizeof into);
        EQUAL(fl_safe_read(two, into, sizeof into), sizeof into);
        EQUAL(into[255], 'x');
        EQUAL(fl_safe_read("abc", into, 4), 4);
        EQUAL(strcmp(into, "abc"), 0);
        CHECK(fl_safe_read(two + page - 8, into, 16) <= 8);
        EQUAL(fl_safe_read(two + page - 8, into, 8), 8);
        EQUAL(into[0], 'x');
        EQUAL(fl_safe_read(two + page, into, 8), 0);
        EQUAL(fl_safe_read(NULL, into, 8), 0);
        EQUAL(fl_safe_read((void *)-8, into, 8), 0);
        EQUAL(fl_safe_read(two, into, 257), 0);
    }
    pid_t child = fork();
    if (child == 0)   /* a child has its own way to look */
        _exit(fl_safe_read("abc", into, 4) != 4 || fl_safe_read(NULL, into, 8) != 0);
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    EQUAL(fl_safe_read("abc", into, 4), 4);
    munmap(two, 2 * page);
}
