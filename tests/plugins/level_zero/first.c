/* first LIBRARY: threads make the first zeInit of a driver or a loader together. Then the process
 * forks, and the child asks again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8 };
static int32_t (*init)(uint32_t);
static int32_t (*get)(uint32_t *, void **);
static pthread_barrier_t all;
static void *seen[THREADS];
static uint32_t counts[THREADS];

static void *first(void *number) {
    size_t mine = (size_t)number;
    void *drivers[16];
    counts[mine] = 16;
    pthread_barrier_wait(&all);
    int32_t code = init(0);
    code = code ? code : get(&counts[mine], drivers);
    if (code)
        printf("thread %zu: %#x\n", mine, (unsigned)code), exit(1);
    seen[mine] = drivers[0];
    return NULL;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    pthread_t threads[THREADS];
    if (!library)
        return puts("usage: first LIBRARY"), 1;
    init = dlsym(library, "zeInit"), get = dlsym(library, "zeDriverGet");
    pthread_barrier_init(&all, NULL, THREADS);
    for (size_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, first, (void *)i);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 1; i < THREADS; i++)
        if (seen[i] != seen[0] || counts[i] != counts[0])
            return printf("thread %zu sees another driver\n", i), 1;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        uint32_t count = 16;
        void *drivers[16];
        int32_t code = init(0);
        code = code ? code : get(&count, drivers);
        _exit(code ? 2 : count != counts[0] || drivers[0] != seen[0] ? 3 : 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("%u driver, child %d\n", counts[0], status);
    return 0;
}
