/* --- memory.c --- */
size_t fl_safe_read(const void *address, void *into, size_t size);

/* --- interrupts.c --- */
/* Raise an interrupt in this thread in a millisecond. Returns 0, or 1 if the kernel has no timer
 * for this process. */
int fl_interrupt_later(void);

/* --- generated: thunks_ur.c and its like --- */
const fl_thunks *fl_ur_thunks(void);
const fl_thunks *fl_pi_thunks(void);
const fl_thunks *fl_cuda_thunks(void);
const fl_thunks *fl_hip_thunks(void);
const fl_thunks *fl_ze_thunks(void);

/* --- layers.c --- */
/* A table in which every slot returns "unsupported"; NULL if there is no memory. It is never freed,
 * because its users may keep it until the process ends. */
void **fl_new_table_of(const fl_thunks *thunks);
/* A layer that forwards to `next` (NULL: no next table); NULL if all layers of the API are in
 * use. */
fl_layer *fl_new_layer(const fl_thunks *thunks, void *const *next, uint64_t orphan);
/* Forward to another table. Callers that kept a function of the layer call that table from now
 * on. */
void fl_redirect_layer(fl_layer *layer, void *const *next, uint64_t orphan);
void *const *fl_layer_table(const fl_layer *layer);
/* Handlers may change during calls. A call that is running may then see only one of the two. */
void fl_set_handlers(fl_layer *layer, int (*before)(fl_call *), void (*after)(fl_call *));

/* --- log.c: calls recorded in memory --- */
typedef struct fl_log fl_log;
/* `limit` is in bytes. Later calls are only counted. */
fl_log *fl_new_log(size_t limit);
/* Record the calls through `layer` in `log`; NULL stops recording. */
void fl_log_calls(fl_layer *layer, fl_log *log);
/* Records that are not calls: a command of a device (device.c); the name of a thread, which is its
 * two values; a queue, and what its device is called. */
enum { FL_COMMAND = -1, FL_THREAD = -2, FL_QUEUE = -3, FL_QUEUE_WORDS = 16 };
/* Note the name of each thread that makes calls, at its first one. */
void fl_name_threads(fl_log *log);
/* Copy the log from byte `from` on; return how many bytes. Up to fl_log_size, it holds whole
 * records. */
size_t fl_log_copy(fl_log *log, size_t from, void *into, size_t size);
size_t fl_log_size(fl_log *log);
uint64_t fl_log_lost(fl_log *log);
/* Free the records. The log itself is not freed: a call that began during the trace may still
 * end. */
void fl_clear_log(fl_log *log);
/* Read the memory behind the arguments of a call, as the pieces of a record. Returns the number of
 * words, at most FL_LOOK. */
enum { FL_LOOK = 544 };
size_t fl_look(const fl_layer *layer, uint32_t function, const uint64_t *arguments, uint32_t count,
               uint64_t *into);

/* --- device.c: what devices did, by the profiling times of events --- */
/* The slots of the functions that it needs, and the parameters of clCreateCommandQueue and
 * clCreateCommandQueueWithProperties that have the properties. */
typedef struct fl_device {
    uint32_t get_event_info, get_profiling_info, retain_event, release_event;
    uint32_t create_queue, create_queue_with_properties, launch, map_buffer, map_image;
    uint32_t get_device_info;
} fl_device;
/* Record the calls through `layer` in `log`, and a note FL_COMMAND for each command that has ended.
 * Queues are made with profiling. The values of a note: slot, queue, kernel (of a launch, else 0),
 * event, and when it was queued, submitted, started and ended, in ns of the device's clock. */
void fl_log_device(fl_layer *layer, fl_log *log, const fl_device *device);
/* Note the commands that have ended since. */
void fl_note_ended(void);

/* --- dump.c: sources and build logs of OpenCL programs --- */
/* The slots of the functions that it looks at, or calls. */
typedef struct fl_dump {
    uint32_t create_with_source, build, compile, link, get_program_info, get_build_info;
} fl_dump;
/* Write files into a folder from now on, for calls of an API that a log records. */
void fl_dump_programs(const char *into, const fl_thunks *of, const fl_dump *functions);
