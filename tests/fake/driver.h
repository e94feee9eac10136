/* What the two files of the fake driver share. */
#pragma once
#include "opencl_abi.h"

typedef struct thing {
    fl_object head;
    int references;
    struct thing *context, *parent;
    cl_device_id device;
    cl_command_queue_properties properties;
    void *memory;
    size_t size;
    /* of a kernel: the arguments that were pointers, and that are something else now */
    unsigned pointers, wrong;
} thing;

typedef struct { const char *name; int slot; void *function;
} entry;

/* In driver.c. */
void *make(const fl_object *parent, thing *context);
cl_int give(const void *value, size_t size, size_t room, void *into, size_t *size_ret);
cl_int give_text(const char *value, size_t room, void *into, size_t *size_ret);
/* The file that FAKE_LOG names in the environment gets a line for each call that a test may look
 * for. */
void say(const char *format, ...);

/* In commands.c. The last entry has no name. */
extern const entry command_entries[];
void *command_extension(const char *name);
cl_int release(void *object);
