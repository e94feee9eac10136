/* Lists of arguments: what one launch has. They are made, compared, changed and released here. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* A reference to what an argument is, if it is an object. */
void fl_retain_object(uint8_t kind, void *object) {
    if (kind == FL_ARG_MEM && object)
        CALL(fl_table_of(object), clRetainMemObject)(object);
    if (kind == FL_ARG_SAMPLER && object)
        CALL(fl_table_of(object), clRetainSampler)(object);
}

void fl_release_object(uint8_t kind, void *object) {
    if (kind == FL_ARG_MEM && object)
        CALL(fl_table_of(object), clReleaseMemObject)(object);
    if (kind == FL_ARG_SAMPLER && object)
        CALL(fl_table_of(object), clReleaseSampler)(object);
}

/* The memory object or the sampler that an argument of a list is, NULL for what is neither, or is a
 * cell's. */
static void *object_in(const fl_argument *a) {
    void *object = NULL;
    if (!a->cell && (a->kind == FL_ARG_MEM || a->kind == FL_ARG_SAMPLER) && a->value)
        memcpy(&object, a->value, sizeof object);
    return object;
}

void fl_release_arguments(fl_arguments *list) {
    if (!list || atomic_fetch_sub(&list->users, 1) != 1)
        return;
    for (uint32_t i = 0; i < list->count; i++) {
        fl_release_cell(list->list[i].cell);
        if (list->holds)
            fl_release_object(list->list[i].kind, object_in(&list->list[i]));
    }
    free(list);
}

bool fl_same_argument(const fl_argument *a, const fl_argument *b) {
    if (a->kind != b->kind || a->size != b->size || a->cell != b->cell)
        return false;
    if (a->cell)
        return true;
    if (a->kind == FL_ARG_SVM || !a->value || !b->value)
        return a->value == b->value;
    return memcmp(a->value, b->value, a->size) == 0;
}

bool fl_same_list(const fl_arguments *a, const fl_arguments *b) {
    for (uint32_t i = 0; i < a->count; i++)
        if (!fl_same_argument(&a->list[i], &b->list[i]))
            return false;
    return true;
}

bool fl_is_same_launch(const fl_command *a, const fl_command *b) {
    uint32_t count = fl_argument_count(a->arguments);
    bool same = a->op == FL_KERNEL && b->op == FL_KERNEL && a->kernel == b->kernel &&
                a->work_dim == b->work_dim && a->has_offset == b->has_offset &&
                a->has_local == b->has_local && !memcmp(a->n, b->n, sizeof a->n) &&
                fl_argument_count(b->arguments) == count;
    for (uint32_t i = 0; same && i < count; i++)   /* what was set before a block is not known */
        same = a->arguments->list[i].kind != FL_ARG_UNSEEN &&
               fl_same_argument(&a->arguments->list[i], &b->arguments->list[i]);
    return same;
}

/* Whether a list has its own copy of a value: a pointer is the value itself, and a Parameter's
 * value is in its cell. */
static bool is_copied(const fl_argument *a) {
    return a->kind != FL_ARG_SVM && a->value && !a->cell;
}

/* A larger one stays too large for any device. */
uint32_t fl_size_in_list(size_t size) { return size < UINT32_MAX ? (uint32_t)size : UINT32_MAX; }

/* A list of arguments in one piece of memory: their values lie behind them. It holds no objects but
 * cells. */
fl_arguments *fl_new_list(const fl_argument *arguments, uint32_t count) {
    size_t bytes = 0, head = sizeof(fl_arguments) + count * sizeof *arguments;
    for (uint32_t i = 0; i < count; i++)
        bytes += is_copied(&arguments[i]) ? arguments[i].size : 0;
    fl_arguments *list = malloc(head + bytes);
    if (!list)
        return NULL;
    unsigned char *at = (unsigned char *)list + head;
    *list = (fl_arguments){
        .users = 1, .count = count, .hash = 14695981039346656037u}; /* FNV-1a over all values */
    for (uint32_t i = 0; i < count; i++) {
        const fl_argument *a = &arguments[i];
        bool copied = is_copied(a);
        list->list[i] = (fl_argument){a->kind, a->size,
                                      a->cell  ? a->cell->bytes
                                      : copied ? at
                                               : a->value,
                                      fl_retain_cell(a->cell)};
        const unsigned char *from = copied ? a->value : (const unsigned char *)&list->list[i].value;
        for (size_t k = 0; k < (copied ? a->size : sizeof a->value); k++)
            list->hash = (list->hash ^ from[k]) * 1099511628211u;
        if (copied) {
            memcpy(at, a->value, a->size);
            at += a->size;
        }
    }
    list->hash ^= list->hash >> 32;
    return list;
}

fl_arguments *fl_new_holding_list(const fl_argument *arguments, uint32_t count) {
    fl_arguments *list = fl_new_list(arguments, count);
    for (uint32_t i = 0; list && i < count; i++)
        fl_retain_object(list->list[i].kind, object_in(&list->list[i]));
    if (list)
        list->holds = true;
    return list;
}

fl_arguments *fl_change_arguments(const fl_arguments *base, uint32_t count,
                                  const fl_change *changes, uint32_t change_count) {
    fl_argument few[16] = {0}, *arguments = count <= 16 ? few : calloc(count, sizeof *arguments);
    if (!arguments)
        return NULL;
    if (base)
        memcpy(arguments, base->list, count * sizeof *arguments);
    for (uint32_t i = 0; i < change_count; i++)
        if (changes[i].index < count)
            arguments[changes[i].index] = (fl_argument){
                (uint8_t)changes[i].kind, fl_size_in_list(changes[i].size), changes[i].value, NULL};
    fl_arguments *list = fl_new_holding_list(arguments, count);
    if (arguments != few)
        free(arguments);
    return list;
}

/* Give a launch the cells of an array with a member for each argument; NULL leaves an argument as
 * it is. */
static int put_cells(fl_command *command, fl_cell *const *cells) {
    const fl_arguments *base = command->arguments;
    fl_argument *arguments = calloc(base->count, sizeof *arguments);
    if (!arguments)
        return CL_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < base->count; i++) {
        arguments[i] = base->list[i];
        if (cells[i])
            arguments[i].cell = cells[i];
    }
    fl_arguments *list = fl_new_holding_list(arguments, base->count);
    free(arguments);
    if (!list)
        return CL_OUT_OF_HOST_MEMORY;
    fl_release_arguments(command->arguments);
    command->arguments = list;
    return CL_SUCCESS;
}

int fl_bind_arguments(fl_command *command, fl_cell *const *cells, uint32_t cell_count) {
    const fl_arguments *base = command->arguments;
    uint32_t count = base ? base->count : 0, bound = 0;
    fl_cell **mine = calloc(count + 1, sizeof *mine);
    if (!mine)
        return CL_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const fl_cell *old = base->list[i].cell;
        for (uint32_t k = 0; old && k < cell_count; k++)
            if (cells[k] != old && cells[k]->id == old->id &&
                cells[k]->conversion == old->conversion && cells[k]->size == old->size) {
                mine[i] = cells[k];
                bound++;
            }
    }
    int code = bound ? put_cells(command, mine) : CL_SUCCESS;
    free(mine);
    return code;
}

int fl_put_cell(fl_command *command, uint32_t index, fl_cell *cell) {
    uint32_t count = fl_argument_count(command->arguments);
    if (index >= count || command->arguments->list[index].size != cell->size)
        return CL_INVALID_ARG_INDEX;
    fl_cell **cells = calloc(count, sizeof *cells);
    if (!cells)
        return CL_OUT_OF_HOST_MEMORY;
    cells[index] = cell;
    int code = put_cells(command, cells);
    free(cells);
    return code;
}

int fl_set_argument(fl_command *command, uint32_t index, uint32_t kind, size_t size,
                    const void *value) {
    fl_arguments *list = command->arguments;
    if (!list || index >= list->count)
        return CL_INVALID_ARG_INDEX;
    fl_argument *a = &list->list[index];
    bool in_place = list->holds && atomic_load(&list->users) == 1 && a->kind == kind &&
                    a->size == size && !a->cell;
    if (in_place && (kind == FL_ARG_SVM || (a->value && value))) {
        fl_retain_object((uint8_t)kind, object_in(&(fl_argument){
                                            (uint8_t)kind, fl_size_in_list(size), value, NULL}));
        fl_release_object(a->kind, object_in(a));
        if (kind == FL_ARG_SVM)
            a->value = value;
        else
            memcpy((void *)a->value, value, size);   /* it lies behind the list */
        return CL_SUCCESS;
    }
    fl_arguments *changed =
        fl_change_arguments(list, list->count, &(fl_change){index, kind, size, value}, 1);
    if (!changed)
        return CL_OUT_OF_HOST_MEMORY;
    command->arguments = changed;
    fl_release_arguments(list);
    return CL_SUCCESS;
}

int fl_get_argument(const fl_arguments *list, uint32_t index, fl_change *argument) {
    if (!list || index >= list->count)
        return CL_INVALID_ARG_INDEX;
    *argument =
        (fl_change){index, list->list[index].kind, list->list[index].size, list->list[index].value};
    return CL_SUCCESS;
}

size_t fl_pack_arguments(const fl_arguments *list, unsigned char *to, size_t room,
                         uintptr_t *memory, uint32_t *count) {
    size_t need = 0, most = *count;
    *count = 0;
    for (uint32_t i = 0; list && i < list->count; i++) {
        const fl_argument *a = &list->list[i];
        bool has_bytes = a->value && a->kind != FL_ARG_SVM;
        uint32_t head[] = {a->kind, a->size * has_bytes};
        const void *cell = a->cell ? a->value : NULL;
        bool is_memory = a->kind == FL_ARG_MEM && has_bytes;
        if (is_memory && *count < most)
            memcpy(&memory[*count], a->value, sizeof *memory);
        *count += is_memory;
        need += sizeof head + sizeof cell + head[1];
        if (need > room)
            continue;
        memcpy(to, head, sizeof head);
        memcpy(to + sizeof head, &cell, sizeof cell);
        to += sizeof head + sizeof cell;
        if (is_memory)
            memset(to, 0, head[1]);
        else if (has_bytes)
            memcpy(to, a->value, head[1]);
        to += head[1];
    }
    return need;
}

uint64_t fl_parameter_of(const fl_arguments *list, uint32_t index) {
    return list && index < list->count && list->list[index].cell ? list->list[index].cell->id : 0;
}

bool fl_has_cell(const fl_arguments *list, const fl_cell *cell) {
    for (uint32_t i = 0; list && i < list->count; i++)
        if (list->list[i].cell == cell)
            return true;
    return false;
}

uint64_t fl_cell_bits(const fl_arguments *list) {
    uint64_t bits = 0;
    for (uint32_t i = 0; list && i < list->count && i < 64; i++)
        bits |= (uint64_t)(list->list[i].cell != NULL) << i;
    return bits;
}

uint32_t fl_argument_count(const fl_arguments *list) { return list ? list->count : 0; }
