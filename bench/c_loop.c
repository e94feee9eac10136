/* What a replay is measured against: the same OpenCL calls in a C loop. The functions are the
 * driver's own, no loader between. */
#include <stddef.h>
#include <stdint.h>

typedef int32_t enqueue_kernel(void *queue, void *kernel, uint32_t dimensions, const size_t *offset,
                               const size_t *global, const size_t *local, uint32_t wait_count,
                               void *const *wait_list, void **event);
typedef int32_t set_argument(void *kernel, uint32_t index, size_t size, const void *value);
typedef int32_t finish(void *queue);
typedef int32_t enqueue_marker(void *queue, uint32_t wait_count, void *const *wait_list,
                               void **event);
typedef int32_t release_event(void *event);

typedef int32_t enqueue_buffer(uint32_t queue_count, void *const *queues, void *buffer,
                               uint32_t wait_count, void *const *wait_list, void **event);

typedef struct arguments {
    void *a, *b;
    float s;
} arguments;

/* Every launch has a kernel of its own, whose arguments are set: what a replay does. */
int32_t launch(enqueue_kernel *enqueue, finish *wait, void *queue, void *const *kernels,
               size_t count, size_t global, size_t local) {
    for (size_t i = 0; i < count; i++) {
        int32_t code = enqueue(queue, kernels[i], 1, NULL, &global, &local, 0, NULL, NULL);
        if (code)
            return code;
    }
    return wait(queue);
}

/* One kernel, its arguments set before every launch: what a C program mostly does. With `mark` it
 * also has an event of the end of all, as an enqueue of a command-buffer has. */
int32_t set_and_launch(enqueue_kernel *enqueue, set_argument *set, finish *wait,
                       enqueue_marker *mark, release_event *release, void *queue, void *kernel,
                       const arguments *list, size_t count, size_t global, size_t local) {
    void *end = NULL;
    for (size_t i = 0; i < count; i++) {
        int32_t code = set(kernel, 0, sizeof(void *), &list[i].a);
        if (!code)
            code = set(kernel, 1, sizeof(void *), &list[i].b);
        if (!code)
            code = set(kernel, 2, sizeof(float), &list[i].s);
        if (!code)
            code = enqueue(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
        if (code)
            return code;
    }
    int32_t code = mark ? mark(queue, 0, NULL, &end) : 0, waited = code ? code : wait(queue);
    return end && release(end) ? -1 : waited;
}

/* A command-buffer, enqueued and waited for `count` times. */
int32_t enqueue_and_wait(enqueue_buffer *enqueue, finish *wait, void *buffer, void *queue,
                         size_t count) {
    int32_t code = 0;
    for (size_t i = 0; i < count && !code; i++) {
        code = enqueue(0, NULL, buffer, 0, NULL, NULL);
        if (!code)
            code = wait(queue);
    }
    return code;
}
