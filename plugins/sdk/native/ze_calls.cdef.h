/* What C knows of a Level Zero driver's objects. Python makes these structs, and they live as long
 * as the objects (ze_calls.h). Contexts and devices are OpenCL's handles. */

enum { FL_ZE_DRIVERS = 0x8000 };   /* numbers of drivers follow those of adapters */

/* What an argument is. FL_ZE_UNKNOWN: Python has to look at what it is set to. C leaves images and
 * samplers to Python. */
enum { FL_ZE_UNKNOWN, FL_ZE_VALUE, FL_ZE_LOCAL, FL_ZE_POINTER, FL_ZE_IMAGE, FL_ZE_SAMPLER };

typedef struct fl_ze_kernel {
    struct fl_kernel *kernel; /* has the arguments; NULL: Python sets them */
    uintptr_t context, device;
    const uint8_t *kinds;     /* of its arguments */
    uint32_t count;           /* of them */
    int32_t settings;         /* another number for each setting that is not an argument */
    uint64_t most;            /* work-items of a group */
    uint64_t sizes[3], offsets[3], limits[3], required[3];   /* `required`: 0 for any */
} fl_ze_kernel;

/* A kernel that nobody else sets arguments on, for launches of `kernel`. Where the driver keeps
 * addresses that were set, it is for those launches whose arguments `addresses` are addresses. */
typedef struct fl_ze_copy {
    struct fl_ze_copy *next;
    const fl_ze_kernel *kernel;
    int32_t settings;
    uint64_t addresses, mask; /* `mask`: the arguments that matter */
    void *copy;
} fl_ze_copy;

/* A command that can be changed. Its identifier is its place plus one. */
typedef struct fl_ze_command {
    int32_t in_python;        /* Python makes all changes of it */
    uint32_t flags;           /* ze_mutable_command_exp_flags_t */
    uint32_t index;           /* in the array */
    uint32_t number;          /* in `buffer` */
    const fl_ze_kernel *kernel;
    struct fl_buffer *buffer;
    uint64_t changed;         /* bit i: Python does not know argument i yet */
    int32_t dirty;            /* what was built does not know its arguments yet */
    struct fl_ze_command *next;   /* that is */
} fl_ze_command;

enum { FL_ZE_OPEN, FL_ZE_CLOSED, FL_ZE_CHANGED };

typedef struct fl_ze_queue {
    uintptr_t context, device, cl;
    const struct fl_driver *driver;
    int32_t in_python;        /* steps wait for their events, or the queue is synchronous */
    unsigned lock;            /* a thread enqueues on it in C, or reads or changes what follows */
    int32_t pending;          /* what Python has enqueued or taken is not known to have ended */
    void *last;               /* the event of what C has enqueued last, a reference, or NULL */
} fl_ze_queue;
/* Takes that event out. It is pending from now on. */
void *fl_ze_take_last(fl_ze_queue *queue);
/* Sets `in_python`, and waits until no thread enqueues on it in C. */
void fl_ze_pause(fl_ze_queue *queue);

/* What C knows of an event: one of these, or the cl_event that signals it, a reference. */
enum { FL_ZE_RESET, FL_ZE_IN_PYTHON };
typedef struct fl_ze_event {
    uintptr_t context, state;
    const struct fl_driver *driver;
    unsigned lock;            /* a thread reads or changes `state` */
    int32_t counts;           /* it is counter-based: nobody resets it, and it begins complete */
} fl_ze_event;
/* Only Python knows the event from now on. Returns the cl_event by which C has signaled it, or
 * NULL. */
void *fl_ze_take_event(fl_ze_event *event);
/* It is reset, and nothing of Python's waits for it: C may signal it. */
void fl_ze_give_event(fl_ze_event *event);
/* A counter-based event, which `cl` signals: C may answer for it, and signal it again. */
void fl_ze_put_event(fl_ze_event *event, void *cl);

typedef struct fl_ze_list {
    uintptr_t context, device;
    struct fl_array *array;
    int32_t in_order;         /* it may signal counter-based events */
    int32_t in_python;        /* only Python appends */
    int32_t state;            /* FL_ZE_CHANGED: it has to be closed again */
    int32_t drafts;           /* Python has changes for its next close */
    uint32_t count;           /* of `commands` */
    fl_ze_command *commands;  /* what can be changed, after the first close */
    fl_ze_command *dirty;     /* the last one that became so */
    fl_ze_copy *copies;       /* the last one used comes first */
    struct fl_buffer *only;   /* runs all of it, NULL: Python executes it */
    fl_ze_event *const *resets; /* what it leaves reset. They are reset before, or Python runs it */
    uint32_t reset_count;
    fl_ze_queue *stream;      /* of an immediate list that C appends lists to, or NULL */
} fl_ze_list;

/* Sets the functions of plugins.sdk._native, an fl_sdk_functions *. */
void fl_ze_use(const void *functions);
