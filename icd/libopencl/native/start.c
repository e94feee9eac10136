/* The start: at the first call that needs a driver, once, from any thread, and in forked children.
 */
#define _GNU_SOURCE
#include "loader.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { NEW, STARTING, STARTED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int state = NEW;
static pthread_t starter; /* valid while it is STARTING */

void fl_say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    flockfile(stderr);
    fputs("fairlead: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(arguments);
}

void fl_note(const char *format, ...) {
    const char *wanted = secure_getenv("OCL_ICD_ENABLE_TRACE");
    if (!wanted || !strchr("Tt1", *wanted) || !*wanted)
        return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    fl_say("%s", line);
}

static bool is_started(void) { return __atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTED; }

bool fl_start(void) {
    if (is_started())
        return true;
    if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) == STARTING &&
        pthread_equal(starter, pthread_self()))
        return false;
    FL_HOLD(lock);
    if (state != STARTED) {
        starter = pthread_self();
        __atomic_store_n(&state, STARTING, __ATOMIC_RELEASE);
        if (!fl_use_verdict())
            fl_search();
        fl_settle();
        fl_start_layers();
        __atomic_store_n(&state, STARTED, __ATOMIC_RELEASE);
    }
    return true;
}

/* Another thread of the parent was starting: the child has no such thread, and begins anew. */
static void in_child(void) {
    fl_after_fork(true);
    fl_free_neighbours();
    fl_free_repairs();
    if (is_started() || (state == STARTING && pthread_equal(starter, pthread_self())))
        return;
    pthread_mutex_init(&lock, NULL);
    state = NEW;
    fl_forget_drivers();
}

static void in_parent(void) { fl_after_fork(false); }

__attribute__((constructor)) static void watch_forks(void) {
    pthread_atfork(fl_before_fork, in_parent, in_child);
}

__attribute__((destructor)) static void end(void) {
    if (is_started())
        fl_end_layers();
}
