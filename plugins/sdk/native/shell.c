/* A shell is an empty Unified Runtime adapter: tables, entry points, and what finds a Python that
 * has the bodies. With FL_PI (pi_shell.c) it is an empty PI plugin, with FL_ZE (ze_shell.c) an
 * empty Level Zero driver.
 *
 * The first call of a table getter, or of piPluginInit, finds a Python (python.c). Python puts a
 * function into `bodies` for each entry point that is implemented (plugins/sdk/start.py,
 * plugins/sdk/pi.py).
 *
 * The configuration is a block of text in the file itself. So a new adapter is a copy of the
 * shell with another text, and needs no compiler (loader/base/shell_copies.py).
 *
 * An entry point without a body answers UNSUPPORTED_FEATURE while the adapter runs, UNINITIALIZED
 * before and after. After the end everything that releases or waits succeeds, because programs
 * call it until their own end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../loader/base/native/locks.h"
#include "python.h"
#include "shell.cdef.h"

/* Replaced in the file by loader/base/shell_copies.py, which looks for the first line. */
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
static int32_t fl_absent(void);
static int32_t fl_fill(uint32_t version, void **table, const uint16_t (*rows)[2], void *loader);
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
static bool choose_layout(void *loader) { return !loader; }
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
static int32_t fl_absent(void) {
    return state == RUNNING ? UNSUPPORTED_FEATURE : UNINITIALIZED;
}

/* Returns whether a library itself exports a function. */
static bool exports(void *library, const void *base, const char *name) {
    Dl_info found;
    void *function = dlsym(library, name);
    return function && dladdr(function, &found) && found.dli_fbase == base;
}

/* Chooses the newest release whose functions the loader exports. What exports no functions has a
 * loader of today in it, or is fairlead. */
static bool choose_by_exports(void *loader) {
    Dl_info caller;
    if (!dladdr(loader, &caller) || !caller.dli_fname)
        return true;
    void *library = dlopen(caller.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        return true; /* the program */
    bool any = exports(library, caller.dli_fbase, fl_functions[0][0]), known = false;
    for (unsigned i = 0; any && !known && fl_layouts[i]; i++) {
        const char *const *name = fl_functions[i];
        while (*name && exports(library, caller.dli_fbase, *name))
            name++;
        known = !*name;
        chosen = known ? i : 0;
    }
    dlclose(library);
    if (any && !known)
        fprintf(stderr,
                "fairlead: %s is not of a release of Unified Runtime that is known: set "
                "FAIRLEAD_UR_LAYOUT to one whose tables it has\n",
                caller.dli_fname);
    return known || !any;
}

/* FAIRLEAD_UR_LAYOUT: the release whose order of functions the tables have. Without it the loader
 * tells. Returns whether there is one. */
static bool choose_layout(void *loader) {
    const char *wanted = secure_getenv("FAIRLEAD_UR_LAYOUT");
    chosen = 0;
    if (!wanted || !*wanted)
        return choose_by_exports(loader);
    for (unsigned i = 0; fl_layouts[i]; i++)
        if (strcmp(wanted, fl_layouts[i]) == 0) {
            chosen = i;
            return true;
        }
    fprintf(stderr, "fairlead: FAIRLEAD_UR_LAYOUT=%s is ignored: it may be", wanted);
    for (unsigned i = 0; fl_layouts[i]; i++)
        fprintf(stderr, " %s", fl_layouts[i]);
    fputc('\n', stderr);
    return choose_by_exports(loader);
}
#endif

static pthread_mutex_t starting = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

/* The thread that starts it does not exist in a forked child: there the shell stays without it. */
FL_IN_CHILD(starting = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP)

/* Returns whether there is a Python with the adapter in it. The first call starts it. A thread that
 * waits for the lock does not hold the GIL, because the thread with the lock needs it. While an
 * adapter starts, its own module cannot use it. `loader`: code of what asks for tables of Unified
 * Runtime. */
static bool started(void *loader) {
    if (state == RUNNING)
        return true;
    void *thread = fl_python_release();
    pthread_mutex_lock(&starting);
    if (state == NEW || state == RESET) {
        const char *config = (const char *)configuration;
        state = STARTING;
        bool ready = choose_layout(loader);
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
        ready = ready && fl_python_begin(config) &&
                fl_python_start(config, FL_MODULE, &fl_shell_state);
        if (ready)
            fl_wait_without_gil();
        state = ready ? RUNNING : FAILED;
    }
    pthread_mutex_unlock(&starting);
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
    return started(NULL) ? SUCCESS : UNINITIALIZED;
}
#elif defined FL_ZE
/* A program may open a driver itself, and call zeInit first. */
static void *fl_body_started(unsigned entry) { return started(NULL) ? fl_body(entry) : NULL; }

/* A caller of an older version has room for the functions of that version alone. They are the first
 * ones. */
static int32_t fl_fill_since(uint32_t version, void **table, unsigned first, const uint32_t *since,
                             unsigned count) {
    if (!table)
        return NULL_POINTER;
    if (version >> 16 != 1)
        return UNSUPPORTED_VERSION;
    if (!started(NULL))
        return UNINITIALIZED;
    for (unsigned i = 0; i < count && since[i] <= version; i++)
        table[i] = fl_tables[chosen][first + i];
    return SUCCESS;
}
#else
static int32_t fl_fill(uint32_t version, void **table, const uint16_t (*rows)[2], void *loader) {
    if (!table)
        return NULL_POINTER;
    if (version != API_VERSION)
        return UNSUPPORTED_VERSION;
    if (!started(loader))
        return UNINITIALIZED;
    memcpy(table, fl_tables[chosen] + rows[chosen][0], rows[chosen][1] * sizeof *table);
    return SUCCESS;
}
#endif
