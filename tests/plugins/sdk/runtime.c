/* What a SYCL runtime does in a Python program: a thread of its own retains and releases handles,
 * and the program's thread waits for it. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t count(void *handle);

struct job {
    count *retain, *release;
    int retains, releases, handle_count;
    void **handles;
};

static void *run(void *given) {
    struct job *job = given;
    int32_t failed = 0;
    for (int i = 0; i < job->handle_count; i++) {
        for (int times = 0; times < job->retains; times++)
            failed |= job->retain(job->handles[i]);
        for (int times = 0; times < job->releases; times++)
            failed |= job->release(job->handles[i]);
    }
    return failed ? job : NULL;
}

/* Retains and releases each handle in another thread; 0 if all calls succeeded. */
int in_thread(count *retain, count *release, int retains, int releases, void **handles,
              int handle_count) {
    struct job job = {retain, release, retains, releases, handle_count, handles};
    pthread_t thread;
    void *failed;
    return pthread_create(&thread, NULL, run, &job) || pthread_join(thread, &failed) || failed;
}

static void *call(void *given) {
    (*(void (**)(void))given)();
    return NULL;
}

/* Calls a function in another thread and waits for it. */
int call_in_thread(void (*function)(void)) {
    pthread_t thread;
    return pthread_create(&thread, NULL, call, &function) || pthread_join(thread, NULL);
}
