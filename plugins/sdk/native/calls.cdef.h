/* What C knows of the reference adapter's objects. Python makes these structs, and they live as
 * long as the objects (calls.h). Numbers are OpenCL's handles or addresses of functions. */

/* A platform. It lives as long as the process. */
typedef struct fl_driver {
    uintptr_t platform;       /* the cl_platform_id */
    uintptr_t table;          /* where the address of the present table is, which traces change */
    int32_t turns;            /* one thread at a time may be in the driver's own wait */
    int32_t splits_barriers;  /* a barrier with a wait list is two commands: icd's replay.c */
    int32_t early;            /* blocking writes return before their events are complete */
    /* Functions of cl_intel_unified_shared_memory, or 0. */
    uintptr_t set_pointer, copy, fill, allocate_host, allocate_device, allocate_shared, free;
} fl_driver;

typedef enum fl_usm { FL_USM_OTHER, FL_USM_INTEL, FL_USM_SVM } fl_usm;

/* What memory a device has: its largest allocation, an alignment that all allocations have, and a
 * bit for each ur_usm_type_t. */
typedef struct fl_usm_device {
    uintptr_t cl;
    size_t largest;
    uint32_t align, kinds;
} fl_usm_device;

/* What a context of one device alone has. FL_USM_OTHER: Python does not know it yet. */
typedef struct fl_device_memory {
    fl_usm usm;
    uint64_t svm_flags;
    fl_usm_device device;
} fl_device_memory;

typedef struct fl_context {
    uintptr_t cl;
    const fl_driver *driver;
    fl_usm usm;               /* FL_USM_OTHER: Python has to be asked */
    uint64_t svm_flags;       /* of memory that the host uses, too */
    const fl_usm_device *devices;
    uint32_t device_count;    /* 0: Python allocates */
    uint32_t handle_count;    /* of the devices of a context that C has made */
    uintptr_t handles[8];
} fl_context;
enum { FL_DEVICES = 8 };
void fl_free_context(fl_context *context);

typedef struct fl_queue {
    uintptr_t cl;
    const fl_context *context;
    uint64_t device;          /* the cl_device_id */
    int32_t in_order;
    int32_t shared;           /* others may enqueue, too */
    uint64_t enqueued;        /* commands, each counted after it was enqueued */
    uint64_t finished;        /* commands that are known to be complete */
    uint64_t late;            /* the place of the last blocking write that may still run */
    /* The last launch that found all else complete, and such launches that were over soon: each by
     * a number for its kernel and sizes. Only the thread that waits in steps uses these. */
    uint64_t launch, launch_place, brief[8];
    int64_t launch_began;     /* nanoseconds */
    struct fl_queue *next;    /* in the list of all queues */
} fl_queue;
extern int64_t fl_soon;   /* nanoseconds, in which a launch is soon over */

/* An event's fourth number: the command, whether it is over at once, whether all before it was
 * complete, and its place in its queue. */
enum { FL_COMMAND = 0xffff, FL_BRIEF = 0x10000, FL_ALONE = 0x20000, FL_PLACE = 20, FL_BRIEFS = 8 };
enum { FL_LEVEL_ZERO = 0x40000 };   /* the event is of the adapter on Level Zero (level_zero.c) */
enum { FL_INSIDE = 64, FL_ARGUMENTS = 64 };
/* FL_KEPT_ELSEWHERE: only Python knows it. */
enum {
    FL_KEPT_NOTHING,
    FL_KEPT_VALUE,
    FL_KEPT_LOCAL,
    FL_KEPT_POINTER,
    FL_KEPT_MEM,
    FL_KEPT_ELSEWHERE
};

/* What an argument was set to. Of a memory object it is the handle, with the handle's number. */
typedef struct fl_kept_argument {
    uint32_t kind;
    size_t size;
    uint64_t number;
    uintptr_t value;
    char bytes[FL_INSIDE];
} fl_kept_argument;

typedef struct fl_kernel {
    uintptr_t cl;
    const fl_context *context;
    unsigned *busy;           /* the lock of the cl_kernel: a thread sets or uses arguments */
    int32_t in_python;        /* only Python knows all that was set on it */
    int32_t had_pointers;     /* an argument was ever an address */
    uint32_t count;           /* of its arguments */
    uint64_t changed;         /* bit i: Python does not know argument i yet */
    uint64_t device;          /* of `required`, or 0 */
    size_t required[3];       /* the work-group that it is compiled for, 0: any */
    fl_kept_argument *arguments;
    /* What Python knows of launches in command-buffers: how often anything but an argument was set,
     * a work-group that a device takes, and the sizes of the driver's values, or 0. */
    uint64_t settings, group_device;
    uint32_t group_dimensions;
    size_t group[3];
    uint32_t sizes[FL_ARGUMENTS];
} fl_kernel;

/* What the C of Level Zero drivers calls of this library. `type` is a ur_exp_kernel_arg_type_t, not
 * of a memory object. set_argument returns 0, or FL_TO_PYTHON with nothing changed. */
typedef struct fl_sdk_functions {
    const uintptr_t *(*words)(uint32_t adapter, uintptr_t handle, unsigned kind);
    int32_t (*set_argument)(fl_kernel *kernel, uint32_t index, uint32_t type, size_t size,
                            uintptr_t value);
    bool (*try_kernel)(fl_kernel *kernel);   /* false: another thread has it */
    void (*leave_kernel)(fl_kernel *kernel);
    /* Waits for an event of an in-order queue: 0, OpenCL's code, or FL_TO_PYTHON if it is not over.
     */
    int32_t (*wait)(const fl_driver *driver, void *event);
    /* The execution status of an event; a negative number is a failure. */
    int32_t (*status)(void *event);
    void (*retain)(const fl_driver *driver, void *event);
    const void *icd;          /* fl_functions */
    void (*enter_lock)(unsigned *lock);      /* an fl_lock, which is free in a forked child */
    void (*leave_lock)(unsigned *lock);
} fl_sdk_functions;
const fl_sdk_functions *fl_exported_by_sdk(void);

/* The queries whose answers C keeps. */
enum fl_query {
    FL_OF_PLATFORM,
    FL_OF_DEVICE,
    FL_OF_CONTEXT,
    FL_OF_KERNEL,
    FL_OF_GROUP,
    FL_OF_SUB_GROUP,
    FL_OF_COMMAND_BUFFER,
    FL_QUERIES
};
typedef struct fl_answers fl_answers;
fl_answers *fl_new_answers(void);
void fl_free_answers(fl_answers *answers);
/* Says which properties of a query never change. Negative numbers: if their handles last. */
void fl_keep_answers(uint32_t query, const int64_t *names, uint32_t count);

/* Counts a command that Python has enqueued. */
void fl_count(fl_queue *queue);
/* Python waits for a kernel, and leaves it. */
void fl_enter_kernel(fl_kernel *kernel);
void fl_leave_kernel(fl_kernel *kernel);
/* The program has a cl_mem, which its own calls of OpenCL may use. */
void fl_note_shared_memory(void);
/* The thread that waits in steps because Python's signals come there, or 0. */
void fl_waits_in_steps(uintptr_t thread);
/* Whether this thread runs a callback of a driver. */
void fl_in_callback(int32_t runs);

/* Python begins and ends a queue. */
void fl_add_queue(fl_queue *queue);
void fl_remove_queue(fl_queue *queue);
/* Adds to the number of queues that were closed while commands ran. */
void fl_add_unfinished(int32_t count);

/* Memory that is used by its address. `of_c`: Python does not know it yet. */
typedef struct fl_memory {
    uintptr_t base;
    size_t size;
    uintptr_t context, device;   /* the cl_context, and the cl_device_id or 0 */
    uint32_t kind;               /* ur_usm_type_t */
    bool of_c;
} fl_memory;
/* Adds memory of Python's. Returns false without room for it. */
bool fl_add_memory(uintptr_t base, size_t size, uintptr_t context, uint32_t kind);
void fl_remove_memory(uintptr_t base);
/* Gives Python the memory that an address is in, if it is C's and of the context. */
bool fl_adopt_memory(uintptr_t address, uintptr_t context, fl_memory *found);
/* An address in memory of C's in a context, 0 if there is none. */
uintptr_t fl_find_memory(uintptr_t context);
/* The kind of the memory that an address is in, UR_USM_TYPE_UNKNOWN if it is in none. */
uint32_t fl_kind_of_memory(uintptr_t address);
/* Adds to the number of ranges that only Python knows, such as the program's own. */
void fl_add_hidden(int32_t count);
