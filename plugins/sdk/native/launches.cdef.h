/* What Python calls for the arguments of launches in command-buffers (launches.c). icd's types are
 * `void *` here. */

enum { FL_COPIES = 16 };
/* Our copy of a kernel, as Python found it. `addresses`: of fl_appended. */
typedef struct fl_copy {
    uint64_t number, settings, addresses;   /* of the kernel's handle; of the fl_kernel */
    void *cl;                               /* NULL: none */
} fl_copy;

/* A command-buffer, as its launches need it. `buffer` and `handle` are set when it is finalized. */
typedef struct fl_launches {
    uint32_t adapter;
    int32_t no_pointers;       /* the code for an address without USM, or 0 */
    uint32_t null_is_pointer;  /* whether the driver takes NULL like an address */
    /* The cl_mem for an address if drivers do not take addresses, or NULL. */
    uintptr_t (*part)(void *context, uintptr_t address);
    void *context;             /* the argument of `part` */
    uintptr_t cl_context;
    void *commands;            /* fl_array */
    uintptr_t handle;
    void *buffer;              /* fl_buffer */
    int32_t updatable, in_order;
    int32_t sticks;            /* a copy takes launches with the same addresses alone */
    uint64_t device;           /* the cl_device_id */
    unsigned lock;             /* who has it may append. C does not wait for it. */
    uint32_t appended;         /* commands that Python does not know yet */
    /* For each of them: how many commands it comes after, and their numbers. */
    uint32_t *after, after_count, after_room;
    fl_copy copies[FL_COPIES]; /* by the last bits of the number */
} fl_launches;

/* The result of an append. Bit i of `addresses` is set if argument i
 * < 64 is an address. If `code` is not 0, nothing was appended because of the argument `index`. */
typedef struct fl_appended {
    int32_t code;
    uint32_t index;
    uint64_t addresses;
} fl_appended;

enum { FL_NOT_PLAIN = -1 };

/* Sets icd's functions, an `fl_functions *` of icd/native/command_buffer.cdef.h. */
void fl_use_icd(const void *functions);
/* Appends a launch: its sizes, all its arguments, and our copy of the kernel, which may follow.
 * `offset` and `local` may be NULL. If `native`, the objects in the rows are OpenCL's. */
fl_appended fl_append_launch(const fl_launches *launches, uint32_t dim, const size_t *offset,
                             const size_t *size, const size_t *local,
                             const ur_exp_kernel_arg_properties_t *rows, uint32_t count,
                             uint32_t argument_count, bool native, void *kernel);
uint32_t fl_count_commands(const fl_launches *launches);
/* Python waits for the lock of a command-buffer to append to it, and leaves it. */
void fl_enter_recording(unsigned *lock);
void fl_leave_recording(unsigned *lock);
void fl_free_launches(fl_launches *launches);
/* Reads the new arguments of an update into `changes` (fl_change) and `room`, what they point to.
 * Both have room for all. New values have to have the sizes of the arguments `old`, which may be
 * NULL. Returns 0, or a code with the `index` of the argument. */
int32_t fl_read_update(const fl_launches *launches,
                       const ur_exp_command_buffer_update_kernel_launch_desc_t *update,
                       const void *old, uint32_t argument_count, void *changes, uintptr_t *room,
                       uint32_t *index);
/* Makes updates that have new arguments and nothing else. Returns 0, or OpenCL's code. FL_NOT_PLAIN
 * means that there are other or wrong updates among them, and that nothing was done. */
int32_t fl_update_plainly(const fl_launches *launches,
                          const ur_exp_command_buffer_update_kernel_launch_desc_t *updates,
                          uint32_t count);

/* --- graphs of CUDA and HIP (gpu_appends.c, gpu_launches.c) --- */

/* A device of a driver. Slots: `current` tells what a thread has, `enter` changes it, and `leave`
 * goes back. CUDA has a stack of contexts: cuCtxGetCurrent, cuCtxPushCurrent, cuCtxPopCurrent.
 * HIP's contexts are devices: hipGetDevice, and hipSetDevice twice. */
typedef struct fl_gpu_device {
    void *const *const *table; /* the driver's functions */
    uint32_t current, enter, leave;
    int32_t is_device;
    uintptr_t context;
} fl_gpu_device;

enum { FL_GPU_LAUNCHES = 16, FL_GPU_OTHER = 0x7fffffff };
/* A launch, as Python has planned it. C writes other arguments into it, which the driver copies. */
typedef struct fl_gpu_launch {
    uint64_t kernel;           /* the number of the kernel's handle, 0: none */
    uint32_t dim, count;       /* `count`: arguments, 64 at most */
    uint64_t offset[3], size[3], local[3];   /* `local`: 0 if one was chosen */
    /* Of arguments that are values, 0 for addresses, and FL_GPU_OTHER for what is Python's. */
    uint32_t sizes[64];
    void *const *values;       /* where the arguments are */
    uint32_t value_count;      /* of `values`: behind the arguments may be others */
    const void *parameters;    /* the driver's, of a kernel node */
    int32_t waits;             /* its kernel waits for the node before it (PDL) */
    uint32_t plan;             /* Python's number of it */
} fl_gpu_launch;

typedef struct fl_gpu_step {
    int32_t waits;             /* the command is a launch that waits, and nothing else */
    int32_t only;              /* the only command that it comes after, -1 */
    uint32_t followers;
    int32_t is_late;           /* its edge comes at the end, when it is known of which kind it is */
} fl_gpu_step;
struct fl_chains;              /* icd/native/chains.h */

/* A queue on one stream. */
typedef struct fl_gpu_queue {
    const fl_gpu_device *device;
    uint32_t synchronize;      /* the slot of cuStreamSynchronize */
    uintptr_t owner;           /* a number of its context */
    uintptr_t stream;          /* 0 while Python makes all calls */
    unsigned lock;             /* who has it may use the stream. C does not wait for it. */
} fl_gpu_queue;

typedef struct fl_gpu_graph {
    const fl_gpu_device *device;
    /* Slots: cuGraphAddKernelNode, cuGraphExecKernelNodeSetParams, cuGraphLaunch. */
    uint32_t add, set, launch;
    uintptr_t owner, graph;    /* `owner`: a number of its context */
    uintptr_t executable;
    int32_t in_order, is_open;
    int32_t is_updatable;      /* its launches may be updated */
    int32_t is_plain;          /* an enqueue is a launch of the graph, and nothing else */
    unsigned lock;             /* who has it may use this. C does not wait for it. */
    uintptr_t *nodes;          /* that of each command */
    fl_gpu_step *steps;        /* of each command */
    struct fl_chains *chains;
    uint32_t planned_count, planned[8];   /* the commands that the next one comes after */
    uint32_t remove_edge, add_edge;   /* slots: cuGraph{Remove,Add}Dependencies */
    uint32_t count, room;
    uint32_t appended;         /* commands that C has appended */
    struct fl_gpu_command *made;   /* those of them that have handles; the last comes first */
    size_t parameter_bytes, values_at;   /* of `parameters`, and where `values` is in them */
    fl_gpu_launch launches[FL_GPU_LAUNCHES];
} fl_gpu_graph;

/* A command that can be updated: what it launches. Its sizes are not used. */
typedef struct fl_gpu_command {
    const fl_gpu_graph *graph;
    uintptr_t node;            /* 0: Python makes all updates */
    int32_t changed;           /* Python does not know its arguments yet */
    uint32_t number;           /* of the command, if C has made it */
    uintptr_t handle;
    struct fl_gpu_command *next;
    fl_gpu_launch launch;
} fl_gpu_command;

/* Plans the place of the next command on the chains of a graph, after `before`. `planned` has what
 * it comes after. False: there is no memory. */
bool fl_plan_gpu_node(fl_gpu_graph *graph, const uint32_t *before, uint32_t count);
/* Adds the node of the command that was planned. False: there is no memory. */
bool fl_add_gpu_node(fl_gpu_graph *graph, uintptr_t node, int32_t waits);
uint32_t fl_count_gpu_chains(const fl_gpu_graph *graph);
/* Lets launches start early, or not any more: those that wait, after another one that nothing else
 * comes after. Returns how many they are, FL_GPU_REFUSED if the driver refuses and nothing has
 * changed, FL_GPU_LOST if an edge is lost. */
enum { FL_GPU_REFUSED = -1, FL_GPU_LOST = -2 };
int32_t fl_let_start_early(fl_gpu_graph *graph, bool early);
/* Adds the edges that are not there yet. Returns the driver's code, FL_GPU_REFUSED if its context
 * cannot become current. */
int32_t fl_add_late_edges(fl_gpu_graph *graph);
/* Ends the handles that C has made, but for those of Python's objects. */
void fl_end_gpu_commands(fl_gpu_graph *graph);
void fl_free_gpu_graph(fl_gpu_graph *graph);
