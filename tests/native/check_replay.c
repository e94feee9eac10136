/* Replay: what the driver is given, in which order, with which events, and what is left when it
 * refuses. */
#include "harness.h"

#include <string.h>

enum { BARRIER = UINT32_MAX };

typedef struct commands {
    float value;
    char host[256];
    void *svm, *other;
} commands;

/* Every kind of command, in a row. */
static void issue_all(world *w, commands *c) {
    cl_command_queue q = w->queue;
    const size_t offset[3] = {1, 2, 3}, global[3] = {8, 4, 2}, local[3] = {4, 2, 1};
    const size_t at[3] = {0, 1, 2}, there[3] = {3, 4, 5}, region[3] = {6, 2, 2};
    set_arguments(w, w->kernel, w->a, w->b, c->value);
    OK(CL(q, clEnqueueNDRangeKernel)(q, w->kernel, 3, offset, global, local, 0, NULL, NULL));
    OK(CL(q, clEnqueueNDRangeKernel)(q, w->kernel, 2, NULL, global, NULL, 0, NULL, NULL));
    OK(CL(q, clEnqueueTask)(q, w->kernel, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyBuffer)(q, w->a, w->b, 1, 2, 3, 0, NULL, NULL));
    OK(CL(q, clEnqueueCopyBufferRect)(q, w->a, w->b, at, there, region, 10, 20, 30, 40, 0, NULL,
                                      NULL));
    OK(CL(q, clEnqueueFillBuffer)(q, w->a, "abcd", 4, 4, 8, 0, NULL, NULL));
    OK(CL(q, clEnqueueReadBuffer)(q, w->a, CL_FALSE, 5, 6, c->host, 0, NULL, NULL));
    OK(CL(q, clEnqueueWriteBuffer)(q, w->b, CL_FALSE, 7, 8, c->host, 0, NULL, NULL));
    OK(CL(q, clEnqueueReadBufferRect)(q, w->a, CL_FALSE, at, there, region, 10, 20, 30, 200,
                                      c->host, 0, NULL, NULL));
    OK(CL(q, clEnqueueWriteBufferRect)(q, w->b, CL_FALSE, there, at, region, 1, 2, 3, 4, c->host, 0,
                                       NULL, NULL));
    OK(CL(q, clEnqueueSVMMemcpy)(q, CL_FALSE, c->svm, c->other, 16, 0, NULL, NULL));
    OK(CL(q, clEnqueueSVMMemFill)(q, c->svm, "xy", 2, 32, 0, NULL, NULL));
    OK(CL(q, clEnqueueMarkerWithWaitList)(q, 0, NULL, NULL));
    OK(CL(q, clEnqueueBarrierWithWaitList)(q, 0, NULL, NULL));
    OK(CL(q, clEnqueueMarker)(q, NULL));
    OK(CL(q, clEnqueueBarrier)(q));
    OK(CL(q, clEnqueueMigrateMemObjects)(q, 1, &w->a, 0, 0, NULL, NULL));
    OK(CL(q, clEnqueueSVMMigrateMem)(q, 1, (const void **)&c->svm, NULL, 0, 0, NULL, NULL));
}

static bool same(const mock_entry *a, const mock_entry *b) {
    return a->slot == b->slot && a->queue == b->queue && a->source == b->source &&
           a->target == b->target && a->host == b->host && a->work_dim == b->work_dim &&
           a->has_offset == b->has_offset && a->has_local == b->has_local &&
           memcmp(a->n, b->n, sizeof a->n) == 0 &&
           memcmp(a->arguments, b->arguments, sizeof a->arguments) == 0 &&
           a->pattern_size == b->pattern_size &&
           memcmp(a->pattern, b->pattern, sizeof a->pattern) == 0;
}

/* The law of capture: a replay gives the driver what the calls themselves would have given it. */
SCENARIO(replay_same_as_calls) {
    commands c = {.value = 1, .svm = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0),
                  .other = CL(w->context, clSVMAlloc)(w->context, 0, 64, 0)};
    issue_all(w, &c);
    uint32_t called = (uint32_t)mock_count(), failed;
    fl_recording *r = begin(w);
    issue_all(w, &c);
    end(w, r);
    EQUAL(count_of(r), called);
    EQUAL(mock_count(), called);
    fl_step steps[64];
    for (uint32_t i = 0; i < called; i++)
        steps[i] = (fl_step){.command = i};
    PROGRAM program = {.commands = command(r, 0), .steps = steps, .step_count = called};
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
    EQUAL(mock_count(), called * 2);
    for (uint32_t i = 0; i < called; i++)
        if (!same(mock_log((int)i), mock_log((int)(called + i))))
            DIE("command %u was replayed as another", i);
    drop(w, r);
    CL(w->context, clSVMFree)(w->context, c.svm);
    CL(w->context, clSVMFree)(w->context, c.other);
}

static fl_recording *three_fills(world *w) {
    fl_recording *r = begin(w);
    for (int i = 0; i < 3; i++)
        OK(fill(w->queue, i % 2 ? w->b : w->a, NULL));
    end(w, r);
    return r;
}

/* In order: no events but the caller's. The first and the last command of each pass wait for them,
 * and the very last gives one. */
SCENARIO(replay_times) {
    fl_recording *r = three_fills(w);
    cl_event before[] = {mock_pending(w->context), mock_pending(w->context)}, e = NULL;
    fl_step steps[] = {{.command = 0, .begins = 1}, {.command = 1}, {.command = 2}};
    PROGRAM program = {.commands = command(r, 0), .steps = steps, .step_count = 3};
    uint32_t failed;
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 4, 2, (void *const *)before, (void **)&e,
                 &failed));
    EQUAL(mock_count(), 12);
    for (int i = 0; i < 12; i++) {
        EQUAL(mock_log(i)->wait_count, i % 3 == 1 ? 0 : 2);
        CHECK(mock_log(i)->event == (i == 11 ? (void *)e : NULL));
    }
    EQUAL(mock_references(e), 1);
    EQUAL(mock_calls(SLOT_clFlush), 0);
    release_event(e);
    /* no event wanted */
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 2, 0, NULL, NULL, &failed));
    EQUAL(mock_count(), 18);
    release_event(before[0]);
    release_event(before[1]);
    drop(w, r);
}

SCENARIO(replay_barriers) {
    fl_recording *r = three_fills(w);
    cl_event e = NULL;
    fl_step steps[] = {{.command = BARRIER}, {.command = 0}, {.command = 1},
                       {.command = BARRIER}, {.command = 2}, {.command = BARRIER}};
    PROGRAM program = {.commands = command(r, 0), .steps = steps, .step_count = 6};
    uint32_t failed;
    OK(fl_replay(&program, (void *const *)&w->free_queue, 1, 2, 0, NULL, (void **)&e, &failed));
    EQUAL(mock_count(), 12);
    for (int i = 0; i < 12; i++)
        EQUAL(mock_log(i)->slot, i % 6 == 0 || i % 6 == 3 || i % 6 == 5
                                     ? SLOT_clEnqueueBarrierWithWaitList
                                     : SLOT_clEnqueueFillBuffer);
    CHECK(mock_log(11)->event == e);
    release_event(e);
    drop(w, r);
}

/* 0 on queue 0; 1 on queue 1 and 2 on queue 2 after it; the end after both. */
static const fl_step forked[] = {
    {.command = BARRIER, .begins = 1, .signals = 1},
    {.command = 0, .first_wait = 0, .wait_count = 1, .signals = 1},
    {.command = 1, .queue = 1, .first_wait = 1, .wait_count = 1, .signals = 1},
    {.command = 2, .queue = 2, .first_wait = 2, .wait_count = 2, .signals = 1},
};
static const uint32_t forked_waits[] = {0, 1, 0, 1}, forked_ends[] = {2, 3};

static fl_sequence fork_of(const fl_recording *r) {
    return (fl_sequence){.commands = command(r, 0),
                        .steps = forked,
                        .step_count = 4,
                        .waits = forked_waits,
                        .final_wait_count = 2,
                        .final_waits = forked_ends};
}

SCENARIO(replay_events_on_queues) {
    fl_recording *r = three_fills(w);
    cl_command_queue queues[] = {w->free_queue, w->queue, mock_queue(w->context, false)};
    cl_event before = mock_pending(w->context), e = NULL;
    PROGRAM program = fork_of(r);
    uint32_t failed;
    OK(fl_replay(&program, (void *const *)queues, 3, 2, 1, (void *const *)&before, (void **)&e,
                 &failed));
    EQUAL(mock_count(), 10);
    for (int base = 0; base < 10; base += 5) {
        EQUAL(mock_log(base)->wait_count, 1);
        CHECK(mock_log(base)->queue == queues[0]);
        EQUAL(mock_log(base + 1)->wait_count, 1);
        EQUAL(mock_log(base + 1)->waits[0], base);
        CHECK(mock_log(base + 2)->queue == queues[1]);
        EQUAL(mock_log(base + 2)->waits[0], base + 1);
        CHECK(mock_log(base + 3)->queue == queues[2]);
        EQUAL(mock_log(base + 3)->waits[0], base);
        EQUAL(mock_log(base + 3)->waits[1], base + 1);
        EQUAL(mock_log(base + 4)->slot, SLOT_clEnqueueBarrierWithWaitList);
        EQUAL(mock_log(base + 4)->wait_count, 3);
        EQUAL(mock_log(base + 4)->waits[1], base + 3);
        CHECK(mock_log(base + 4)->event == (base ? (void *)e : NULL));
    }
    EQUAL(mock_calls(SLOT_clFlush), 3);
    release_event(e);
    release_event(before);
    OK(CL(queues[2], clReleaseCommandQueue)(queues[2]));
    drop(w, r);
}

SCENARIO(replay_empty) {
    fl_recording *r = begin(w);
    end(w, r);
    cl_event before = mock_pending(w->context), e = NULL;
    uint32_t failed;
    PROGRAM program = {.commands = NULL};
    OK(fl_replay(&program, (void *const *)&w->queue, 1, 3, 1, (void *const *)&before, (void **)&e,
                 &failed));
    EQUAL(mock_count(), 1);
    EQUAL(mock_log(0)->wait_count, 1);
    CHECK(mock_log(0)->event == e);
    release_event(e);
    release_event(before);
    drop(w, r);
}

/* Wherever the driver refuses: the right number, no event to the caller, none left over, the
 * caller's queue comes after what was enqueued on the others, and the next replay is whole. */
SCENARIO(replay_fails) {
    fl_recording *r = three_fills(w);
    cl_command_queue queues[] = {w->free_queue, w->queue, mock_queue(w->context, false)};
    static const uint32_t numbers[] = {BARRIER, 0, 1, 2, BARRIER};
    PROGRAM program = fork_of(r);
    for (int n = 0; n < 10; n++) {
        cl_event e = NULL;
        uint32_t failed = 77;
        mock_clear();
        mock_fail(-1, n, CL_OUT_OF_RESOURCES);
        EQUAL(fl_replay(&program, (void *const *)queues, 3, 2, 0, NULL, (void **)&e, &failed),
              CL_OUT_OF_RESOURCES);
        CHECK(mock_has_failed());
        EQUAL(failed, numbers[n % 5]);
        EQUAL(mock_count(), n + 3);
        CHECK(mock_log(n)->queue == queues[1] && mock_log(n + 1)->queue == queues[2] &&
              mock_log(n + 2)->queue == queues[0]);
        EQUAL(mock_log(n + 2)->wait_count, 2);
        EQUAL(mock_log(n + 2)->waits[1], n + 1);
        CHECK(e == NULL);
        OK(fl_replay(&program, (void *const *)queues, 3, 1, 0, NULL, (void **)&e, &failed));
        release_event(e);
    }
    OK(CL(queues[2], clReleaseCommandQueue)(queues[2]));
    drop(w, r);
}

static fl_arguments *numbers(uint32_t count, uint64_t first) {
    fl_change changes[MOST_ARGUMENTS];
    uint64_t values[MOST_ARGUMENTS];
    for (uint32_t i = 0; i < count; i++) {
        values[i] = first + i;
        changes[i] = (fl_change){
            .index = i, .kind = FL_ARG_VALUE, .size = sizeof *values, .value = &values[i]};
    }
    return fl_change_arguments(NULL, count, changes, count);
}

static fl_command launch_of(cl_kernel kernel, uint32_t count, uint64_t first) {
    return (fl_command){.op = FL_KERNEL,
                        .work_dim = 1,
                        .kernel = kernel,
                        .arguments = numbers(count, first),
                        .n = {0, 0, 0, 1, 1, 1, 1, 1, 1}};
}

/* Three launches are replayed twice, each with the arguments that it has now. */
static void replay_numbers(world *w, fl_sequence *p, const uint64_t *first) {
    uint32_t failed;
    mock_clear();
    OK(fl_replay(p, (void *const *)&w->queue, 1, 2, 0, NULL, NULL, &failed));
    EQUAL(mock_count(), 6);
    for (int i = 0; i < 6; i++) {
        const fl_arguments *list = p->commands[i % 3].arguments;
        for (uint32_t k = 0; k < list->count; k++)
            EQUAL(mock_log(i)->arguments[k], first[i % 3] + k);
    }
}

/* Other arguments, then another kernel with more of them, and that without memory: the next replay
 * is right in each case. Also with a kernel that has no arguments. */
SCENARIO(replay_updated) {
    cl_kernel few = make_kernel(w, "few:v"), many = make_kernel(w, "many:vvvvvv"),
              none = make_kernel(w, "none:");
    void *others[] = {few, many, none};
    fl_command commands[] = {launch_of(few, 1, 10), launch_of(few, 1, 20), launch_of(many, 6, 30)};
    fl_step steps[] = {{.command = 0}, {.command = 1}, {.command = 2}};
    {
        PROGRAM program = {.commands = commands,
                           .steps = steps,
                           .step_count = 3,
                           .updatable = 1,
                           .other_count = 3,
                           .others = others};
        OK(fl_update(&program, 1, 1));   /* there is nothing to be updated yet */
        replay_numbers(w, &program, (uint64_t[]){10, 20, 30});
        OK(fl_set_argument(&commands[1], 0, FL_ARG_VALUE, sizeof(uint64_t), &(uint64_t){50}));
        OK(fl_update(&program, 1, 0));
        replay_numbers(w, &program, (uint64_t[]){10, 50, 30});
        for (int again = 0; again < 3; again++) {
            fl_release_arguments(commands[1].arguments);
            commands[1] = again % 2 ? launch_of(few, 1, 60) : launch_of(many, 6, 70);
            OK(fl_set_argument(&commands[0], 0, FL_ARG_VALUE, sizeof(uint64_t), &(uint64_t){80}));
            OK(fl_update(&program, 1, 1));
            OK(fl_update(&program, 0, 0));
            replay_numbers(w, &program,
                           again % 2 ? (uint64_t[]){80, 60, 30} : (uint64_t[]){80, 70, 30});
        }
        for (int n = 0; n < 2; n++) {
            fl_release_arguments(commands[1].arguments);
            commands[1] = n ? launch_of(few, 1, 90) : launch_of(none, 0, 0);
            memory_fails(n, false);
            EQUAL(fl_update(&program, 1, 1), CL_OUT_OF_HOST_MEMORY);
            CHECK(memory_has_failed());
            OK(fl_update(&program, 0, 0));
            replay_numbers(w, &program, (uint64_t[]){80, 90, 30});
        }
    }
    for (int i = 0; i < 3; i++) {
        fl_release_arguments(commands[i].arguments);
        OK(CL((cl_kernel)others[i], clReleaseKernel)(others[i]));
    }
}
