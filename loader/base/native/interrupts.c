/* Ctrl-C that came where Python drops exceptions. The handler of interrupts.py defers it. */
#include "native.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id /* glibc has no name for it */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* No Python function can do this: each of its calls would handle the next interrupt inside the last
 * one. It is a real signal, because Python up to 3.11 notices PyErr_SetInterrupt of another thread
 * only by chance. A timer needs no thread, which a process at its limits does not get. The calls
 * are the kernel's: glibc before 2.34 has them in librt. */
int fl_interrupt_later(void) {
    static pid_t owner; /* a fork has no timers */
    static int timer;
    if (owner != getpid()) {
        struct sigevent interrupt = {.sigev_signo = SIGINT, .sigev_notify = SIGEV_THREAD_ID};
        interrupt.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &interrupt, &timer))
            return 1;
        owner = getpid();
    }
    struct itimerspec soon = {.it_value = {.tv_nsec = 1000000}};
    return syscall(SYS_timer_settime, timer, 0, &soon, NULL) != 0;
}
