/* Allocations that fail: the linker sends those of all files here (--wrap). */
#include "no_memory.h"

#include <stdatomic.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);

static atomic_int memory_left = -1;
static atomic_bool memory_stays_out, memory_failed;

static bool is_refused(void) {
    int left = atomic_load(&memory_left);
    if (left < 0)
        return false;
    if (left > 0) {
        atomic_store(&memory_left, left - 1);
        return false;
    }
    if (!atomic_load(&memory_stays_out))
        atomic_store(&memory_left, -1);
    atomic_store(&memory_failed, true);
    return true;
}

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__real_realloc(void *old, size_t size);

void *__wrap_malloc(size_t size) { return is_refused() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) {
    return is_refused() ? NULL : __real_calloc(count, size);
}
void *__wrap_realloc(void *old, size_t size) {
    return is_refused() ? NULL : __real_realloc(old, size);
}

void memory_fails(int n, bool and_after) {
    atomic_store(&memory_failed, false);
    atomic_store(&memory_stays_out, and_after);
    atomic_store(&memory_left, n);
}

bool memory_has_failed(void) {
    atomic_store(&memory_left, -1);
    return atomic_load(&memory_failed);
}
