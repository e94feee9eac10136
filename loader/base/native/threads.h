/* Threads of ours. No handler of the program's runs in them: its signals are for its own. */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

/* Start a thread that nobody joins. */
static inline bool fl_start_thread(pthread_t *thread, const pthread_attr_t *attributes,
                                   void *(*body)(void *), void *data) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(thread, attributes, body, data) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made && pthread_detach(*thread) == 0;
}
