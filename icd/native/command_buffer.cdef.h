/* What Python calls of command-buffers: sequences, what engines build, enqueues, times. After
 * native.cdef.h, for the C compiler and cffi alike. */

/* --- replay.c: what is executed. A step enqueues a command, or (command == UINT32_MAX) a barrier,
 * on a queue; number 0 is the caller's. Its wait list are `wait_count` numbers from
 * `waits[first_wait]` on: of earlier signalling steps, or, from step_count on, of `externals`.
 * `signals` is 1 if a later step waits for it, or if it is exported. `begins` is 1 if it also waits
 * for what the replay comes after. --- */
typedef struct fl_step {
    uint32_t command, queue, first_wait, wait_count, signals, begins;
} fl_step;

typedef struct fl_prepared fl_prepared;

/* `prepared` begins as NULL; it is made by the first replay and given up by fl_release. One thread
 * at a time replays a sequence or updates it. The last members may be 0: `externals` are events
 * that a replay waits for, `exports` the steps whose events it gives to `exported` (one reference
 * each); `others` are kernels that commands may come to name, and an `updatable` sequence has room
 * for any argument to be set before any launch; set_pointer, copy_memory and fill_memory are for
 * drivers that have USM and no SVM. */
typedef struct fl_sequence {
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
    const uint32_t *step_of; /* the step of each command, for updates; NULL if the sequence is not
                                updatable */
    /* The caller's queue is out of order. `beside`: nothing else in it waits for a replay, or is
     * waited for; `fenced`: a replay begins and ends with a barrier. `by_transfer`: fl_put_place.
     */
    uint32_t beside, fenced, by_transfer;
    uint32_t in_parents; /* the driver crashes on copies of rectangles of parts of buffers */
    uint32_t helps; /* who waits for a replay waits for the final waits first (helping.c) */
} fl_sequence;

int fl_replay(fl_sequence *sequence, void *const *queues, uint32_t queue_count, uint32_t times,
              uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
/* The command of a step has other arguments than before; `relaunched`: or another kernel. Of
 * several changes those come first, after which the commands are all as they will be. */
int fl_update(fl_sequence *sequence, uint32_t step, int relaunched);
void fl_release(fl_sequence *sequence);
/* helping.c: from now on waits for queues of this one's driver may run commands of sequences that
 * `helps` says so of. A code; for each 0 the other function is called once. */
int fl_begin_help(const void *queue);
void fl_end_help(const void *sequence, const void *queue);

/* replay.c: a barrier on a queue, after everything in it and after the list; a place in an
 * out-of-order queue, after its barriers and after the list. */
int fl_put_barrier(void *queue, int in_order, uint32_t waits, void *const *list, void **event);
int fl_put_place(void *queue, int by_transfer, uint32_t waits, void *const *list, void **event);

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
    /* Wait for everything in a queue before that; NULL: clFinish does it. */
    int (*finish)(void *self, void *queue);
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
/* A sequence of replay.c as an engine's functions take it. */
int fl_enqueue_sequence(void *sequence, void *const *queues, uint32_t queue_count, uint32_t times,
                       uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_sequence(void *sequence, uint32_t command, int relaunched);
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
    uint64_t enqueued; /* or run: how often, also for a caller whom Ctrl-C stops */
    uint32_t stale;    /* an update answered FL_BUILD_ANEW: everything is built anew before the next
                          enqueue */
    const void *again;   /* the route that fl_enqueue_again and fl_run_again may take, or NULL */
    uint32_t holds_events;   /* events of what may fail are held until they have ended */
    uint32_t may_fail;       /* the last enqueue: it waits for others */
    uint64_t next_look;   /* after so many enqueues nothing is repeated without Python; 0: never */
} fl_buffer;
enum { FL_BUILD_ANEW = 1 };
/* Both wait for an update that is made in C meanwhile; what Python changes between them is changed
 * by nobody else. */
void fl_begin_changes(fl_buffer *buffer);
void fl_end_changes(fl_buffer *buffer);
/* The last enqueue is another one, or none (NULL, NULL). The reference to the event is taken over.
 */
void fl_remember(fl_buffer *buffer, void *queue, void *event);
/* If the last enqueue has failed, the last event becomes that of a marker after everything in its
 * queue: on some drivers what waits for a failed event never ends. */
int fl_pass_failure(fl_buffer *buffer);
/* Keep an event until it has ended. The reference is taken over. */
void fl_hold_event(void *event);

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
/* Enqueue it `times` times, each after the wait list and after the one before it. *event and
 * *failed are as in fl_built, with the command's number in the command-buffer. One thread at a
 * time, for all routes of a command-buffer. */
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
/* replay.c: fl_built.set_cell of a sequence. */
int fl_set_cell_of_sequence(void *sequence, const fl_cell *cell);
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
/* As fl_enqueue_again. `event` is one of its answers, to which nobody but the caller has a
 * reference. 1: it is also the event of this enqueue's end. */
intptr_t fl_enqueue_joined(fl_route *route, intptr_t event);
/* As fl_enqueue_again, and wait for the end: 1. The event instead if its wait failed. */
intptr_t fl_enqueue_waited(fl_route *route);
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

/* --- rewritten.c: an fl_built of rewritten commands, which only takes changes --- */
/* `recorded` changes; `known` is what it was when it was rewritten. By recorded command: `places`,
 * where it or its run is in `rewritten` (NULL: nothing was rewritten); `is_copy`, whether it is
 * alone there; `first_flows`, where its arguments begin in `flows`, or FL_FIXED if no proof depends
 * on it. By argument of those: the run's argument that is only this one, or FL_FIXED. `hidden` is
 * memory that variables stand for; nobody else may begin to use it. */
enum { FL_FIXED = 0xFFFFFFFF };
typedef struct fl_rewritten {
    const fl_command *recorded, *known;
    fl_command *rewritten;
    const uint32_t *places, *first_flows, *flows;
    const unsigned char *is_copy;
    void *const *hidden;
    const fl_built *const *built;   /* of `rewritten` */
    uint32_t hidden_count, built_count;
} fl_rewritten;
int fl_update_rewritten(void *rewritten, uint32_t command, int relaunched);
int fl_set_cell_of_rewritten(void *rewritten, const fl_cell *cell);
/* All `count` recorded commands may have changed. FL_BUILD_ANEW: what is proven does not hold. */
int fl_check_rewritten(fl_rewritten *rewritten, uint32_t count);

/* --- timing.c: how long an enqueue takes, for the caller or, if that is more, for the device.
 * `marked`: a marker after the wait list is put before it, and the device begins when that is
 * complete. `holds`: its events are held until they have ended. NULL: there is no memory. --- */
typedef struct fl_timing fl_timing;
fl_timing *fl_begin_timing(void *queue, int marked, int holds, uint32_t wait_count,
                           void *const *wait_list);
void fl_end_timing(fl_timing *timing, void *event);   /* the enqueue has returned this event */
enum { FL_NO_TIME_YET = -1, FL_NO_TIME = -2 };
int64_t fl_timing_of(const fl_timing *timing);   /* nanoseconds, or one of these */
void fl_drop_timing(fl_timing *timing);

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
