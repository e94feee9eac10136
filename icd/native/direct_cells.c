/* Parameters in the engine `direct`: which places a script has for them, and what these hold in an
 * enqueue. */
#include "direct.h"

#include <stdlib.h>
#include <string.h>

const struct fl_direct_cell *fl_place_of_cell(const fl_direct_cells *cells, const fl_cell *cell) {
    for (uint32_t i = 0; i < cells->count; i++)
        if (cells->list[i].cell == cell)
            return &cells->list[i];
    return NULL;
}

static bool add(fl_direct_cells *cells, fl_cell *cell) {
    if (!FL_RESERVE(cells->list, cells->room, cells->count + 1))
        return false;
    size_t at = fl_up(cells->size, fl_alignment_of(cell->size));
    cells->list[cells->count++] = (struct fl_direct_cell){fl_retain_cell(cell), at};
    cells->size = at + cell->size;
    return true;
}

bool fl_list_cells(fl_direct_cells *cells, const fl_command *commands, uint32_t count) {
    *cells = (fl_direct_cells){0};
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; commands[i].arguments && k < commands[i].arguments->count; k++) {
            fl_cell *cell = commands[i].arguments->list[k].cell;
            if (cell && !fl_place_of_cell(cells, cell) && !add(cells, cell)) {
                fl_forget_cells(cells);
                return false;
            }
        }
    return true;
}

void fl_forget_cells(fl_direct_cells *cells) {
    for (uint32_t i = 0; i < cells->count; i++)
        fl_release_cell(cells->list[i].cell);
    free(cells->list);
    *cells = (fl_direct_cells){0};
}

int fl_value_of_cell(const fl_direct *d, fl_direct_memory *memory, const fl_cell *cell,
                     const void *bytes, unsigned char *to) {
    cl_mem object;
    int reason = FL_DIRECT_FINE;
    if (cell->conversion != FL_AS_MEMORY) {
        memcpy(to, bytes, cell->size);
        return reason;
    }
    memcpy(&object, bytes, sizeof object);
    const struct fl_place *place = fl_find_memory(d->device, memory, NULL, object, &reason);
    if (place)
        memcpy(to, &place->address, sizeof place->address);
    return reason;
}

/* --- series --- */

static bool fill(const fl_direct *d, fl_direct_memory *memory, const fl_value *v, uint32_t times,
                 struct fl_direct_column *column) {
    const unsigned char *from = v->series;
    size_t size = v->cell->size;
    if (__builtin_mul_overflow(size, (size_t)times, &size) ||
        !(column->values = malloc(size ? size : 1)))
        return false;
    column->size = v->cell->size;
    if (v->cell->conversion != FL_AS_MEMORY) {
        memcpy(column->values, from, size);
        return true;
    }
    for (size_t at = 0; at < size; at += column->size)
        if (fl_value_of_cell(d, memory, v->cell, from + at, column->values + at) != FL_DIRECT_FINE)
            return false;
    return true;
}

static void release(fl_direct_series *series) {
    for (uint32_t i = 0; i < series->column_count; i++)
        free(series->columns[i].values);
    free(series);
}

fl_direct_series *fl_new_series(const fl_direct *d, fl_direct_memory *memory,
                                const fl_value *values, uint32_t count, uint32_t times) {
    fl_direct_series *made = calloc(1, sizeof *made + count * sizeof *made->columns);
    if (!made)
        return NULL;
    made->times = times;
    for (const fl_value *v = values; v < values + count; v++) {
        const struct fl_direct_cell *place =
            v->series ? fl_place_of_cell(&d->cells, v->cell) : NULL;
        if (!place)
            continue;
        struct fl_direct_column *column = &made->columns[made->column_count++];
        column->at = place->at;
        if (!fill(d, memory, v, times, column)) {
            release(made);
            return NULL;
        }
    }
    return made;
}

void fl_free_series(fl_direct_series **list, bool all) {
    while (*list) {
        fl_direct_series *series = *list;
        if (!all && !atomic_load(&series->done)) {
            list = &series->next;
            continue;
        }
        *list = series->next;
        release(series);
    }
}
