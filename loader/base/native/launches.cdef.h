/* --- launches.c: many launches appended to a command-buffer of Unified Runtime, by one call --- */
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
