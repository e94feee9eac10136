/* What the parts of the engine `direct` share: direct_layout.c lays commands out, direct_script.c
 * makes scripts of them, and direct_run.c runs them. direct_threads.c has the threads that help.
 * direct_memory.c knows where buffers lie, and direct_cells.c what Parameters are. direct.c is what
 * Python and enqueues call.
 *
 * A script is a list of steps in one piece of memory with all that they need: the arguments of
 * work-group functions as PoCL's launcher hands them over, what is copied from where to where, and
 * room for local memory. Running it calls nothing of the driver. A script that a queue still has to
 * run is never changed: an update changes a copy, which the next enqueue takes. */
#ifndef FL_DIRECT_H
#define FL_DIRECT_H

#include "native.h"

/* Passes of a new script, by either function of a launch in turns: the first one runs cold. */
#define FL_MEASURED 4
/* Passes after which nothing is measured. Those from FL_MEASURED on were run together with other
 * threads, and are made again with more threads while that is faster. */
#define FL_KNOWN 9
#define FL_KINDS 64 /* of launches: more share a kind */
#define FL_ALIGNMENT 128   /* of the largest type of OpenCL C */
#define FL_COMMON 8 /* contexts that launches share: most graphs have few shapes of launches */

/* `struct pocl_context` of all known versions: they differ only in where work_dim lies, which is
 * why there are two. */
typedef struct fl_group_context {
    size_t groups[3], offset[3], local[3];
    void *printf_buffer;
    uint32_t *printf_position;
    uint32_t printf_capacity, work_dim_of_3;
    void *globals;
    uint32_t work_dim, failed;
} fl_group_context;
_Static_assert(sizeof(void *) != 8 || sizeof(fl_group_context) == 112, "the largest of PoCL's");

typedef struct fl_direct_copy {
    const unsigned char *from;
    unsigned char *to;
    size_t region[3], from_row, from_slice, to_row, to_slice;   /* bytes, rows, slices */
} fl_direct_copy;

typedef struct fl_direct_fill {
    unsigned char *to;
    const unsigned char *pattern;
    size_t pattern_size, size;
} fl_direct_fill;

enum fl_direct_kind { FL_STEP_NOTHING, FL_STEP_LAUNCH, FL_STEP_COPY, FL_STEP_FILL };

typedef struct fl_direct_step {
    _Alignas(64) uint8_t kind;   /* a line of the cache each */
    bool is_single : 1;          /* a launch of one work-group */
    bool ends : 1;               /* it is the last one of its level, in the order of levels */
    bool is_alone : 1;           /* it uses local memory, of which a script has one piece */
    uint8_t together;            /* so many threads run its level, if it is the first one of it; 0:
                                    one does */
    uint32_t flags;              /* of the floating point unit, for a launch */
    uint32_t place;              /* of its data in the block, in units of FL_ALIGNMENT */
    uint32_t room;               /* of its data, in bytes */
    uint32_t ticks;              /* the least time that it took in a measured pass, in ns */
    uint32_t shared_ticks; /* the time of its level, run together, if it is the first one of it;
                              until that is known, of all passes, or the least time by `other` */
    const fl_group_function *function;
    void *other; /* of a launch's special function and the one for any size, what is not `run` */
    union {
        struct {
            void **arguments;
            fl_group_context *context;
            void *run;           /* the function, which outlives what `function` is in */
        };
        fl_direct_copy *copy;
        fl_direct_fill *fill;
    };
} fl_direct_step;

_Static_assert(sizeof(void *) != 8 || sizeof(fl_direct_step) == 64, "a line of the cache");

/* ns: what one thread needs longer for is worth waking others. */
#define FL_SHORT 60000
/* direct_threads.c: steps that need no order, in so many pieces: parts of a step, or if that are
 * fewer, several steps. */
typedef struct fl_work {
    const fl_direct_step *steps;
    const uint32_t *order;       /* the numbers of the steps; NULL: 0, 1, … */
    uint32_t count, pieces;      /* a step has pieces ÷ count of them, or a piece has some steps */
    uint64_t alone;              /* ns that one thread takes; UINT64_MAX: it is shared anyway */
} fl_work;
typedef struct fl_team fl_team;
/* Have up to so many threads, this one among them, until they are given back. Runs that want some
 * at the same time share `most`. NULL: there is no other thread for this one. */
fl_team *fl_take_threads(uint32_t threads, uint32_t most);
uint32_t fl_team_size(const fl_team *team);
void fl_give_threads_back(fl_team *team);   /* also NULL */
/* Have all of them awake. false: the system has no processor for one of them soon. */
bool fl_wake_threads(fl_team *team);
/* Run it to the end with that many of them. `flags` are those of this thread (float_flags.h).
 * false: it is so short that this thread alone has it sooner, and nothing was run. */
bool fl_run_together(fl_team *team, uint32_t threads, const fl_work *work, uint32_t *flags);
/* direct_run.c: run a piece of it. */
void fl_run_piece(const fl_work *work, uint32_t piece, uint32_t *flags);

/* A launch is run by its other function from now on. */
static inline void fl_take_other(fl_direct_step *s) {
    void *run = s->run;
    s->run = s->other;
    s->other = run;
}

/* direct_memory.c: buffers that are kept, and where they lie. */
typedef struct fl_direct_memory {
    fl_keep keep;
    struct fl_place {
        unsigned char *address;
        size_t size;
        uint64_t flags;
    } *places;   /* in the order of `keep` */
    uint32_t room;
} fl_direct_memory;
/* The place of a buffer, found in `before` (or NULL) if it is there; the answer is valid until the
 * next call. NULL: *reason says why. */
const struct fl_place *fl_find_memory(const fl_direct_device *device, fl_direct_memory *memory,
                                      const fl_direct_memory *before, cl_mem buffer, int *reason);
void fl_forget_memory(fl_direct_memory *memory);
/* The local sizes that the driver chooses for a launch without any. */
bool fl_choose_local(fl_direct_device *device, const fl_command *launch, size_t *local);

/* direct_cells.c: Parameters. A script has one place for each cell, which all launches lead to.
 * What these places are to hold goes with each enqueue and is stored when that begins to run. So a
 * change is a store, and reaches nothing that a queue has. */
typedef struct fl_direct_cells {
    struct fl_direct_cell {
        fl_cell *cell;           /* a reference */
        size_t at;               /* its place, from the first one on */
    } *list;
    uint32_t count, room;
    size_t size;                 /* bytes of all places */
} fl_direct_cells;
/* All cells of commands. false: there is no memory. */
bool fl_list_cells(fl_direct_cells *cells, const fl_command *commands, uint32_t count);
void fl_forget_cells(fl_direct_cells *cells);
const struct fl_direct_cell *fl_place_of_cell(const fl_direct_cells *cells, const fl_cell *cell);
/* What is stored in a cell's place: FL_DIRECT_FINE, or why it cannot be. */
int fl_value_of_cell(const fl_direct *d, fl_direct_memory *memory, const fl_cell *cell,
                     const void *bytes, unsigned char *to);

/* A value for each of several passes, for some of the places. */
typedef struct fl_direct_series {
    struct fl_direct_series *next;
    atomic_bool done;            /* it was run */
    uint32_t times, column_count;
    struct fl_direct_column {
        size_t at, size;
        unsigned char *values;
    } columns[];
} fl_direct_series;
/* The values that a command-buffer's rows have for so many enqueues; NULL: they cannot be taken at
 * once. */
fl_direct_series *fl_new_series(const fl_direct *d, fl_direct_memory *memory,
                                const fl_value *values, uint32_t count, uint32_t times);
/* Free those of a list that were run, or all. */
void fl_free_series(fl_direct_series **list, bool all);

/* direct_layout.c */
static inline size_t fl_up(size_t size, size_t alignment) {
    return (size + alignment - 1) / alignment * alignment;
}
static inline size_t fl_alignment_of(size_t size) {
    size_t lowest = size & -size;
    return !lowest || lowest > FL_ALIGNMENT ? FL_ALIGNMENT : lowest;
}
/* Where something is laid out. `base` is NULL where it is only measured. */
typedef struct fl_layout {
    const fl_direct *d;
    fl_direct_memory *memory;
    const fl_direct_memory *before;
    unsigned char *base;
    size_t at;                   /* from the step's place on */
    unsigned char *scratch;
    size_t scratch_at;
    const fl_direct_cells *cells;   /* NULL where it is only asked what can be run */
    unsigned char *cell_places;
    struct fl_script *script;      /* where `base` is in */
    bool asks;                   /* which special functions there could be */
} fl_layout;
/* Lay a command out: its step, and what that leads to. FL_DIRECT_FINE, or why it cannot be run. */
int fl_put_command(fl_layout *layout, const fl_command *command, fl_direct_step *step);

/* direct_script.c */
typedef struct fl_script {
    struct fl_script *next;
    cl_event event;              /* of the last enqueue; NULL if no queue has it */
    fl_direct_memory memory;
    unsigned char *block;        /* steps, data, local memory */
    size_t used, scratch,
        size; /* bytes of steps, places of cells, data and contexts; of local memory; of all */
    size_t cells_at, cells_size; /* the places of cells in the block */
    size_t contexts_at; /* what launches have in common, which few lines of the cache hold; then a
                           place for each step's own */
    uint32_t common_count;
    fl_direct_series *series;    /* that were enqueued with it */
    uint32_t step_count, live;   /* `live`: how many buffers it had when it was made */
    uint32_t *order;             /* its steps, level by level; NULL: each is a level of its own */
    fl_thread_limits limits;
    atomic_uint passes;          /* that were measured, at most FL_KNOWN */
    struct fl_trial {
        uint32_t threads, missed;  /* that are tried now; how often there were fewer */
        uint64_t best[FL_KINDS];   /* ns for all levels of a kind, by as many as are best so far */
    } trial;
    uint32_t shares;             /* so many threads run some levels together, 0: none does */
    atomic_int failed;           /* one did */
} fl_script;
/* Many buffers were in it and are not any more: a new script lets go of them. */
static inline bool fl_has_many(const fl_script *script) {
    return script->memory.keep.count > 2 * script->live + 8;
}
static inline fl_direct_step *fl_steps(const fl_script *script) {
    return (fl_direct_step *)script->block;
}
static inline fl_group_context *fl_contexts(const fl_script *script) {
    return (fl_group_context *)(script->block + script->contexts_at);
}

/* A script of commands and their cells; NULL with a code. `before` may have addresses that are
 * needed. */
fl_script *fl_make_script(const fl_direct *d, const fl_direct_cells *cells, const fl_script *before,
                        int *code);
/* A copy, in `spare` (or NULL) if that is large enough. */
fl_script *fl_copy_script(const fl_script *script, fl_script *spare);
/* Store a changed command in place. FL_DIRECT_NO_PLACE: it needs more room than it has. */
int fl_store(fl_direct *d, fl_script *script, uint32_t command);
void fl_free_script(fl_script *script);

/* direct_run.c: the level that begins at a place: how many steps it has, how long they take one
 * after the other (ns), and whether other threads can help with it. */
typedef struct fl_level {
    uint32_t count;
    uint64_t ticks;
    bool can_share, is_long;
} fl_level;
fl_level fl_level_at(const fl_script *script, uint32_t place);
static inline fl_direct_step *fl_step_at(const fl_script *script, uint32_t place) {
    return &fl_steps(script)[script->order ? script->order[place] : place];
}
/* Whether a level is long enough to be shared, as far as it is known, and takes less than so many
 * ns. */
bool fl_may_share(const fl_script *script, uint64_t most);
/* After which run to stop: when the word is not 0, or if that is not `wanted`, when it is. */
typedef struct fl_stop {
    const unsigned char *word;
    bool wanted, stopped;
} fl_stop;
/* Run it with these values in the places of its cells, and with those of a series (or NULL) in each
 * pass. `stop` may be NULL. The answer is how often it was run. */
uint32_t fl_run_script(fl_script *script, uint32_t times, const unsigned char *values,
                      const fl_direct_series *series, fl_stop *stop);

/* What a native kernel is given, by value. */
typedef struct fl_ticket {
    fl_script *script;
    fl_direct_series *series;
    uint32_t times;
    unsigned char values[];      /* of the places of the script's cells */
} fl_ticket;

struct fl_direct {
    fl_direct_device *device;
    fl_group_function *functions;   /* by the kernel's handle, ascending */
    uint32_t function_count, count;
    const fl_command *commands;
    const uint32_t *levels;      /* of each command, NULL: each is a level of its own */
    bool fenced;                 /* barriers stand before and after it */
    fl_script *script, *retired;
    fl_direct_cells cells;
    fl_ticket *ticket;           /* of the next enqueue */
};

#endif
