/* Waits that run commands: what is waited for before the end of a replay, by whom, and how long it
 * is known. */
#include "harness.h"

#include <string.h>

/* What the driver was asked to wait for, in order: an event, or a queue to finish. */
static struct {
    void *objects[600];
    int count;
    void (*meanwhile)(void); /* in the first wait */
} seen;

static void see(void *object) {
    void (*meanwhile)(void) = seen.meanwhile;
    seen.objects[seen.count++] = object;
    seen.meanwhile = NULL;
    if (meanwhile)
        meanwhile();
}

static cl_int see_wait(cl_uint count, const cl_event *list) {
    for (cl_uint i = 0; i < count; i++)
        see(list[i]);
    return CL_SUCCESS;
}

static cl_int see_finish(cl_command_queue queue) {
    see(queue);
    return CL_SUCCESS;
}

/* A program with two queues of its own, whose ends the caller's queue waits for. */
static const fl_step steps[] = {
    {.command = UINT32_MAX, .signals = 1},
    {.command = 0, .queue = 1, .wait_count = 1, .signals = 1},
    {.command = 1, .queue = 2, .wait_count = 1, .signals = 1},
};
static const uint32_t waits[] = {0}, ends[] = {1, 2};

typedef struct forked {
    world *w;
    fl_recording *recording;
    fl_sequence program;
    cl_command_queue queues[3];
    cl_event own[2]; /* of the last replay, only to be compared */
} forked;

static forked f;

static cl_event replay(uint32_t times) {
    cl_event end = NULL;
    uint32_t failed;
    int first = mock_count();
    OK(fl_replay(&f.program, (void *const *)f.queues, 3, times, 0, NULL, (void **)&end, &failed));
    first += 4 * ((int)times - 1); /* a barrier, two fills and a barrier each */
    f.own[0] = mock_log(first + 1)->event;
    f.own[1] = mock_log(first + 2)->event;
    return end;
}

static void set_up(world *w) {
    fl_recording *r = begin(w);
    OK(fill(w->queue, w->a, NULL));
    OK(fill(w->queue, w->b, NULL));
    end(w, r);
    memset(&seen, 0, sizeof seen);
    mock_put_slot(w->m, SLOT_clWaitForEvents, (void *)see_wait);
    mock_put_slot(w->m, SLOT_clFinish, (void *)see_finish);
    f = (forked){.w = w,
                 .recording = r,
                 .program = {.commands = command(r, 0),
                             .steps = steps,
                             .step_count = 3,
                             .waits = waits,
                             .final_wait_count = 2,
                             .final_waits = ends,
                             .helps = 1},
                 .queues = {w->free_queue, mock_queue(w->context, false),
                           mock_queue(w->context, false)}};
    OK(fl_begin_help(w->queue));
}

static void tear_down(void) {
    fl_end_help(&f.program, f.w->queue);
    fl_release(&f.program);
    mock_put_back_slots(f.w->m);
    for (int i = 1; i < 3; i++)
        OK(CL(f.queues[i], clReleaseCommandQueue)(f.queues[i]));
    drop(f.w, f.recording);
}

static void finish(void) { OK(CL(f.queues[0], clFinish)(f.queues[0])); }

static void wait_for(cl_event event) { OK(CL(event, clWaitForEvents)(1, &event)); }

/* Each event of ours once, before the queue itself. */
SCENARIO(helping_finish) {
    set_up(w);
    release_event(replay(1));
    finish();
    EQUAL(seen.count, 3);
    CHECK(seen.objects[0] == f.own[0] && seen.objects[1] == f.own[1]);
    CHECK(seen.objects[2] == f.queues[0]);
    finish();
    EQUAL(seen.count, 4);
    release_event(replay(3));
    OK(CL(w->queue, clFinish)(w->queue));
    EQUAL(seen.count, 5); /* of another queue */
    finish();
    EQUAL(seen.count, 5 + 6 + 1);
    tear_down();
    OK(CL(w->free_queue, clFinish)(w->free_queue)); /* the driver's own function again */
    EQUAL(seen.count, 12);
}

/* An event of the program is waited for, and what comes before it; not what comes later. */
SCENARIO(helping_events) {
    set_up(w);
    cl_event before = NULL, first, second;
    OK(marker(w->free_queue, 0, NULL, &before));
    first = replay(2);
    second = replay(1);
    wait_for(before);
    EQUAL(seen.count, 1);
    wait_for(first);
    EQUAL(seen.count, 1 + 4 + 1);
    CHECK(seen.objects[5] == first);
    wait_for(second);
    EQUAL(seen.count, 6 + 2 + 1);
    CHECK(seen.objects[6] == f.own[0] && seen.objects[8] == second);
    wait_for(second);
    EQUAL(seen.count, 10);
    for (int i = 0; i < 3; i++)
        release_event((cl_event[]){before, first, second}[i]);
    tear_down();
}

static void replay_meanwhile(void) { release_event(replay(1)); }

/* Another thread may enqueue something that needs this one to go on. */
SCENARIO(helping_knows_what_is_later) {
    set_up(w);
    release_event(replay(1));
    seen.meanwhile = replay_meanwhile;
    finish();
    EQUAL(seen.count, 3);
    finish();
    EQUAL(seen.count, 6);
    tear_down();
}

/* One thread at a time is in a wait that runs commands. */
SCENARIO(helping_takes_turns) {
    set_up(w);
    release_event(replay(1));
    CHECK(fl_take_wait());
    finish();
    EQUAL(seen.count, 1);
    fl_give_wait_back();
    finish();
    EQUAL(seen.count, 4);
    CHECK(fl_take_wait());
    fl_give_wait_back();
    tear_down();
}

/* A marker that stands for the end of a queue; there is none to note where nothing is known. */
SCENARIO(helping_markers) {
    set_up(w);
    cl_event end = NULL, idle = NULL;
    OK(marker(w->queue, 0, NULL, &idle));
    fl_note_end(w->queue, idle);
    EQUAL(mock_references(idle), 1);
    release_event(replay(1));
    OK(marker(w->free_queue, 0, NULL, &end));
    fl_note_end(w->free_queue, end);
    wait_for(end);
    EQUAL(seen.count, 3);
    CHECK(seen.objects[0] == f.own[0] && seen.objects[2] == end);
    EQUAL(mock_references(end), 1);
    release_event(end);
    release_event(idle);
    tear_down();
}

/* Far ahead of the device the oldest are forgotten, and none is left at the end. */
SCENARIO(helping_forgets) {
    set_up(w);
    for (int i = 0; i < 14; i++)
        release_event(replay(20));
    finish();
    EQUAL(seen.count, 2 * 256 + 1);
    CHECK(seen.objects[2 * 256] == f.queues[0]);
    release_event(replay(1));
    tear_down();
    EQUAL(seen.count, 2 * 256 + 1);
}

/* A branch that waits for another one: events between the branches count, in their order. */
SCENARIO(helping_inner_events) {
    static const fl_step joined[] = {
        {.command = UINT32_MAX, .signals = 1},
        {.command = 0, .queue = 1, .wait_count = 1, .signals = 1},
        {.command = 1, .queue = 2, .first_wait = 1, .wait_count = 1, .signals = 1},
    };
    static const uint32_t joined_waits[] = {0, 1}, joined_ends[] = {2};
    set_up(w);
    f.program.steps = joined;
    f.program.waits = joined_waits;
    f.program.final_waits = joined_ends;
    f.program.final_wait_count = 1;
    release_event(replay(1));
    finish();
    EQUAL(seen.count, 3);
    CHECK(seen.objects[0] == f.own[0] && seen.objects[1] == f.own[1]);
    CHECK(seen.objects[2] == f.queues[0]);
    tear_down();
}

/* Of many events only the last replays are known, of which one is known in any case. */
SCENARIO(helping_forgets_events) {
    enum { MANY = 3000 };
    static void *own[MANY];
    cl_event first = NULL, second = NULL;
    set_up(w);
    OK(marker(w->queue, 0, NULL, &first));
    OK(marker(w->queue, 0, NULL, &second));
    for (int i = 0; i < MANY; i++)
        own[i] = first;
    fl_offer_help(&f.program, w->free_queue, MANY, own, NULL);
    EQUAL(mock_references(first), 1 + MANY);
    for (int i = 0; i < MANY; i++)
        own[i] = second;
    fl_offer_help(&f.program, w->free_queue, MANY, own, NULL);
    EQUAL(mock_references(first), 1);
    EQUAL(mock_references(second), 1 + MANY);
    tear_down();
    EQUAL(mock_references(second), 1);
    release_event(first);
    release_event(second);
}

/* Blocks begin and end meanwhile: they watch the same function. */
SCENARIO(helping_and_recording) {
    set_up(w);
    release_event(replay(1));
    fl_recording *r = begin(w);
    OK(CL(f.own[0], clWaitForEvents)(1, &f.own[0]));
    EQUAL(seen.count, 1);
    fl_end(r);
    finish();
    EQUAL(seen.count, 1 + 3);
    tear_down();
    drop(w, r);
}

/* A table that can never be written: nothing has changed. */
SCENARIO(helping_refused) {
    world *locked = world_new(MOCK_LOCKED, 0);
    EQUAL(fl_begin_help(locked->queue), CL_OUT_OF_RESOURCES);
    CHECK(mock_is_untouched(locked->m));
    world_end(locked);
    OK(fl_begin_help(w->queue));
    fl_end_help(NULL, w->queue);
    CHECK(mock_is_untouched(w->m));
}
