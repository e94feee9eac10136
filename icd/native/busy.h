/* One thread at a time changes or enqueues a command-buffer. Python's threads wait for each other
 * by a lock of Python's. An update in C has no GIL and must not wait for one, so it only tries. So
 * what a thread waits for here is short. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <time.h>

static inline bool fl_try(fl_buffer *buffer) {
    return !__atomic_exchange_n(&buffer->busy, 1, __ATOMIC_ACQUIRE);
}

static inline void fl_enter(fl_buffer *buffer) {
    static const struct timespec longer = {.tv_nsec = 50000};   /* it is run by a thread itself */
    for (uint32_t turn = 0; !fl_try(buffer); turn++)
        if (turn < 100)
            sched_yield();
        else
            nanosleep(&longer, NULL);
}

static inline void fl_leave(fl_buffer *buffer) {
    __atomic_store_n(&buffer->busy, 0, __ATOMIC_RELEASE);
}

static inline fl_buffer *fl_take_buffer(fl_buffer *buffer) {
    fl_enter(buffer);
    return buffer;
}

static inline void fl_drop_buffer(fl_buffer **held) { fl_leave(*held); }

/* Have a buffer from here to the end of the block. */
#define FL_HOLD_BUFFER(buffer)                                                                     \
    __attribute__((cleanup(fl_drop_buffer), unused)) fl_buffer *fl_held = fl_take_buffer(buffer)
