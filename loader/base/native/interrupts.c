/* Ctrl-C that came where Python drops exceptions. The handler of interrupts.py defers it. */
#include "native.h"
#include "threads.h"

#include <signal.h>
#include <time.h>

/* No Python function can do this: each of its calls would handle the next interrupt inside the last
 * one. It is a real signal, because Python up to 3.11 notices PyErr_SetInterrupt of another thread
 * only by chance. */
static void *interrupt_later(void *main_thread) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    pthread_kill((pthread_t)main_thread, SIGINT);
    return NULL;
}

int fl_interrupt_later(void) {
    pthread_t made;
    return !fl_start_thread(&made, NULL, interrupt_later, (void *)pthread_self());
}
