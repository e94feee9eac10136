/* Scripts of commands. Each command is laid out twice by the same function (direct_layout.c):
 * without a block, which says what it needs and whether it can be run, and into the block. */
#include "direct.h"
#include "float_flags.h"

#include <stdlib.h>
#include <string.h>

bool fl_direct_runs_here(void) { return FL_KNOWS_FLOAT_FLAGS; }

int fl_direct_check(fl_direct_device *device, fl_group_function *functions, uint32_t function_count,
                    const fl_command *commands, uint32_t count, uint8_t *reasons) {
    fl_direct d = {.device = device, .functions = functions, .function_count = function_count};
    fl_direct_memory memory = {0};
    fl_direct_step step;
    int refused = 0;
    for (uint32_t i = 0; i < count; i++) {
        fl_layout l = {.d = &d, .memory = &memory, .asks = true};
        reasons[i] = (uint8_t)fl_put_command(&l, &commands[i], &step);
        refused += reasons[i] != FL_DIRECT_FINE;
    }
    fl_forget_memory(&memory);
    return refused;
}

/* What the driver would have said of a command. */
static int code_of(int reason) {
    static const int codes[] = {
        [FL_DIRECT_ARGUMENT] = CL_INVALID_KERNEL_ARGS,
        [FL_DIRECT_UNSEEN] = CL_INVALID_KERNEL_ARGS,
        [FL_DIRECT_KERNEL] = CL_INVALID_KERNEL,
        [FL_DIRECT_IMAGE] = CL_INVALID_MEM_OBJECT,
        [FL_DIRECT_MEMORY] = CL_INVALID_MEM_OBJECT,
        [FL_DIRECT_RANGE] = CL_INVALID_VALUE,
        [FL_DIRECT_LOCAL_SIZE] = CL_INVALID_WORK_GROUP_SIZE,
        [FL_DIRECT_NO_ROOM] = CL_OUT_OF_HOST_MEMORY,
        [FL_DIRECT_NO_PLACE] = CL_OUT_OF_HOST_MEMORY,
    };
    return codes[reason];
}

static fl_script *new_image(size_t used, size_t scratch, fl_script *spare) {
    if (spare && spare->size >= used + scratch) {
        fl_forget_memory(&spare->memory);
        fl_free_series(&spare->series, true);
        free(spare->order);
        spare->order = NULL;
        return spare;
    }
    fl_script *script = calloc(1, sizeof *script);
    size_t size = fl_up(used + scratch + FL_ALIGNMENT, FL_ALIGNMENT);
    if (!script || !(script->block = aligned_alloc(FL_ALIGNMENT, size))) {
        free(script);
        return NULL;
    }
    script->size = size;
    return script;
}

void fl_free_script(fl_script *script) {
    if (!script)
        return;
    if (script->event)
        CALL(fl_table_of(script->event), clReleaseEvent)(script->event);
    fl_forget_memory(&script->memory);
    fl_free_series(&script->series, true);
    free(script->order);
    free(script->block);
    free(script);
}

/* How much all commands need: of their data, from `*used` on, and of local memory. */
static int measure(const fl_direct *d, const fl_direct_cells *cells, fl_direct_memory *memory,
                   const fl_direct_memory *before, size_t *used, size_t *scratch) {
    fl_direct_step step;
    for (uint32_t i = 0; i < d->count; i++) {
        fl_layout l = {.d = d, .memory = memory, .before = before, .cells = cells};
        int reason = fl_put_command(&l, &d->commands[i], &step);
        if (reason)
            return reason;
        *used += fl_up(l.at, FL_ALIGNMENT);
        *scratch = l.scratch_at > *scratch ? l.scratch_at : *scratch;
    }
    return FL_DIRECT_FINE;
}

static void put_step(const fl_direct *d, const fl_direct_cells *cells, fl_script *script,
                     uint32_t number, size_t place) {
    fl_direct_step *s = &fl_steps(script)[number];
    fl_layout l = {.d = d,
                   .memory = &script->memory,
                   .base = script->block + place,
                   .scratch = script->block + script->used,
                   .cells = cells,
                   .cell_places = script->block + script->cells_at,
                   .script = script};
    *s = (fl_direct_step){.kind = FL_STEP_NOTHING,
                          .place = (uint32_t)(place / FL_ALIGNMENT),
                          .ticks = UINT32_MAX,
                          .shared_ticks = UINT32_MAX};
    fl_put_command(&l, &d->commands[number], s);
    s->is_alone = l.scratch_at > 0;
    s->room = (uint32_t)l.at;
}

/* The steps level by level, each level in the order of recording. false: there is no memory. */
static bool put_levels(const fl_direct *d, fl_script *script) {
    uint32_t count = d->count, most = 0;
    script->limits = d->device->thread_limits;
    script->trial.threads = 2;
    if (!d->levels)
        return true;
    for (uint32_t i = 0; i < count; i++)
        most = d->levels[i] > most ? d->levels[i] : most;
    uint32_t *ends =
        calloc((size_t)most + 2, sizeof *ends); /* where each level begins, then where it ends */
    script->order = malloc((size_t)count * sizeof *script->order);
    if (ends && script->order) {
        for (uint32_t i = 0; i < count; i++)
            ends[d->levels[i] + 1]++;
        for (uint32_t level = 0; level < most; level++)
            ends[level + 1] += ends[level];
        for (uint32_t i = 0; i < count; i++)
            script->order[ends[d->levels[i]]++] = i;
        for (uint32_t i = 0; i < count; i++)
            fl_steps(script)[script->order[i]].ends = i + 1 == ends[d->levels[script->order[i]]];
    }
    bool fine = ends && script->order;
    free(ends);
    return fine;
}

fl_script *fl_make_script(const fl_direct *d, const fl_direct_cells *cells, const fl_script *before,
                        int *code) {
    fl_direct_memory memory = {0};
    size_t places = fl_up((size_t)d->count * sizeof(fl_direct_step), FL_ALIGNMENT), scratch = 0;
    size_t steps = places + fl_up(cells->size, FL_ALIGNMENT), contexts = steps;
    int reason = measure(d, cells, &memory, before ? &before->memory : NULL, &contexts, &scratch);
    size_t used =
        fl_up(contexts + ((size_t)d->count + FL_COMMON) * sizeof(fl_group_context), FL_ALIGNMENT);
    fl_script *script =
        reason || used / FL_ALIGNMENT > UINT32_MAX ? NULL : new_image(used, scratch, NULL);
    *code = reason ? code_of(reason) : CL_OUT_OF_HOST_MEMORY;
    if (!script) {
        fl_forget_memory(&memory);
        return NULL;
    }
    script->memory = memory;
    script->used = used;
    script->scratch = scratch;
    script->cells_at = places;
    script->cells_size = cells->size;
    script->contexts_at = contexts;
    script->common_count = 0;
    script->step_count = d->count;
    script->live = memory.keep.count;
    atomic_store(&script->passes, 0);
    for (uint32_t i = 0; i < d->count; i++) {
        put_step(d, cells, script, i, steps);
        steps += fl_up(fl_steps(script)[i].room, FL_ALIGNMENT);
    }
    if (!put_levels(d, script)) {
        fl_free_script(script);
        return NULL;
    }
    *code = CL_SUCCESS;
    return script;
}

/* Pointers into the old block lead to the same places of the new one. Nothing else lies in a block.
 */
static void *moved(void *pointer, const fl_script *from, const fl_script *to) {
    size_t at = (size_t)((unsigned char *)pointer - from->block);
    return at < from->used + from->scratch ? to->block + at : pointer;
}

static void move_launch(fl_direct_step *s, const fl_script *from, const fl_script *to) {
    const fl_group_function *f = s->function;
    s->context = moved(s->context, from, to);
    s->arguments = moved(s->arguments, from, to);
    for (uint32_t i = 0; i < f->argument_count + f->automatic_count; i++) {
        void **slot = s->arguments[i] = moved(s->arguments[i], from, to);
        if (i >= f->argument_count || f->spaces[i] == FL_SPACE_LOCAL)
            *slot = moved(*slot, from, to);
    }
}

fl_script *fl_copy_script(const fl_script *script, fl_script *spare) {
    fl_script *made = new_image(script->used, script->scratch, spare);
    if (!made)
        return NULL;
    for (uint32_t i = 0; i < script->memory.keep.count; i++) {
        int reason;
        cl_mem buffer = script->memory.keep.entries[i].object;
        if (!fl_find_memory(NULL, &made->memory, &script->memory, buffer, &reason)) {
            if (made != spare)
                fl_free_script(made);
            return NULL;
        }
    }
    if (script->order && !(made->order = malloc(script->step_count * sizeof *made->order))) {
        if (made != spare)
            fl_free_script(made);
        return NULL;
    }
    if (script->order)
        memcpy(made->order, script->order, script->step_count * sizeof *made->order);
    memcpy(made->block, script->block, script->used);
    made->used = script->used;
    made->scratch = script->scratch;
    made->cells_at = script->cells_at;
    made->cells_size = script->cells_size;
    made->contexts_at = script->contexts_at;
    made->common_count = script->common_count;
    made->step_count = script->step_count;
    made->live = script->live;
    made->limits = script->limits;
    made->shares = script->shares;
    made->trial = script->trial;
    atomic_store(&made->passes, atomic_load(&script->passes));
    for (fl_direct_step *s = fl_steps(made), *end = s + made->step_count; s < end; s++)
        if (s->kind == FL_STEP_LAUNCH)
            move_launch(s, script, made);
        else if (s->kind == FL_STEP_COPY)
            s->copy = moved(s->copy, script, made);
        else if (s->kind == FL_STEP_FILL) {
            s->fill = moved(s->fill, script, made);
            s->fill->pattern = moved((void *)s->fill->pattern, script, made);
        }
    return made;
}

int fl_store(fl_direct *d, fl_script *script, uint32_t number) {
    fl_layout l = {.d = d, .memory = &script->memory, .cells = &d->cells};
    fl_direct_step *s = &fl_steps(script)[number], step;
    if (fl_has_many(script))
        return FL_DIRECT_NO_PLACE;
    int reason = fl_put_command(&l, &d->commands[number], &step);
    if (reason)
        return reason;
    if (l.at > s->room || l.scratch_at > script->scratch)
        return FL_DIRECT_NO_PLACE;
    fl_direct_step old = *s;
    put_step(d, &d->cells, script, number, (size_t)s->place * FL_ALIGNMENT);
    s->room = old.room;
    s->ticks = old.ticks;
    s->shared_ticks = old.shared_ticks;
    s->ends = old.ends;
    s->together = old.together;
    if (s->other && old.other && old.run == old.function->function)
        fl_take_other(s);
    return FL_DIRECT_FINE;
}
