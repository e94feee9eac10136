/* The kernels of a program.
 *
 * A launch has a copied kernel and a list of arguments. A program has one kernel of its own for each copy, and sets before a launch
 * those arguments that differ from what the launch before it left: that is what a C program does, and it is faster than a kernel
 * for every launch, which drivers meet with cold caches each time. What differs is worked out once. The program begins over and over,
 * so the launch before a kernel's first is its last. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

static const fl_command *launch(const fl_program *p, uint32_t step) {
    uint32_t command = p->steps[step].command;
    return command != NONE && p->commands[command].op == FL_KERNEL ? &p->commands[command] : NULL;
}

static void put(fl_set *set, cl_kernel kernel, cl_uint index, const fl_argument *a) {
    *set = (fl_set){.kernel = kernel, .value = a->value, .size = a->size, .index = index, .svm = a->kind == FL_ARG_SVM};
    if (set->svm || !a->value || a->size > sizeof set->bytes)
        return;
    memcpy(set->bytes, a->value, a->size);
    set->value = set->bytes;
}

/* Append what turns the arguments `before` (NULL: nothing is known) into `after`; with `sets` NULL only count. */
static uint32_t differences(cl_kernel kernel, const fl_arguments *before, const fl_arguments *after, fl_set *sets) {
    uint32_t count = 0;
    for (uint32_t i = 0; before != after && i < after->count; i++) {
        const fl_argument *a = &after->list[i];
        if (a->kind == FL_ARG_UNSEEN || (before && fl_same_argument(&before->list[i], a)))
            continue;
        if (sets)
            put(&sets[count], kernel, i, a);
        count++;
    }
    return count;
}

static bool copy_kernels(const fl_program *p, fl_prepared *made) {
    bool with_arguments;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fl_command *c = launch(p, i);
        if (c && fl_keep_add(&made->copied, c->kernel, FL_KEEP_KERNEL, false) < 0)
            return false;
    }
    made->kernels = calloc(made->copied.count + 1, sizeof *made->kernels);
    made->kernel_of = calloc(p->step_count + 1, sizeof *made->kernel_of);
    if (!made->kernels || !made->kernel_of)
        return false;
    for (uint32_t i = 0; i < made->copied.count; i++)
        if (!(made->kernels[i] = fl_copy_kernel(made->copied.entries[i].object, &with_arguments)))
            return false;
    for (uint32_t i = 0; i < p->step_count; i++)
        if (launch(p, i))
            made->kernel_of[i] = made->kernels[fl_keep_index(&made->copied, launch(p, i)->kernel)];
    return true;
}

/* Walk the steps with each kernel's arguments at hand; `sets` NULL only counts. The answer is how many sets there are. */
static uint32_t walk(const fl_program *p, fl_prepared *made, const fl_arguments **present, fl_set *sets) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fl_command *c = launch(p, i);
        made->first_set[i] = count;
        if (!c)
            continue;
        uint32_t kernel = fl_keep_index(&made->copied, c->kernel);
        count += differences(made->kernel_of[i], present[kernel], c->arguments, sets ? sets + count : NULL);
        present[kernel] = c->arguments;
    }
    made->first_set[p->step_count] = count;
    return count;
}

static bool work_out(const fl_program *p, fl_prepared *made) {
    const fl_arguments **present = calloc(made->copied.count + 1, sizeof *present);
    made->first_set = calloc(p->step_count + 1, sizeof *made->first_set);
    bool done = false;
    if (!present || !made->first_set)
        goto out;
    walk(p, made, present, NULL);   /* now `present` is how the last step leaves them */
    uint32_t initial = 0;
    for (uint32_t i = 0; i < made->copied.count; i++)
        initial += present[i]->count;
    uint32_t count = walk(p, made, present, NULL);
    made->initial = calloc(initial + 1, sizeof *made->initial);
    made->sets = calloc(count + 1, sizeof *made->sets);
    if (!made->initial || !made->sets)
        goto out;
    for (uint32_t i = 0; i < made->copied.count; i++)
        made->initial_count += differences(made->kernels[i], NULL, present[i], made->initial + made->initial_count);
    walk(p, made, present, made->sets);
    done = true;
out:
    free(present);
    return done;
}

void fl_release(fl_program *p) {
    fl_prepared *made = p->prepared;
    if (!made)
        return;
    for (uint32_t i = 0; made->kernels && i < made->copied.count; i++)
        if (made->kernels[i])
            CALL(fl_table_of(made->kernels[i]), clReleaseKernel)(made->kernels[i]);
    fl_keep_release(&made->copied);
    free(made->kernels);
    free(made->kernel_of);
    free(made->initial);
    free(made->sets);
    free(made->first_set);
    free(made);
    p->prepared = NULL;
}

cl_int fl_prepare(fl_program *p) {
    if (p->prepared)
        return CL_SUCCESS;
    p->prepared = calloc(1, sizeof *p->prepared);
    if (p->prepared && copy_kernels(p, p->prepared) && work_out(p, p->prepared))
        return CL_SUCCESS;
    fl_release(p);
    return CL_OUT_OF_HOST_MEMORY;
}
