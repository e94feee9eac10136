/* The bound of the engine direct for long launches: their work by two threads of plain C, each with
 * the same half of the memory each time. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE = 64, PIECES = 8 };

typedef struct work {
    float *a;
    const float *b;
    size_t items, count;
    _Alignas(LINE) atomic_size_t begun;   /* each in a line of the cache of its own */
    _Alignas(LINE) atomic_size_t ended;
} work;

static void add(float *restrict a, const float *restrict b, size_t items) {
    for (size_t i = 0; i < items; i++)
        a[i] += 1e-6f * b[i];
}

/* One half, piece by piece. Every second time it begins at its end, which the cache still has. */
static void add_half(const work *w, size_t half, size_t turn) {
    for (size_t i = 0; i < PIECES; i++) {
        size_t piece = half * PIECES + (turn % 2 ? PIECES - 1 - i : i);
        size_t first = w->items * piece / (2 * PIECES), end = w->items * (piece + 1) / (2 * PIECES);
        add(w->a + first, w->b + first, end - first);
    }
}

/* Another thread may need this processor: then the run is no bound, but it ends. */
static void wait_for(atomic_size_t *number, size_t wanted) {
    for (uint32_t looks = 0; atomic_load(number) < wanted; looks++)
        if (looks > 10000)
            sched_yield();
}

static void *help(void *argument) {
    work *w = argument;
    for (size_t i = 1; i <= w->count; i++) {
        wait_for(&w->begun, i);
        add_half(w, 1, i);
        atomic_store(&w->ended, i);
    }
    return NULL;
}

/* `count` times a[i] += 1e-6 × b[i], one time after the other. */
int32_t add_by_two(float *a, const float *b, size_t items, size_t count) {
    work w = {.a = a, .b = b, .items = items, .count = count};
    pthread_t helper;
    if (pthread_create(&helper, NULL, help, &w) != 0)
        return -1;
    for (size_t i = 1; i <= count; i++) {
        atomic_store(&w.begun, i);
        add_half(&w, 0, i);
        wait_for(&w.ended, i);
    }
    return pthread_join(helper, NULL) == 0 ? 0 : -1;
}
