/* --- launches.c: many launches of a command-buffer of Unified Runtime, by one call --- */
/* The range of a launch. `has_…`: 0 if it is not given. */
typedef struct fl_range {
    uint32_t dimensions, has_offset, has_local, unused;
    size_t offset[3], size[3], local[3];
} fl_range;
/* Launches for a command-buffer. An array has an element for each launch, or some for each. */
typedef struct fl_new_launches {
    uintptr_t append;          /* urCommandBufferAppendKernelLaunchWithArgsExp */
    uintptr_t buffer;
    uint32_t count;
    const uintptr_t *kernels;
    const fl_range *ranges;
    const uint32_t *argument_counts;
    void *arguments;           /* ur_exp_kernel_arg_properties_t; their indices are written here */
    /* How many commands it comes after, and the numbers of these, or NULL: it comes after none.
     * Sync-points are written here. */
    uint32_t *after;
    /* How many kernels an update may choose instead, and these; or NULL: there are none. */
    uintptr_t *alternatives;
    /* What the appends return: all commands of the command-buffer have an element. `number` is that
     * of the next command. `handles` may be NULL. */
    uint32_t *points;
    uintptr_t *handles;
    uint32_t number;
} fl_new_launches;
/* Returns 0, or the code of the launch that is refused: that of `number`. */
int32_t fl_append_launches(fl_new_launches *launches);

/* A launch that is to replace another one. The arguments of the old one and of the new one follow,
 * as ur_exp_kernel_arg_properties_t. If the kernel is another one, the old ones are left out. */
typedef struct fl_changed_launch {
    uintptr_t command;
    uintptr_t kernel;          /* 0: the same as before */
    size_t argument_count;     /* of each of them */
    fl_range old_range, range;
} fl_changed_launch;
/* Writes a ur_exp_command_buffer_update_kernel_launch_desc_t to memory for each launch that
 * differs, and what they lead to. It needs no more memory than the changes do. Returns how many
 * differ; FL_NEW_SAMPLER if one has another sampler, which updates cannot say. */
enum { FL_NEW_SAMPLER = -1 };
int32_t fl_describe_changes(uint32_t count, const void *changes, void *memory);
