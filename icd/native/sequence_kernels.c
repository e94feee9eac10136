/* The kernels of a sequence (fl_sequence), which the engine `replay` walks.
 *
 * A launch has a copied kernel and a list of arguments. A sequence has one kernel of its own
 * for each copy. Before a launch it sets those arguments that differ from what the launch before it
 * left, as a program in C does. That is faster than a kernel for every launch, which drivers meet
 * with cold caches each time. What differs is worked out once, and after an update again for the
 * two launches that it touches. The sequence begins over and over, so the launch before a
 * kernel's first is its last. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

_Static_assert(sizeof(fl_launch) == 64, "a line of the caches");

static const fl_command *launch(const fl_sequence *p, uint32_t step) {
    uint32_t command = p->steps[step].command;
    return command != NONE && p->commands[command].op == FL_KERNEL ? &p->commands[command] : NULL;
}

static void put(fl_set *set, cl_uint index, const fl_argument *a) {
    *set = (fl_set){
        .value = a->value, .size = (cl_uint)a->size, .index = index, .svm = a->kind == FL_ARG_SVM};
    set->inside = !set->svm && !a->cell && a->value && a->size <= sizeof set->bytes;
    if (set->inside)
        memcpy(set->bytes, a->value, a->size);
}

uint32_t fl_differences(const fl_arguments *before, const fl_arguments *after, fl_set *sets) {
    uint32_t count = 0;
    for (uint32_t i = 0; before != after && i < after->count; i++) {
        const fl_argument *a = &after->list[i];
        if (a->kind == FL_ARG_UNSEEN || (before && fl_same_argument(&before->list[i], a)))
            continue;
        if (sets)
            put(&sets[count], i, a);
        count++;
    }
    return count;
}

static bool copy_kernels(const fl_sequence *p, fl_prepared *made) {
    bool with_arguments;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fl_command *c = launch(p, i);
        if (c && fl_keep_add(&made->copied, c->kernel, FL_KEEP_KERNEL, false) < 0)
            return false;
    }
    for (uint32_t i = 0; i < p->other_count; i++)
        if (fl_keep_add(&made->copied, p->others[i], FL_KEEP_KERNEL, false) < 0)
            return false;
    made->kernels = calloc(made->copied.count + 1, sizeof *made->kernels);
    for (uint32_t i = 0; made->kernels && i < made->copied.count; i++)
        if (!(made->kernels[i] = fl_copy_kernel(made->copied.entries[i].object, &with_arguments)))
            return false;
    return made->kernels != NULL;
}

/* Which step launches which kernel, and which comes next for it. */
static void link_steps(const fl_sequence *p, fl_prepared *made, uint32_t *first) {
    for (uint32_t k = 0; k < made->copied.count; k++)
        made->last_step[k] = first[k] = NONE;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fl_command *c = launch(p, i);
        uint32_t kernel = made->kernel_of[i] = c ? fl_keep_index(&made->copied, c->kernel) : NONE;
        if (!c)
            continue;
        if (first[kernel] == NONE)
            first[kernel] = i;
        else
            made->next[made->last_step[kernel]] = i;
        made->last_step[kernel] = i;
        made->next[i] = first[kernel];
    }
    for (uint32_t i = 0; i < p->step_count; i++)
        if (made->kernel_of[i] != NONE)
            made->prior[made->next[i]] = i;
}

/* What has to be set between two launches of a kernel; `sets` NULL only counts. */
static uint32_t between(const fl_sequence *p, uint32_t before, uint32_t after, fl_set *sets) {
    return fl_differences(launch(p, before)->arguments, launch(p, after)->arguments, sets);
}

/* Room for the sets of every step: what they are, or in a sequence that will be updated, what they
 * can come to be. */
static bool make_room(const fl_sequence *p, fl_prepared *made) {
    fl_launch *launches = made->launches;
    memset(launches, 0, ((size_t)p->step_count + 1) * sizeof *launches);
    for (uint32_t i = 0; i < p->step_count; i++)
        if (launch(p, i)) {
            uint32_t after = made->next[i];
            launches[after + 1].first_set =
                p->updatable ? launch(p, after)->arguments->count : between(p, i, after, NULL);
        }
    for (uint32_t i = 0; i < p->step_count; i++)
        launches[i + 1].first_set += launches[i].first_set;
    made->sets = calloc(launches[p->step_count].first_set + 1, sizeof *made->sets);
    return made->sets != NULL;
}

/* What a step sets, and what it launches. */
static void describe(const fl_sequence *p, fl_prepared *made, uint32_t step) {
    const fl_command *c = launch(p, step);
    fl_launch *l = &made->launches[step];
    l->kernel = made->kernels[made->kernel_of[step]];
    l->set_count = between(p, made->prior[step], step, made->sets + l->first_set);
    l->work_dim = c->work_dim;
    l->has_offset = c->has_offset != 0;
    l->has_local = c->has_local != 0;
    memcpy(l->global, c->n + 3, sizeof l->global);
    memcpy(l->local, c->n + 6, sizeof l->local);
}

static void work_out(const fl_sequence *p, fl_prepared *made) {
    for (uint32_t i = 0; i < p->step_count; i++)
        if (launch(p, i))
            describe(p, made, i);
}

static bool lay_out(const fl_sequence *p, fl_prepared *made) {
    uint32_t *first = calloc(made->copied.count + 1, sizeof *first);
    if (first)
        link_steps(p, made, first);
    free(first);
    free(made->sets);
    made->sets = NULL;
    if (!first || !make_room(p, made))
        return false;
    work_out(p, made);
    made->ready = false;
    return true;
}

static bool allocate(const fl_sequence *p, fl_prepared *made) {
    size_t steps = (size_t)p->step_count + 1;
    made->last_step = calloc(made->copied.count + 1, sizeof *made->last_step);
    made->kernel_of = calloc(steps, sizeof *made->kernel_of);
    made->next = calloc(steps, sizeof *made->next);
    made->prior = calloc(steps, sizeof *made->prior);
    made->launches = aligned_alloc(sizeof *made->launches, steps * sizeof *made->launches);
    return made->last_step && made->kernel_of && made->next && made->prior && made->launches;
}

void fl_release(fl_sequence *p) {
    fl_prepared *made = p->prepared;
    if (!made)
        return;
    for (uint32_t i = 0; made->kernels && i < made->copied.count; i++)
        if (made->kernels[i])
            CALL(fl_table_of(made->kernels[i]), clReleaseKernel)(made->kernels[i]);
    fl_keep_release(&made->copied);
    free(made->kernels);
    free(made->last_step);
    free(made->kernel_of);
    free(made->next);
    free(made->prior);
    free(made->sets);
    free(made->launches);
    free(made);
    p->prepared = NULL;
}

cl_int fl_prepare(fl_sequence *p) {
    if (p->prepared)
        return CL_SUCCESS;
    p->prepared = calloc(1, sizeof *p->prepared);
    if (p->prepared && copy_kernels(p, p->prepared) && allocate(p, p->prepared) &&
        lay_out(p, p->prepared))
        return CL_SUCCESS;
    fl_release(p);
    return CL_OUT_OF_HOST_MEMORY;
}

int fl_update(fl_sequence *p, uint32_t step, int relaunched) {
    fl_prepared *made = p->prepared;
    if (!made)
        return CL_SUCCESS;
    if (relaunched) {
        bool laid_out = lay_out(p, made);
        if (!laid_out)
            fl_release(p);   /* the next replay prepares it anew, or fails */
        return laid_out ? CL_SUCCESS : CL_OUT_OF_HOST_MEMORY;
    }
    uint32_t kernel = made->kernel_of[step], after = made->next[step];
    if (kernel == NONE)
        return CL_SUCCESS;   /* of a transfer nothing is prepared */
    describe(p, made, step);
    describe(p, made, after);
    if (made->last_step[kernel] == step)
        made->ready = false;
    return CL_SUCCESS;
}

int fl_update_sequence(void *sequence, uint32_t command, int relaunched) {
    fl_sequence *p = sequence;
    return p->step_of ? fl_update(p, p->step_of[command], relaunched) : CL_INVALID_OPERATION;
}
