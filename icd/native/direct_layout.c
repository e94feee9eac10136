/* From a command to a step and its data. What is odd in any way is refused, so that the driver
 * answers as it always does. */
#include "direct.h"
#include "float_flags.h"

#include <stddef.h>
#include <string.h>

static void *take(fl_layout *l, size_t size, size_t alignment) {
    l->at = fl_up(l->at, alignment);
    void *taken = l->base ? l->base + l->at : NULL;
    l->at += size;
    return taken;
}

static fl_group_function *function_of(const fl_direct *d, const void *kernel) {
    uint32_t low = 0, high = d->function_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if ((uintptr_t)d->functions[middle].kernel < (uintptr_t)kernel)
            low = middle + 1;
        else
            high = middle;
    }
    fl_group_function *f = &d->functions[low];
    return low < d->function_count && f->kernel == kernel && f->function ? f : NULL;
}

/* --- launches --- */

/* The work-groups of a launch, if the driver would take it. */
static int divide(const fl_direct *d, const fl_group_function *f, const fl_command *c,
                  fl_group_context *context) {
    size_t items = 1, local[3] = {1, 1, 1};
    if (c->work_dim < 1 || c->work_dim > 3)
        return FL_DIRECT_RANGE;
    for (uint32_t i = 0; i < c->work_dim; i++)
        if (!c->n[3 + i])
            return FL_DIRECT_RANGE;
    if (c->has_local)
        memcpy(local, c->n + 6, c->work_dim * sizeof *local);
    else if (f->required[0])
        return FL_DIRECT_RANGE;   /* PoCL wants it to be given */
    else if (!fl_choose_local(d->device, c, local))
        return FL_DIRECT_LOCAL_SIZE;
    for (uint32_t i = 0; i < 3; i++) {
        size_t global = i < c->work_dim ? c->n[3 + i] : 1,
               offset = c->has_offset && i < c->work_dim ? c->n[i] : 0, end;
        if (!local[i] || global % local[i] || local[i] > d->device->most_items[i] ||
            (f->required[0] && local[i] != f->required[i]))
            return FL_DIRECT_RANGE;
        if (__builtin_mul_overflow(items, local[i], &items) ||
            __builtin_add_overflow(global, offset, &end))
            return FL_DIRECT_RANGE;
        context->local[i] = local[i];
        context->groups[i] = global / local[i];
        context->offset[i] = offset;
    }
    return items <= f->most_items ? FL_DIRECT_FINE : FL_DIRECT_RANGE;
}

/* The special function for a launch, NULL if there is none. If `asks`, it is written down that
 * there could be one. What PoCL takes for small is smaller still: of the third dimension it looks
 * at the local size alone. */
static void *special_of(fl_group_function *f, const fl_group_context *c, bool asks) {
    struct fl_special wanted = {.no_offset = !c->offset[0] && !c->offset[1] && !c->offset[2],
                                .small_grid = 1};
    memcpy(wanted.local, c->local, sizeof wanted.local);
    for (int i = 0; i < 3; i++)
        wanted.small_grid &=
            c->local[i] * c->groups[i] < FL_SMALL && c->local[2] * c->local[2] < FL_SMALL;
    for (struct fl_special *s = f->specials; s < f->specials + f->special_count; s++)
        if (!memcmp(s, &wanted, offsetof(struct fl_special, function)))
            return s->function;
    if (asks && f->special_count < sizeof f->specials / sizeof *f->specials)
        f->specials[f->special_count++] = wanted;
    return NULL;
}

/* Where a launch's context is kept: among those of other launches, or in its step's own place. */
static fl_group_context *keep_context(fl_script *script, const fl_direct_step *s,
                                      const fl_group_context *context) {
    fl_group_context *common = fl_contexts(script),
                     *own = common + FL_COMMON + (s - fl_steps(script));
    for (uint32_t i = 0; i < script->common_count; i++)
        if (!memcmp(&common[i], context, sizeof *context))
            return &common[i];
    fl_group_context *kept =
        script->common_count < FL_COMMON ? &common[script->common_count++] : own;
    *kept = *context;
    return kept;
}

/* Local memory belongs to whoever runs the script, and one thread at a time does. */
static void *local_memory(fl_layout *l, size_t size) {
    void *taken = l->scratch ? l->scratch + l->scratch_at : NULL;
    l->scratch_at = fl_up(l->scratch_at + size, FL_ALIGNMENT);
    return taken;
}

/* The pointer that a launch gets for memory. */
static int pointer_of(fl_layout *l, const fl_argument *a, void **pointer) {
    void *object = NULL;
    int reason = FL_DIRECT_FINE;
    *pointer = NULL;
    if (a->kind == FL_ARG_SVM) {
        *pointer = (void *)a->value;
        return reason;
    }
    if (a->value && a->size != sizeof object)
        return FL_DIRECT_ARGUMENT;
    if (a->value)
        memcpy(&object, a->value, sizeof object);
    if (!object)
        return reason;
    if (a->kind != FL_ARG_MEM)
        return FL_DIRECT_ARGUMENT;
    const struct fl_place *place =
        fl_find_memory(l->d->device, l->memory, l->before, object, &reason);
    *pointer = place ? place->address : NULL;
    return reason;
}

/* An argument that is a Parameter: its place in the script, which the run fills. */
static int put_cell(const fl_layout *l, const fl_cell *cell, void **argument) {
    if (!l->cells)
        return FL_DIRECT_FINE;
    const struct fl_direct_cell *place = fl_place_of_cell(l->cells, cell);
    if (place && l->cell_places)
        *argument = l->cell_places + place->at;
    return place ? FL_DIRECT_FINE : FL_DIRECT_NO_PLACE;
}

/* One argument as the launcher hands it over: the address of a value, or of a slot that has a
 * pointer. */
static int put_argument(fl_layout *l, const fl_group_function *f, uint32_t index,
                        const fl_argument *a, void **argument) {
    void *pointer, **slot;
    int reason = a->kind == FL_ARG_UNSEEN ? FL_DIRECT_UNSEEN : FL_DIRECT_FINE;
    if (reason)
        return reason;
    if (f->spaces[index] == FL_SPACE_VALUE) {
        if (a->kind != FL_ARG_VALUE || !a->value || (f->sizes[index] && a->size != f->sizes[index]))
            return FL_DIRECT_ARGUMENT;
        if (a->cell)
            return put_cell(l, a->cell, argument);
        void *value = take(l, a->size, fl_alignment_of(a->size));
        if (value)
            memcpy(*argument = value, a->value, a->size);
        return FL_DIRECT_FINE;
    }
    if (f->spaces[index] == FL_SPACE_LOCAL) {
        if (a->kind != FL_ARG_VALUE || a->value || !a->size)
            return FL_DIRECT_ARGUMENT;
        pointer = local_memory(l, a->size);
    } else {
        reason = f->spaces[index] == FL_SPACE_MEMORY ? pointer_of(l, a, &pointer) : FL_DIRECT_IMAGE;
        if (!reason && a->cell)
            return a->kind == FL_ARG_MEM ? put_cell(l, a->cell, argument) : FL_DIRECT_ARGUMENT;
        if (reason)
            return reason;
    }
    slot = take(l, sizeof *slot, sizeof *slot);
    if (slot) {
        *slot = pointer;
        *argument = slot;
    }
    return FL_DIRECT_FINE;
}

static void put_automatic(fl_layout *l, size_t size, void **argument) {
    void *pointer = local_memory(l, size), **slot = take(l, sizeof *slot, sizeof *slot);
    if (slot) {
        *slot = pointer;
        *argument = slot;
    }
}

static int put_launch(fl_layout *l, const fl_command *c, fl_direct_step *s) {
    static char nowhere[FL_ALIGNMENT];   /* no kernel that prints comes here */
    static uint32_t position;
    fl_group_function *f = function_of(l->d, c->kernel);
    fl_group_context context = {.work_dim = c->work_dim,
                                .work_dim_of_3 = c->work_dim,
                                .printf_buffer = nowhere,
                                .printf_position = &position};
    void *unused = NULL;
    if (!f)
        return FL_DIRECT_KERNEL;
    if (!c->arguments || c->arguments->count != f->argument_count)
        return FL_DIRECT_ARGUMENT;
    int reason = divide(l->d, f, c, &context);
    void **arguments = take(l, (f->argument_count + f->automatic_count + 1) * sizeof *arguments,
                            sizeof *arguments);
    l->scratch_at = 0;
    for (uint32_t i = 0; i < f->argument_count && !reason; i++)
        reason = put_argument(l, f, i, &c->arguments->list[i], arguments ? &arguments[i] : &unused);
    for (uint32_t i = 0; i < f->automatic_count && !reason; i++)
        put_automatic(l, f->automatic[i], arguments ? &arguments[f->argument_count + i] : &unused);
    if (!reason && l->scratch_at > l->d->device->local_memory)
        reason = FL_DIRECT_RANGE;
    if (reason)
        return reason;
    void *special = special_of(f, &context, l->asks);
    if (arguments) {
        s->function = f;
        s->arguments = arguments;
        s->context = keep_context(l->script, s, &context);
        s->run = special ? special : f->function;
        s->other = special ? f->function : NULL;
        s->is_single = context.groups[0] * context.groups[1] * context.groups[2] == 1;
        s->flags = f->flushes ? FL_FLUSHING_FLAGS : FL_PLAIN_FLAGS;
        s->kind = FL_STEP_LAUNCH;
    }
    return FL_DIRECT_FINE;
}

/* --- transfers --- */

#define NO_READ (CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)
#define NO_WRITE (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS)

/* One side of a copy: where it begins, and that it ends inside. `host` is memory without a known
 * end. */
static int side(fl_layout *l, void *buffer, void *host, uint64_t forbidden, size_t offset,
                size_t extent, unsigned char **begin) {
    int reason = FL_DIRECT_FINE;
    if (!buffer) {
        *begin = (unsigned char *)host + offset;
        return host ? reason : FL_DIRECT_RANGE;
    }
    const struct fl_place *place =
        fl_find_memory(l->d->device, l->memory, l->before, buffer, &reason);
    if (!place)
        return reason;
    if ((place->flags & forbidden) || offset > place->size || extent > place->size - offset)
        return FL_DIRECT_RANGE;
    *begin = place->address + offset;
    return reason;
}

/* Where a side of a copy begins in its memory, and its pitches: 0 stands for what the region needs.
 * Nothing that follows from them overflows below. */
static bool measure(const size_t *origin, const size_t *region, const size_t *pitches, size_t *row,
                    size_t *slice, size_t *at) {
    typedef unsigned __int128 wide;
    *row = pitches[0] ? pitches[0] : region[0];
    wide least = (wide)region[1] * *row, steps = pitches[1] ? pitches[1] : least;
    if (!region[0] || !region[1] || !region[2] || *row < region[0] || steps < least ||
        steps >> 62 || steps % *row)
        return false;
    *slice = (size_t)steps;
    wide start = (wide)origin[2] * *slice + (wide)origin[1] * *row + origin[0];
    *at = (size_t)start;
    return !((start + (wide)region[2] * *slice + least) >> 62) && !(origin[0] >> 62) &&
           !(origin[1] >> 31) && !(origin[2] >> 31) && !(region[2] >> 31);
}

/* Host memory is the side that has no memory object. */
static int put_copy(fl_layout *l, const fl_command *c, fl_direct_step *s) {
    const size_t *r = c->n + 6;
    unsigned char *from, *to;
    size_t from_at, to_at;
    fl_direct_copy made = {.region = {r[0], r[1], r[2]}};
    if (!measure(c->n, r, c->n + 9, &made.from_row, &made.from_slice, &from_at) ||
        !measure(c->n + 3, r, c->n + 11, &made.to_row, &made.to_slice, &to_at))
        return FL_DIRECT_RANGE;
    size_t from_extent = (r[2] - 1) * made.from_slice + (r[1] - 1) * made.from_row + r[0];
    size_t to_extent = (r[2] - 1) * made.to_slice + (r[1] - 1) * made.to_row + r[0];
    int reason = side(l, c->source, c->host, c->target ? 0 : NO_READ, from_at, from_extent, &from);
    if (!reason)
        reason = side(l, c->target, c->host, c->source ? 0 : NO_WRITE, to_at, to_extent, &to);
    if (!reason && from < to + to_extent && to < from + from_extent)
        reason = FL_DIRECT_RANGE;   /* they overlap: the driver knows how far that is allowed */
    fl_direct_copy *kept = take(l, sizeof *kept, sizeof(void *));
    if (!reason && kept) {
        made.from = from;
        made.to = to;
        *kept = made;
        s->copy = kept;
        s->kind = FL_STEP_COPY;
    }
    return reason;
}

static int put_fill(fl_layout *l, const fl_command *c, fl_direct_step *s) {
    bool svm = c->op == FL_SVM_FILL;
    size_t size = c->n[6], offset = svm ? (size_t)c->target : c->n[3];
    unsigned char *to;
    if (!c->pattern || !c->pattern_size || c->pattern_size > FL_ALIGNMENT || !size ||
        size % c->pattern_size || offset % c->pattern_size)
        return FL_DIRECT_RANGE;
    int reason = side(l, svm ? NULL : c->target, c->target, 0, svm ? 0 : offset, size, &to);
    fl_direct_fill *kept = take(l, sizeof *kept, sizeof(void *));
    unsigned char *pattern = take(l, c->pattern_size, 1);
    if (!reason && kept) {
        memcpy(pattern, c->pattern, c->pattern_size);
        *kept = (fl_direct_fill){to, pattern, c->pattern_size, size};
        s->fill = kept;
        s->kind = FL_STEP_FILL;
    }
    return reason;
}

static int put_svm_copy(fl_layout *l, const fl_command *c, fl_direct_step *s) {
    const unsigned char *from = c->source;
    unsigned char *to = c->target;
    fl_direct_copy *kept = take(l, sizeof *kept, sizeof(void *));
    size_t size = c->n[6];
    if (!from || !to || !size || (from < to + size && to < from + size))
        return FL_DIRECT_RANGE;
    if (kept) {
        *kept = (fl_direct_copy){.from = from, .to = to, .region = {size, 1, 1}};
        s->copy = kept;
        s->kind = FL_STEP_COPY;
    }
    return FL_DIRECT_FINE;
}

int fl_put_command(fl_layout *l, const fl_command *c, fl_direct_step *s) {
    switch ((enum fl_op)c->op) {
    case FL_KERNEL:
        return put_launch(l, c, s);
    case FL_COPY:
    case FL_READ:
    case FL_WRITE:
    case FL_COPY_RECT:
    case FL_READ_RECT:
    case FL_WRITE_RECT:
        return put_copy(l, c, s);
    case FL_FILL:
    case FL_SVM_FILL:
        return put_fill(l, c, s);
    case FL_SVM_COPY:
        return put_svm_copy(l, c, s);
    case FL_MARKER:
    case FL_BARRIER:
    case FL_HINT:
        return FL_DIRECT_FINE;
    default:
        return FL_DIRECT_IMAGE;
    }
}
