/* A shell is an empty Unified Runtime adapter: tables, entry points, and what finds a Python that
 * has the bodies. With FL_PI (pi_shell.c) it is an empty PI plugin, with FL_ZE (ze_shell.c) an
 * empty Level Zero driver.
 *
 * The first call of a table getter, or of piPluginInit, finds a Python (python.c). Python puts a
 * function into `bodies` for each entry point that is implemented (plugins/sdk/start.py,
 * plugins/sdk/pi.py).
 *
 * The configuration is a block of text in the file itself. So a new adapter is a copy of the
 * shell with another text, and needs no compiler (plugins/sdk/build.py).
 *
 * An entry point without a body answers UNSUPPORTED_FEATURE while the adapter runs, UNINITIALIZED
 * before and after. After the end everything that releases or waits succeeds, because programs
 * call it until their own end. */
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
__attribute__((used)) static const volatile char configuration[8192] =
    "FAIRLEAD SHELL CONFIGURATION\n";

static struct fl_shell fl_shell_state;
static void *fl_body(unsigned entry);
static int32_t fl_no_body(unsigned entry);
static inline int32_t fl_leave(int32_t code);
#ifdef FL_PI
static bool fl_is_direct(unsigned entry);
static int32_t fl_call(unsigned entry, uintptr_t handle);
#include "pi_entries.h"
#elif defined FL_ZE
static void *fl_body_started(unsigned entry);
static int32_t fl_fill_since(uint32_t version, void **table, unsigned first, const uint32_t *since,
                             unsigned count);
#include "ze_entries.h"
#else
static int32_t fl_fill(uint32_t version, void **table, const uint16_t (*rows)[2]);
#include "ur_entries.h"
#endif

static _Atomic(void *) bodies[FL_ENTRIES], direct[FL_ENTRIES];
static _Atomic(int) state;
enum { NEW, STARTING, RUNNING, FAILED, CLOSED, RESET };
static unsigned chosen; /* layout of the tables */

static void *fl_body(unsigned entry) {
    return atomic_load_explicit(&bodies[entry], memory_order_acquire);
}

static int32_t fl_no_body(unsigned entry) {
    int now = state;
    return now == RUNNING                        ? UNSUPPORTED_FEATURE
           : now >= CLOSED && fl_releases[entry] ? SUCCESS
                                                 : UNINITIALIZED;
}

/* Every entry point returns by this function. */
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

/* Handlers run in the reverse order of their registration. An adapter calls this after it has
 * opened drivers, so its end comes before theirs. */
static void at_exit(void (*function)(uint32_t)) {
    teardown = function;
    atexit(leave);
}

/* --- what C calls --- */

#if defined FL_PI || defined FL_ZE
static unsigned layout(void) { return 0; }
#endif

#ifdef FL_PI
static bool fl_is_direct(unsigned entry) { return direct[entry] != NULL; }

/* References are counted without Python, as in adapters (counts.c). */
static int32_t fl_call(unsigned entry, uintptr_t handle) {
    int32_t (*function)(uintptr_t) = (int32_t (*)(uintptr_t))direct[entry];
    if (!function)
        return fl_no_body(entry);
    uint32_t code = (uint32_t)function(handle);
    uint32_t count = fl_shell_state.code_count;
    return fl_shell_state.codes[code < count ? code : count];
}
#elif !defined FL_ZE
/* FAIRLEAD_UR_LAYOUT: the release whose order of functions the tables have, for an older loader. */
static unsigned layout(void) {
    const char *wanted = secure_getenv("FAIRLEAD_UR_LAYOUT");
    if (!wanted || !*wanted)
        return 0;
    for (unsigned i = 0; fl_layouts[i]; i++)
        if (strcmp(wanted, fl_layouts[i]) == 0)
            return i;
    fprintf(stderr, "fairlead: FAIRLEAD_UR_LAYOUT=%s is ignored: it may be", wanted);
    for (unsigned i = 0; fl_layouts[i]; i++)
        fprintf(stderr, " %s", fl_layouts[i]);
    fputc('\n', stderr);
    return 0;
}
#endif

/* Returns whether there is a Python with the adapter in it. The first call starts it. A thread that
 * waits for the lock does not hold the GIL, because the thread with the lock needs it. While an
 * adapter starts, its own module cannot use it. */
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
            .version = FL_SHELL_VERSION,
            .entry_count = FL_ENTRIES,
            .bodies = (void **)bodies,
            .names = fl_names,
            .table = fl_tables[chosen],
            .direct = (void **)direct,
            .config = config,
            .close = close_shell,
            .reset = reset_shell,
            .at_exit = at_exit,
        };
        bool ready = fl_python_begin(config) && fl_python_start(config, FL_MODULE, &fl_shell_state);
        state = ready ? RUNNING : FAILED;
    }
    pthread_mutex_unlock(&lock);
    fl_python_restore(thread);
    return state == RUNNING;
}

#ifdef FL_PI
/* What a host passes, and what is written there. */
struct _pi_plugin {
    char host_version[20];
    char version[20];
    char *targets; /* plugins do not touch it */
    void *table[FL_ENTRIES];
};
_Static_assert(offsetof(struct _pi_plugin, table) == 48, "PI 15.47");

/* A host of an older major version is refused by a comparison of texts, as in plugins of DPC++. */
__attribute__((visibility("default"))) int32_t piPluginInit(struct _pi_plugin *plugin) {
    static const char own[] = FL_VERSION ".1";
    if (!plugin)
        return NULL_POINTER;
    if (strncmp(plugin->host_version, own, strcspn(own, ".") + 1) < 0)
        return UNSUPPORTED_VERSION;
    memcpy(plugin->version, own, sizeof own);
    /* In any case, because DPC++ calls functions of it whatever is returned. */
    memcpy(plugin->table, fl_tables[0], sizeof plugin->table);
    return started() ? SUCCESS : UNINITIALIZED;
}
#elif defined FL_ZE
/* A program may open a driver itself, and call zeInit first. */
static void *fl_body_started(unsigned entry) { return started() ? fl_body(entry) : NULL; }

/* A caller of an older version has room for the functions of that version alone. They are the first
 * ones. */
static int32_t fl_fill_since(uint32_t version, void **table, unsigned first, const uint32_t *since,
                             unsigned count) {
    if (!table)
        return NULL_POINTER;
    if (version >> 16 != 1)
        return UNSUPPORTED_VERSION;
    if (!started())
        return UNINITIALIZED;
    for (unsigned i = 0; i < count && since[i] <= version; i++)
        table[i] = fl_tables[chosen][first + i];
    return SUCCESS;
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
