/* Parameters: which arguments are found to be one, and what replays give the driver after a change.
 */
#include "harness.h"

#include <string.h>

enum { NUMBER = 7, MEMORY = 8 };

/* The cells of a recording's commands as a command-buffer of its own. */
typedef struct loop {
    fl_array array;
    fl_step steps[8];
    fl_sequence program;
    fl_built built;
    const fl_built *list[1];
    fl_buffer buffer;
    fl_part part;
    fl_route route;
    fl_cell *cells[4];
    fl_value values[4];
    uint32_t cell_count;
} loop;

static void make(loop *l, world *w, const fl_recording *r) {
    uint32_t count;
    const fl_command *commands = fl_commands(r, &count);
    *l = (loop){.cell_count = fl_find_cells(commands, count, l->cells, 4)};
    OK(fl_copy_commands(&l->array, commands, count));
    fl_cell *recorded[4];
    fl_find_cells(commands, count, recorded, 4);
    for (uint32_t i = 0; i < l->cell_count; i++) {
        fl_cell_look look;
        fl_look_at_cell(recorded[i], &look);
        l->cells[i] = fl_new_cell(look.id, look.conversion, look.size, look.bytes);
        l->values[i].cell = l->cells[i];
    }
    for (uint32_t i = 0; i < count; i++) {
        OK(fl_bind_arguments(&l->array.commands[i], l->cells, l->cell_count));
        l->steps[i] = (fl_step){.command = i};
    }
    l->program = (fl_sequence){
        .commands = l->array.commands, .steps = l->steps, .step_count = count, .updatable = 1};
    l->built = (fl_built){.enqueue = fl_enqueue_sequence,
                          .set_cell = fl_set_cell_of_sequence,
                          .self = &l->program,
                          .count = count};
    l->list[0] = &l->built;
    l->buffer = (fl_buffer){.built = l->list, .built_count = 1};
    l->part = (fl_part){.built = &l->built, .queues = (void *const *)&w->queue, .queue_count = 1};
    l->route = (fl_route){
        .buffer = &l->buffer, .queue = w->queue, .in_order = 1, .part_count = 1, .parts = &l->part};
}

static void give_up(loop *l) {
    fl_remember(&l->buffer, NULL, NULL);
    fl_release(&l->program);
    fl_release_array(&l->array);
    for (uint32_t i = 0; i < l->cell_count; i++)
        fl_release_cell(l->cells[i]);
}

static float number_at(int entry) {
    float value;
    memcpy(&value, &mock_log(entry)->arguments[2], sizeof value);
    return value;
}

static void replay(loop *l) {
    uint32_t failed;
    mock_clear();
    OK(fl_enqueue(&l->route, 1, 0, NULL, NULL, &failed));
}

/* A number is found by its memory, or because it was asked for in this very call; an equal one is
 * none. */
SCENARIO(cells_of_numbers) {
    float number = 2, equal = 2;
    loop l;
    OK(fl_know_parameter(&number, NUMBER, FL_AS_FLOAT, sizeof number));
    fl_recording *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, equal);
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof number, &number));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    set_arguments(w, w->kernel, w->a, w->b, equal);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    fl_convert_parameter(NUMBER, FL_AS_FLOAT, w->kernel, 2, 0);
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof equal, &equal));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    /* it was not set: another number was */
    fl_convert_parameter(NUMBER, FL_AS_FLOAT, w->kernel, 3, 0);
    OK(CL(w->kernel, clSetKernelArg)(w->kernel, 2, sizeof equal, &equal));
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    make(&l, w, r);
    EQUAL(l.cell_count, 1);
    float series[] = {5, 6};
    for (int turn = 0; turn < 3; turn++) {
        float value = turn ? 10.f * (float)turn : 2;
        l.values[0].bytes = &value;
        l.values[0].pending = turn > 0;
        OK(fl_set_cells(&l.buffer, l.values, 1));
        replay(&l);
        for (int i = 0; i < 4; i++)
            CHECK(number_at(i) == (i % 2 ? 2 : value));
    }
    uint32_t failed;
    mock_clear();
    l.values[0].series = series;
    OK(fl_enqueue_series(&l.route, 2, l.values, 1, 0, NULL, NULL, &failed));
    EQUAL(mock_count(), 8);
    CHECK(number_at(0) == 5 && number_at(2) == 5 && number_at(4) == 6 && number_at(7) == 2);
    fl_cell *put = fl_new_cell(NUMBER + 100, FL_AS_IT_IS, sizeof equal, &number);
    EQUAL(fl_put_cell(&l.array.commands[1], 3, put), CL_INVALID_ARG_INDEX);
    EQUAL(fl_put_cell(&l.array.commands[1], 0, put), CL_INVALID_ARG_INDEX);   /* of another size */
    OK(fl_put_cell(&l.array.commands[1], 2, put));
    CHECK(fl_has_cell(l.array.commands[1].arguments, put));
    CHECK(fl_has_cell(l.array.commands[0].arguments, l.cells[0]));
    fl_release_cell(put);
    fl_forget_parameter(NUMBER);
    give_up(&l);
    drop(w, r);
}

/* A memory object that stands for another one; the driver gets what it is at present. */
SCENARIO(cells_of_memory) {
    loop l;
    OK(fl_know_parameter(w->a, MEMORY, FL_AS_MEMORY, sizeof w->a));
    fl_recording *r = begin(w);
    set_arguments(w, w->kernel, w->a, w->b, 1);
    OK(launch(w->queue, w->kernel, 0, NULL, NULL));
    end(w, r);
    fl_forget_parameter(MEMORY);
    make(&l, w, r);
    EQUAL(l.cell_count, 1);
    for (int turn = 0; turn < 2; turn++) {
        l.values[0].bytes = &w->b;
        l.values[0].pending = turn;
        OK(fl_set_cells(&l.buffer, l.values, 1));
        replay(&l);
        CHECK(memcmp(&mock_log(0)->arguments[0], turn ? &w->b : &w->a, sizeof w->a) == 0);
    }
    cl_mem pair[] = {w->a, w->b};
    l.values[0].cycle = pair;
    EQUAL(fl_enqueue_turn(&l.route, l.values, 1, 0), 0);   /* it is not allowed */
    fl_allow_again(&l.buffer, &l.route);
    for (uint32_t turn = 0; turn < 4; turn++) {
        mock_clear();
        intptr_t event =
            turn < 3 ? fl_enqueue_turn(&l.route, l.values, 1, turn) : fl_enqueue_again(&l.route);
        CHECK(event > 0);
        release_event((cl_event)event);
        CHECK(memcmp(&mock_log(0)->arguments[0], &pair[turn == 1], sizeof w->a) == 0);
    }
    fl_begin_child();
    EQUAL(fl_enqueue_again(&l.route), 0);
    give_up(&l);
    drop(w, r);
}

static int count_update(void *self, uint32_t command, int relaunched) {
    (void)relaunched;
    ((uint32_t *)self)[command]++;
    return CL_SUCCESS;
}

static uint64_t number_of(const fl_command *command, uint32_t index) {
    fl_change found;
    uint64_t number;
    OK(fl_get_argument(command->arguments, index, &found));
    memcpy(&number, found.value, sizeof number);
    return number;
}

/* Two launches of a memory object and a number were fused, and a third one was copied. */
SCENARIO(cells_of_rewrites) {
    cl_kernel kernel = make_kernel(w, "two:mv");
    uint64_t numbers[] = {1, 2, 3}, other = 9;
    int before = mock_references(w->a);
    fl_array recorded = {0}, known = {0}, rewritten = {0};
    for (uint32_t i = 0; i < 3; i++) {
        const fl_change changes[] = {{0, FL_ARG_MEM, 8, &w->a}, {1, FL_ARG_VALUE, 8, &numbers[i]}};
        *fl_new_command(&recorded) =
            (fl_command){.op = FL_KERNEL,
                         .work_dim = 1,
                         .kernel = kernel,
                         .arguments = fl_change_arguments(NULL, 2, changes, 2)};
    }
    OK(fl_copy_commands(&known, recorded.commands, 3));
    fl_command *rows = recorded.commands;
    fl_arguments *const lists[] = {rows[0].arguments, rows[0].arguments, rows[1].arguments};
    *fl_new_command(&rewritten) =
        (fl_command){.op = FL_KERNEL,
                     .arguments = fl_pick_arguments(lists, (const uint32_t[]){0, 1, 1}, 3)};
    OK(fl_add_copy(&rewritten, &rows[2], 0));
    uint32_t told[2] = {0};
    const fl_built inner = {.update = count_update, .self = told, .count = 2};
    fl_rewritten r = {.recorded = rows,
                      .known = known.commands,
                      .rewritten = rewritten.commands,
                      .places = (const uint32_t[]){0, 0, 1},
                      .first_flows = (const uint32_t[]){0, 2, FL_FIXED},
                      .flows = (const uint32_t[]){FL_FIXED, 1, FL_FIXED, 2},
                      .is_copy = (const unsigned char[]){0, 0, 1},
                      .hidden = (void *const[]){w->b},
                      .built = (const fl_built *[]){&inner},
                      .hidden_count = 1,
                      .built_count = 1};
    OK(fl_set_argument(&rows[1], 1, FL_ARG_VALUE, 8, &other));
    OK(fl_update_rewritten(&r, 1, 0));
    EQUAL(number_of(rewritten.commands, 1), 1);
    EQUAL(number_of(rewritten.commands, 2), 9);
    OK(fl_set_argument(&rows[2], 1, FL_ARG_VALUE, 8, &other));
    OK(fl_update_rewritten(&r, 2, 0));
    EQUAL(number_of(&rewritten.commands[1], 1), 9);
    CHECK(told[0] == 1 && told[1] == 1);
    OK(fl_check_rewritten(&r, 3));
    rows[1].n[3] = 64;   /* another range */
    EQUAL(fl_update_rewritten(&r, 1, 0), FL_BUILD_ANEW);
    rows[1].n[3] = 0;
    OK(fl_set_argument(&rows[0], 0, FL_ARG_MEM, 8, &w->b));
    EQUAL(fl_update_rewritten(&r, 0, 0), FL_BUILD_ANEW);
    OK(fl_set_argument(&rows[2], 0, FL_ARG_MEM, 8, &w->b)); /* what a variable stands for */
    EQUAL(fl_update_rewritten(&r, 2, 0), FL_BUILD_ANEW);
    EQUAL(fl_check_rewritten(&r, 3), FL_BUILD_ANEW);
    fl_release_array(&recorded);
    fl_release_array(&known);
    fl_release_array(&rewritten);
    OK(CL(kernel, clReleaseKernel)(kernel));
    EQUAL(mock_references(w->a), before);
}
