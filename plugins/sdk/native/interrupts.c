/* Ctrl-C that came while an entry point ran. The handler of loader/base/interrupts.py defers it.
 * The shell raises it again when the entry point has returned. Python then handles it before the
 * next instruction of the caller. */
#include "interrupts.cdef.h"

#include <pthread.h>
#include <stdatomic.h>

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
