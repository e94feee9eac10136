/* One enqueue of a closed list of Level Zero, and one of a command-buffer of icd, to their ends. */
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef int32_t execute_lists(void *queue, uint32_t count, void **lists, void *fence);
typedef int32_t synchronize(void *queue, uint64_t timeout);
typedef intptr_t enqueue_present(void *buffer, void *queue);
typedef int32_t wait_for_events(uint32_t count, void *const *events);
typedef int32_t release_event(void *event);

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* Both write nanoseconds: until the enqueue returns, and until its end. */
int32_t run_list(execute_lists *execute, synchronize *wait, void *queue, void *list,
                 double *took) {
    double begun = now();
    int32_t code = execute(queue, 1, &list, NULL);
    took[0] = now() - begun;
    if (!code)
        code = wait(queue, UINT64_MAX);
    took[1] = now() - begun;
    return code;
}

int32_t run_buffer(enqueue_present *enqueue, wait_for_events *wait, release_event *release,
                   void *buffer, void *queue, double *took) {
    double begun = now();
    intptr_t event = enqueue(buffer, queue);
    took[0] = now() - begun;
    if (event <= 0)
        return event ? (int32_t)event : -1;
    int32_t code = wait(1, (void *const[]){(void *)event});
    release((void *)event);
    took[1] = now() - begun;
    return code;
}
