/* A shell is a Unified Runtime adapter with nothing in it: tables, entry points, and a way to the Python that has the bodies. With FL_PI
 * (pi_shell.c) it is a PI plugin with nothing in it.
 *
 * The first call of a table getter, or of piPluginInit, looks for a Python (python.c) and has it put a function into `bodies` for each entry
 * point that is implemented (plugins/sdk/start.py, plugins/sdk/pi.py).
 *
 * The configuration is a block of text in the file itself, so that a new adapter is a copy of the shell with another text
 * (plugins/sdk/build.py): no compiler is needed for it.
 *
 * An entry point without a body answers for itself: UNSUPPORTED_FEATURE while the adapter runs, UNINITIALIZED before and after it, and once it
 * has ended whatever releases or waits says that it did, since programs do so to their very end. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python.h"
#include "shell.cdef.h"

/* Replaced in the file by plugins/sdk/build.py, which looks for the first line. */
__attribute__((used)) static const volatile char configuration[8192] = "FAIRLEAD SHELL CONFIGURATION\n";

static struct fl_shell fl_shell_state;
static void *fl_body(unsigned entry);
static int32_t fl_no_body(unsigned entry);
static inline int32_t fl_leave(int32_t code);
#ifdef FL_PI
static bool fl_is_direct(unsigned entry);
static int32_t fl_call(unsigned entry, uintptr_t handle);
#include "pi_entries.h"
#else
static int32_t fl_fill(uint32_t version, void **table, const uint16_t (*rows)[2]);
#include "ur_entries.h"
#endif

static _Atomic(void *) bodies[FL_ENTRIES], direct[FL_ENTRIES];
static _Atomic(int) state;
enum { NEW, STARTING, RUNNING, FAILED, CLOSED, RESET };
static unsigned chosen;   /* layout of the tables */

static void *fl_body(unsigned entry) {
    return atomic_load_explicit(&bodies[entry], memory_order_acquire);
}

static int32_t fl_no_body(unsigned entry) {
    int now = state;
    return now == RUNNING ? UNSUPPORTED_FEATURE : now >= CLOSED && fl_releases[entry] ? SUCCESS : UNINITIALIZED;
}

/* Every entry point returns by this. */
static inline int32_t fl_leave(int32_t code) {
    const volatile int *due = fl_shell_state.interrupt_due;
    if (due && *due)
        fl_shell_state.interrupt();
    return code;
}

/* --- what Python calls --- */

static void close_shell(void) {
    state = CLOSED;
    for (unsigned i = 0; i < FL_ENTRIES; i++)
        direct[i] = bodies[i] = NULL;
}

static void reset_shell(void) {
    close_shell();
    state = RESET;
}

static void (*teardown)(uint32_t);

static void leave(void) {
    if (state == RUNNING && fl_python_lives())
        teardown(fl_shell_state.number);
}

/* Handlers run in the reverse order of their registration. Whoever has opened drivers calls this after that, and is called before they end. */
static void at_exit(void (*function)(uint32_t)) {
    teardown = function;
    atexit(leave);
}

/* --- what C calls --- */

#ifdef FL_PI
static unsigned layout(void) {
    return 0;
}

static bool fl_is_direct(unsigned entry) {
    return direct[entry] != NULL;
}

/* References are counted without Python, as adapters do it (counts.c). */
static int32_t fl_call(unsigned entry, uintptr_t handle) {
    int32_t (*function)(uintptr_t) = (int32_t (*)(uintptr_t))direct[entry];
    if (!function)
        return fl_no_body(entry);
    uint32_t code = (uint32_t)function(handle);
    return fl_shell_state.codes[code < fl_shell_state.code_count ? code : fl_shell_state.code_count];
}
#else
/* FAIRLEAD_UR_LAYOUT: which release's order of functions the tables have, for a loader that is not of the newest. */
static unsigned layout(void) {
    const char *wanted = secure_getenv("FAIRLEAD_UR_LAYOUT");
    if (!wanted || !*wanted)
        return 0;
    for (unsigned i = 0; fl_layouts[i]; i++)
        if (strcmp(wanted, fl_layouts[i]) == 0)
            return i;
    fprintf(stderr, "fairlead: FAIRLEAD_UR_LAYOUT=%s is ignored: it is none of", wanted);
    for (unsigned i = 0; fl_layouts[i]; i++)
        fprintf(stderr, " %s", fl_layouts[i]);
    fputc('\n', stderr);
    return 0;
}
#endif

/* Whether there is a Python with the adapter in it; the first call sees to that. Whoever waits for the lock does not hold the GIL: the
 * one who has it needs that. An adapter that is asked for while it starts, by its own module, is not there yet. */
static bool started(void) {
    static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    if (state == RUNNING)
        return true;
    void *thread = fl_python_release();
    pthread_mutex_lock(&lock);
    if (state == NEW || state == RESET) {
        const char *config = (const char *)configuration;
        state = STARTING;
        chosen = layout();
        fl_shell_state = (fl_shell){
            .version = FL_SHELL_VERSION, .entry_count = FL_ENTRIES, .bodies = (void **)bodies, .names = fl_names, .table = fl_tables[chosen],
            .direct = (void **)direct, .config = config, .close = close_shell, .reset = reset_shell, .at_exit = at_exit,
        };
        bool ready = fl_python_begin(config) && fl_python_start(config, FL_MODULE, &fl_shell_state);
        state = ready ? RUNNING : FAILED;
    }
    pthread_mutex_unlock(&lock);
    fl_python_restore(thread);
    return state == RUNNING;
}

#ifdef FL_PI
/* What a host shows and is given; a table of functions follows. */
struct _pi_plugin {
    char host_version[20];
    char version[20];
    char *targets;   /* what plugins leave alone */
    void *table[FL_ENTRIES];
};
_Static_assert(offsetof(struct _pi_plugin, table) == 48, "PI 15.47");

/* A host of an older major version is refused, by a comparison of texts, as plugins of DPC++ do it (spec/plugins.md C). */
__attribute__((visibility("default"))) int32_t piPluginInit(struct _pi_plugin *plugin) {
    static const char own[] = FL_VERSION ".1";
    if (!plugin)
        return NULL_POINTER;
    if (strncmp(plugin->host_version, own, strcspn(own, ".") + 1) < 0)
        return UNSUPPORTED_VERSION;
    memcpy(plugin->version, own, sizeof own);
    memcpy(plugin->table, fl_tables[0], sizeof plugin->table);   /* in any case: DPC++ calls by it without a look at what is returned */
    return started() ? SUCCESS : UNINITIALIZED;
}
#else
static int32_t fl_fill(uint32_t version, void **table, const uint16_t (*rows)[2]) {
    if (!table)
        return NULL_POINTER;
    if (version != API_VERSION)
        return UNSUPPORTED_VERSION;
    if (!started())
        return UNINITIALIZED;
    memcpy(table, fl_tables[chosen] + rows[chosen][0], rows[chosen][1] * sizeof *table);
    return SUCCESS;
}
#endif
