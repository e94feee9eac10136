/* What Python calls: read by the C compiler and by cffi alike, so there is no preprocessor directive and no include in here. */

/* --- generated: thunks_cl.c, which loader/layers.py makes layers of --- */
typedef struct fl_thunks fl_thunks;
const fl_thunks *fl_cl_thunks(void);

/* --- tables.c: memory for tables, and stubs --- */
extern void *const fl_stubs[150];
void **fl_new_table(void);
/* The table that serves an object, never one of our recording tables. */
void **fl_table_of(const void *object);
/* patch.c: a driver's table has this many slots and no more. */
void fl_set_length(void **table, uint32_t slots);

/* --- wait.c: OpenCL's codes, as of clWaitForEvents and clFinish. `at_once`: in the driver's own wait from the beginning, if no other
 * thread is in it. --- */
int32_t fl_wait(void *event, int at_once);
void fl_forget_waits(void);   /* in a forked child */
int32_t fl_finish(void *queue, int at_once);

/* --- record.c: one recording is what one capture block records --- */
typedef struct fl_recording fl_recording;

enum fl_op {
    FL_KERNEL, FL_COPY, FL_COPY_RECT, FL_FILL, FL_READ, FL_WRITE, FL_READ_RECT, FL_WRITE_RECT,
    FL_SVM_COPY, FL_SVM_FILL, FL_MARKER, FL_BARRIER, FL_HINT
};

/* Why a call inside the block was refused. */
enum fl_reason {
    FL_NOT_REFUSED, FL_CANNOT_CAPTURE, FL_BLOCKING, FL_WAITS, FL_OTHER_THREAD, FL_FOREIGN_EVENT, FL_FAILED_EVENT,
    FL_UNSEEN_ARGUMENT, FL_NO_CLONE, FL_HOST_MEMORY, FL_NO_MEMORY, FL_IMAGE, FL_CALLBACK
};

typedef struct fl_arguments fl_arguments;

/* One command, as it was given to the queue. A kernel's `n` is offset[3] global[3] local[3]; a copy's source offset, target offset,
 * size; a fill's offset, size; a rect's first origin[3], second origin[3], region[3], and the pitches in the driver's order. */
typedef struct fl_command {
    uint16_t op, queue;
    uint32_t work_dim, has_offset, has_local;
    uint32_t first_dep, dep_count;
    void *kernel;
    fl_arguments *arguments;
    void *source, *target;
    void *host;
    void *pattern;
    size_t pattern_size, host_size;
    size_t n[13];
} fl_command;

/* Called for what only Python can judge, with the GIL free: the answer 0 is "go on", anything else refuses the call.
 * `what`: 'n' a new node (detail: its op, size: how many
 * objects were kept for the first time), 'h' host memory that a command will use later (address, size), 'm' the same behind a memory
 * object, 's' memory that an SVM command will use, 'p' a memory object
 * that is not kept yet became a kernel's argument, 'w' a wait for captured events, 'r' a refusal (detail: slot * 16 + reason). The
 * answers to 'n', 's', 'p' and 'r' are not used. */
typedef int fl_observer(void *cookie, int what, uint32_t detail, void *address, size_t size);

fl_recording *fl_begin(void *const *queues, uint32_t count, void *context, int allow_unseen, fl_observer *observer,
                       void *cookie, int (*holds_gil)(void), int *code);
void fl_end(fl_recording *recording);
void fl_drop(fl_recording *recording);
int fl_is_captured(void *queue);
const fl_command *fl_commands(const fl_recording *recording, uint32_t *count);
const uint32_t *fl_deps(const fl_recording *recording, uint32_t *count);
void *const *fl_pending(const fl_recording *recording, uint32_t *count);
uint32_t fl_kept(const fl_recording *recording);
uint32_t fl_pinned(const fl_recording *recording);
int fl_forgotten_kernels(void);

/* --- arguments.c: the arguments of a launch, immutable and shared --- */
/* What an argument becomes. `kind`: 1 a value (NULL: `size` bytes of local memory), 2 a memory object, 3 a sampler (`value` leads to the
 * handle, `size` is 8), 4 a pointer (`value` is it, `size` is 0). */
typedef struct fl_change {
    uint32_t index, kind;
    size_t size;
    const void *value;
} fl_change;
/* A list of `count` arguments: those of `base` (NULL: none is set) with `changes`, whose objects it holds. NULL: there is no memory. The
 * caller owns a reference. */
fl_arguments *fl_change_arguments(const fl_arguments *base, uint32_t count, const fl_change *changes, uint32_t change_count);
void fl_release_arguments(fl_arguments *list);
/* Give a launch another argument, in place where that can be: 0, CL_INVALID_ARG_INDEX or CL_OUT_OF_HOST_MEMORY. */
int fl_set_argument(fl_command *command, uint32_t index, uint32_t kind, size_t size, const void *value);
/* What an argument is: its kind (0: not set) and size; `value` leads to its bytes, or is the pointer. */
int fl_get_argument(const fl_arguments *list, uint32_t index, fl_change *argument);
uint32_t fl_argument_count(const fl_arguments *list);
/* A kernel of the same function that nobody else has, with its arguments where the driver has clCloneKernel; NULL if there is none. */
void *fl_clone_kernel(void *kernel);

/* --- array.c: commands; each has a reference to its arguments --- */
typedef struct fl_array {
    fl_command *commands;
    uint32_t count, room;
} fl_array;
/* One more, of zeros; the others may have moved. NULL: there is no memory. */
fl_command *fl_new_command(fl_array *array);
void fl_drop_command(fl_array *array);   /* the last one */
void fl_release_array(fl_array *array);

/* --- replay.c: what is executed. A step enqueues a command, or (command == UINT32_MAX) a barrier, on a lane. Its wait list are
 * `wait_count` numbers from `waits[first_wait]` on: of earlier signalling steps, or, from step_count on, of `externals`. `signals` is 1
 * if a later step waits for it, or if it is exported. --- */
typedef struct fl_step {
    uint32_t command, lane, first_wait, wait_count, signals;
} fl_step;

typedef struct fl_prepared fl_prepared;

/* `prepared` begins as NULL; it is made by the first replay and given up by fl_release. One thread at a time replays a program or
 * updates it. The last members may be 0: `externals` are events that a replay waits for, `exports` the steps whose events it gives to
 * `exported` (one reference each); `others` are kernels that commands may come to name, and an `updatable` program has room for any
 * argument to be set before any launch; set_pointer, copy_memory and fill_memory are for drivers that have USM and no SVM. */
typedef struct fl_program {
    const fl_command *commands;
    const fl_step *steps;
    uint32_t step_count;
    const uint32_t *waits;
    uint32_t final_wait_count;
    const uint32_t *final_waits;
    fl_prepared *prepared;
    uint32_t updatable;
    uint32_t external_count, export_count, other_count;
    void *const *externals;
    const uint32_t *exports;
    void **exported;
    void *const *others;
    void *set_pointer, *copy_memory, *fill_memory;
} fl_program;

int fl_replay(fl_program *program, void *const *lanes, uint32_t lane_count, uint32_t times, uint32_t wait_count,
              void *const *wait_list, void **event, uint32_t *failed);
/* The command of a step has other arguments than before; `relaunched`: or another kernel. Of several changes those come first, after which
 * the commands are all as they will be. */
int fl_update(fl_program *program, uint32_t step, int relaunched);
void fl_release(fl_program *program);

/* --- enqueue.c: enqueues of a command-buffer that follow each other --- */
/* The last one: a reference to its queue and one to its event; NULL before the first. */
typedef struct fl_last {
    void *queue, *event;
} fl_last;
/* One more was made: it is the last from now on. The reference to the event is taken over. */
void fl_remember(fl_last *last, void *queue, void *event);
void fl_forget(fl_last *last);

/* The programs that a command-buffer is laid out as, and the step of each of its commands. `has_native`: the driver has it, too, as a
 * command-buffer of its own. `busy`: busy.h. */
typedef struct fl_way {
    fl_program *program;
    const uint32_t *step_of;
} fl_way;
typedef struct fl_ways {
    const fl_way *list;
    uint32_t count, has_native;
    int32_t busy;
} fl_ways;
/* Both wait for an update that is made in C meanwhile; what Python changes between them is changed by nobody else. */
void fl_begin_changes(fl_ways *ways);
void fl_end_changes(fl_ways *ways);
/* How it is enqueued on one queue, which is the first of the lanes: `program` is replayed, or, if that is NULL, the driver's command-buffer
 * `native` is enqueued by clEnqueueCommandBufferKHR, once. `in_order` says of the queue that it is. */
typedef struct fl_route {
    fl_ways *ways;
    fl_last *last;
    uint32_t in_order, lane_count;
    void *const *lanes;
    fl_program *program;
    void *native, *enqueue_native;
} fl_route;
/* fl_update for a command, in all of them. */
int fl_update_ways(const fl_ways *ways, uint32_t command, int relaunched);
/* Enqueue it after the wait list and after the last one; as fl_replay. One thread at a time, for all routes of a command-buffer. */
int fl_enqueue(const fl_route *route, uint32_t times, uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
