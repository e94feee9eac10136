/* Parameters: numbers and memory objects that a program changes between two replays of a graph.
 *
 * A cell holds what a Parameter is at present, for everybody who uses it: arguments lead to the
 * cell's bytes. So a change is one store, however many launches there are. The cells of a recording
 * hold what the program gave in the block; a command-buffer has its own.
 *
 * That an argument is a Parameter is never judged by its value. It is one if the program gave the
 * Parameter's own memory, or its own memory object, which nothing else has. Or PyOpenCL has asked
 * it for a number, in the call that sets this kernel's arguments, and sets that number next. */
#include "native.h"

#include "busy.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A Parameter that lives, by its memory or its memory object; and the cells of recordings that were
 * made of it. */
typedef struct parameter {
    const void *key;
    const void *stand_in;   /* the memory of an empty array that stands for it, or NULL */
    uint64_t id;
    uint32_t conversion;   /* what its own bytes are */
    size_t size;
    fl_cell **cells;
    uint32_t cell_count;
} parameter;

static struct {
    pthread_mutex_t lock;
    parameter *list;
    uint32_t count, room;
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(known.lock)

/* The Parameter that was converted last in this thread, and is about to be set as an argument. */
static _Thread_local struct {
    uint64_t id;
    uint32_t conversion;
    const void *kernel;
    double real;
    int64_t integer;
} converted;

fl_cell *fl_new_cell(uint64_t id, uint32_t conversion, size_t size, const void *bytes) {
    fl_cell *cell = malloc(sizeof *cell + size);
    if (!cell)
        return NULL;
    *cell = (fl_cell){.users = 1, .id = id, .conversion = conversion, .size = size};
    memcpy(cell->bytes, bytes, size);
    if (conversion == FL_AS_MEMORY)
        CALL(fl_table_of(fl_object_of(cell)), clRetainMemObject)(fl_object_of(cell));
    return cell;
}

fl_cell *fl_retain_cell(fl_cell *cell) {
    if (cell)
        atomic_fetch_add(&cell->users, 1);
    return cell;
}

void fl_release_cell(fl_cell *cell) {
    if (!cell || atomic_fetch_sub(&cell->users, 1) != 1)
        return;
    if (cell->conversion == FL_AS_MEMORY)
        CALL(fl_table_of(fl_object_of(cell)), clReleaseMemObject)(fl_object_of(cell));
    free(cell);
}

cl_mem fl_object_of(const fl_cell *cell) {
    cl_mem object;
    memcpy(&object, cell->bytes, sizeof object);
    return object;
}

void fl_look_at_cell(const fl_cell *cell, fl_cell_look *look) {
    *look = (fl_cell_look){cell->id, cell->conversion, cell->size, (void *)cell->bytes};
}

/* --- which arguments are Parameters --- */

static parameter *find(uint64_t id, const void *key, bool is_memory) {
    for (uint32_t i = 0; i < known.count; i++)
        if (id ? known.list[i].id == id
               : known.list[i].key == key &&
                     (known.list[i].conversion == FL_AS_MEMORY) == is_memory)
            return &known.list[i];
    return NULL;
}

int fl_know_parameter(const void *key, uint64_t id, uint32_t conversion, size_t size) {
    FL_HOLD(known.lock);
    if (conversion == FL_AS_MEMORY && find(0, key, true))
        return CL_INVALID_MEM_OBJECT;
    if (!FL_RESERVE(known.list, known.room, known.count + 1))
        return CL_OUT_OF_HOST_MEMORY;
    known.list[known.count++] =
        (parameter){.key = key, .id = id, .conversion = conversion, .size = size};
    return CL_SUCCESS;
}

void fl_forget_parameter(uint64_t id) {
    parameter gone = {0};
    pthread_mutex_lock(&known.lock);
    for (uint32_t i = 0; i < known.count; i++)
        if (known.list[i].id == id) {
            gone = known.list[i];
            known.list[i] = known.list[--known.count];
            break;
        }
    pthread_mutex_unlock(&known.lock);
    for (uint32_t i = 0; i < gone.cell_count;
         i++) /* without the lock: this may release a memory object */
        fl_release_cell(gone.cells[i]);
    free(gone.cells);
}

void fl_convert_parameter(uint64_t id, uint32_t conversion, const void *kernel, double real,
                          int64_t integer) {
    converted.id = id;
    converted.conversion = conversion;
    converted.kernel = kernel;
    converted.real = real;
    converted.integer = integer;
}

/* Whether these bytes are the number that the Parameter gave. An earlier number, of a call that
 * failed before it was set, is not one of them. */
static bool is_converted(size_t size, const void *value) {
    float narrow = (float)converted.real;
    int64_t kept = 0;
    if (converted.conversion == FL_AS_FLOAT)
        return (size == sizeof narrow && !memcmp(value, &narrow, size)) ||
               (size == sizeof(double) && !memcmp(value, &converted.real, size));
    if (size > sizeof kept || memcmp(value, &converted.integer, size))
        return false;
    uint32_t spare =
        64 -
        8 * (uint32_t)size; /* it must be the number, signed or not, and not its low bytes alone */
    kept = (int64_t)((uint64_t)converted.integer << spare);
    return kept >> spare == converted.integer ||
           (uint64_t)kept >> spare == (uint64_t)converted.integer;
}

static parameter *find_stand_in(const void *value) {
    for (uint32_t i = 0; i < known.count; i++)
        if (known.list[i].stand_in == value)
            return &known.list[i];
    return NULL;
}

void fl_stand_for_parameter(uint64_t id, const void *memory) {
    FL_HOLD(known.lock);
    parameter *p = find(id, NULL, false);
    if (p)
        p->stand_in = memory;
}

void fl_replace_stand_in(size_t *size, const void **value) {
    if (*size || !*value)
        return;
    FL_HOLD(known.lock);
    parameter *p = find_stand_in(*value);
    if (p) {
        *size = p->size;
        *value = p->key;
    }
}

bool fl_is_parameter(const void *value) {
    FL_HOLD(known.lock);
    return value && (find(0, value, false) || find_stand_in(value));
}

/* The recordings' cell of a Parameter for such arguments, made when it is first asked for. */
static fl_cell *cell_of(parameter *p, uint32_t conversion, size_t size, const void *value) {
    if (conversion == p->conversion && size == p->size && conversion != FL_AS_MEMORY)
        conversion = FL_AS_IT_IS;
    for (uint32_t i = 0; i < p->cell_count; i++)
        if (p->cells[i]->conversion == conversion && p->cells[i]->size == size)
            return p->cells[i];
    fl_cell **cells = realloc(p->cells, (p->cell_count + 1) * sizeof *cells);
    if (!cells)
        return NULL;
    p->cells = cells;
    fl_cell *made = fl_new_cell(p->id, conversion, size, value);
    if (made)
        cells[p->cell_count++] = made;
    return made;
}

fl_cell *fl_cell_for(const void *kernel, size_t size, const void *value, uint64_t *id) {
    uint32_t conversion = FL_AS_IT_IS;
    parameter *p = NULL;
    fl_cell *cell = NULL;
    FL_HOLD(known.lock);
    if (known.count && size && value) {
        if (converted.id && converted.kernel == kernel && is_converted(size, value)) {
            conversion = converted.conversion;
            p = find(converted.id, NULL, false);
        } else if (!(p = find(0, value, false)) && size == sizeof(void *)) {
            conversion = FL_AS_MEMORY;
            p = find(0, *(void *const *)value, true);
        }
    }
    if (p) {
        cell = fl_retain_cell(cell_of(p, conversion, size, value));
        *id = p->id;
    }
    converted.id = 0;
    return cell;
}

/* --- the cells of a command-buffer --- */

uint32_t fl_find_cells(const fl_command *commands, uint32_t count, fl_cell **found, uint32_t room) {
    uint32_t all = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; commands[i].arguments && k < commands[i].arguments->count; k++) {
            fl_cell *cell = commands[i].arguments->list[k].cell;
            bool is_new = cell != NULL;
            for (uint32_t m = 0; is_new && m < all && m < room; m++)
                is_new = found[m] != cell;
            if (is_new && all < room)
                found[all] = cell;
            all += is_new;
        }
    return all;
}

uint32_t fl_find_places(const fl_command *commands, uint32_t count, const fl_cell *cell,
                        uint32_t *places, uint32_t room) {
    uint32_t all = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool uses = fl_has_cell(commands[i].arguments, cell);
        if (uses && all < room)
            places[all] = i;
        all += uses;
    }
    return all;
}

int fl_copy_commands(fl_array *array, const fl_command *commands, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        fl_command *made = fl_new_command(array);
        if (!made)
            return CL_OUT_OF_HOST_MEMORY;
        *made = commands[i];
        if (made->arguments)
            atomic_fetch_add(&made->arguments->users, 1);
    }
    return CL_SUCCESS;
}

static int told(fl_buffer *b, int answer, int code) {
    if (answer == FL_BUILD_ANEW)
        b->stale = 1;
    return answer == CL_SUCCESS || answer == FL_BUILD_ANEW ? code : answer;
}

/* Everything that was built of a command-buffer is told of a cell's new bytes. The transfers are
 * the last of its places. */
static int tell(fl_buffer *b, const fl_value *v) {
    int code = CL_SUCCESS;
    if (v->cell->watched)
        b->stale = 1;
    for (uint32_t i = 0; i < b->built_count; i++) {
        const fl_built *built = b->built[i];
        if (built->set_cell)
            code = told(b, built->set_cell(built->self, v->cell), code);
        for (uint32_t k = built->set_cell ? v->place_count - v->transfer_count : 0;
             built->update && k < v->place_count; k++) {
            uint32_t number = v->places[k] - built->first;
            code =
                number < built->count ? told(b, built->update(built->self, number, 0), code) : code;
        }
    }
    return code;
}

/* Store new bytes. Transfers name a memory object in the command itself. */
static void store(const fl_value *v, const void *bytes) {
    memcpy(v->cell->bytes, bytes, v->cell->size);
    for (uint32_t k = 0; k < v->transfer_count; k++)
        *v->transfers[k] = fl_object_of(v->cell);
}

static void take_next(const fl_value *v, const void *series, uint32_t turn) {
    const void *bytes = (const unsigned char *)series + (size_t)turn * v->cell->size;
    cl_mem old = NULL;
    if (v->cell->conversion == FL_AS_MEMORY) {
        cl_mem object;
        memcpy(&object, bytes, sizeof object);
        old = fl_object_of(v->cell);
        CALL(fl_table_of(object), clRetainMemObject)(object);
    }
    store(v, bytes);
    if (old)   /* never the last reference: whoever gave the series keeps what is in it */
        CALL(fl_table_of(old), clReleaseMemObject)(old);
}

int fl_set_cells(fl_buffer *buffer, fl_value *values, uint32_t count) {
    return buffer->python_updates ? FL_PYTHON_UPDATES : fl_store_cells(buffer, values, count);
}

int fl_store_cells(fl_buffer *buffer, fl_value *values, uint32_t count) {
    int code = CL_SUCCESS;
    fl_enter(buffer);
    for (fl_value *v = values; v < values + count; v++) {
        if (!v->pending)
            continue;
        if (v->cell->conversion == FL_AS_MEMORY) {
            cl_mem object;
            memcpy(&object, v->bytes, sizeof object);
            CALL(fl_table_of(object), clRetainMemObject)(object);
            v->old = fl_object_of(v->cell);
        }
        store(v, v->bytes);
        int failed = tell(buffer, v);
        code = failed != CL_SUCCESS ? failed : code;
        v->pending = 0;
    }
    fl_leave(buffer);
    for (fl_value *v = values; v < values + count; v++)
        if (v->old) {   /* what was enqueued with it keeps it (SPEC clReleaseMemObject) */
            CALL(fl_table_of(v->old), clReleaseMemObject)(v->old);
            v->old = NULL;
        }
    return code;
}

bool fl_takes_all(const fl_route *route, const fl_value *values, uint32_t count, uint32_t times) {
    const fl_built *built = route->parts[0].built;
    for (const fl_value *v = values; v < values + count; v++)
        if (v->series && (v->transfer_count || v->cell->watched))
            return false;
    return route->part_count == 1 && built->take_series &&
           built->take_series(built->self, values, count, times) == CL_SUCCESS;
}

int fl_take_next(fl_buffer *buffer, const fl_value *values, uint32_t count, uint32_t turn) {
    int code = CL_SUCCESS;
    for (const fl_value *v = values; v < values + count && code == CL_SUCCESS; v++)
        if (v->series) {
            take_next(v, v->series, turn);
            code = tell(buffer, v);
        }
    return code;
}

int fl_take_turn(fl_buffer *buffer, const fl_value *values, uint32_t count, uint32_t turn) {
    int code = CL_SUCCESS;
    for (const fl_value *v = values; v < values + count && code == CL_SUCCESS; v++)
        if (v->cycle) {
            take_next(v, v->cycle, turn % 2);
            code = tell(buffer, v);
        }
    return code;
}

int fl_enqueue_series(const fl_route *route, uint32_t times, fl_value *values, uint32_t count,
                      uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    int code = CL_SUCCESS;
    uint32_t turn = 0;
    const fl_built *built = route->parts[0].built;
    *failed = UINT32_MAX;
    FL_HOLD_BUFFER(route->buffer);
    if (fl_takes_all(route, values, count, times)) {
        turn = times;
        code = fl_enqueue_all(route, times, wait_count, wait_list, event, failed);
        built->take_series(built->self, NULL, 0, 0);
        if (code == CL_SUCCESS)
            code = fl_take_next(route->buffer, values, count, times - 1);
    }
    for (; turn < times && code == CL_SUCCESS; turn++) {
        code = fl_take_next(route->buffer, values, count, turn);
        if (code == CL_SUCCESS && route->buffer->stale) {
            *failed = turn;
            code = FL_BUILD_ANEW;
        }
        if (code == CL_SUCCESS)
            code = fl_enqueue_step(route, turn == 0, turn + 1 == times, wait_count, wait_list,
                                   event, failed);
    }
    return code;
}
