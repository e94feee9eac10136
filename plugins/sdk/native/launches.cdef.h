/* What Python calls for the arguments of launches in command-buffers: launches.c. What is icd's is `void *` here. */

/* A command-buffer, as its launches see it. The last two are known when it is finalized. */
typedef struct fl_launches {
    uint32_t adapter;
    int32_t no_pointers;       /* the code for an address, where the devices have no USM; else 0 */
    uint32_t null_is_pointer;  /* whether the driver takes NULL as it takes addresses */
    uintptr_t (*part)(void *context, uintptr_t address);   /* the cl_mem for an address, where drivers take none as an argument; else NULL */
    void *context;             /* for that; the command-buffer's context, as Python knows it */
    uintptr_t cl_context;
    void *commands;            /* fl_array */
    uintptr_t handle;
    void *buffer;              /* fl_buffer */
} fl_launches;

/* What an append has done: a launch without its kernel is there; bit i of `addresses` says that its argument of index i < 64 is an address. If
 * `code` is not 0 nothing was done, because of the argument `index`. */
typedef struct fl_appended {
    int32_t code;
    uint32_t index;
    uint64_t addresses;
} fl_appended;

enum { FL_NOT_PLAIN = -1 };

/* Where icd's functions are: an `fl_functions *` of icd/native/native.cdef.h. */
void fl_use_icd(const void *functions);
/* Append a launch: its sizes, of which `offset` and `local` may be NULL, and all its arguments, from an append's rows; `native`: the objects
 * in these are OpenCL's own. */
fl_appended fl_append_launch(const fl_launches *launches, uint32_t dim, const size_t *offset, const size_t *size, const size_t *local,
                             const ur_exp_kernel_arg_properties_t *rows, uint32_t count, uint32_t argument_count, bool native);
/* The new arguments that an update has, as `changes` (fl_change), and room for what they lead to; for each there is room. `old` are the
 * arguments whose sizes new values have to have, or NULL. 0, or a code and the `index` of the argument. */
int32_t fl_read_update(const fl_launches *launches, const ur_exp_command_buffer_update_kernel_launch_desc_t *update, const void *old,
                       uint32_t argument_count, void *changes, uintptr_t *room, uint32_t *index);
/* Updates of launches of this command-buffer that have new arguments and nothing else: all of it, 0 or OpenCL's code. FL_NOT_PLAIN: there
 * are others among them, or what is wrong, and nothing was done. */
int32_t fl_update_plainly(const fl_launches *launches, const ur_exp_command_buffer_update_kernel_launch_desc_t *updates, uint32_t count);
