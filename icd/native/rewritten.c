/* Rewritten commands (icd/command_buffer/rewrites/): how changes of the recorded commands reach
 * those that are run instead of them.
 *
 * A launch in a run has given its arguments to the run's launch. Numbers that no proof depends on
 * flow there. A command outside of a run was copied, and its copy takes over what it has become.
 * Any other change ends the rewrite: everything is built anew, of the recorded commands. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

fl_arguments *fl_pick_arguments(fl_arguments *const *lists, const uint32_t *indices,
                                uint32_t count) {
    fl_argument *picked = calloc(count + 1, sizeof *picked);
    if (!picked)
        return NULL;
    for (uint32_t i = 0; i < count; i++)
        picked[i] = lists[i]->list[indices[i]];
    fl_arguments *made = fl_new_holding_list(picked, count);
    free(picked);
    return made;
}

void fl_watch_cell(fl_cell *cell, int watched) { cell->watched = watched != 0; }

static bool is_same_but_arguments(const fl_command *a, const fl_command *b) {
    return a->op == b->op && a->kernel == b->kernel && a->source == b->source &&
           a->target == b->target && a->pattern_size == b->pattern_size &&
           (a->pattern == b->pattern || !memcmp(a->pattern, b->pattern, a->pattern_size)) &&
           a->work_dim == b->work_dim && a->has_offset == b->has_offset &&
           a->has_local == b->has_local && !memcmp(a->n, b->n, sizeof a->n) &&
           fl_argument_count(a->arguments) == fl_argument_count(b->arguments);
}

/* Whether a watched command is what it was, except for numbers that flow. */
static bool is_proven(const fl_rewritten *r, uint32_t command) {
    const fl_command *now = &r->recorded[command], *known = &r->known[command];
    const uint32_t *flows = r->flows + r->first_flows[command];
    bool same = is_same_but_arguments(now, known);
    for (uint32_t i = 0; same && i < fl_argument_count(now->arguments); i++) {
        const fl_argument *a = &now->arguments->list[i], *b = &known->arguments->list[i];
        same = flows[i] == FL_FIXED ? fl_same_argument(a, b)
                                    : a->kind == b->kind && a->size == b->size && !a->cell;
    }
    return same;
}

static bool uses_hidden(const fl_rewritten *r, const fl_command *command) {
    bool uses = false;
    for (uint32_t k = 0; k < r->hidden_count && !uses; k++) {
        void *hidden = r->hidden[k];
        uses = command->source == hidden || command->target == hidden;
        for (uint32_t i = 0; !uses && i < fl_argument_count(command->arguments); i++) {
            const fl_argument *a = &command->arguments->list[i];
            uses = a->kind == FL_ARG_MEM && a->value && !memcmp(a->value, &hidden, sizeof hidden);
        }
    }
    return uses;
}

static int let_flow(const fl_rewritten *r, uint32_t command, fl_command *run) {
    const fl_arguments *list = r->recorded[command].arguments;
    const uint32_t *flows = r->flows + r->first_flows[command];
    int code = CL_SUCCESS;
    for (uint32_t i = 0; code == CL_SUCCESS && i < fl_argument_count(list); i++)
        if (flows[i] != FL_FIXED)
            code = fl_set_argument(run, flows[i], list->list[i].kind, list->list[i].size,
                                   list->list[i].value);
    return code;
}

/* A copy takes over everything but its queue and its place in the order. */
static int take_over(fl_command *copy, const fl_command *row) {
    const fl_arguments *list = row->arguments;
    fl_arguments *arguments =
        list ? fl_change_arguments(list, fl_argument_count(list), NULL, 0) : NULL;
    if (list && !arguments)
        return CL_OUT_OF_HOST_MEMORY;
    fl_command old = *copy;
    *copy = *row;
    copy->arguments = arguments;
    copy->queue = old.queue;
    copy->first_dep = old.first_dep;
    copy->dep_count = old.dep_count;
    fl_release_arguments(old.arguments);
    return CL_SUCCESS;
}

static int tell_built(const fl_rewritten *r, uint32_t place, int relaunched) {
    int code = CL_SUCCESS;
    for (uint32_t i = 0; i < r->built_count && code == CL_SUCCESS; i++) {
        const fl_built *built = r->built[i];
        uint32_t number = place - built->first;
        if (number < built->count)
            code = built->update ? built->update(built->self, number, relaunched) : FL_BUILD_ANEW;
    }
    return code;
}

int fl_update_rewritten(void *self, uint32_t command, int relaunched) {
    const fl_rewritten *r = self;
    const fl_command *row = &r->recorded[command];
    bool watched = r->first_flows[command] != FL_FIXED;
    if (watched && (relaunched || !is_proven(r, command)))
        return FL_BUILD_ANEW;
    if (!r->rewritten)
        return CL_SUCCESS;
    fl_command *now = &r->rewritten[r->places[command]];
    bool copied = !watched || r->is_copy[command];
    if (copied && uses_hidden(r, row))
        return FL_BUILD_ANEW;
    int code = copied ? take_over(now, row) : let_flow(r, command, now);
    return code == CL_SUCCESS ? tell_built(r, r->places[command], relaunched) : code;
}

int fl_check_rewritten(fl_rewritten *r, uint32_t count) {
    int code = CL_SUCCESS;
    for (uint32_t i = 0; i < count && code == CL_SUCCESS; i++)
        code = fl_update_rewritten(r, i, 0);
    return code;
}

int fl_set_cell_of_rewritten(void *self, const fl_cell *cell) {
    const fl_rewritten *r = self;
    int code = CL_SUCCESS;
    for (uint32_t i = 0; i < r->built_count && code == CL_SUCCESS; i++) {
        const fl_built *built = r->built[i];
        if (built->set_cell)
            code = built->set_cell(built->self, cell);
        for (uint32_t k = 0; !built->set_cell && code == CL_SUCCESS && k < built->count; k++)
            if (fl_has_cell(r->rewritten[built->first + k].arguments, cell))
                code = built->update ? built->update(built->self, k, 0) : FL_BUILD_ANEW;
    }
    return code;
}
