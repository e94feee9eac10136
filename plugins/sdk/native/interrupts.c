/* Ctrl-C that came while an entry point ran. The handler of loader/base/interrupts.py defers it.
 * The shell raises it again when the entry point has returned. Python then handles it before the
 * next instruction of the caller. */
#include "interrupts.cdef.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

/* Python's, which cffi's headers hide in part. */
void PyErr_SetInterrupt(void);

static atomic_int due;
static pthread_t thread;   /* the one that runs Python's signal handlers */

void fl_put_off_interrupt(void) {
    thread = pthread_self();
    due = 1;
}

const int *fl_interrupt_due(void) { return (const int *)&due; }

/* An outer entry point may still be running: then the handler puts it off again. */
void fl_raise_interrupt(void) {
    if (due && pthread_equal(thread, pthread_self())) {
        due = 0;
        PyErr_SetInterrupt();
    }
}

/* Python drops an exception that leaves a finalizer. So the interrupt comes again when that has
 * probably returned. No Python function can do this: each of its calls would handle the next
 * interrupt inside the last one. It is a real signal, because Python up to 3.11 notices
 * PyErr_SetInterrupt of another thread only by chance. */
static void *interrupt_later(void *main_thread) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_kill((pthread_t)main_thread, SIGINT);
    return NULL;
}

void fl_interrupt_later(void) {
    pthread_t made;
    if (pthread_create(&made, NULL, interrupt_later, (void *)pthread_self()))
        fl_put_off_interrupt();   /* then the next entry point raises it */
    else
        pthread_detach(made);
}
