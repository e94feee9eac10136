/* How blocks begin and end: several at once, in several threads, when something is refused, and
 * what they leave behind. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

SCENARIO(block_same_queue) {
    cl_command_queue twice[] = {w->queue, w->free_queue, w->queue};
    int code;
    CHECK(try_begin(w, twice, 3, &code) == NULL);
    EQUAL(code, CL_INVALID_OPERATION);
    CHECK(mock_is_untouched(w->m));
    fl_recording *r = begin(w);
    CHECK(try_begin(w, twice + 1, 2, &code) == NULL);
    EQUAL(code, CL_INVALID_OPERATION);
    CHECK(fl_is_captured(w->queue) && !fl_is_captured(w->free_queue));
    OK(fill(w->queue, w->a, NULL));   /* the block that was there goes on */
    end(w, r);
    EQUAL(count_of(r), 1);
    CHECK(mock_is_untouched(w->m));
    drop(w, r);
    EQUAL(mock_references(w->queue), 1);
}

SCENARIO(block_nested) {
    fl_recording *r = begin(w), *s = begin_free(w);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    OK(launch(w->free_queue, w->kernel, 0, NULL, NULL));
    fl_end(r);   /* the outer one first: the inner one goes on to see arguments */
    CHECK(!fl_is_captured(w->queue) && fl_is_captured(w->free_queue));
    set_arguments(w, w->kernel, w->b, w->a, 2);
    OK(launch(w->free_queue, w->kernel, 0, NULL, NULL));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(mock_count(), 1);
    CHECK(!fl_forgotten_kernels());
    end(w, s);
    CHECK(fl_forgotten_kernels());
    CHECK(mock_is_untouched(w->m));
    EQUAL(count_of(r), 1);
    EQUAL(count_of(s), 2);
    CHECK(command(r, 0)->arguments == command(s, 0)->arguments &&
          command(s, 0)->arguments != command(s, 1)->arguments);
    drop(w, r);
    drop(w, s);
}

/* However many blocks a thread is in, each is told of memory that it does not keep yet. */
SCENARIO(block_deeply_nested) {
    enum { DEEP = 12 };
    cl_command_queue queues[DEEP];
    fl_recording *blocks[DEEP];
    for (int i = 0; i < DEEP; i++) {
        queues[i] = mock_queue(w->context, false);
        blocks[i] = begin_on(w, &queues[i], 1, false);
    }
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 0, sizeof w->a, &w->a));
    EQUAL(w->trace.passes, DEEP);
    OK(fill(queues[3], w->a, NULL));
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 0, sizeof w->a, &w->a));
    EQUAL(w->trace.passes, 2 * DEEP - 1);   /* the fourth keeps it */
    for (int i = 0; i < DEEP; i++) {
        fl_drop(blocks[i]);
        OK(CL(queues[i], clReleaseCommandQueue)(queues[i]));
    }
}

/* A driver's table is in one mapping: that is asked for once when a block begins, and once when it
 * ends. */
SCENARIO(block_looks_once) {
    int before = files_opened(),
        tables = w->variant == MOCK_ICD2 || w->variant == MOCK_ICD2_BARE ? 2 : 1;
    fl_recording *r = begin(w);
    CHECK(files_opened() - before <= tables);
    before = files_opened();
    end(w, r);
    CHECK(files_opened() - before <= tables);
    before = files_opened();
    drop(w, r);
    EQUAL(files_opened(), before);
}

static fn_clSetKernelArg *over;   /* what the interposer goes on to */
static int interposed;

static cl_int interposer(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
    interposed++;
    return over(kernel, index, size, value);
}

/* Somebody who exchanges a slot in the block, and after it, keeps it: calls go through his function
 * and reach the driver. */
SCENARIO(block_interposed) {
    enum { SLOT = SLOT_clSetKernelArg };
    interposed = 0;
    fl_recording *r = begin(w);
    over = (fn_clSetKernelArg *)mock_exchange_slot(w->m, SLOT, (void *)interposer);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    EQUAL(interposed, 3);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    fl_end(r);
    CHECK(mock_function(w->kernel, SLOT) == (void *)interposer);
    set_arguments(w, w->kernel, w->b, w->a, 2);
    EQUAL(interposed, 6);
    CHECK(fl_forgotten_kernels());   /* nobody looks at arguments between blocks */
    fl_drop(r);

    r = begin(w);   /* below the interposer, as before */
    set_arguments(w, w->kernel, w->a, w->b, 3);
    EQUAL(interposed, 9);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    fl_end(r);
    CHECK(mock_function(w->kernel, SLOT) == (void *)interposer);
    fl_drop(r);

    /* he leaves, and what he found is there again */
    mock_exchange_slot(w->m, SLOT, (void *)over);
    set_arguments(w, w->kernel, w->b, w->a, 4);
    EQUAL(interposed, 9);
    r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 5);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    EQUAL(count_of(r), 1);
    end(w, r);   /* all is as it was */
    drop(w, r);
}

/* He comes between blocks and leaves in the next one. */
SCENARIO(block_interposed_between) {
    interposed = 0;
    over = (fn_clSetKernelArg *)mock_exchange_slot(w->m, SLOT_clSetKernelArg, (void *)interposer);
    fl_recording *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    EQUAL(interposed, 3);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    fl_end(r);
    CHECK(mock_function(w->kernel, SLOT_clSetKernelArg) == (void *)interposer);
    fl_drop(r);
    mock_exchange_slot(w->m, SLOT_clSetKernelArg, (void *)over);
    r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 2);
    EQUAL(interposed, 3);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    drop(w, r);
}

SCENARIO(block_ended_twice) {
    fl_recording *r = begin(w);
    OK(fill(w->queue, w->a, NULL));
    end(w, r);
    end(w, r);
    drop(w, r);
    r = begin(w);
    OK(fill(w->queue, w->a, NULL));
    drop(w, r);   /* without an end */
    EQUAL(mock_references(w->queue), 1);
    EQUAL(mock_references(w->context), 1);
}

SCENARIO(block_pool_exhausted) {
    enum { MANY = 600 };
    static cl_command_queue queues[MANY];
    static fl_recording *recordings[MANY];
    int code = 0, began = 0;
    for (int i = 0; i < MANY; i++) {
        queues[i] = mock_queue(w->context, false);
        recordings[i] = try_begin(w, &queues[i], 1, &code);
        began += recordings[i] != NULL;
        EQUAL(recordings[i] == NULL, code != CL_SUCCESS);
        EQUAL(fl_is_captured(queues[i]), code == CL_SUCCESS);
    }
    CHECK(began >= 64 && began < MANY);
    EQUAL(code, CL_OUT_OF_RESOURCES);
    for (int i = 0; i < MANY; i++) {
        if (recordings[i]) {
            OK(fill(queues[i], w->a, NULL));
            fl_end(recordings[i]);
            EQUAL(count_of(recordings[i]), 1);
            fl_drop(recordings[i]);
        }
        OK(CL(queues[i], clReleaseCommandQueue)(queues[i]));
    }
    drop(w, begin(w));   /* there is room again */
}

SCENARIO(block_queue_counts) {
    enum { MANY = 65 };
    cl_command_queue queues[MANY];
    int code = 0;
    for (int i = 0; i < MANY; i++)
        queues[i] = mock_queue(w->context, i % 2);
    CHECK(try_begin(w, queues, 0, &code) == NULL);
    EQUAL(code, CL_INVALID_VALUE);
    CHECK(try_begin(w, queues, MANY, &code) == NULL);
    EQUAL(code, CL_INVALID_VALUE);
    CHECK(mock_is_untouched(w->m));
    fl_recording *r = begin_on(w, queues, MANY - 1, false);
    for (int i = 0; i < MANY - 1; i++)
        OK(fill(queues[i], w->a, NULL));
    end(w, r);
    EQUAL(command(r, 63)->queue, 63);
    drop(w, r);
    for (int i = 0; i < MANY; i++)
        OK(CL(queues[i], clReleaseCommandQueue)(queues[i]));
}

SCENARIO(block_driver_refuses) {
    cl_command_queue both[] = {w->queue, w->free_queue};
    for (int n = 0; n < 2; n++) {
        int code;
        mock_fail(SLOT_clGetCommandQueueInfo, n, CL_INVALID_COMMAND_QUEUE);
        CHECK(try_begin(w, both, 2, &code) == NULL);
        CHECK(mock_has_failed());
        EQUAL(code, CL_INVALID_COMMAND_QUEUE);
        CHECK(mock_is_untouched(w->m));
        EQUAL(mock_references(w->queue), 1);
    }
}

/* A table that cannot be written cannot be watched: a clean refusal. */
SCENARIO(block_table_locked) {
    world *locked = world_new(MOCK_LOCKED, 0);
    int code;
    CHECK(try_begin(locked, &locked->queue, 1, &code) == NULL);
    EQUAL(code, CL_OUT_OF_RESOURCES);
    world_end(locked);
}

/* What a client loaded from the recording table before the block ended goes on to the driver,
 * refused calls as well. */
SCENARIO(block_late_calls) {
    fl_recording *r = begin(w);
    cl_command_queue q = w->queue;
    fn_clEnqueueFillBuffer *late_fill = CL(q, clEnqueueFillBuffer);
    fn_clEnqueueMapBuffer *late_map = CL(q, clEnqueueMapBuffer);
    fn_clEnqueueNativeKernel *late_native = CL(q, clEnqueueNativeKernel);
    fn_clFinish *late_finish = CL(q, clFinish);
    fn_clEnqueueSVMFree *late_free = CL(q, clEnqueueSVMFree);
    fn_clSetKernelArg *late_set = CL(w->kernel, clSetKernelArg);
    cl_int code = 1;
    end(w, r);
    OK(late_fill(q, w->a, "ab", 2, 0, 8, 0, NULL, NULL));
    CHECK(late_map(q, w->a, CL_FALSE, 0, 0, 8, 0, NULL, NULL, &code) == w->a);
    OK(code);
    OK(late_native(q, NULL, NULL, 0, 0, NULL, NULL, 0, NULL, NULL));
    OK(late_finish(q));
    OK(late_set(w->kernel, 0, sizeof w->a, &w->a));
    void *svm = CL(w->context, clSVMAlloc)(w->context, 0, 8, 0);
    OK(late_free(q, 1, &svm, NULL, NULL, 0, NULL, NULL));
    CHECK(!mock_svm_lives(svm));
    EQUAL(mock_count(), 4);
    EQUAL(mock_log(0)->slot, SLOT_clEnqueueFillBuffer);
    EQUAL(mock_log(1)->slot, SLOT_clEnqueueMapBuffer);
    EQUAL(count_of(r), 0);
    EQUAL(w->trace.refusals, 0);
    CHECK(fl_forgotten_kernels());
    drop(w, r);
}

/* A loader puts stubs where a driver has nothing; they are there again after a block, and before it
 * they answer as they do. */
SCENARIO(block_stub_slots) {
    mock_put_slot(w->m, SLOT_clSetKernelArgSVMPointer, fl_stubs[SLOT_clSetKernelArgSVMPointer]);
    mock_put_slot(w->m, SLOT_clSVMAlloc, fl_stubs[SLOT_clSVMAlloc]);
    mock_put_slot(w->m, SLOT_clSVMFree, fl_stubs[SLOT_clSVMFree]);
    mock_put_slot(w->m, SLOT_clEnqueueSVMFree, fl_stubs[SLOT_clEnqueueSVMFree]);
    fl_recording *r = begin(w);
    EQUAL(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 0, NULL), CL_INVALID_OPERATION);
    CHECK(CL(w->context, clSVMAlloc)(w->context, 0, 8, 0) == NULL);
    end(w, r);
    CHECK(mock_is_untouched(w->m));
    EQUAL(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 0, NULL), CL_INVALID_OPERATION);
    drop(w, r);
    mock_put_back_slots(w->m);
}

/* What the driver has not cannot be recorded: a replay would call it. */
SCENARIO(block_empty_slots) {
    mock_put_slot(w->m, SLOT_clEnqueueFillBuffer, NULL);
    mock_put_slot(w->m, SLOT_clEnqueueSVMMemcpy, NULL);
    mock_put_slot(w->m, SLOT_clSetKernelArgSVMPointer, NULL);
    fl_recording *r = begin(w);
    char host[8];
    EQUAL(fill(w->queue, w->a, NULL), CL_INVALID_OPERATION);
    EQUAL(CL(w->queue, clEnqueueSVMMemcpy)(w->queue, CL_FALSE, host, host, 8, 0, NULL, NULL),
          CL_INVALID_OPERATION);
    EQUAL(CL(w->kernel, clSetKernelArgSVMPointer)(w->kernel, 0, NULL), CL_INVALID_OPERATION);
    EQUAL(count_of(r), 0);
    end(w, r);
    drop(w, r);
    mock_put_back_slots(w->m);
}

/* Whatever is not a command of a queue is the driver's own function. */
SCENARIO(block_other_slots) {
    fl_recording *r = begin(w);
    cl_command_queue_properties properties = 1;
    cl_context context = NULL;
    OK(CL(w->queue, clGetCommandQueueInfo)(w->queue, CL_QUEUE_PROPERTIES, sizeof properties,
                                           &properties, NULL));
    EQUAL(properties, 0);
    OK(CL(w->queue, clGetCommandQueueInfo)(w->queue, CL_QUEUE_CONTEXT, sizeof context, &context,
                                           NULL));
    CHECK(context == w->context);
    OK(CL(w->queue, clRetainCommandQueue)(w->queue));
    OK(CL(w->queue, clReleaseCommandQueue)(w->queue));
    /* another queue is not captured, which the observer is told */
    OK(fill(w->free_queue, w->a, NULL));
    EQUAL(atomic_load(&w->trace.uncaptured), 1);
    EQUAL(mock_count(), 1);
    end(w, r);
    drop(w, r);
}

/* --- threads --- */

typedef struct job {
    world *w;
    fl_recording *recording;
    fn_clEnqueueFillBuffer *late;
    atomic_int *gate, *done;
    int number, code;
} job;

static void wait_for(atomic_int *gate, int value) {
    while (atomic_load(gate) < value)
        __real_sched_yield();
}

static void *intrude(void *data) {
    job *j = data;
    j->code = fill(j->w->queue, j->w->a, NULL);
    return NULL;
}

SCENARIO(thread_intruder) {
    fl_recording *r = begin(w);
    job j = {.w = w};
    pthread_t thread;
    OK(fill(w->queue, w->a, NULL));
    CHECK(pthread_create(&thread, NULL, intrude, &j) == 0);
    pthread_join(thread, NULL);
    OK(fill(w->queue, w->a, NULL));
    end(w, r);
    refused(w, j.code, SLOT_clEnqueueFillBuffer, FL_OTHER_THREAD);
    EQUAL(count_of(r), 2);
    drop(w, r);
    EQUAL(mock_count(), 0);
}

/* An intruder that is still with the observer when the block ends and the recording is dropped. It
 * stays until the other thread waits for it, or has dropped the recording without that. */
static atomic_int intruder_is_in, dropped, seen_dropped;

static int slow_observer(void *cookie, int what, uint32_t detail, void *address, size_t size) {
    if (what == FL_ASK_REFUSED) {
        int before = harness_yields();
        atomic_store(&intruder_is_in, 1);
        while (harness_yields() == before && !atomic_load(&dropped))
            __real_sched_yield();
        atomic_fetch_add(&seen_dropped, atomic_load(&dropped));
    }
    return harness_observe(cookie, what, detail, address, size);
}

static void *intrude_slowly(void *data) {
    intrude(data);
    atomic_store(&intruder_is_in, 1);
    return NULL;
}

SCENARIO(thread_intruder_outlives) {
    atomic_store(&intruder_is_in, 0), atomic_store(&dropped, 0), atomic_store(&seen_dropped, 0);
    int code;
    fl_recording *r = fl_begin((void *const *)&w->queue, 1, w->context, false, slow_observer,
                               &w->trace, harness_gil, &code);
    job j = {.w = w};
    pthread_t thread;
    OK(code);
    CHECK(pthread_create(&thread, NULL, intrude_slowly, &j) == 0);
    wait_for(&intruder_is_in, 1);
    fl_drop(r);
    atomic_store(&dropped, 1);
    pthread_join(thread, NULL);
    EQUAL(seen_dropped, 0);   /* nobody is told of a recording that is gone */
    EQUAL(j.code, CL_INVALID_OPERATION);
}

static int waiting_observer(void *cookie, int what, uint32_t detail, void *address, size_t size) {
    if (what == FL_ASK_REFUSED) {
        atomic_store(&intruder_is_in, 1);
        wait_for(&dropped, 1);
    }
    return harness_observe(cookie, what, detail, address, size);
}

/* A forked child has no intruder that its block could wait for. */
SCENARIO(thread_intruder_of_a_fork) {
    atomic_store(&intruder_is_in, 0), atomic_store(&dropped, 0);
    int code, status = 1;
    fl_recording *r = fl_begin((void *const *)&w->queue, 1, w->context, false, waiting_observer,
                               &w->trace, harness_gil, &code);
    job j = {.w = w};
    pthread_t thread;
    OK(code);
    CHECK(pthread_create(&thread, NULL, intrude, &j) == 0);
    wait_for(&intruder_is_in, 1);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        fl_end(r);
        int captured = fl_is_captured(w->queue);
        fl_drop(r);
        _exit(captured);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    atomic_store(&dropped, 1);
    pthread_join(thread, NULL);
    end(w, r);
    EQUAL(j.code, CL_INVALID_OPERATION);
    drop(w, r);
}

static void *call_late(void *data) {
    job *j = data;
    j->late = CL(j->w->queue, clEnqueueFillBuffer);
    atomic_store(j->done, 1);
    wait_for(j->gate, 1);
    j->code = j->late(j->w->queue, j->w->a, "ab", 2, 0, 8, 0, NULL, NULL);
    return NULL;
}

SCENARIO(thread_late_calls) {
    fl_recording *r = begin(w);
    atomic_int gate = 0, done = 0;
    job j = {.w = w, .gate = &gate, .done = &done};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_late, &j) == 0);
    wait_for(&done, 1);
    end(w, r);
    drop(w, r);
    atomic_store(&gate, 1);
    pthread_join(thread, NULL);
    OK(j.code);
    EQUAL(mock_count(), 1);
    EQUAL(w->trace.refusals, 0);
}

enum { THREADS = 4, ROUNDS = 40 };

/* Runs `work` in several threads that begin together. */
static void together(world *w, void *(*work)(void *)) {
    pthread_t threads[THREADS];
    job jobs[THREADS];
    atomic_int gate = 0;
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.w = w, .gate = &gate, .number = i};
        CHECK(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
    }
    atomic_store(&gate, 1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* A queue and a kernel of its own for each thread; the driver's table is one. */
static void *capture_own(void *data) {
    job *j = data;
    world *w = j->w;
    cl_command_queue q = mock_queue(w->context, j->number % 2);
    cl_kernel kernel = make_kernel(w, "own:mmv");
    wait_for(j->gate, 1);
    for (int round = 0; round < ROUNDS; round++) {
        cl_event e;
        fl_recording *r = begin_on(w, &q, 1, false);
        set_arguments(w, kernel, w->a, w->b, (float)round);
        OK(launch(q, kernel, 0, NULL, &e));
        OK(marker(q, 1, &e, NULL));
        OK(fill(q, w->a, NULL));
        OK(CL(e, clWaitForEvents)(1, &e));
        release_event(e);
        fl_end(r);
        EQUAL(command(r, 0)->op, FL_KERNEL);
        CHECK(count_of(r) >= 3);
        fl_drop(r);
    }
    OK(CL(kernel, clReleaseKernel)(kernel));
    OK(CL(q, clReleaseCommandQueue)(q));
    return NULL;
}

SCENARIO(thread_many_blocks) {
    together(w, capture_own);
    EQUAL(w->trace.refusals, 0);
    EQUAL(mock_references(w->a), 1);
}

/* All want the same queue: one of them has it at a time, and in the end it is the driver's again.
 */
static void *capture_one(void *data) {
    job *j = data;
    world *w = j->w;
    wait_for(j->gate, 1);
    for (int round = 0; round < ROUNDS; round++) {
        int code;
        fl_recording *r = try_begin(w, &w->queue, 1, &code);
        if (!r) {
            EQUAL(code, CL_INVALID_OPERATION);
            continue;
        }
        OK(fill(w->queue, w->a, NULL));
        fl_end(r);
        EQUAL(count_of(r), 1);
        fl_drop(r);
    }
    return NULL;
}

SCENARIO(thread_one_queue) {
    together(w, capture_one);
    CHECK(mock_is_untouched(w->m));
    CHECK(!fl_is_captured(w->queue));
}

/* Blocks begin and end while other threads set arguments and launch, uncaptured. */
static void *set_and_launch(void *data) {
    job *j = data;
    world *w = j->w;
    cl_kernel kernel = make_kernel(w, "own:mmv");
    cl_command_queue q = mock_queue(w->context, false);
    wait_for(j->gate, 1);
    for (int round = 0; round < ROUNDS; round++) {
        fl_recording *r = j->number == 0 ? begin(w) : NULL;
        set_arguments(w, kernel, round % 2 ? w->a : w->b, w->a, (float)round);
        OK(launch(q, kernel, 0, NULL, NULL));
        if (r)
            fl_drop(r);
    }
    OK(CL(kernel, clReleaseKernel)(kernel));
    OK(CL(q, clReleaseCommandQueue)(q));
    return NULL;
}

SCENARIO(thread_arguments) {
    together(w, set_and_launch);
    EQUAL(mock_count(), THREADS * ROUNDS);
    EQUAL(mock_references(w->a), 1);
}

static void *use_svm(void *data) {
    job *j = data;
    world *w = j->w;
    cl_command_queue q = mock_queue(w->context, false);
    wait_for(j->gate, 1);
    for (int round = 0; round < ROUNDS; round++) {
        void *before = CL(w->context, clSVMAlloc)(w->context, 0, 16, 0);
        fl_recording *r = begin_on(w, &q, 1, false);
        void *in = CL(w->context, clSVMAlloc)(w->context, 0, 16, 0);
        OK(CL(q, clEnqueueSVMMemcpy)(q, CL_FALSE, before, in, 16, 0, NULL, NULL));
        CL(w->context, clSVMFree)(w->context, in);
        fl_end(r);
        CL(w->context, clSVMFree)(w->context, before);
        CHECK(mock_svm_lives(before) && mock_svm_lives(in));
        fl_drop(r);
    }
    OK(CL(q, clReleaseCommandQueue)(q));
    return NULL;
}

SCENARIO(thread_svm) {
    together(w, use_svm);
    EQUAL(mock_living_svm(), 0);
    EQUAL(mock_references(w->context), 1);
}

/* Drivers come and go, and what was exchanged in a table is remembered for good; when there is no
 * room, a block cannot begin. */
SCENARIO(block_patches_exhausted) {
    enum { TABLES = 60 };
    static void *tables[MOCK_VARIANTS][TABLES][FL_SLOTS];
    void **own = w->queue->dispatch, *data = w->queue->dispatch_data, **full = data ? data : own;
    int code = 0, failed = 0;
    for (int i = 0; i < TABLES; i++) {
        void **table = tables[w->variant][i];
        for (int slot = 0; slot < FL_SLOTS; slot++)
            table[slot] = slot ? full[slot] : NULL;
        w->context->dispatch = w->queue->dispatch = table;
        fl_recording *r = try_begin(w, &w->queue, 1, &code);
        if (r) {
            fl_drop(r);
        } else {
            EQUAL(code, CL_OUT_OF_RESOURCES);
            failed++;
        }
        CHECK(w->queue->dispatch == table);
        for (int slot = 1; slot < FL_SLOTS; slot++)
            CHECK(table[slot] == full[slot]);
        w->context->dispatch = w->queue->dispatch = own;
    }
    CHECK(failed > 0);
}
