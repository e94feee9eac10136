/* Appends of launches to command-buffers that are graphs of CUDA or HIP.
 *
 * Python appends the first launch of a kernel with some sizes. What it planned stays with the
 * command-buffer (fl_gpu_launch). C appends the launches after that with the same sizes: it writes
 * their arguments into the plan, and the driver copies them. */
#include "gpu_launches.h"

#include <stdlib.h>
#include <string.h>

typedef ur_exp_kernel_arg_properties_t row;
typedef int32_t add_node(uintptr_t *node, uintptr_t graph, const uintptr_t *after, size_t count,
                         const void *parameters);

enum { MOST_AFTER = 64, MOST_ARGUMENTS = 64 };

void fl_free_gpu_graph(fl_gpu_graph *g) { free(g->nodes); }

static bool has_room(fl_gpu_graph *g) {
    if (g->count < g->room)
        return true;
    uint32_t room = 2 * g->room + 64;
    uintptr_t *larger = realloc(g->nodes, room * sizeof *larger);
    if (larger)
        g->nodes = larger, g->room = room;
    return larger;
}

bool fl_add_gpu_node(fl_gpu_graph *g, uintptr_t node) {
    bool has = has_room(g);
    if (has)
        g->nodes[g->count++] = node;
    return has;
}

/* --- what Python has planned --- */

static bool same(uint32_t dim, const uint64_t *planned, const size_t *given) {
    for (uint32_t i = 0; i < dim; i++)
        if (planned[i] != (given ? given[i] : 0))
            return false;
    return true;
}

static const fl_gpu_launch *find_launch(const fl_gpu_graph *g, uint64_t number,
                                        const fl_append *one) {
    for (uint32_t i = 0; i < FL_GPU_LAUNCHES; i++) {
        const fl_gpu_launch *l = &g->launches[i];
        if (l->kernel == number && l->dim == one->dim && l->count == one->count &&
            same(l->dim, l->size, one->size) && same(l->dim, l->local, one->local) &&
            same(l->dim, l->offset, one->offset))
            return l;
    }
    return NULL;
}

/* Whether the rows are all arguments of the launch, each once, and of its kinds and sizes. */
static bool takes(const fl_gpu_launch *l, const row *rows) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const row *r = &rows[i];
        if (r->index >= l->count)
            return false;
        uint32_t size = l->sizes[r->index];
        bool fits = r->type == UR_EXP_KERNEL_ARG_TYPE_VALUE
                        ? size && r->size == size && r->value.value
                        : r->type == UR_EXP_KERNEL_ARG_TYPE_POINTER && !size;
        if (!fits)
            return false;
        found |= UINT64_C(1) << r->index;
    }
    return found == (l->count == MOST_ARGUMENTS ? UINT64_MAX : (UINT64_C(1) << l->count) - 1);
}

static void write_arguments(const fl_gpu_launch *l, const row *rows) {
    for (uint32_t i = 0; i < l->count; i++) {
        const row *r = &rows[i];
        uint32_t size = l->sizes[r->index];
        const void *from = size ? (const void *)r->value.value : &r->value.pointer;
        memcpy(l->values[r->index], from, size ? size : sizeof r->value.pointer);
    }
}

/* --- the order --- */

/* Writes the nodes that the next command comes after. False: Python explains what is wrong. */
static bool read_order(const fl_gpu_graph *g, const fl_append *one, uintptr_t *after,
                       uint32_t *count) {
    *count = 0;
    if (!one->points != !one->point_count || one->point_count > MOST_AFTER)
        return false;
    if (g->in_order && g->count)
        after[(*count)++] = g->nodes[g->count - 1];
    for (uint32_t i = 0; i < one->point_count && !g->in_order; i++) {
        uint32_t point = one->points[i], same = 0;
        if (!point || point > g->count)
            return false;
        while (same < *count && after[same] != g->nodes[point - 1])
            same++;
        if (same == *count)
            after[(*count)++] = g->nodes[point - 1];
    }
    return true;
}

/* --- the driver --- */

static bool add(fl_gpu_graph *g, const fl_gpu_launch *l, const uintptr_t *after, uint32_t count) {
    fl_gpu_before before;
    uintptr_t node = 0;
    if (!has_room(g) || !fl_enter_gpu(g->device, &before))
        return false;
    add_node *add_it = (add_node *)fl_gpu_slot(g->device, g->add);
    bool added = !add_it(&node, g->graph, after, count, l->parameters);
    fl_leave_gpu(g->device, before);
    if (added)
        g->nodes[g->count++] = node, g->appended++;
    return added;
}

static uint32_t append(fl_gpu_graph *g, uint64_t number, const fl_append *one) {
    uintptr_t after[MOST_AFTER];
    uint32_t count;
    const fl_gpu_launch *l = g->is_open ? find_launch(g, number, one) : NULL;
    if (!l || (l->count && !one->rows) || !takes(l, one->rows) ||
        !read_order(g, one, after, &count))
        return 0;
    write_arguments(l, one->rows);
    return add(g, l, after, count) ? g->count : 0;
}

uint32_t fl_append_to_gpu_graph(fl_gpu_graph *g, uint64_t number, const fl_append *one) {
    if (!fl_try_lock(&g->lock))
        return 0;
    uint32_t point = append(g, number, one);
    fl_leave_lock(&g->lock);
    return point;
}
