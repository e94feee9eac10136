/* libfairlead_command_buffer.so: an OpenCL layer that gives command-buffers to drivers without
 * them. ../__init__.py says how.
 *
 * An OpenCL loader gives it a table, and gets a copy with a few functions exchanged (hooks.h). All
 * others are the next table's own. The functions of the extensions have no slot: programs ask for
 * them by name. The first call of one finds a Python (python.c), which puts a function into
 * `bodies` for each (../start.py). Queries, references and repeated enqueues do without it.
 *
 * Several loaders of a process may load it. Each has an instance, with a table of its own. */
#define _GNU_SOURCE
#include "layer.h"

#include "python.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char fl_layer_name[] = "fairlead command-buffer";
#include "../../../icd/native/layer_entries.h"

#define FL_MODULE "fairlead.plugins.command_buffer_layer.start"

/* Replaced in the file by loader/base/shell_copies.py, which looks for the first line. */
__attribute__((used)) static const volatile char configuration[8192] =
    "FAIRLEAD SHELL CONFIGURATION\n";

#include "extension_names.h" /* generated: FL_ENTRIES, fl_names */

fl_command_layer fl_state;
static _Atomic(void *) bodies[FL_ENTRIES];
static atomic_int state;
enum { NEW, STARTING, RUNNING, FAILED, CLOSED };
static void (*teardown)(void);
static pthread_mutex_t starting = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

FL_IN_CHILD(starting = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
            pthread_mutex_init(&loading, NULL))

static void close_layer(void) {
    state = CLOSED;
    for (unsigned i = 0; i < FL_ENTRIES; i++)
        bodies[i] = NULL;
}

static void leave(void) {
    if (state == RUNNING && fl_python_lives())
        teardown();
}

/* Handlers run in the reverse order of their registration, so this end comes before that of drivers
 * which were opened earlier. */
static void at_exit(void (*function)(void)) {
    teardown = function;
    atexit(leave);
}

/* A thread that waits for the lock does not hold the GIL, because the thread with the lock needs
 * it. */
static void start(void) {
    void *thread = fl_python_release();
    pthread_mutex_lock(&starting);
    if (state == NEW) {
        const char *config = (const char *)configuration;
        state = STARTING;
        fl_state = (fl_command_layer){
            .version = FL_LAYER_VERSION,
            .entry_count = FL_ENTRIES,
            .bodies = (void **)bodies,
            .names = fl_names,
            .config = config,
            .close = close_layer,
            .at_exit = at_exit,
            .new_handle = fl_new_handle,
            .free_handle = fl_free_handle,
            .references = fl_references,
            .set_route = fl_set_route,
            .seen_argument = fl_seen_argument,
            .exec_changes = fl_exec_changes,
            .seen_exec_info = fl_seen_exec_info,
            .note_event = fl_note_event,
        };
        bool ready = fl_python_begin(config) && fl_python_start(config, FL_MODULE, &fl_state);
        state = ready ? RUNNING : FAILED;
    }
    pthread_mutex_unlock(&starting);
    fl_python_restore(thread);
}

void *fl_body(unsigned entry) {
    if (state == NEW || state == STARTING)
        start();
    return atomic_load_explicit(&bodies[entry], memory_order_acquire);
}

cl_int fl_without_body(void) {
    return state == CLOSED ? CL_INVALID_OPERATION : CL_OUT_OF_RESOURCES;
}

cl_int fl_leave(cl_int code) {
    const volatile int *due = fl_state.interrupt_due;
    if (due && *due)
        fl_state.interrupt();
    return code;
}

fl_instance *fl_instances;

/* The instance with this next table. C has no closures, so each has hooks of its own. A loader that
 * comes again with the same functions gets its old instance: some are unloaded and loaded over and
 * over. NULL: all are taken. The table is kept or freed. */
static const fl_instance *instance_of(void **next) {
    fl_instance *instance = fl_instances;
    FL_HOLD(loading);
    while (instance && instance->next && memcmp(instance->next, next, sizeof(void *) * FL_SLOTS))
        instance = instance->other;
    if (instance && !instance->next)
        instance->next = next;
    else
        free(next);
    return instance;
}

/* The loader's table may be shorter than ours, and may have NULL where its system has no such
 * function. The hooks reach the next functions by a table that has a stub there. */
cl_int clInitLayer(cl_uint num_entries, void *const *target_dispatch, cl_uint *num_entries_ret,
                   void *const **layer_dispatch_ret) {
    if (!num_entries || !target_dispatch || !num_entries_ret || !layer_dispatch_ret)
        return CL_INVALID_VALUE;
    void **next = malloc(sizeof(void *) * FL_SLOTS), **table = malloc(sizeof(void *) * num_entries);
    if (!next || !table) {
        free(next);
        free(table);
        return CL_OUT_OF_HOST_MEMORY;
    }
    for (unsigned i = 0; i < FL_SLOTS; i++)
        next[i] = i < num_entries && target_dispatch[i] ? target_dispatch[i] : fl_stubs[i];
    const fl_instance *instance = instance_of(next);
    if (!instance) {
        free(table);
        return CL_OUT_OF_RESOURCES;
    }
    memcpy(table, target_dispatch, sizeof(void *) * num_entries);
    for (unsigned i = 0; i < FL_SLOTS && i < num_entries; i++)
        if (instance->hooks[i] && table[i])
            table[i] = instance->hooks[i];
    *num_entries_ret = num_entries;
    *layer_dispatch_ret = table;
    return CL_SUCCESS;
}
