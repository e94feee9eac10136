/* Appends of launches to command-buffers that are graphs of CUDA or HIP.
 *
 * Python appends the first launch of a kernel with some sizes. What it planned stays with the
 * command-buffer (fl_gpu_launch). C appends the launches after that with the same sizes: it writes
 * their arguments into the plan, and the driver copies them. */
#include "gpu_launches.h"

#include "../../../icd/native/chains.h"

#include <stdlib.h>
#include <string.h>

typedef ur_exp_kernel_arg_properties_t row;
typedef int32_t add_node(uintptr_t *node, uintptr_t graph, const uintptr_t *after, size_t count,
                         const void *parameters);

enum { MOST_AFTER = 64, MOST_ARGUMENTS = 64 };

/* CUgraphEdgeData: to begin when all groups of the node before have let it. */
typedef struct edge_data {
    uint8_t from_port, to_port, type, reserved[5];
} edge_data;
typedef int32_t change_edge(uintptr_t graph, const uintptr_t *from, const uintptr_t *to,
                            const edge_data *data, size_t count);

void fl_end_gpu_commands(fl_gpu_graph *g) {
    for (fl_gpu_command *c = g->made; c; c = c->next) {
        fl_end_made(c->handle);
        c->handle = 0;
    }
}

void fl_free_gpu_graph(fl_gpu_graph *g) {
    fl_end_gpu_commands(g);
    for (fl_gpu_command *c = g->made, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    if (g->chains)
        free(g->chains->commands);
    free(g->chains);
    free(g->steps);
    free(g->nodes);
}

static bool has_room(fl_gpu_graph *g) {
    if (g->count < g->room)
        return true;
    uint32_t room = 2 * g->room + 64;
    uintptr_t *nodes = realloc(g->nodes, room * sizeof *nodes);
    g->nodes = nodes ? nodes : g->nodes;
    fl_gpu_step *steps = nodes ? realloc(g->steps, room * sizeof *steps) : NULL;
    g->steps = steps ? steps : g->steps;
    g->room = steps ? room : g->room;
    return steps;
}

bool fl_plan_gpu_node(fl_gpu_graph *g, const uint32_t *before, uint32_t count) {
    if (!g->chains && !(g->chains = calloc(1, sizeof *g->chains)))
        return false;
    g->chains->most = FL_CHAINS, g->chains->devices = 1;
    g->planned_count = fl_plan_chain(g->chains, before, count, false, 0, g->planned);
    return g->planned_count != FL_NO_CHAINS && has_room(g);
}

bool fl_add_gpu_node(fl_gpu_graph *g, uintptr_t node, int32_t waits) {
    if (!has_room(g))
        return false;
    for (uint32_t i = 0; i < g->planned_count; i++)
        g->steps[g->planned[i]].followers++;
    int32_t only = g->planned_count == 1 ? (int32_t)g->planned[0] : -1;
    g->steps[g->count] = (fl_gpu_step){waits, only, 0, false};
    g->nodes[g->count++] = node;
    fl_add_to_chain(g->chains);
    return true;
}

uint32_t fl_count_gpu_chains(const fl_gpu_graph *g) {
    return g->chains ? fl_used_chains(g->chains) : 0;
}

/* --- early starts --- */

static bool may_start_early(const fl_gpu_graph *g, const fl_gpu_step *s) {
    const fl_gpu_step *before = s->only >= 0 ? &g->steps[s->only] : NULL;
    return before && s->waits && before->waits && before->followers == 1;
}

/* One edge at a time: drivers take the data of the first edge for all. */
static int32_t add_edge(fl_gpu_graph *g, uint32_t number, bool early) {
    static const edge_data kinds[] = {{0}, {.from_port = 1, .type = 1}};
    const uintptr_t *from = &g->nodes[g->steps[number].only], *to = &g->nodes[number];
    change_edge *add = (change_edge *)fl_gpu_slot(g->device, g->add_edge);
    int32_t code = add(g->graph, from, to, &kinds[early], 1);
    g->steps[number].is_late &= code != 0;
    return code;
}

static int32_t remove_edge(const fl_gpu_graph *g, uint32_t number, bool early) {
    static const edge_data kinds[] = {{0}, {.from_port = 1, .type = 1}};
    const uintptr_t *from = &g->nodes[g->steps[number].only], *to = &g->nodes[number];
    change_edge *remove = (change_edge *)fl_gpu_slot(g->device, g->remove_edge);
    return remove(g->graph, from, to, &kinds[early], 1);
}

static int32_t change(fl_gpu_graph *g, uint32_t number, bool early) {
    if (!g->steps[number].is_late && remove_edge(g, number, !early))
        return FL_GPU_REFUSED;
    if (!add_edge(g, number, early))
        return 1;
    return add_edge(g, number, !early) ? FL_GPU_LOST : FL_GPU_REFUSED;
}

int32_t fl_let_start_early(fl_gpu_graph *g, bool early) {
    fl_gpu_before before;
    int32_t count = 0, found = 1;
    if (!fl_enter_gpu(g->device, &before))
        return FL_GPU_REFUSED;
    for (uint32_t i = 0; i < g->count && found > 0; i++)
        if (may_start_early(g, &g->steps[i])) {
            found = change(g, i, early);
            count += found > 0;
        }
    for (uint32_t i = 0; found == FL_GPU_REFUSED && count; i++)   /* all become as they were */
        if (may_start_early(g, &g->steps[i])) {
            found = change(g, i, !early) > 0 ? found : FL_GPU_LOST;
            count--;
        }
    fl_leave_gpu(g->device, before);
    return found > 0 ? count : found;
}

int32_t fl_add_late_edges(fl_gpu_graph *g) {
    fl_gpu_before before;
    int32_t code = 0;
    bool is_current = false;
    for (uint32_t i = 0; i < g->count && !code; i++)
        if (g->steps[i].is_late) {
            is_current = is_current || fl_enter_gpu(g->device, &before);
            code = is_current ? add_edge(g, i, false) : FL_GPU_REFUSED;
        }
    if (is_current)
        fl_leave_gpu(g->device, before);
    return code;
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

/* --- commands that can be updated --- */

static size_t rounded(size_t bytes) { return (bytes + 15) / 16 * 16; }

static size_t size_of(const fl_gpu_launch *l, uint32_t argument) {
    return l->sizes[argument] ? l->sizes[argument] : sizeof(uintptr_t);
}

/* A command with the driver's parameters and arguments of its own, in one piece. What comes behind
 * the arguments is the plan's. */
static fl_gpu_command *new_command(const fl_gpu_graph *g, const fl_gpu_launch *l) {
    size_t parameters = rounded(sizeof(fl_gpu_command)),
           values = parameters + rounded(g->parameter_bytes),
           bytes = values + rounded(l->value_count * sizeof(void *)), size = bytes;
    for (uint32_t i = 0; i < l->count; i++)
        size += rounded(size_of(l, i));
    char *piece = malloc(size);
    if (!piece)
        return NULL;
    fl_gpu_command *c = (fl_gpu_command *)piece;
    void **own = (void **)(piece + values);
    *c = (fl_gpu_command){.graph = g, .changed = true, .launch = *l};
    c->launch.values = own;
    c->launch.parameters = memcpy(piece + parameters, l->parameters, g->parameter_bytes);
    memcpy(piece + parameters + g->values_at, &own, sizeof own);
    memcpy(own, l->values, l->value_count * sizeof *own);
    for (uint32_t i = 0; i < l->count; i++) {
        own[i] = memcpy(piece + bytes, l->values[i], size_of(l, i));
        bytes += rounded(size_of(l, i));
    }
    return c;
}

/* The node is there. */
static void make_handle(uint32_t adapter, fl_gpu_graph *g, fl_gpu_command *c, uintptr_t handle) {
    const uintptr_t words[] = {0, (uintptr_t)c, (uintptr_t)g, 0};
    c->number = g->count - 1;
    c->node = g->nodes[c->number];
    c->handle = handle;
    c->next = g->made;
    g->made = c;
    fl_begin_made(handle, adapter, kind_ur_exp_command_buffer_command_handle_t, words);
}

/* --- the order --- */

/* Writes the commands that the next one comes after. False: Python explains what is wrong. */
static bool read_order(const fl_gpu_graph *g, const fl_append *one, uint32_t *before,
                       uint32_t *count) {
    *count = 0;
    if (!one->points != !one->point_count || one->point_count > MOST_AFTER)
        return false;
    if (g->in_order && g->count)
        before[(*count)++] = g->count - 1;
    for (uint32_t i = 0; i < one->point_count && !g->in_order; i++) {
        uint32_t point = one->points[i];
        if (!point || point > g->count)
            return false;
        before[(*count)++] = point - 1;
    }
    return true;
}

/* --- the driver --- */

/* Whether it may start early after the only command that it comes after. Others may come to come
 * after that, too. */
static bool is_late(const fl_gpu_graph *g, const fl_gpu_launch *l) {
    return g->add_edge && l->waits && g->planned_count == 1 && g->steps[g->planned[0]].waits;
}

static bool add(fl_gpu_graph *g, const fl_gpu_launch *l) {
    fl_gpu_before before;
    bool late = is_late(g, l);
    uintptr_t node = 0, after[FL_CHAINS];
    for (uint32_t i = 0; i < g->planned_count; i++)
        after[i] = g->nodes[g->planned[i]];
    if (!fl_enter_gpu(g->device, &before))
        return false;
    add_node *add_it = (add_node *)fl_gpu_slot(g->device, g->add);
    bool added = !add_it(&node, g->graph, after, late ? 0 : g->planned_count, l->parameters);
    fl_leave_gpu(g->device, before);
    if (added) {
        fl_add_gpu_node(g, node, l->waits);
        g->steps[g->count - 1].is_late = late;
        g->appended++;
    }
    return added;
}

static bool add_command(uint32_t adapter, fl_gpu_graph *g, const fl_gpu_launch *l,
                        uintptr_t *command) {
    uintptr_t handle = g->is_updatable ? fl_reserve(adapter) : 0;
    fl_gpu_command *c = handle ? new_command(g, l) : NULL;
    if (!c || !add(g, l)) {
        free(c);
        fl_give_back(adapter, handle);
        return false;
    }
    make_handle(adapter, g, c, handle);
    *command = handle;
    return true;
}

static uint32_t append(uint32_t adapter, fl_gpu_graph *g, uint64_t number, const fl_append *one) {
    uint32_t before[MOST_AFTER], count;
    const fl_gpu_launch *l = g->is_open ? find_launch(g, number, one) : NULL;
    if (!l || (l->count && !one->rows) || !takes(l, one->rows) ||
        !read_order(g, one, before, &count) || !fl_plan_gpu_node(g, before, count))
        return 0;
    write_arguments(l, one->rows);
    bool added = one->command ? add_command(adapter, g, l, one->command) : add(g, l);
    return added ? g->count : 0;
}

uint32_t fl_append_to_gpu_graph(uint32_t adapter, fl_gpu_graph *g, uint64_t number,
                                const fl_append *one) {
    if (!fl_try_lock(&g->lock))
        return 0;
    uint32_t point = append(adapter, g, number, one);
    fl_leave_lock(&g->lock);
    return point;
}
