/* Who changes a command-buffer, or enqueues it, has it for that time. Threads of Python's that do so wait for each other by a lock of Python's;
 * an update in C, which has no GIL and must not wait for one, only tries. So what a thread waits for here is short. */
#pragma once

#include <sched.h>
#include <stdbool.h>

static inline bool fl_try(fl_ways *ways) {
    return !__atomic_exchange_n(&ways->busy, 1, __ATOMIC_ACQUIRE);
}

static inline void fl_enter(fl_ways *ways) {
    while (!fl_try(ways))
        sched_yield();
}

static inline void fl_leave(fl_ways *ways) {
    __atomic_store_n(&ways->busy, 0, __ATOMIC_RELEASE);
}
