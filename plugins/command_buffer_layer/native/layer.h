/* What the files of the command-buffer layer share. The struct at the end is also known to Python
 * (start.py). */
#ifndef FL_COMMAND_BUFFER_LAYER_H
#define FL_COMMAND_BUFFER_LAYER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../../loader/base/native/locks.h"
#include "../../../loader/base/native/answer.h"
#include "opencl_abi.h"

#ifndef FL_DEFINE_STUBS
extern void *const fl_stubs[FL_SLOTS];
#endif

#define FL_EXPORT __attribute__((visibility("default")))
/* The function in a slot of the next table, with its type: NEXT(clFinish)(queue). */
#define NEXT(name) ((fn_##name *)next[SLOT_##name])

typedef void *const *fl_next; /* the table of the next layer, or of the loader */

/* --- layer.c --- */
enum { FL_LAYER_VERSION = 1 };
/* The body of a function of the extensions, found or started; NULL if there is no Python. */
void *fl_body(unsigned entry);
/* Every function of the extensions returns by this. */
cl_int fl_leave(cl_int code);
/* What a function without a body answers. */
cl_int fl_without_body(void);
/* The function of the extensions with this name, NULL if they have no such function. */
void *fl_own_function(const char *name);
/* What serves one loader. instance.c is generated, and linked once for each. */
typedef struct fl_instance {
    struct fl_instance *other;
    fl_next next;       /* the table that the hooks call; NULL: it serves nobody yet */
    void *const *hooks; /* by slot; NULL: the next table's own function */
} fl_instance;
extern fl_instance *fl_instances; /* all */

/* --- queries.c --- */
bool fl_serves_platform(fl_next next, cl_platform_id platform);

/* --- handles.c: command-buffers and commands. Their memory is never freed, so any pointer can be
 * looked up. --- */
enum { FL_FREE, FL_BUFFER, FL_COMMAND };
/* What a handle leads to. NULL: there is no memory. `like` is an object of the same driver. */
void *fl_new_handle(uint32_t kind, void *like);
void fl_free_handle(void *handle);
/* The references of a command-buffer, 0 if it is none. */
uint32_t fl_references(void *handle);
/* The route that C enqueues by, or NULL. After it nobody is on the one before. */
void fl_set_route(void *handle, void *route);
/* The handle is a command-buffer that C can enqueue: the event of its end, a code, or 0 for "ask
 * Python". */
intptr_t fl_enqueue_known(void *handle);

/* --- kernels.c: what the program has set on kernels --- */
enum { FL_UNSET, FL_SET, FL_SET_POINTER };
/* What an argument was set to: the answer is the kind. `room` takes its value if that has at most
 * `size` bytes; *needed is how many it has. *pointer is NULL for local memory, and the pointer
 * itself of FL_SET_POINTER. */
uint32_t fl_seen_argument(void *kernel, uint32_t index, void *room, size_t size, size_t *needed,
                          void **pointer);
/* How often clSetKernelExecInfo was called on a kernel, and the last value of its parameter number
 * `index`: 0 is the end. */
uint32_t fl_exec_changes(void *kernel);
uint32_t fl_seen_exec_info(void *kernel, uint32_t index, void *room, size_t size, size_t *needed);

/* --- events.c: the events of enqueued command-buffers --- */
/* `first` is the event of its first command, a reference, or NULL; `many`: it is of several queues.
 */
void fl_note_event(void *event, void *first, uint32_t many);

typedef struct fl_command_layer {
    uint32_t version, entry_count;
    void **bodies;
    const char *const *names;
    const char *config;
    const int *interrupt_due;
    void (*interrupt)(void);
    void (*close)(void);
    void (*at_exit)(void (*teardown)(void));
    intptr_t (*enqueue_again)(void *route);
    void *(*new_handle)(uint32_t kind, void *like);
    void (*free_handle)(void *handle);
    uint32_t (*references)(void *handle);
    void (*set_route)(void *handle, void *route);
    uint32_t (*seen_argument)(void *kernel, uint32_t index, void *room, size_t size, size_t *needed,
                              void **pointer);
    uint32_t (*exec_changes)(void *kernel);
    uint32_t (*seen_exec_info)(void *kernel, uint32_t index, void *room, size_t size,
                               size_t *needed);
    void (*note_event)(void *event, void *first, uint32_t many);
} fl_command_layer;
extern fl_command_layer fl_state;

#endif
