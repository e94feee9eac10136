/* Launches are appended to command-buffers, and updated, by the thousand. For each of them Python
 * takes longer than the adapter. So this calls the adapter for many, and finds what differs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "launches.cdef.h"
#include "ur_launches.h"

typedef ur_exp_kernel_arg_properties_t argument;

/* The first element of a list is its length. Returns that, and moves to the elements. */
#define TAKE(list) ((list) ? *(list)++ : 0)

int32_t fl_append_launches(fl_new_launches *l) {
    fn_urCommandBufferAppendKernelLaunchWithArgsExp *append =
        (fn_urCommandBufferAppendKernelLaunchWithArgsExp *)l->append;
    argument *arguments = l->arguments;
    uint32_t *after = l->after;
    uintptr_t *others = l->alternatives;
    for (uint32_t i = 0; i < l->count; i++, l->number++) {
        const fl_range *r = &l->ranges[i];
        uint32_t count = l->argument_counts[i], waits = TAKE(after);
        uint32_t alternatives = (uint32_t)TAKE(others);
        for (uint32_t j = 0; j < count; j++)
            arguments[j].index = j;
        for (uint32_t j = 0; j < waits; j++)
            after[j] = l->points[after[j]];
        int32_t code = (int32_t)append(
            (ur_exp_command_buffer_handle_t)l->buffer, (ur_kernel_handle_t)l->kernels[i],
            r->dimensions, r->has_offset ? r->offset : NULL, r->size,
            r->has_local ? r->local : NULL, count, count ? arguments : NULL, alternatives,
            alternatives ? (ur_kernel_handle_t *)others : NULL, waits, waits ? after : NULL, 0,
            NULL, &l->points[l->number], NULL,
            l->handles ? (ur_exp_command_buffer_command_handle_t *)&l->handles[l->number] : NULL);
        if (code)
            return code;
        arguments += count;
        after = after ? after + waits : NULL;
        others = others ? others + alternatives : NULL;
    }
    return 0;
}

/* --- updates --- */

typedef ur_exp_command_buffer_update_kernel_launch_desc_t update;
typedef ur_exp_command_buffer_update_value_arg_desc_t new_value;
typedef ur_exp_command_buffer_update_memobj_arg_desc_t new_memory;
typedef ur_exp_command_buffer_update_pointer_arg_desc_t new_pointer;

enum { DIMENSIONS = 3 };
#define TYPE(name) UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_##name##_DESC

_Static_assert(sizeof(update) + 3 * DIMENSIONS * sizeof(size_t) <= sizeof(fl_changed_launch) &&
                   sizeof(new_value) <= sizeof(argument),
               "the memory is as large as the changes");

static bool are_alike(const argument *a, const argument *b) {
    if (a->type != b->type || a->size != b->size)
        return false;
    return a->type == UR_EXP_KERNEL_ARG_TYPE_VALUE
               ? !memcmp(a->value.value, b->value.value, a->size)
               : !memcmp(&a->value, &b->value, sizeof a->value);
}

/* Where the list of an argument's kind is in an update. */
enum { VALUES, MEMORIES, POINTERS, LISTS };
static unsigned list_of(const argument *a) {
    return a->type == UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ   ? MEMORIES
           : a->type == UR_EXP_KERNEL_ARG_TYPE_POINTER ? POINTERS
                                                       : VALUES;
}

/* Describes the arguments of one list that differ at `end`. Returns how many they are. */
static uint32_t describe_list(unsigned list, const argument *old, const argument *new,
                              uint32_t count, char **end) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++) {
        const argument *a = &new[i];
        if (list_of(a) != list || (old && are_alike(&old[i], a)))
            continue;
        if (list == VALUES) {   /* local memory has no value */
            *(new_value *)*end = (new_value){TYPE(VALUE_ARG), NULL, i, a->size, NULL,
                                             a->value.value};
            *end += sizeof(new_value);
        } else if (list == MEMORIES) {
            *(new_memory *)*end =
                (new_memory){TYPE(MEMOBJ_ARG), NULL, i, NULL, a->value.memObjTuple.hMem};
            *end += sizeof(new_memory);
        } else {   /* SPEC: the address of the pointer */
            *(new_pointer *)*end = (new_pointer){TYPE(POINTER_ARG), NULL, i, NULL,
                                                 &a->value.pointer};
            *end += sizeof(new_pointer);
        }
        found++;
    }
    return found;
}

static size_t *describe_size(const size_t *numbers, uint32_t dimensions, bool is_given,
                             char **end) {
    size_t *at = (size_t *)*end;
    if (!is_given)
        return NULL;
    memcpy(at, numbers, dimensions * sizeof *at);
    *end += dimensions * sizeof *at;
    return at;
}

static bool has_new_sampler(const argument *old, const argument *new, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (new[i].type == UR_EXP_KERNEL_ARG_TYPE_SAMPLER && !(old && are_alike(&old[i], &new[i])))
            return true;
    return false;
}

/* Describes a launch. Returns whether it differs. */
static bool describe(const fl_changed_launch *c, const argument *old, const argument *new,
                     update *u, char **end) {
    const fl_range *before = &c->old_range, *r = &c->range;
    void *lists[LISTS];
    uint32_t counts[LISTS];
    for (unsigned list = 0; list < LISTS; list++) {
        void *begin = *end;
        counts[list] = describe_list(list, old, new, (uint32_t)c->argument_count, end);
        lists[list] = counts[list] ? begin : NULL;
    }
    *u = (update){.stype = TYPE(KERNEL_LAUNCH),
                  .hCommand = (ur_exp_command_buffer_command_handle_t)c->command,
                  .hNewKernel = (ur_kernel_handle_t)c->kernel,
                  .newWorkDim = r->dimensions,
                  .numNewValueArgs = counts[VALUES],
                  .pNewValueArgList = lists[VALUES],
                  .numNewMemObjArgs = counts[MEMORIES],
                  .pNewMemObjArgList = lists[MEMORIES],
                  .numNewPointerArgs = counts[POINTERS],
                  .pNewPointerArgList = lists[POINTERS]};
    /* an adapter that is given another kernel, or another dimension, takes nothing from the old
     * one */
    bool has_sizes = c->kernel || memcmp(before, r, sizeof *r);
    if (has_sizes) {
        bool has_offset = before->has_offset || r->has_offset;
        u->pNewGlobalWorkOffset = describe_size(r->offset, r->dimensions, has_offset, end);
        u->pNewGlobalWorkSize = describe_size(r->size, r->dimensions, true, end);
        u->pNewLocalWorkSize = describe_size(r->local, r->dimensions, r->has_local, end);
    }
    return has_sizes || counts[VALUES] || counts[MEMORIES] || counts[POINTERS];
}

int32_t fl_describe_changes(uint32_t count, const void *changes, void *memory) {
    update *updates = memory;
    char *end = (char *)(updates + count);
    int32_t found = 0;
    for (const fl_changed_launch *c = changes; count; count--) {
        const argument *first = (const argument *)(c + 1), *old = c->kernel ? NULL : first,
                       *new = old ? first + c->argument_count : first;
        if (has_new_sampler(old, new, (uint32_t)c->argument_count))
            return FL_NEW_SAMPLER;
        found += describe(c, old, new, &updates[found], &end);
        c = (const fl_changed_launch *)(new + c->argument_count);
    }
    return found;
}
