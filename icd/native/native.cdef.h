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

/* --- held_events.c --- */
/* The execution status of a command; below 0 if it failed, waited for one that failed, or cannot be
 * asked. It never blocks. */
int32_t fl_status_of(void *event);
/* Do so by callbacks on a driver with this table, whose statuses hide failures. */
void fl_ask_callbacks(void **table);

/* --- record.c: one recording is what one capture block records --- */
typedef struct fl_recording fl_recording;

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

/* One command, as it was given to the queue. `op` is one of enum fl_op (operations.cdef.h). A
 * kernel's `n` is offset[3] global[3] local[3]. All others have one layout: origin in the source,
 * origin in the target, region, two pitches of each (loader/base/operations.ini). `source` and
 * `target` are memory objects or SVM; host memory is `host`. */
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
    FL_ASK_CREATED, /* a memory object was made with contents of the host's memory: the slot of its
                       call, the object */
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
struct fl_keep;
struct fl_keep *fl_share_samplers(const fl_recording *recording);
void fl_release_samplers(struct fl_keep *samplers);
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
/* Write all arguments of a list to `room` bytes: for each its kind and size, the address of a
 * Parameter's bytes or 0, then its own bytes, which are 0 for memory. The memory objects are
 * written apart; `*count` becomes their number. Returns how many bytes there are. What has no room
 * is not written. */
size_t fl_pack_arguments(const fl_arguments *list, unsigned char *to, size_t room,
                         uintptr_t *memory, uint32_t *count);
uint32_t fl_argument_count(const fl_arguments *list);
/* What a kernel's argument is (enum fl_argument_kind) that is set to the eight bytes `object`, not
 * NULL. */
int fl_kind_of_argument(void *kernel, uint32_t index, void *object);
/* Whether an argument that is set next may have a kind, as its declaration says; for who has it
 * from a file. PoCL takes any eight bytes for the memory object that is declared, and follows
 * them. */
int fl_suits_declaration(void *kernel, uint32_t index, uint32_t kind);
/* Set an argument to what is a memory object for certain. In a block, the driver is not asked what
 * it is. */
int32_t fl_set_memory(void *kernel, uint32_t index, void *memory);
/* The number of the Parameter that an argument is, 0 if it is none. */
uint64_t fl_parameter_of(const fl_arguments *list, uint32_t index);
/* A bit for each of the first 64 arguments that is a Parameter's. */
uint64_t fl_cell_bits(const fl_arguments *list);
/* rewritten.c: a list of arguments that others have, `indices[i]` of `lists[i]`. It holds their
 * objects, and shares their cells. NULL: there is no memory. */
fl_arguments *fl_pick_arguments(fl_arguments *const *lists, const uint32_t *indices,
                                uint32_t count);
/* references.c: who has references to the memory objects of launches, copies and fills, and the
 * programs of the kernels. */
typedef struct fl_references fl_references;
fl_references *fl_count_references(const fl_command *commands, uint32_t count);
/* How many references to memory others have than a recording and the commands, 1 if nobody
 * knows. */
int64_t fl_other_references(const fl_references *references, const void *memory);
uint32_t fl_list_programs(const fl_references *references, void *const **programs);
void fl_free_references(fl_references *references);
/* What has the bytes of a memory object, itself or its parent; where it begins there, its size, and
 * whether a program may see the bytes otherwise (CL_MEM_USE_HOST_PTR). 0: the driver tells it. */
int fl_find_root(void *memory, uint64_t told[4]);
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
/* rewritten.c: a rewrite is proven for its value, or is not any more. */
void fl_watch_cell(fl_cell *cell, int watched);
/* A Parameter lives: arguments that are set from memory at `key`, or to the memory object `key`
 * (FL_AS_MEMORY), are this one. `conversion` and `size` are what its own bytes are: an argument
 * that is just that is FL_AS_IT_IS. 0, CL_OUT_OF_HOST_MEMORY, or CL_INVALID_MEM_OBJECT for a memory
 * object that is one already. */
int fl_know_parameter(const void *key, uint64_t id, uint32_t conversion, size_t size);
void fl_forget_parameter(uint64_t id);
/* An argument without bytes at this address is the Parameter, too, as long as it is known. */
void fl_stand_for_parameter(uint64_t id, const void *memory);
/* The client asked it for a number, to set it next on a kernel, in this thread: the one of `real`
 * and `integer` that the conversion says. */
void fl_convert_parameter(uint64_t id, uint32_t conversion, const void *kernel, double real,
                          int64_t integer);
/* The cells of commands: how many there are, of which the first `room` are given, without a
 * reference. If there are more than `room`, it is at least as many as there are. */
uint32_t fl_find_cells(const fl_command *commands, uint32_t count, fl_cell **found, uint32_t room);
/* The numbers of the launches that have a cell; as above. */
uint32_t fl_find_places(const fl_command *commands, uint32_t count, const fl_cell *cell,
                        uint32_t *places, uint32_t room);
/* A launch uses those of `cells` that are of the same Parameter and kind as its own. It has a
 * reference to its arguments. 0 or an error. */
int fl_bind_arguments(fl_command *command, fl_cell *const *cells, uint32_t cell_count);
/* A launch's argument, a number, becomes a cell of the same size; as above. */
int fl_put_cell(fl_command *command, uint32_t index, fl_cell *cell);

/* --- command_array.c: commands; each has a reference to its arguments --- */
typedef struct fl_array {
    fl_command *commands;
    uint32_t count, room;
} fl_array;
/* One more, of zeros; the others may have moved. NULL: there is no memory. */
fl_command *fl_new_command(fl_array *array);
/* One more, like another one, for a queue; its arguments are copied. 0 or CL_OUT_OF_HOST_MEMORY. */
int fl_add_copy(fl_array *array, const fl_command *command, uint32_t queue);
/* cells.c: more, like others; what these point to is not copied. 0 or CL_OUT_OF_HOST_MEMORY. */
int fl_copy_commands(fl_array *array, const fl_command *commands, uint32_t count);
void fl_drop_command(fl_array *array);   /* the last one */
void fl_release_array(fl_array *array);
