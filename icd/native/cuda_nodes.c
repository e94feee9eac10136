/* Commands as nodes of a CUDA Graph: launches, copies and fills of shared buffers, reads and writes
 * of host memory. What cannot be one has a reason. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_GROUPS_Y_Z = 65535,
    CHOSEN = 256,
    MOST_CHOSEN = 1024,
    MOST_LOCAL = 1 << 30 /* bytes */
};

static uint32_t wanted(const fl_cuda_function *f, const fl_command *c) {
    for (uint32_t i = 0; i < 3; i++)
        if (f->asks >> i & 1 &&
            f->offset[i] != (c->has_offset && i < c->work_dim ? (uint32_t)c->n[i] : 0))
            return 0;
    if ((fl_cell_bits(c->arguments) & f->loadable) != f->loads)
        return 0;
    return !(f->asks >> 3 & 1) || f->work_dim == c->work_dim;
}

/* Measured on an H100: after smaller launches the next one is better started when they end. */
enum { LEAST_TO_START = 8192 };

int fl_lets_start(const fl_command *c, uint64_t most) {
    uint64_t threads = 1;
    for (uint32_t i = 0; i < c->work_dim && threads <= most; i++)
        threads *= c->n[3 + i];
    return threads >= LEAST_TO_START && threads <= most;
}

static bool is_like(const fl_cuda_functions *fs, const fl_command *a, const fl_command *b,
                    bool updatable) {
    uint32_t place = fs->place_of[a->queue];
    uint64_t most = fs->devices[place]->early_threads;
    for (uint32_t i = 0; i < a->work_dim; i++)
        if ((a->has_offset ? a->n[i] : 0) != (b->has_offset ? b->n[i] : 0))
            return false;
    return a->kernel == b->kernel && a->work_dim == b->work_dim &&
           place == fs->place_of[b->queue] && fl_lets_start(a, most) == fl_lets_start(b, most) &&
           (!updatable || fl_cell_bits(a->arguments) == fl_cell_bits(b->arguments));
}

uint32_t fl_find_launches(const fl_cuda_functions *functions, const fl_command *commands,
                          uint32_t count, bool updatable, uint32_t *found) {
    enum { LOOKED_AT = 64 };   /* the last ones found */
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t k = made < LOOKED_AT ? 0 : made - LOOKED_AT;
        if (commands[i].op != FL_KERNEL)
            continue;
        while (k < made && !is_like(functions, &commands[found[k]], &commands[i], updatable))
            k++;
        if (k == made)
            found[made++] = i;
    }
    return made;
}

/* The one that lets the next launch start, or does not, as is best for this one; or else any. */
static const fl_cuda_function *function_of(const fl_cuda_functions *fs, const fl_command *c) {
    const fl_cuda_function *found = NULL;
    if (c->op != FL_KERNEL)
        return NULL;
    for (const fl_cuda_function *f = fs->list; f < fs->list + fs->count; f++) {
        if (f->kernel != c->kernel || f->place != fs->place_of[c->queue] || f->part.groups[0] ||
            !wanted(f, c))
            continue;
        if (!f->function)
            return NULL;
        if (f->lets_start && fl_lets_start(c, f->lets_start))
            return f;
        if (!found || !f->lets_start)
            found = f;
    }
    return found;
}

/* The local size in x where the program leaves it to the driver. */
static size_t chosen(size_t global, size_t most) {
    size_t best = 1;
    for (size_t size = global < CHOSEN ? global : CHOSEN; size > 1 && best == 1; size--)
        if (global % size == 0 && size <= most)
            best = size;
    return best == 1 && global <= MOST_CHOSEN && global <= most ? global : best;
}

static enum fl_cuda_reason set_sizes(const fl_cuda_function *f, const fl_command *c,
                                     CUDA_KERNEL_NODE_PARAMS *launch) {
    size_t groups[3], local[3], threads = 1;
    for (uint32_t i = 0; i < 3; i++) {
        size_t global = i < c->work_dim ? c->n[3 + i] : 1;
        if (c->has_local)
            local[i] = i < c->work_dim ? c->n[6 + i] : 1;
        else
            local[i] = f->required[0] ? f->required[i] : i ? 1 : chosen(global, f->most_threads);
        if (!global || global > UINT32_MAX || !local[i] || global % local[i])
            return FL_CUDA_RANGE;
        if (f->required[0] && local[i] != f->required[i])
            return FL_CUDA_LOCAL_SIZE;
        groups[i] = global / local[i];
        if (!i && groups[i] > INT32_MAX)
            return FL_CUDA_RANGE;
        threads *= local[i];
        if (threads > f->most_threads)
            return FL_CUDA_LOCAL_SIZE;
    }
    launch->gridDimX = (uint32_t)groups[0];
    launch->gridDimY = (uint32_t)groups[1];
    launch->gridDimZ = (uint32_t)groups[2];
    launch->blockDimX = (uint32_t)local[0];
    launch->blockDimY = (uint32_t)local[1];
    launch->blockDimZ = (uint32_t)local[2];
    return FL_CUDA_FINE;
}

/* --- launches in parts, since CUDA takes 65,535 groups in y and in z --- */

/* How many there are, 1 for a launch without parts; more than FL_CUDA_MOST_PARTS are not listed. */
static uint32_t list_parts(const CUDA_KERNEL_NODE_PARAMS *l, fl_cuda_part *parts) {
    uint32_t count = 0;
    for (uint64_t z = 0; z < l->gridDimZ; z += MOST_GROUPS_Y_Z)
        for (uint64_t y = 0; y < l->gridDimY && count <= FL_CUDA_MOST_PARTS;
             y += MOST_GROUPS_Y_Z, count++)
            if (count < FL_CUDA_MOST_PARTS)
                parts[count] = (fl_cuda_part){{0, (uint32_t)y, (uint32_t)z},
                                              {l->gridDimX, l->gridDimY, l->gridDimZ},
                                              {l->blockDimX, l->blockDimY, l->blockDimZ}};
    return count;
}

uint32_t fl_find_in_parts(const fl_cuda_functions *functions, const fl_command *commands,
                          uint32_t count, uint32_t number, fl_cuda_part *parts,
                          uint32_t *part_count) {
    CUDA_KERNEL_NODE_PARAMS launch;
    for (; number < count; number++) {
        const fl_command *c = &commands[number];
        const fl_cuda_function *f = function_of(functions, c);
        if (!f || set_sizes(f, c, &launch) != FL_CUDA_FINE)
            continue;
        *part_count = list_parts(&launch, parts);
        if (*part_count > 1 && *part_count <= FL_CUDA_MOST_PARTS)
            return number;
    }
    return count;
}

static const fl_cuda_function *function_of_part(const fl_cuda_functions *fs,
                                                const fl_cuda_function *whole,
                                                const fl_cuda_part *part) {
    for (const fl_cuda_function *f = fs->list; f < fs->list + fs->count; f++)
        if (f->kernel == whole->kernel && f->function && f->loads == whole->loads &&
            f->place == whole->place && f->work_dim == whole->work_dim &&
            !memcmp(f->offset, whole->offset, sizeof f->offset) &&
            !memcmp(&f->part, part, sizeof *part))
            return f;
    return NULL;
}

static uint32_t least(uint32_t a) { return a < MOST_GROUPS_Y_Z ? a : MOST_GROUPS_Y_Z; }

static enum fl_cuda_reason describe_parts(const fl_cuda_functions *functions,
                                          const fl_cuda_function *whole, fl_cuda_node *node) {
    fl_cuda_part parts[FL_CUDA_MOST_PARTS];
    uint32_t part_count = list_parts(&node->launch, parts);
    if (part_count > FL_CUDA_MOST_PARTS)
        return FL_CUDA_GROUPS;
    for (uint32_t i = 0; i < part_count && part_count > 1; i++) {
        const fl_cuda_part *p = &parts[i];
        const fl_cuda_function *f = function_of_part(functions, whole, p);
        if (!f)
            return FL_CUDA_GROUPS;
        node->kind = FL_NODE_PARTS;
        node->parts[node->part_count].function = f->function;
        node->parts[node->part_count].grid[0] = p->groups[0];
        node->parts[node->part_count].grid[1] = least(p->groups[1] - p->first[1]);
        node->parts[node->part_count++].grid[2] = least(p->groups[2] - p->first[2]);
    }
    return FL_CUDA_FINE;
}

/* CUDA's address of a memory object for kernels of a device, 0 for NULL. */
static enum fl_cuda_reason address_of(void *memory, const fl_cuda_device *user, uint64_t *address) {
    fl_cuda_memory found = {0};
    if (memory && !fl_find_cuda_memory(memory, &found))
        return FL_CUDA_NOT_SHARED;
    *address = found.address;
    return memory && !(found.reached_by >> user->number & 1) ? FL_CUDA_NOT_REACHED : FL_CUDA_FINE;
}

static enum fl_cuda_reason set_parameter(const fl_cuda_device *device, const fl_cuda_function *f,
                                         uint32_t index, const fl_change *argument,
                                         unsigned char *to, uint32_t *local_memory) {
    uint64_t address = 0;
    void *memory = NULL;
    enum fl_cuda_reason reason = FL_CUDA_FINE;
    if (argument->kind == FL_ARG_UNSEEN)
        return FL_CUDA_UNSEEN;
    if (argument->kind == FL_ARG_SVM)
        return FL_CUDA_SVM;
    switch (f->kinds[index]) {
    case FL_CUDA_LOCAL: {
        uint32_t alignment = f->alignments[index] > 16 ? f->alignments[index] : 16;
        *local_memory = (*local_memory + alignment - 1) / alignment * alignment;
        if (argument->kind != FL_ARG_VALUE || argument->value || *local_memory > MOST_LOCAL ||
            argument->size > MOST_LOCAL - *local_memory)
            return FL_CUDA_ARGUMENT;
        address = *local_memory;
        *local_memory += (uint32_t)argument->size;
        memcpy(to, &address, sizeof address);
        return FL_CUDA_FINE;
    }
    case FL_CUDA_MEMORY:
        if (argument->value && argument->size != sizeof memory)
            return FL_CUDA_ARGUMENT;
        if (argument->value)
            memcpy(&memory, argument->value, sizeof memory);
        if (memory && argument->kind != FL_ARG_MEM)
            return FL_CUDA_ARGUMENT;
        reason = address_of(memory, device, &address);
        memcpy(to, &address, sizeof address);
        return reason;
    default:
        if (argument->kind != FL_ARG_VALUE || !argument->value || argument->size != f->sizes[index])
            return FL_CUDA_ARGUMENT;
        memcpy(to, argument->value, argument->size);
        return FL_CUDA_FINE;
    }
}

/* --- Parameters in memory --- */

/* The number of a cell, `count` if it is not listed. */
static uint32_t find_cell(const fl_cuda_cells *cells, const fl_cell *cell) {
    uint32_t i = 0;
    while (i < cells->count && cells->list[i].cell != cell)
        i++;
    return i;
}

bool fl_list_cuda_cells(fl_cuda_cells *cells, const fl_cuda_functions *functions,
                        const fl_command *commands, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        const fl_cuda_function *f = function_of(functions, &commands[i]);
        for (uint32_t k = 0;
             f && k < FL_CUDA_MOST_LOADS && k < fl_argument_count(commands[i].arguments); k++) {
            fl_cell *cell = commands[i].arguments->list[k].cell;
            uint32_t number = find_cell(cells, cell);
            if (!(f->loads >> k & 1))
                continue;
            if (number == cells->count) {
                void *list = realloc(cells->list, (number + 1) * sizeof *cells->list);
                if (!list)
                    return false;
                cells->list = list;
                cells->list[cells->count++].cell = fl_retain_cell(cell);
                cells->list[number].places = 0;
            }
            cells->list[number].places |= (uint64_t)1 << f->place;
        }
    }
    return true;
}

void fl_forget_cuda_cells(fl_cuda_cells *cells) {
    for (uint32_t i = 0; i < cells->count; i++)
        fl_release_cell(cells->list[i].cell);
    free(cells->list);
    free(cells->words);
}

enum fl_cuda_reason fl_word_of_cell(const fl_cuda_functions *functions, const fl_cuda_cells *cells,
                                    uint32_t number, uint64_t *word) {
    const fl_cell *cell = cells->list[number].cell;
    enum fl_cuda_reason reason = FL_CUDA_FINE;
    *word = 0;
    if (cell->conversion == FL_AS_MEMORY)
        for (uint32_t i = 0; i < functions->device_count && reason == FL_CUDA_FINE; i++)
            reason = cells->list[number].places >> i & 1
                         ? address_of(fl_object_of(cell), functions->devices[i], word)
                         : reason;
    else
        memcpy(word, cell->bytes, cell->size);
    return reason;
}

/* The value of a Parameter becomes the address of its word on the device. */
static enum fl_cuda_reason move_to_memory(const fl_cuda_cells *cells, const fl_cell *cell,
                                          uint32_t place, unsigned char *value) {
    uint32_t number = cells ? find_cell(cells, cell) : 0;
    if (cells && number == cells->count)
        return FL_CUDA_ARGUMENT;
    uint64_t address = cells ? cells->words[place] + number * sizeof address : 0;
    memcpy(value, &address, sizeof address);
    return FL_CUDA_FINE;
}

static enum fl_cuda_reason describe_launch(const fl_cuda_functions *functions,
                                           const fl_cuda_cells *cells, const fl_command *c,
                                           fl_cuda_node *node) {
    const fl_cuda_function *f = function_of(functions, c);
    uint32_t count = f ? f->parameter_count : 0, local_memory = 0;
    size_t place = 0, size = 1;
    if (!f)
        return FL_CUDA_KERNEL;
    node->device = functions->devices[f->place];
    if (fl_argument_count(c->arguments) > count)
        return FL_CUDA_ARGUMENT;
    for (uint32_t i = 0; i < count; i++)
        size += (f->sizes[i] + 15) / 16 * 16;
    node->values = calloc(1, count * sizeof *node->values + 16 + size);
    if (!node->values)
        return FL_CUDA_NO_ROOM;
    node->bytes = (unsigned char *)(((uintptr_t)(node->values + count) + 15) / 16 * 16);
    for (uint32_t i = 0; i < count; i++) {
        fl_change argument = {0};
        if (fl_get_argument(c->arguments, i, &argument) != CL_SUCCESS)
            return FL_CUDA_UNSEEN;
        enum fl_cuda_reason reason =
            set_parameter(node->device, f, i, &argument, node->bytes + place, &local_memory);
        if (reason == FL_CUDA_FINE && i < FL_CUDA_MOST_LOADS && f->loads >> i & 1)
            reason = move_to_memory(cells, c->arguments->list[i].cell, f->place,
                                    node->bytes + place);
        if (reason != FL_CUDA_FINE)
            return reason;
        node->is_fixed |=
            c->arguments->list[i].cell && !(i < FL_CUDA_MOST_LOADS && f->loads >> i & 1);
        node->values[i] = node->bytes + place;
        place += (f->sizes[i] + 15) / 16 * 16;
    }
    node->kind = FL_NODE_LAUNCH;
    node->waits = f->waits;
    node->launch = (CUDA_KERNEL_NODE_PARAMS){
        .func = f->function, .sharedMemBytes = local_memory, .kernelParams = node->values};
    enum fl_cuda_reason reason = set_sizes(f, c, &node->launch);
    return reason == FL_CUDA_FINE ? describe_parts(functions, f, node) : reason;
}

/* An end of a copy: a buffer, or the host's memory; where it begins, and its pitches. */
typedef struct end {
    void *memory, *host;   /* one of them */
    size_t offset, row, slice;
} end;

static enum fl_cuda_reason describe_copy(const end *from, const end *to, const size_t region[3],
                                         fl_cuda_node *node) {
    fl_cuda_memory ends[2] = {0};
    if ((from->memory && !fl_find_cuda_memory(from->memory, &ends[0])) ||
        (to->memory && !fl_find_cuda_memory(to->memory, &ends[1])))
        return FL_CUDA_NOT_SHARED;
    uint64_t source = ends[0].address, target = ends[1].address;
    if (!region[0] || !region[1] || !region[2] || from->slice % from->row || to->slice % to->row)
        return FL_CUDA_RANGE;
    node->kind = FL_NODE_COPY;
    node->device = ends[!source].device;
    node->copy =
        (CUDA_MEMCPY3D){.srcMemoryType = source ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                        .srcDevice = source ? source + from->offset : 0,
                        .srcHost = source ? NULL : (char *)from->host + from->offset,
                        .srcPitch = from->row,
                        .srcHeight = from->slice / from->row,
                        .dstMemoryType = target ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
                        .dstDevice = target ? target + to->offset : 0,
                        .dstHost = target ? NULL : (char *)to->host + to->offset,
                        .dstPitch = to->row,
                        .dstHeight = to->slice / to->row,
                        .WidthInBytes = region[0],
                        .Height = region[1],
                        .Depth = region[2]};
    return FL_CUDA_FINE;
}

/* Host memory is the end that has no memory object. */
static enum fl_cuda_reason describe_transfer(const fl_command *c, fl_cuda_node *node) {
    const size_t *region = c->n + 6;
    end ends[2] = {{.memory = c->source, .host = c->host}, {.memory = c->target, .host = c->host}};
    for (int i = 0; i < 2; i++) {
        const size_t *origin = c->n + 3 * i, *pitches = c->n + 9 + 2 * i;
        size_t row = pitches[0] ? pitches[0] : region[0],
               slice = pitches[1] ? pitches[1] : row * region[1];
        if (!row)
            return FL_CUDA_RANGE;
        ends[i].row = row;
        ends[i].slice = slice;
        ends[i].offset = origin[0] + origin[1] * row + origin[2] * slice;
    }
    return describe_copy(&ends[0], &ends[1], region, node);
}

/* The bytes after which a pattern repeats: a power of 2. */
static size_t period_of(const unsigned char *pattern, size_t size) {
    size_t period = 1;
    while (period < size && memcmp(pattern, pattern + period, size - period))
        period *= 2;
    return period;
}

/* A set for each word of a longer pattern, which leaves the others out. */
static enum fl_cuda_reason describe_fill(const fl_command *c, fl_cuda_node *node) {
    fl_cuda_memory found;
    uint32_t word = 0;
    size_t period = period_of(c->pattern, c->pattern_size), width = period < 4 ? period : 4;
    if (!fl_find_cuda_memory(c->target, &found))
        return FL_CUDA_NOT_SHARED;
    uint64_t to = found.address + c->n[3];
    node->device = found.device;
    memcpy(&word, c->pattern, width);
    node->kind = period > width ? FL_NODE_FILLS : FL_NODE_FILL;
    node->pattern = c->pattern;
    node->fill =
        period > width
            ? (CUDA_MEMSET_NODE_PARAMS){to, period, word, 4, 1, c->n[6] / period}
            : (CUDA_MEMSET_NODE_PARAMS){to, 0, word, (uint32_t)width, c->n[6] / width, 1};
    return FL_CUDA_FINE;
}

enum fl_cuda_reason fl_describe_node(const fl_cuda_functions *functions, const fl_cuda_cells *cells,
                                     const fl_command *command, fl_cuda_node *node) {
    memset(node, 0, sizeof *node);
    switch (command->op) {
    case FL_KERNEL:
        return describe_launch(functions, cells, command, node);
    case FL_COPY:
    case FL_READ:
    case FL_WRITE:
    case FL_COPY_RECT:
    case FL_READ_RECT:
    case FL_WRITE_RECT: return describe_transfer(command, node);
    case FL_FILL: return describe_fill(command, node);
    case FL_MARKER:
    case FL_BARRIER:
    case FL_HINT: return FL_CUDA_FINE;
    case FL_SVM_COPY:
    case FL_SVM_FILL: return FL_CUDA_SVM;
    default: return FL_CUDA_IMAGE;
    }
}

uint32_t fl_check_cuda(const fl_cuda_functions *functions, const fl_command *commands,
                       uint32_t count, uint32_t *reason) {
    for (uint32_t i = 0; i < count; i++) {
        fl_cuda_node node;
        *reason = fl_describe_node(functions, NULL, &commands[i], &node);
        free(node.values);
        if (*reason != FL_CUDA_FINE)
            return i;
    }
    return count;
}
