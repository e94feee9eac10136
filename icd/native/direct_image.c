/* Images of commands. Each command is laid out twice by the same function (direct_layout.c):
 * without a block, which says what it needs and whether it can be run, and into the block. */
#include "direct.h"

#include <stdlib.h>
#include <string.h>

/* Elsewhere nothing is known of the flags of PoCL's threads, and every command is refused. */
#ifdef __x86_64__
enum { RUNS_HERE = true };
#else
enum { RUNS_HERE = false };
#endif

int fl_direct_check(fl_direct_device *device, fl_group_function *functions, uint32_t function_count,
                    const fl_command *commands, uint32_t count, uint8_t *reasons) {
    fl_direct d = {.device = device, .functions = functions, .function_count = function_count};
    fl_direct_memory memory = {0};
    fl_direct_step step;
    int refused = 0;
    for (uint32_t i = 0; i < count; i++) {
        fl_layout l = {.d = &d, .memory = &memory, .asks = true};
        reasons[i] = (uint8_t)(RUNS_HERE ? fl_put_command(&l, &commands[i], &step)
                                         : FL_DIRECT_KERNEL);
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

static fl_image *new_image(size_t used, size_t scratch, fl_image *spare) {
    if (spare && spare->size >= used + scratch) {
        fl_forget_memory(&spare->memory);
        fl_free_series(&spare->series, true);
        free(spare->order);
        spare->order = NULL;
        return spare;
    }
    fl_image *image = calloc(1, sizeof *image);
    size_t size = fl_up(used + scratch + FL_ALIGNMENT, FL_ALIGNMENT);
    if (!image || !(image->block = aligned_alloc(FL_ALIGNMENT, size))) {
        free(image);
        return NULL;
    }
    image->size = size;
    return image;
}

void fl_free_image(fl_image *image) {
    if (!image)
        return;
    if (image->event)
        CALL(fl_table_of(image->event), clReleaseEvent)(image->event);
    fl_forget_memory(&image->memory);
    fl_free_series(&image->series, true);
    free(image->order);
    free(image->block);
    free(image);
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

static void put_step(const fl_direct *d, const fl_direct_cells *cells, fl_image *image,
                     uint32_t number, size_t place) {
    fl_direct_step *s = &fl_steps(image)[number];
    fl_layout l = {.d = d,
                   .memory = &image->memory,
                   .base = image->block + place,
                   .scratch = image->block + image->used,
                   .cells = cells,
                   .cell_places = image->block + image->cells_at,
                   .image = image};
    *s = (fl_direct_step){.kind = FL_STEP_NOTHING,
                          .place = (uint32_t)(place / FL_ALIGNMENT),
                          .ticks = UINT32_MAX,
                          .shared_ticks = UINT32_MAX};
    fl_put_command(&l, &d->commands[number], s);
    s->is_alone = l.scratch_at > 0;
    s->room = (uint32_t)l.at;
}

/* The steps level by level, each level in the order of recording. false: there is no memory. */
static bool put_levels(const fl_direct *d, fl_image *image) {
    uint32_t count = d->count, most = 0;
    image->limits = d->device->thread_limits;
    image->trial.threads = 2;
    if (!d->levels)
        return true;
    for (uint32_t i = 0; i < count; i++)
        most = d->levels[i] > most ? d->levels[i] : most;
    uint32_t *ends =
        calloc((size_t)most + 2, sizeof *ends); /* where each level begins, then where it ends */
    image->order = malloc((size_t)count * sizeof *image->order);
    if (ends && image->order) {
        for (uint32_t i = 0; i < count; i++)
            ends[d->levels[i] + 1]++;
        for (uint32_t level = 0; level < most; level++)
            ends[level + 1] += ends[level];
        for (uint32_t i = 0; i < count; i++)
            image->order[ends[d->levels[i]]++] = i;
        for (uint32_t i = 0; i < count; i++)
            fl_steps(image)[image->order[i]].ends = i + 1 == ends[d->levels[image->order[i]]];
    }
    bool fine = ends && image->order;
    free(ends);
    return fine;
}

fl_image *fl_make_image(const fl_direct *d, const fl_direct_cells *cells, const fl_image *before,
                        int *code) {
    fl_direct_memory memory = {0};
    size_t places = fl_up((size_t)d->count * sizeof(fl_direct_step), FL_ALIGNMENT), scratch = 0;
    size_t steps = places + fl_up(cells->size, FL_ALIGNMENT), contexts = steps;
    int reason = measure(d, cells, &memory, before ? &before->memory : NULL, &contexts, &scratch);
    size_t used =
        fl_up(contexts + ((size_t)d->count + FL_COMMON) * sizeof(fl_group_context), FL_ALIGNMENT);
    fl_image *image =
        reason || used / FL_ALIGNMENT > UINT32_MAX ? NULL : new_image(used, scratch, NULL);
    *code = reason ? code_of(reason) : CL_OUT_OF_HOST_MEMORY;
    if (!image) {
        fl_forget_memory(&memory);
        return NULL;
    }
    image->memory = memory;
    image->used = used;
    image->scratch = scratch;
    image->cells_at = places;
    image->cells_size = cells->size;
    image->contexts_at = contexts;
    image->common_count = 0;
    image->step_count = d->count;
    image->live = memory.keep.count;
    atomic_store(&image->passes, 0);
    for (uint32_t i = 0; i < d->count; i++) {
        put_step(d, cells, image, i, steps);
        steps += fl_up(fl_steps(image)[i].room, FL_ALIGNMENT);
    }
    if (!put_levels(d, image)) {
        fl_free_image(image);
        return NULL;
    }
    *code = CL_SUCCESS;
    return image;
}

/* Pointers into the old block lead to the same places of the new one. Nothing else lies in a block.
 */
static void *moved(void *pointer, const fl_image *from, const fl_image *to) {
    size_t at = (size_t)((unsigned char *)pointer - from->block);
    return at < from->used + from->scratch ? to->block + at : pointer;
}

static void move_launch(fl_direct_step *s, const fl_image *from, const fl_image *to) {
    const fl_group_function *f = s->function;
    s->context = moved(s->context, from, to);
    s->arguments = moved(s->arguments, from, to);
    for (uint32_t i = 0; i < f->argument_count + f->automatic_count; i++) {
        void **slot = s->arguments[i] = moved(s->arguments[i], from, to);
        if (i >= f->argument_count || f->spaces[i] == FL_SPACE_LOCAL)
            *slot = moved(*slot, from, to);
    }
}

fl_image *fl_copy_image(const fl_image *image, fl_image *spare) {
    fl_image *made = new_image(image->used, image->scratch, spare);
    if (!made)
        return NULL;
    for (uint32_t i = 0; i < image->memory.keep.count; i++) {
        int reason;
        cl_mem buffer = image->memory.keep.entries[i].object;
        if (!fl_find_memory(NULL, &made->memory, &image->memory, buffer, &reason)) {
            if (made != spare)
                fl_free_image(made);
            return NULL;
        }
    }
    if (image->order && !(made->order = malloc(image->step_count * sizeof *made->order))) {
        if (made != spare)
            fl_free_image(made);
        return NULL;
    }
    if (image->order)
        memcpy(made->order, image->order, image->step_count * sizeof *made->order);
    memcpy(made->block, image->block, image->used);
    made->used = image->used;
    made->scratch = image->scratch;
    made->cells_at = image->cells_at;
    made->cells_size = image->cells_size;
    made->contexts_at = image->contexts_at;
    made->common_count = image->common_count;
    made->step_count = image->step_count;
    made->live = image->live;
    made->limits = image->limits;
    made->shares = image->shares;
    made->trial = image->trial;
    atomic_store(&made->passes, atomic_load(&image->passes));
    for (fl_direct_step *s = fl_steps(made), *end = s + made->step_count; s < end; s++)
        if (s->kind == FL_STEP_LAUNCH)
            move_launch(s, image, made);
        else if (s->kind == FL_STEP_COPY)
            s->copy = moved(s->copy, image, made);
        else if (s->kind == FL_STEP_FILL) {
            s->fill = moved(s->fill, image, made);
            s->fill->pattern = moved((void *)s->fill->pattern, image, made);
        }
    return made;
}

int fl_store(fl_direct *d, fl_image *image, uint32_t number) {
    fl_layout l = {.d = d, .memory = &image->memory, .cells = &d->cells};
    fl_direct_step *s = &fl_steps(image)[number], step;
    if (fl_has_many(image))
        return FL_DIRECT_NO_PLACE;
    int reason = fl_put_command(&l, &d->commands[number], &step);
    if (reason)
        return reason;
    if (l.at > s->room || l.scratch_at > image->scratch)
        return FL_DIRECT_NO_PLACE;
    fl_direct_step old = *s;
    put_step(d, &d->cells, image, number, (size_t)s->place * FL_ALIGNMENT);
    s->room = old.room;
    s->ticks = old.ticks;
    s->shared_ticks = old.shared_ticks;
    s->ends = old.ends;
    s->together = old.together;
    if (s->other && old.other && old.run == old.function->function)
        fl_take_other(s);
    return FL_DIRECT_FINE;
}
