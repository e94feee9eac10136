/* What Python calls of the engines in C, `direct` and `cuda`, and of the memory that CUDA shares.
 * After command_buffer.cdef.h, for the C compiler and cffi alike. */

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
 * into a buffer. Of the last shapes the answers are known. */
enum { FL_MOST_THREADS = 32 };   /* that run launches together */
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
    uint32_t shape_count;
    struct fl_direct_shape {
        uint32_t work_dim;
        size_t global[3], local[3];
    } shapes[16];
} fl_direct_device;

typedef struct fl_direct fl_direct;
/* Whether the flags of this processor's floating point unit are known. */
bool fl_direct_runs_here(void);
/* Why each command cannot be run (enum fl_direct_reason), and how many cannot. `functions` are in
 * the order of their kernels' handles. */
int fl_direct_check(fl_direct_device *device, fl_group_function *functions, uint32_t function_count,
                    const fl_command *commands, uint32_t count, uint8_t *reasons);
/* What runs commands that all can be run; what it is given outlives it. `levels` are the commands'
 * task levels, or NULL where each comes after the one before it. `fenced`: it stands between two
 * barriers of an out-of-order queue. NULL: *code says why. */
fl_direct *fl_new_direct(fl_direct_device *device, fl_group_function *functions,
                         uint32_t function_count, const fl_command *commands, uint32_t count,
                         int fenced, const uint32_t *levels, int *code);
void fl_release_direct(fl_direct *direct);   /* what is enqueued runs to its end */
void fl_release_direct_scripts(void);         /* those that queues have run, of what was released */
int fl_enqueue_direct(void *direct, void *const *queues, uint32_t queue_count, uint32_t times,
                      uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_direct(void *direct, uint32_t command, int relaunched);
int fl_run_direct(void *direct, uint32_t times);
int fl_set_cell_of_direct(void *direct, const fl_cell *cell);
int fl_run_direct_until(void *direct, uint32_t times, void *flag, size_t offset, int wanted,
                        int first, uint32_t *ran, uint32_t *stopped);
void *fl_find_address_direct(void *direct, void *memory);
int fl_take_series_direct(void *direct, const fl_value *values, uint32_t count, uint32_t times);
/* How long each command took at best, in ns, in one thread and in the way that it runs from now on;
 * and in how many groups, 0 if our own threads have tried to share it. 1 if that is known, 0 if it
 * was not run often enough or still runs. */
int fl_direct_times(fl_direct *direct, uint32_t *times, uint32_t *shared_times, uint64_t *groups);
/* How many commands several threads run together, and how many threads at most. */
uint32_t fl_direct_shared(const fl_direct *direct, uint32_t *threads);
/* How much stack the caller's thread has left, in bytes, and how much it needs to run work-groups:
 * PoCL's own threads have 8 MiB. */
size_t fl_stack_left(void);
enum { FL_STACK_NEEDED = 15 << 19 };

/* --- cuda.c, cuda_launches.c: the engine that runs commands as a CUDA Graph, and cuda_buffers.c:
 * buffers of memory that CUDA has too --- */
/* A device: `table` leads to the table of CUDA's functions that receives calls now
 * (DispatchTable.address_of_top). `context` is retained. `lost` is the code after which nothing
 * runs on it any more. `reaches` has a bit for each device, by its `number`, whose memory its
 * kernels can use. A launch of up to `early_threads` threads may let the next one start. */
typedef struct fl_cuda_device {
    void *const *table;
    void *context, *stream;
    int32_t number, lost;
    uint64_t reaches, early_threads;
    void *turn;   /* of cuda_loops.c */
    char lost_by[128];   /* the graph whose kernel ended the context: `lost` */
} fl_cuda_device;
enum { FL_CUDA_MOST_DEVICES = 64 };
/* How OpenCL imports memory of CUDA's: its address there, and a file descriptor that belongs to
 * OpenCL after a success. A context of several devices imports it for one of them. NULL, and the
 * code. */
typedef void *fl_cuda_import(void *context, void *opencl_device, uint64_t flags, uint64_t address,
                             int descriptor, size_t size, int32_t *code);
/* Buffers of an OpenCL device are made of memory that CUDA has too, from now on; `import` is NULL
 * for file descriptors. OpenCL's code. */
int fl_share_memory(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import);
void fl_unshare_memory(void *opencl_device);
/* In contexts of several devices this thread's new buffers are this one's (OpenCL's handle) from
 * now on, and NULL: of none, so they are not shared. Returns what it was. */
void *fl_make_buffers_on(void *opencl_device);
/* CUDA's address of a buffer, 0 if it is not shared. */
uint64_t fl_cuda_address(void *memory);
/* Keep so many bytes of what the program releases, to use them again; 0: none. */
void fl_limit_kept(uint64_t bytes);
/* Buffers that live: parts of slabs, and those that have memory of their own; how many the driver
 * has made by itself; bytes that are kept; and buffers that were made of kept memory. */
typedef struct fl_cuda_counts {
    uint64_t small, own, other, kept, reused;
} fl_cuda_counts;
fl_cuda_counts fl_count_shared(void);

/* What a parameter of a translated kernel is. */
enum fl_cuda_parameter { FL_CUDA_VALUE, FL_CUDA_MEMORY, FL_CUDA_LOCAL };
/* A part of a launch that has too many work-groups for CUDA: its first work-group, those of the
 * launch, and the work-items of each. */
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
    uint32_t place;            /* its device's in `devices` */
    fl_cuda_part part;         /* that it is for alone, or zeros */
} fl_cuda_function;
/* The functions of commands. `place_of` has the place in `devices` by fl_command.queue. */
typedef struct fl_cuda_functions {
    const fl_cuda_function *list;
    uint32_t count, device_count;
    fl_cuda_device *const *devices;
    const uint32_t *place_of;
} fl_cuda_functions;
enum { FL_CUDA_MOST_LOADS = 64, FL_CUDA_MOST_PARTS = 16 };
/* The next command from `number` on that is launched in parts, `count` if there is none. Its parts
 * come to `parts`. */
uint32_t fl_find_in_parts(const fl_cuda_functions *functions, const fl_command *commands,
                          uint32_t count, uint32_t number, fl_cuda_part *parts,
                          uint32_t *part_count);
/* Whether a launch is best followed by one that starts while it runs: it has some thousand threads,
 * and not more than `most`. A function whose `lets_start` is not 0 does that, and is for launches
 * of up to so many threads. */
int fl_lets_start(const fl_command *command, uint64_t most);
/* The numbers of launches that differ in what their functions depend on: device, kernel,
 * dimensions, offset, fl_lets_start and, in commands that can be updated, which arguments are
 * Parameters. Each kind is among them; a few may be twice. `found` has room for all. Returns how
 * many there are. */
uint32_t fl_find_launches(const fl_cuda_functions *functions, const fl_command *commands,
                          uint32_t count, bool updatable, uint32_t *found);
/* Why a command cannot be a node. */
enum fl_cuda_reason {
    FL_CUDA_FINE,
    FL_CUDA_KERNEL,
    FL_CUDA_ARGUMENT,
    FL_CUDA_UNSEEN,
    FL_CUDA_NOT_SHARED,
    FL_CUDA_NOT_REACHED,
    FL_CUDA_SVM,
    FL_CUDA_RANGE,
    FL_CUDA_GROUPS,
    FL_CUDA_LOCAL_SIZE,
    FL_CUDA_IMAGE,
    FL_CUDA_NO_ROOM
};
/* The order of commands on at most `most` chains (chains.h). Command i comes after those in
 * `before` from first[i] up to first[i + 1]. Its device is places[i], of `place_count`. The
 * directly preceding ones are in `after`, which has room for 8 for each command, by `first_after`.
 * Returns how many chains there are, or UINT32_MAX if there is no memory. */
uint32_t fl_chain(uint32_t count, const uint32_t *first, const uint32_t *before,
                  const uint8_t *only_orders, const uint32_t *places, uint32_t place_count,
                  uint32_t most, uint32_t *first_after, uint32_t *after);
/* The first command that cannot be a node, `count` if each can; *reason is an enum fl_cuda_reason.
 */
uint32_t fl_check_cuda(const fl_cuda_functions *functions, const fl_command *commands,
                       uint32_t count, uint32_t *reason);
typedef struct fl_cuda fl_cuda;
/* A graph of commands that all can be nodes, which `device` launches. A node comes after those in
 * `before`, from first_before[its number] up to the next one's. `starts_early`: a launch that waits
 * may start before the end of the one that it comes after, if nothing else comes after that. What
 * it is given outlives it, but for the numbers and the title, which errors call it. NULL: *code is
 * CUDA's. */
fl_cuda *fl_new_cuda(fl_cuda_device *device, void *context, const fl_cuda_functions *functions,
                     const fl_command *commands, uint32_t count, const uint32_t *first_before,
                     const uint32_t *before, int starts_early, int in_order, int beside,
                     const char *title, int *code);
/* How many nodes start early. */
uint32_t fl_cuda_early(const fl_cuda *cuda);
/* What is enqueued runs to its end: 1 if something is left, whose functions and memory must stay.
 */
int fl_release_cuda(fl_cuda *cuda);
/* Whether one that was released so has ended. It may be gone: it is not looked into. */
int fl_cuda_has_ended(const fl_cuda *cuda);
/* Lets Python call `tell` after such an end. `add` is Py_AddPendingCall, NULL: not any more. */
typedef int fl_tell(void *);
typedef int fl_add_pending(fl_tell *tell, void *data);
void fl_tell_cuda_ends(fl_add_pending *add, fl_tell *tell);
int fl_enqueue_cuda(void *cuda, void *const *queues, uint32_t queue_count, uint32_t times,
                    uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed);
int fl_update_cuda(void *cuda, uint32_t command, int relaunched);
int fl_set_cell_of_cuda(void *cuda, const fl_cell *cell);
int fl_run_cuda(void *cuda, uint32_t times);
int fl_finish_for_cuda(void *cuda, void *queue);
int fl_run_cuda_until(void *cuda, uint32_t times, void *flag, size_t offset, int wanted, int first,
                      uint32_t *ran, uint32_t *stopped);
int fl_take_series_cuda(void *cuda, const fl_value *values, uint32_t count, uint32_t times);
const char *fl_turn_text(void);   /* cuda_loops.c: PTX */
enum { FL_CUDA_MEASURED = 8 };
/* What replays took from the call until the end, and on the device, in ns. 0: there are not enough
 * yet. */
int fl_cuda_times(fl_cuda *cuda, uint64_t *taken, uint64_t *on_device);
/* Forget these: the next ones are measured. */
void fl_measure_cuda_again(fl_cuda *cuda);
