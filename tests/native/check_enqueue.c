/* Enqueues of command-buffers: parts of several engines follow each other, and enqueues do; updates
 * reach the part that they are for. */
#include "harness.h"

#include <string.h>

/* Four fills as two parts: commands 0 and 1, and commands 2 and 3. */
typedef struct parts {
    fl_recording *recording;
    fl_sequence programs[2];
    fl_built built[2];
    fl_part list[2];
    fl_buffer buffer;
    fl_route route;
    void *queue;
} parts;

static const fl_step two_steps[] = {{.command = 0, .begins = 1}, {.command = 1}};

static void begin_parts(world *w, parts *p, cl_command_queue queue) {
    fl_recording *r = begin(w);
    for (int i = 0; i < 4; i++)
        OK(fill(w->queue, i % 2 ? w->b : w->a, NULL));
    end(w, r);
    *p = (parts){.recording = r, .queue = queue};
    for (uint32_t i = 0; i < 2; i++) {
        p->programs[i] =
            (fl_sequence){.commands = command(r, 2 * i), .steps = two_steps, .step_count = 2};
        p->built[i] = (fl_built){
            .enqueue = fl_enqueue_sequence, .self = &p->programs[i], .first = 2 * i, .count = 2};
        p->list[i] = (fl_part){&p->built[i], &p->queue, 1};
    }
    p->route = (fl_route){&p->buffer, queue, queue == w->queue, 2, p->list, 0, 0};
    mock_clear();
}

static void end_parts(world *w, parts *p) {
    fl_remember(&p->buffer, NULL, NULL);
    fl_release(&p->programs[0]);
    fl_release(&p->programs[1]);
    drop(w, p->recording);
}

/* On an in-order queue nothing but the caller's events is needed, which each part waits for. */
SCENARIO(enqueue_parts_in_order) {
    parts p;
    begin_parts(w, &p, w->queue);
    cl_event before = mock_pending(w->context), e = NULL;
    uint32_t failed;
    OK(fl_enqueue(&p.route, 2, 1, (void *const *)&before, (void **)&e, &failed));
    EQUAL(mock_count(), 8);
    for (int i = 0; i < 8; i++) {
        EQUAL(mock_log(i)->wait_count, 1);
        CHECK(mock_log(i)->event == (i == 7 ? (void *)e : NULL));
        CHECK(mock_log(i)->target == (i % 2 ? w->b : w->a));
    }
    EQUAL(mock_references(e), 2);   /* the caller's, and that of the last enqueue */
    OK(fl_enqueue(&p.route, 1, 0, NULL, NULL, &failed));
    EQUAL(mock_references(e), 1);
    EQUAL(mock_log(8)->wait_count, 0);
    release_event(e);
    release_event(before);
    end_parts(w, &p);
}

/* An enqueue that is waited for leaves nothing to release. Whose wait fails, gives its event. */
SCENARIO(enqueue_waited) {
    parts p;
    begin_parts(w, &p, w->queue);
    EQUAL(fl_enqueue_waited(&p.route), 0);   /* it is not allowed */
    fl_allow_again(&p.buffer, &p.route);
    EQUAL(fl_enqueue_waited(&p.route), 1);
    EQUAL(mock_count(), 4);
    EQUAL(mock_calls(SLOT_clWaitForEvents), 1);
    EQUAL(mock_references(mock_log(3)->event), 1);   /* that of the last enqueue */
    mock_fail(SLOT_clWaitForEvents, 0, CL_OUT_OF_RESOURCES);
    intptr_t event = fl_enqueue_waited(&p.route);
    CHECK(mock_has_failed() && (void *)event == mock_log(7)->event);
    release_event((cl_event)event);
    mock_fail(SLOT_clEnqueueFillBuffer, 0, CL_OUT_OF_RESOURCES);
    EQUAL(fl_enqueue_waited(&p.route), CL_OUT_OF_RESOURCES);
    EQUAL(mock_calls(SLOT_clWaitForEvents), 1);   /* of those that succeeded */
    mock_has_failed();
    end_parts(w, &p);
}

/* On an out-of-order one each part waits for the event of the one before it, also of the enqueue
 * before. */
SCENARIO(enqueue_parts_out_of_order) {
    parts p;
    begin_parts(w, &p, w->free_queue);
    uint32_t failed;
    OK(fl_enqueue(&p.route, 2, 0, NULL, NULL, &failed));
    OK(fl_enqueue(&p.route, 1, 0, NULL, NULL, &failed));
    EQUAL(mock_count(), 12);
    for (int i = 0; i < 12; i++) {
        EQUAL(mock_log(i)->wait_count, i > 1);
        if (i > 1)
            EQUAL(mock_log(i)->waits[0], i - i % 2 - 1);
    }
    end_parts(w, &p);
}

/* After one that has failed, each later one waits for what its queue still has. Intel's driver says
 * of such an event that it is complete, and its callbacks tell. */
SCENARIO(enqueue_after_a_failure) {
    parts p;
    begin_parts(w, &p, w->queue);
    cl_event gate = mock_pending(w->context), made = NULL;
    uint32_t failed;
    fl_route elsewhere = p.route;
    elsewhere.queue = p.queue = w->free_queue;
    elsewhere.in_order = 0;
    fl_ask_callbacks(fl_table_of(gate));
    for (int n = 0; n < 2; n++) {
        OK(fl_enqueue(&p.route, 1, 1, (void *const *)&gate, (void **)&made, &failed));
        mock_events_are(n ? CL_COMPLETE : -5);
        mock_callbacks_tell(-5);
        mock_clear();
        OK(fl_enqueue(&elsewhere, 1, 0, NULL, NULL, &failed));
        mock_events_are(CL_COMPLETE);
        mock_callbacks_tell(CL_COMPLETE);
        EQUAL(mock_log(0)->slot, SLOT_clEnqueueMarkerWithWaitList);
        EQUAL(mock_log(0)->wait_count, 0);
        CHECK(mock_log(0)->queue == w->queue);
        EQUAL(mock_log(1)->waits[0], 0);
        release_event(made);
    }
    release_event(gate);
    end_parts(w, &p);
}

/* Wherever the driver refuses: the number of the command in the whole, and no event is left over.
 */
SCENARIO(enqueue_parts_fail) {
    parts p;
    begin_parts(w, &p, w->free_queue);
    for (int n = 0; n < 8; n++) {
        cl_event e = NULL;
        uint32_t failed = 77;
        mock_fail(SLOT_clEnqueueFillBuffer, n, CL_OUT_OF_RESOURCES);
        EQUAL(fl_enqueue(&p.route, 2, 0, NULL, (void **)&e, &failed), CL_OUT_OF_RESOURCES);
        CHECK(mock_has_failed());
        EQUAL(failed, (uint32_t)n % 4);
        CHECK(e == NULL && p.buffer.last_event == NULL);
    }
    end_parts(w, &p);
}

/* Some drivers refuse a list of no events that is not NULL. */
static int enqueue_strictly(void *self, void *const *queues, uint32_t queue_count, uint32_t times,
                            uint32_t wait_count, void *const *wait_list, void **event,
                            uint32_t *failed) {
    EQUAL(!wait_count, !wait_list);
    return fl_enqueue_sequence(self, queues, queue_count, times, wait_count, wait_list, event,
                              failed);
}

SCENARIO(enqueue_until) {
    parts p;
    for (int in_order = 0; in_order < 2; in_order++) {
        begin_parts(w, &p, in_order ? w->queue : w->free_queue);
        uint32_t ran, stopped, failed;
        p.built[0].enqueue = p.built[1].enqueue = enqueue_strictly;
        OK(fl_enqueue_until(&p.route, 3, 1, w->a, 0, 0, NULL, &ran, &stopped, &failed));
        EQUAL(ran, 3);
        EQUAL(stopped, 0);
        EQUAL(mock_count(), 3 * (4 + 1));
        end_parts(w, &p);
    }
}

static uint32_t updated[2][4], update_count[2];

static int note_update(void *self, uint32_t number, int relaunched) {
    uint32_t part = (uint32_t)(uintptr_t)self;
    updated[part][update_count[part]++] = number;
    return relaunched ? CL_OUT_OF_RESOURCES : CL_SUCCESS;
}

/* An update is for the part that has the command, by its number there; a part that C cannot update
 * is left alone. */
SCENARIO(enqueue_updates) {
    fl_built built[3] = {{.update = note_update, .self = (void *)0, .first = 0, .count = 2},
                         {.update = note_update, .self = (void *)1, .first = 2, .count = 3},
                         {.update = NULL, .first = 0, .count = 5}};
    const fl_built *list[] = {&built[0], &built[1], &built[2]};
    fl_buffer buffer = {.built = list, .built_count = 3};
    memset(update_count, 0, sizeof update_count);
    for (uint32_t i = 0; i < 6; i++)
        OK(fl_update_buffer(&buffer, i, false));
    EQUAL(update_count[0], 2);
    EQUAL(update_count[1], 3);
    EQUAL(updated[0][1], 1);
    EQUAL(updated[1][2], 2);
    EQUAL(fl_update_buffer(&buffer, 4, true), CL_OUT_OF_RESOURCES);
}

static struct {
    int calls, refuse_at;
    uint32_t waits[8];
    cl_context context;
} driver;

static cl_int enqueue_buffer(cl_uint count, cl_command_queue *queues, void *buffer,
                             cl_uint wait_count, const cl_event *list, cl_event *event) {
    if (driver.calls == driver.refuse_at)
        return CL_INVALID_OPERATION;
    driver.waits[driver.calls++] = wait_count;
    if (event)
        *event = mock_pending(driver.context);
    return CL_SUCCESS;
}

/* The driver's own command-buffer, several times: each enqueue waits for the one before it. */
SCENARIO(enqueue_driver_buffer) {
    fl_driver_buffer d = {.buffer = w, .enqueue = (void *)enqueue_buffer};
    cl_event e = NULL;
    uint32_t failed;
    driver.context = w->context;
    driver.calls = 0;
    driver.refuse_at = 8;
    OK(fl_enqueue_driver_buffer(&d, (void *const *)&w->queue, 1, 3, 0, NULL, (void **)&e, &failed));
    EQUAL(driver.calls, 3);
    EQUAL(driver.waits[0], 0);
    EQUAL(driver.waits[1], 1);
    EQUAL(driver.waits[2], 1);
    EQUAL(mock_references(e), 1);
    release_event(e);
    OK(fl_enqueue_driver_buffer(&d, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
    driver.refuse_at = 5;
    EQUAL(fl_enqueue_driver_buffer(&d, (void *const *)&w->queue, 1, 3, 0, NULL, NULL, &failed),
          CL_INVALID_OPERATION);
    EQUAL(driver.calls, 5);
}
