/* Mutexes that a block holds to its end, however it is left. In forked children they are free: the
 * thread that has one does not exist there. */
#pragma once

#include <pthread.h>

static inline pthread_mutex_t *fl_enter_mutex(pthread_mutex_t *mutex) {
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void fl_leave_mutex(pthread_mutex_t **held) { pthread_mutex_unlock(*held); }

/* Hold a mutex from here to the end of the block. What the block returns is worked out before. */
#define FL_HOLD(mutex)                                                                             \
    __attribute__((cleanup(fl_leave_mutex), unused)) pthread_mutex_t *fl_held =                    \
        fl_enter_mutex(&(mutex))

/* Have forked children begin with these statements: once in a file. */
#define FL_IN_CHILD(...)                                                                           \
    static void begin_child(void) { __VA_ARGS__; }                                                 \
    __attribute__((constructor)) static void watch_forks(void) {                                   \
        pthread_atfork(NULL, NULL, begin_child);                                                   \
    }
#define FL_FREE_IN_CHILD(mutex) FL_IN_CHILD(pthread_mutex_init(&(mutex), NULL))
