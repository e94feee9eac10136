/* What Python calls: read by the C compiler and by cffi alike, so there is no preprocessor
 * directive and no include in here. */

/* --- generated: thunks_cl.c, which loader/base/layers.py makes layers of --- */
typedef struct fl_thunks fl_thunks;
const fl_thunks *fl_cl_thunks(void);

/* --- tables.c: memory for tables, and stubs --- */
extern void *const fl_stubs[150];
void **fl_new_table(void);
/* The table that serves an object, never one of our recording tables. */
void **fl_table_of(const void *object);
/* patch.c: a driver's table has this many slots and no more. */
void fl_set_length(void **table, uint32_t slots);

/* --- wait.c: OpenCL's codes, as of clWaitForEvents and clFinish. `at_once`: in the driver's own
 * wait from the beginning, if no other thread is in it. --- */
int32_t fl_wait(void *event, int at_once);
int32_t fl_take_wait(void);   /* the driver's wait, 0 if another thread has it */
void fl_give_wait_back(void);   /* also in a forked child */
int32_t fl_finish(void *queue, int at_once);
/* The same in steps, between which the caller looks for signals: until the answer is another than
 * FL_STILL_WAITING. `in_turns`: it is a platform on which one thread at a time may be in the
 * driver's own wait. The event lives until the end of the wait. */
typedef struct fl_waiting fl_waiting;
enum { FL_STILL_WAITING = 1 };
int32_t fl_begin_wait(void *event, int in_turns,
                      fl_waiting **waiting); /* *waiting is NULL if it is over */
int32_t fl_begin_finish(void *queue, int in_turns, fl_waiting **waiting);
int32_t fl_go_on_waiting(fl_waiting *waiting, uint32_t milliseconds);
void fl_end_wait(fl_waiting *waiting);

/* --- record.c: one recording is what one capture block records --- */
typedef struct fl_recording fl_recording;

enum fl_op {
    FL_KERNEL,
    FL_COPY,
    FL_COPY_RECT,
    FL_FILL,
    FL_READ,
    FL_WRITE,
    FL_READ_RECT,
    FL_WRITE_RECT,
    FL_SVM_COPY,
    FL_SVM_FILL,
    FL_MARKER,
    FL_BARRIER,
    FL_HINT,
    FL_COPY_IMAGE,
    FL_COPY_IMAGE_TO_BUFFER,
    FL_COPY_BUFFER_TO_IMAGE,
    FL_FILL_IMAGE,
    FL_READ_IMAGE,
    FL_WRITE_IMAGE
};

/* Why a call inside the block was refused. */
enum fl_reason {
    FL_NOT_REFUSED,
    FL_CANNOT_CAPTURE,
    FL_BLOCKING,
    FL_WAITS,
    FL_OTHER_THREAD,
    FL_FOREIGN_EVENT,
    FL_FAILED_EVENT,
    FL_UNSEEN_ARGUMENT,
    FL_NO_CLONE,
    FL_HOST_MEMORY,
    FL_NO_MEMORY,
    FL_CALLBACK,
    FL_PARAMETER
};

typedef struct fl_arguments fl_arguments;

/* One command, as it was given to the queue. A kernel's `n` is offset[3] global[3] local[3]; a
 * copy's source offset, target offset, size; a fill's offset, size; a rect's first origin[3],
 * second origin[3], region[3], and the pitches in the driver's order. An image's command is like a
 * rect: an offset into a buffer is the first number of its origin, and the pitches are those of
 * host memory. */
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

/* What a recording asks its observer, or tells it. `detail`, `address` and `size` are listed for
 * each. */
enum fl_ask {
    FL_ASK_ADDED, /* a command was recorded: its operation, -, how many objects were kept for the
                     first time */
    FL_ASK_HOST,  /* a command will use host memory: its operation, address, size in bytes */
    FL_ASK_HOST_OF_MEMORY, /* a memory object lies in host memory: -, address, size in bytes */
    FL_ASK_SVM,            /* an SVM command uses memory: its operation, address, size in bytes */
    FL_ASK_PASSED,         /* a memory object that is not kept yet became a kernel's argument */
    FL_ASK_PARAMETER,      /* a Parameter became a kernel's argument: -, -, its number */
    FL_ASK_UNCAPTURED, /* a command went to a queue of the context that is not captured: the slot of
                         its call */
    FL_ASK_WAIT,      /* the program waits for captured events: the slot of its call */
    FL_ASK_REFUSED    /* a call was refused: its slot, -, enum fl_reason */
};

/* Called for what only Python can judge, with the GIL free. For FL_ASK_HOST, FL_ASK_HOST_OF_MEMORY
 * and FL_ASK_WAIT, 0 means "go on" and anything else refuses the call; the other answers are not
 * used. */
typedef int fl_observer(void *cookie, int what, uint32_t detail, void *address, size_t size);

fl_recording *fl_begin(void *const *queues, uint32_t count, void *context, int allow_unseen,
                       fl_observer *observer, void *cookie, int (*holds_gil)(void), int *code);
void fl_end(fl_recording *recording);
void fl_drop(fl_recording *recording);
int fl_is_captured(void *queue);
int fl_is_recording(void);   /* this thread is in a block */
const fl_command *fl_commands(const fl_recording *recording, uint32_t *count);
const uint32_t *fl_deps(const fl_recording *recording, uint32_t *count);
void *const *fl_pending(const fl_recording *recording, uint32_t *count);
uint32_t fl_kept(const fl_recording *recording);
uint32_t fl_pinned(const fl_recording *recording);
int fl_has_parts(const fl_recording *recording);
int fl_forgotten_kernels(void);

/* --- argument_lists.c: the arguments of a launch, immutable and shared --- */
/* What an argument is. FL_ARG_UNSEEN: the recording never saw it set; FL_ARG_VALUE without an
 * address is local memory. */
enum fl_argument_kind { FL_ARG_UNSEEN, FL_ARG_VALUE, FL_ARG_MEM, FL_ARG_SAMPLER, FL_ARG_SVM };
/* What an argument becomes. `value` leads to `size` bytes: a value, or the handle of a memory
 * object or sampler (8 bytes). It is NULL for `size` bytes of local memory. For FL_ARG_SVM it is
 * the pointer itself, and `size` is 0. */
typedef struct fl_change {
    uint32_t index, kind;   /* enum fl_argument_kind */
    size_t size;
    const void *value;
} fl_change;
/* A list of `count` arguments: those of `base` (NULL: none is set) with `changes`, whose objects it
 * holds. NULL: there is no memory. The caller owns a reference. */
fl_arguments *fl_change_arguments(const fl_arguments *base, uint32_t count,
                                  const fl_change *changes, uint32_t change_count);
void fl_release_arguments(fl_arguments *list);
/* Give a launch another argument, in place where that can be: 0, CL_INVALID_ARG_INDEX or
 * CL_OUT_OF_HOST_MEMORY. */
int fl_set_argument(fl_command *command, uint32_t index, uint32_t kind, size_t size,
                    const void *value);
/* What an argument is: its kind (0: not set) and size; `value` leads to its bytes, or is the
 * pointer. */
int fl_get_argument(const fl_arguments *list, uint32_t index, fl_change *argument);
uint32_t fl_argument_count(const fl_arguments *list);
/* What a kernel's argument is (enum fl_argument_kind) that is set to the eight bytes `object`, not
 * NULL. */
int fl_kind_of_argument(void *kernel, uint32_t index, void *object);
/* Set an argument to what is a memory object for certain. In a block, the driver is not asked what
 * it is. */
int32_t fl_set_memory(void *kernel, uint32_t index, void *memory);
/* The number of the Parameter that an argument is, 0 if it is none. */
uint64_t fl_parameter_of(const fl_arguments *list, uint32_t index);
/* A bit for each of the first 64 arguments that is a Parameter's. */
uint64_t fl_cell_bits(const fl_arguments *list);
/* A kernel of the same function that nobody else has, with its arguments where the driver has
 * clCloneKernel; NULL if there is none. */
void *fl_clone_kernel(void *kernel);

/* --- cells.c: Parameters, which a program changes between replays. A cell holds what one is at
 * present: arguments lead to it, so that a change is a store. What an argument is made of a
 * Parameter: its bytes, or a number of the argument's own size --- */
typedef struct fl_cell fl_cell;
enum fl_conversion { FL_AS_IT_IS, FL_AS_FLOAT, FL_AS_INTEGER, FL_AS_MEMORY };
/* A cell of `size` bytes, a reference; NULL: there is no memory. */
fl_cell *fl_new_cell(uint64_t id, uint32_t conversion, size_t size, const void *bytes);
void fl_release_cell(fl_cell *cell);
typedef struct fl_cell_look {
    uint64_t id;
    uint32_t conversion;
    size_t size;
    void *bytes;
} fl_cell_look;
void fl_look_at_cell(const fl_cell *cell, fl_cell_look *look);
/* A Parameter lives: arguments that are set from memory at `key`, or to the memory object `key`
 * (FL_AS_MEMORY), are this one. `conversion` and `size` are what its own bytes are: an argument
 * that is just that is FL_AS_IT_IS. 0, CL_OUT_OF_HOST_MEMORY, or CL_INVALID_MEM_OBJECT for a memory
 * object that is one already. */
int fl_know_parameter(const void *key, uint64_t id, uint32_t conversion, size_t size);
void fl_forget_parameter(uint64_t id);
/* The client asked it for a number, to set it next on a kernel, in this thread: the one of `real`
 * and `integer` that the conversion says. */
void fl_convert_parameter(uint64_t id, uint32_t conversion, const void *kernel, double real,
                          int64_t integer);
/* The cells of commands: how many there are, of which the first `room` are given, without a
 * reference. */
uint32_t fl_find_cells(const fl_command *commands, uint32_t count, fl_cell **found, uint32_t room);
/* The numbers of the launches that have a cell; as above. */
uint32_t fl_find_places(const fl_command *commands, uint32_t count, const fl_cell *cell,
                        uint32_t *places, uint32_t room);
/* A launch uses those of `cells` that are of the same Parameter and kind as its own. It has a
 * reference to its arguments. 0 or an error. */
int fl_bind_arguments(fl_command *command, fl_cell *const *cells, uint32_t cell_count);

/* --- command_array.c: commands; each has a reference to its arguments --- */
typedef struct fl_array {
    fl_command *commands;
    uint32_t count, room;
} fl_array;
/* One more, of zeros; the others may have moved. NULL: there is no memory. */
fl_command *fl_new_command(fl_array *array);
/* cells.c: more, like others; what these point to is not copied. 0 or CL_OUT_OF_HOST_MEMORY. */
int fl_copy_commands(fl_array *array, const fl_command *commands, uint32_t count);
void fl_drop_command(fl_array *array);   /* the last one */
void fl_release_array(fl_array *array);

/* --- replay.c: what is executed. A step enqueues a command, or (command == UINT32_MAX) a barrier,
 * on a queue; number 0 is the caller's. Its wait list are `wait_count` numbers from
 * `waits[first_wait]` on: of earlier signalling steps, or, from step_count on, of `externals`.
 * `signals` is 1 if a later step waits for it, or if it is exported. --- */
typedef struct fl_step {
    uint32_t command, queue, first_wait, wait_count, signals;
} fl_step;

typedef struct fl_prepared fl_prepared;

/* `prepared` begins as NULL; it is made by the first replay and given up by fl_release. One thread
 * at a time replays a program or updates it. The last members may be 0: `externals` are events that
 * a replay waits for, `exports` the steps whose events it gives to `exported` (one reference each);
 * `others` are kernels that commands may come to name, and an `updatable` program has room for any
 * argument to be set before any launch; set_pointer, copy_memory and fill_memory are for drivers
 * that have USM and no SVM. */
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
    const uint32_t *step_of; /* the step of each command, for updates; NULL in a program that is not
                                updatable */
    uint32_t helps; /* who waits for a replay waits for the final waits first (helping.c) */
} fl_program;

int fl_replay(fl_program *program, void *const *queues, uint32_t queue_count, uint32_t times,
              uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
/* The command of a step has other arguments than before; `relaunched`: or another kernel. Of
 * several changes those come first, after which the commands are all as they will be. */
int fl_update(fl_program *program, uint32_t step, int relaunched);
void fl_release(fl_program *program);
/* helping.c: from now on waits for queues of this one's driver may run commands of programs that
 * `helps` says so of. A code; for each 0 the other function is called once. */
int fl_begin_help(const void *queue);
void fl_end_help(const void *program, const void *queue);

/* --- enqueue.c: command-buffers. Engines build what runs their commands; an enqueue runs it all,
 * by one call --- */
typedef struct fl_value fl_value;   /* of cells.c, see below */
/* What an engine has built of a run of commands: functions, and what they are given as `self`. A
 * new engine in C is one of these. */
typedef struct fl_built {
    /* Enqueue the run `times` times on `queues`, of which the first is the caller's queue, after
     * the wait list. *event, if wanted, is the event of its end. On failure *failed is the number
     * of the command within the run, or UINT32_MAX. FL_BUILD_ANEW: nothing has happened, and
     * nothing of it can run any more. */
    int (*enqueue)(void *self, void *const *queues, uint32_t queue_count, uint32_t times,
                   uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
    /* A command of the run, by its number in the run, has changed; NULL: updates of this run have
     * to go through Python. FL_BUILD_ANEW: it cannot be what it was built as any more. */
    int (*update)(void *self, uint32_t command, int relaunched);
    void *self;
    uint32_t first, count;   /* the commands of the run */
    /* A cell that arguments of the run have holds other bytes now; NULL: `update` is called for
     * each launch that has it. FL_BUILD_ANEW. */
    int (*set_cell)(void *self, const fl_cell *cell);
    /* Run it `times` times in the caller's thread, to the end; NULL: only queues run it. No queue
     * has it meanwhile. FL_BUILD_ANEW: nothing has happened, and nothing of it can run any more. */
    int (*run)(void *self, uint32_t times);
    /* The next enqueue, which is of so many times, takes the values that these rows have for each
     * of them. An error: it cannot, or this is NULL. 0 times: nothing is taken any more. */
    int (*take_series)(void *self, const fl_value *values, uint32_t count, uint32_t times);
    /* Run it in the caller's thread until the word at `offset` of the memory object `flag` is not
     * 0. If that is not `wanted`: until it is 0. At most `times` times, looking after each, and
     * `first` before the first one; 0 times: it is only looked. It takes the values of take_series.
     * FL_BUILD_ANEW: nobody can look there; NULL: only queues run it. */
    int (*run_until)(void *self, uint32_t times, void *flag, size_t offset, int wanted, int first,
                     uint32_t *ran, uint32_t *stopped);
    /* Where a buffer lies in the host's memory, if the host may read and write it; NULL: only the
     * driver can tell. */
    void *(*find_address)(void *self, void *memory);
} fl_built;
/* A program of replay.c as an engine's functions take it. */
int fl_enqueue_program(void *program, void *const *queues, uint32_t queue_count, uint32_t times,
                       uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_program(void *program, uint32_t command, int relaunched);
/* The driver's own command-buffer, enqueued by clEnqueueCommandBufferKHR. */
typedef struct fl_driver_buffer {
    void *buffer, *enqueue;
} fl_driver_buffer;
int fl_enqueue_driver_buffer(void *driver_buffer, void *const *queues, uint32_t queue_count,
                             uint32_t times, uint32_t wait_count, void *const *wait_list,
                             void **event, uint32_t *failed);

/* A command-buffer: what was built of it, for whatever kinds of queue, and its last enqueue: its
 * queue and its event, NULL before the first. `python_updates`: something was built that only
 * Python can update. `busy`: busy.h. */
typedef struct fl_buffer {
    const fl_built *const *built;
    uint32_t built_count, python_updates;
    int32_t busy;
    void *last_queue, *last_event;   /* references */
    uint64_t enqueued; /* how often, or run until a flag: also for a caller whom Ctrl-C stops */
    uint32_t stale;    /* an update answered FL_BUILD_ANEW: everything is built anew before the next
                          enqueue */
    const void *again;   /* the route that fl_enqueue_again and fl_run_again may take, or NULL */
    uint32_t holds_events, held_last; /* events of what may fail are held until they have ended;
                                         those of the last enqueue were */
} fl_buffer;
enum { FL_BUILD_ANEW = 1 };
/* Both wait for an update that is made in C meanwhile; what Python changes between them is changed
 * by nobody else. */
void fl_begin_changes(fl_buffer *buffer);
void fl_end_changes(fl_buffer *buffer);
/* The last enqueue is another one, or none (NULL, NULL). The reference to the event is taken over.
 */
void fl_remember(fl_buffer *buffer, void *queue, void *event);

/* How a command-buffer is enqueued on one queue: its parts, each after the one before it.
 * `in_order` says of the queue that it is. */
typedef struct fl_part {
    const fl_built *built;
    void *const *queues;
    uint32_t queue_count;
} fl_part;
typedef struct fl_route {
    fl_buffer *buffer;
    void *queue;
    uint32_t in_order, part_count;
    const fl_part *parts;
    uint32_t failed;   /* by fl_enqueue_again: the command, or UINT32_MAX */
    uint32_t forks;    /* before fl_allow_again */
} fl_route;
/* Enqueue it `times` times after the wait list and after the last one. *event and *failed are as in
 * fl_built, with the command's number in the command-buffer. One thread at a time, for all routes
 * of a command-buffer. */
int fl_enqueue(const fl_route *route, uint32_t times, uint32_t wait_count, void *const *wait_list,
               void **event, uint32_t *failed);
/* flag_loops.c: enqueue it until the word at `offset` of the memory object `flag` is not 0, at most
 * `times` times, and wait for the end. The word is read after every `every` times. *ran is how
 * often it was enqueued, *stopped whether the word was set. */
int fl_enqueue_until(const fl_route *route, uint32_t times, uint32_t every, void *flag,
                     size_t offset, uint32_t wait_count, void *const *wait_list, uint32_t *ran,
                     uint32_t *stopped, uint32_t *failed);
/* The same in the caller's thread, after everything in the queue, by an engine that looks after
 * each run. Before each run the cells that have a series take the next values of it. `wanted`: it
 * ends when the word is not 0, else when it is. `first`: it looks before the first run, too.
 * FL_BUILD_ANEW: it cannot, after *ran runs. */
int fl_run_until(const fl_route *route, uint32_t times, fl_value *values, uint32_t count,
                 void *flag, size_t offset, int wanted, int first, uint32_t *ran,
                 uint32_t *stopped);
enum { FL_PYTHON_UPDATES = 1 };   /* no code of OpenCL's */
/* cells.c: what a command-buffer's cell becomes. `places` are the commands that have it;
 * `transfers` lead to where some name its object. */
struct fl_value {
    fl_cell *cell;
    const void *bytes;        /* the new ones, if `pending` */
    const void
        *series; /* the new ones of each enqueue, one after the other; NULL: it stays as it is */
    const void *cycle;        /* two that alternate, for fl_enqueue_again; NULL: it does not */
    const uint32_t *places;
    void **const *transfers;
    uint32_t pending, place_count, transfer_count;
    void *old;                /* of cells.c */
};
/* The pending ones of these cells change. What was enqueued keeps what it had. 0 or an error, after
 * which it is not known what launches have until the next change. */
int fl_store_cells(fl_buffer *buffer, fl_value *values, uint32_t count);
/* The same where C alone can do it, else FL_PYTHON_UPDATES and nothing is done. */
int fl_set_cells(fl_buffer *buffer, fl_value *values, uint32_t count);
/* As fl_enqueue, and before each enqueue the cells that have a series take the next values of it.
 * FL_BUILD_ANEW: after *failed enqueues something cannot be what it was built as any more. */
int fl_enqueue_series(const fl_route *route, uint32_t times, fl_value *values, uint32_t count,
                      uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
/* replay.c: fl_built.set_cell of a program. */
int fl_set_cell_of_program(void *program, const fl_cell *cell);
/* A launch takes over the sizes and arguments of another one of the same function, and everything
 * that was built of it is told. `command` is its number, `row` its place. 0, FL_PYTHON_UPDATES
 * where Python has to do it, or an error; nothing has changed then. */
int fl_take_over(fl_buffer *buffer, uint32_t command, fl_command *row, const fl_command *other);
/* The same of several launches in the array `rows`, by their numbers: all of them or none. */
int fl_take_over_all(fl_buffer *buffer, fl_command *rows, const uint32_t *numbers,
                     fl_command *const *others, uint32_t count);
/* Whether two commands are launches of one kernel, with the same sizes and arguments. */
bool fl_is_same_launch(const fl_command *a, const fl_command *b);
/* Enqueue it once more, with no wait list: the event of its end, OpenCL's code (negative), or 0:
 * nothing happened, because the route is not the one that the command-buffer allows, or its queue
 * is captured. Cells that alternate take the value of this turn. Any thread may call it. */
intptr_t fl_enqueue_again(fl_route *route);
intptr_t fl_enqueue_turn(fl_route *route, fl_value *values, uint32_t count, uint32_t turn);
/* Allow it one route, or none (NULL). After that nobody is on another one. */
void fl_allow_again(fl_buffer *buffer, fl_route *route);
/* As fl_enqueue_again on this queue, whatever the route is. 0, too, if another thread uses the
 * command-buffer. */
intptr_t fl_enqueue_present(fl_buffer *buffer, void *queue);
void fl_begin_child(void);   /* in a forked child, where no route is allowed that was before */
/* Run it in the caller's thread, if every part can be, after everything in the queue. Its last
 * enqueue on another queue has ended. */
int fl_run(const fl_route *route, uint32_t times);
/* fl_built.find_address of a command-buffer that no queue has. */
void *fl_find_address(const fl_route *route, void *memory);
/* Run it once more: 1, OpenCL's code (negative), or 0: nothing happened, as with fl_enqueue_again,
 * or the thread has too little stack. */
int fl_run_again(fl_route *route);
/* A command has changed: everything that was built of it is told. */
int fl_update_buffer(fl_buffer *buffer, uint32_t command, int relaunched);

/* --- timing.c: how long an enqueue takes, for the caller or, if that is more, for the device.
 * `marked`: a marker after the wait list is put before it, and the device begins when that is
 * complete. NULL: there is no memory. --- */
typedef struct fl_timing fl_timing;
fl_timing *fl_begin_timing(void *queue, int marked, uint32_t wait_count, void *const *wait_list);
void fl_end_timing(fl_timing *timing, void *event);   /* the enqueue has returned this event */
enum { FL_NO_TIME_YET = -1, FL_NO_TIME = -2 };
int64_t fl_timing_of(const fl_timing *timing);   /* nanoseconds, or one of these */
void fl_drop_timing(fl_timing *timing);

/* --- direct.c: the engine that calls work-group functions itself, on drivers that run kernels in
 * this process --- */
/* What an argument of a work-group function is. */
enum fl_space { FL_SPACE_VALUE, FL_SPACE_LOCAL, FL_SPACE_MEMORY, FL_SPACE_OTHER };
/* A kernel's work-group function. `kernel` is the handle that commands name; `function` is NULL for
 * one that has none. `sizes` are those of values (0: not known), `automatic` those of the local
 * variables, in bytes. `required` is reqd_work_group_size, or zeros; `most_items` are allowed in a
 * group. `flushes`: the program was compiled for denormals to be zero. */
typedef struct fl_group_function {
    void *kernel, *function;
    const uint8_t *spaces;
    const uint32_t *sizes;
    const uint64_t *automatic;
    uint32_t argument_count, automatic_count, flushes;
    size_t required[3], most_items;
    /* Those for one local size each, which PoCL compiles at the first launch. fl_direct_check
     * writes down which ones launches could have, and Python which of these there are: the others
     * stay NULL. */
    uint32_t special_count;
    struct fl_special {
        size_t local[3];
        uint32_t no_offset, small_grid; /* it is for launches without an offset, and for those whose
                                           sides are all below FL_SMALL */
        void *function;
    } specials[8];
} fl_group_function;
enum { FL_SMALL = 65535 };

/* Why a command is left to the driver. */
enum fl_direct_reason {
    FL_DIRECT_FINE,
    FL_DIRECT_KERNEL,
    FL_DIRECT_ARGUMENT,
    FL_DIRECT_UNSEEN,
    FL_DIRECT_IMAGE,
    FL_DIRECT_MEMORY,
    FL_DIRECT_RANGE,
    FL_DIRECT_LOCAL_SIZE,
    FL_DIRECT_NO_ROOM,
    FL_DIRECT_NO_PLACE
};
/* Of a launch of which the driver is asked for the local sizes. */
enum { FL_DIRECT_MOST_ITEMS = 16777216 };

/* A device, and what it is asked with: a queue of our own, a kernel that writes its local sizes
 * into a buffer. Of the last shapes the answers are known. `reports_failures`: work-group functions
 * write `execution_failed`. */
enum { FL_MOST_THREADS = 16 };   /* that run launches together: more would wait for each other */
/* Up to so many threads run launches that need no order, or one launch. These must take at least so
 * many ns. With threads they must take at most so many percent of the time that one thread needs.
 */
typedef struct fl_thread_limits {
    uint32_t threads, least, percent;
} fl_thread_limits;
typedef struct fl_direct_device {
    fl_thread_limits thread_limits;
    void *queue, *shape, *answer;
    size_t most_items[3], local_memory;
    uint32_t reports_failures, shape_count;
    struct fl_direct_shape {
        uint32_t work_dim;
        size_t global[3], local[3];
    } shapes[16];
} fl_direct_device;

typedef struct fl_direct fl_direct;
/* Why each command cannot be run (enum fl_direct_reason), and how many cannot. `functions` are in
 * the order of their kernels' handles. */
int fl_direct_check(fl_direct_device *device, fl_group_function *functions, uint32_t function_count,
                    const fl_command *commands, uint32_t count, uint8_t *reasons);
/* What runs commands that all can be run; what it is given outlives it. `levels` are the commands'
 * task levels, or NULL where each comes after the one before it. NULL: *code says why. */
fl_direct *fl_new_direct(fl_direct_device *device, fl_group_function *functions,
                         uint32_t function_count, const fl_command *commands, uint32_t count,
                         int in_order, const uint32_t *levels, int *code);
void fl_release_direct(fl_direct *direct);   /* what is enqueued runs to its end */
void fl_release_direct_images(void);         /* those that queues have run, of what was released */
int fl_enqueue_direct(void *direct, void *const *queues, uint32_t queue_count, uint32_t times,
                      uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_direct(void *direct, uint32_t command, int relaunched);
int fl_run_direct(void *direct, uint32_t times);
int fl_set_cell_of_direct(void *direct, const fl_cell *cell);
int fl_run_direct_until(void *direct, uint32_t times, void *flag, size_t offset, int wanted,
                        int first, uint32_t *ran, uint32_t *stopped);
void *fl_find_address_direct(void *direct, void *memory);
int fl_take_series_direct(void *direct, const fl_value *values, uint32_t count, uint32_t times);
/* How long each command took at best, in ns, in one thread and in the way that it runs from now on:
 * 1 if that is known, 0 if it was not run often enough or still runs. */
int fl_direct_times(fl_direct *direct, uint32_t *times, uint32_t *shared_times, uint64_t *groups);
uint32_t
fl_direct_shared(const fl_direct *direct); /* how many commands several threads run together */
/* How much stack the caller's thread has left, in bytes, and how much it needs to run work-groups:
 * PoCL's own threads have 8 MiB. */
size_t fl_stack_left(void);
enum { FL_STACK_NEEDED = 15 << 19 };

/* --- cuda.c, cuda_launches.c: the engine that runs commands as a CUDA Graph, and cuda_memory.c:
 * buffers of memory that CUDA has too --- */
/* A device: `table` leads to the table of CUDA's functions that receives calls now
 * (DispatchTable.address_of_top). `context` is retained. `lost` is the code after which nothing
 * runs on it any more. */
typedef struct fl_cuda_device {
    void *const *table;
    void *context, *stream;
    int32_t number, lost;
    void *turn;   /* of cuda_loops.c */
    char lost_by[128];   /* the graph whose kernel ended the context: `lost` */
} fl_cuda_device;
enum { FL_CUDA_MOST_DEVICES = 64 };
/* How OpenCL imports memory of CUDA's: its address there, and a file descriptor that belongs to
 * OpenCL after a success. NULL, and the code. */
typedef void *fl_cuda_import(void *context, uint64_t flags, uint64_t address, int descriptor,
                             size_t size, int32_t *code);
/* Buffers of an OpenCL device are made of memory that CUDA has too, from now on; `import` is NULL
 * for file descriptors. OpenCL's code. */
int fl_share_memory(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import);
void fl_unshare_memory(void *opencl_device);
/* CUDA's address of a buffer, 0 if it is not shared. */
uint64_t fl_cuda_address(void *memory);
/* Buffers that live: parts of slabs, and those that have memory of their own; and how many the
 * driver has made by itself. */
typedef struct fl_cuda_counts {
    uint64_t small, own, other;
} fl_cuda_counts;
fl_cuda_counts fl_count_shared(void);

/* What a parameter of a translated kernel is. */
enum fl_cuda_parameter { FL_CUDA_VALUE, FL_CUDA_MEMORY, FL_CUDA_LOCAL };
/* A part of a launch that has too many work-groups for CUDA: its first one, those of the launch, and
 * the work-items of each. */
typedef struct fl_cuda_part {
    uint32_t first[3], groups[3], local[3];
} fl_cuda_part;
/* A kernel for launches of `work_dim` dimensions with this offset: what `asks` has no bit for is
 * any (bits 0 to 2 the offset's, bit 3 work_dim). `sizes` and `alignments` are in bytes. `required`
 * is reqd_work_group_size, or zeros. The function has the addresses of parameters that `loads` has
 * a bit for: it is for launches of which just these are Parameters', of those that `loadable` has a
 * bit for. It `waits` for what comes before it, if it is started early. */
typedef struct fl_cuda_function {
    void *kernel, *function;
    const uint8_t *kinds;
    const uint32_t *sizes, *alignments;
    uint32_t parameter_count, asks, work_dim, offset[3], required[3], most_threads, waits,
        lets_start;
    uint64_t loadable, loads;
    fl_cuda_part part;         /* that it is for alone, or zeros */
} fl_cuda_function;
enum { FL_CUDA_MOST_LOADS = 64, FL_CUDA_MOST_PARTS = 16 };
/* The next command from `number` on that is launched in parts, `count` if there is none. Its parts
 * come to `parts`. */
uint32_t fl_find_in_parts(const fl_cuda_function *functions, uint32_t function_count,
                          const fl_command *commands, uint32_t count, uint32_t number,
                          fl_cuda_part *parts, uint32_t *part_count);
/* Whether a launch is best followed by one that starts while it runs: it has some thousand threads,
 * and not more than `most`. A function whose `lets_start` is not 0 does that, and is for launches
 * of up to so many threads. */
int fl_lets_start(const fl_command *command, uint64_t most);
/* The numbers of launches that differ in what their functions depend on: kernel, dimensions, offset,
 * fl_lets_start and, in commands that can be updated, which arguments are Parameters. Each kind is
 * among them; a few may be twice. `found` has room for all. Returns how many there are. */
uint32_t fl_find_launches(const fl_command *commands, uint32_t count, bool updatable,
                          uint64_t early_threads, uint32_t *found);
/* Why a command cannot be a node. */
enum fl_cuda_reason {
    FL_CUDA_FINE,
    FL_CUDA_KERNEL,
    FL_CUDA_ARGUMENT,
    FL_CUDA_UNSEEN,
    FL_CUDA_NOT_SHARED,
    FL_CUDA_SVM,
    FL_CUDA_RANGE,
    FL_CUDA_GROUPS,
    FL_CUDA_LOCAL_SIZE,
    FL_CUDA_IMAGE,
    FL_CUDA_NO_ROOM
};
/* The order of commands on at most `most` chains (chains.h). Command i comes after those in
 * `before` from first[i] up to first[i + 1]. The directly preceding ones are in `after`, which has
 * room for 8 for each command, by `first_after`. Returns how many chains there are, or UINT32_MAX
 * if there is no memory. */
uint32_t fl_chain(uint32_t count, const uint32_t *first, const uint32_t *before,
                  const uint8_t *only_orders, uint32_t most, uint32_t *first_after,
                  uint32_t *after);
/* The first command that cannot be a node, `count` if each can; *reason is an enum fl_cuda_reason.
 */
uint32_t fl_check_cuda(const fl_cuda_function *functions, uint32_t function_count,
                       const fl_command *commands, uint32_t count, uint32_t *reason);
typedef struct fl_cuda fl_cuda;
/* A graph of commands that all can be nodes. A node comes after those in `before`, from
 * first_before[its number] up to the next one's. `starts_early`: a launch that waits may start
 * before the end of the one that it comes after, if nothing else comes after that. What it is given
 * outlives it, but for the numbers and the title, which errors call it. NULL: *code is CUDA's. */
fl_cuda *fl_new_cuda(fl_cuda_device *device, void *context, const fl_cuda_function *functions,
                     uint32_t function_count, const fl_command *commands, uint32_t count,
                     const uint32_t *first_before, const uint32_t *before, int starts_early,
                     const char *title, int *code);
/* How many nodes start early. */
uint32_t fl_cuda_early(const fl_cuda *cuda);
/* How many bytes a replay moves from and to the host's memory. */
size_t fl_cuda_host_bytes(const fl_cuda *cuda);
/* What is enqueued runs to its end: 1 if something is left, whose functions and memory must stay.
 */
int fl_release_cuda(fl_cuda *cuda);
/* Whether one that was released so has ended. It may be gone: it is not looked into. */
int fl_cuda_has_ended(const fl_cuda *cuda);
/* Gives `tell` to `add`, which is Py_AddPendingCall, after such an end. NULL: not any more. */
typedef int fl_tell(void *);
typedef int fl_add_pending(fl_tell *tell, void *data);
void fl_tell_cuda_ends(fl_add_pending *add, fl_tell *tell);
int fl_enqueue_cuda(void *cuda, void *const *queues, uint32_t queue_count, uint32_t times,
                    uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_cuda(void *cuda, uint32_t command, int relaunched);
int fl_set_cell_of_cuda(void *cuda, const fl_cell *cell);
int fl_run_cuda(void *cuda, uint32_t times);
int fl_run_cuda_until(void *cuda, uint32_t times, void *flag, size_t offset, int wanted, int first,
                      uint32_t *ran, uint32_t *stopped);
int fl_take_series_cuda(void *cuda, const fl_value *values, uint32_t count, uint32_t times);
const char *fl_turn_text(void);   /* cuda_loops.c: PTX */
/* What a replay took, in ns: the median of the first ones; 0 until there are enough. */
uint64_t fl_cuda_taken(fl_cuda *cuda);

/* What other libraries of fairlead call of this one. */
typedef struct fl_functions {
    fl_command *(*new_command)(fl_array *array);
    fl_arguments *(*change_arguments)(const fl_arguments *base, uint32_t count,
                                      const fl_change *changes, uint32_t change_count);
    void (*release_arguments)(fl_arguments *list);
    int (*set_argument)(fl_command *command, uint32_t index, uint32_t kind, size_t size,
                        const void *value);
    int (*get_argument)(const fl_arguments *list, uint32_t index, fl_change *argument);
    uint32_t (*argument_count)(const fl_arguments *list);
    int (*update_buffer)(fl_buffer *buffer, uint32_t command, int relaunched);
    intptr_t (*enqueue_present)(fl_buffer *buffer, void *queue);
    void (*release_event)(void *event);
    const void *waits;   /* an fl_waits of waits.h */
} fl_functions;
const fl_functions *fl_exported(void);
