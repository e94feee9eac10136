/* Starts a program that this process never sees as its child: it gets no SIGCHLD for it, and its
 * wait() does not find it. Includers define _GNU_SOURCE. */
#ifndef FL_UNSEEN_H
#define FL_UNSEEN_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

struct fl_unseen {
    const char *const *arguments; /* the program first */
    char **environment;
    const posix_spawn_file_actions_t *files;
    pid_t child; /* the leader of a process group, so that all that it starts can be killed */
    int failed;  /* an errno */
};

static int fl_spawn_(void *data) {
    struct fl_unseen *it = data;
    sigset_t none, usual;
    posix_spawnattr_t attributes;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGCHLD);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    it->failed = posix_spawnp(&it->child, it->arguments[0], it->files, &attributes,
                              (char *const *)it->arguments, it->environment);
    posix_spawnattr_destroy(&attributes);
    return 0;
}

/* Start it from a process that sends no signal when it ends, which is at once. The memory is
 * shared, and this thread stands still meanwhile, as in vfork. */
static void fl_start_unseen(struct fl_unseen *it) {
    enum { STACK = 1 << 17 };
    sigset_t all, before;
    char *stack = malloc(STACK);
    it->failed = ENOMEM;
    it->child = 0; /* kill(-0) would kill the caller's own group */
    if (!stack)
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* no handler of the program's runs in it */
    it->failed = 0;
    pid_t helper = clone(fl_spawn_, stack + STACK, CLONE_VM | CLONE_VFORK, it);
    if (helper < 0)
        it->failed = errno;
    while (helper > 0 && waitpid(helper, NULL, __WALL) < 0 && errno == EINTR)
        ;
    if (!it->failed && it->child <= 0) /* the helper had memory of its own, as under valgrind */
        it->failed = ENOSYS;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    free(stack);
}

/* Wait for the end of the program, if this process takes the place of init and has it. */
static void fl_reap_unseen(const struct fl_unseen *it) {
    while (it->child > 0 && waitpid(it->child, NULL, 0) < 0 && errno == EINTR)
        ;
}

#endif
