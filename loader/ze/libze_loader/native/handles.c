/* Which driver made a handle, for processes with several drivers. Handles stay the drivers' own:
 * nothing is translated, in structs neither.
 *
 * A hash table with open addressing. Readers take no lock: they see a table that is whole, and
 * entries whose key is written after their driver. A table that is too small is replaced by one
 * twice as large, and kept, because a reader may be in it. A handle that came from elsewhere, such
 * as an extension's function, is known by its first word: it points into the file of the driver (a
 * table of functions). */
#define _GNU_SOURCE
#include "loader.h"

#include <pthread.h>
#include <stdlib.h>

#include "memory.h"

typedef struct entry {
    const void *handle;
    fl_driver *driver; /* NULL: the handle has ended */
} entry;

typedef struct map {
    struct map *before; /* the one that it replaced: a reader may still be in it */
    size_t size, used;  /* a power of two; entries with a handle */
    entry entries[];
} map;

static map *known;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(const map *in, const void *handle) {
    return ((uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15u >> 20) & (in->size - 1);
}

/* The entry of a handle, or the free one where it belongs. */
static entry *find(map *in, const void *handle) {
    for (size_t i = place_of(in, handle);; i = (i + 1) & (in->size - 1)) {
        const void *there = __atomic_load_n(&in->entries[i].handle, __ATOMIC_ACQUIRE);
        if (!there || there == handle)
            return &in->entries[i];
    }
}

/* A map of twice the size, with the living handles of another one; NULL if there is no memory. The
 * other one stays, so maps of the same size would be a leak while handles come and go. */
static map *grown(map *from) {
    size_t size = from ? 2 * from->size : 1024;
    map *made = calloc(1, sizeof *made + size * sizeof *made->entries);
    if (!made)
        return NULL;
    made->before = from, made->size = size;
    for (size_t i = 0; from && i < from->size; i++)
        if (from->entries[i].driver) {
            *find(made, from->entries[i].handle) = from->entries[i];
            made->used++;
        }
    return made;
}

void fl_free_handles(void) { pthread_mutex_init(&lock, NULL); }

void fl_learn(fl_driver *driver, const void *handle) {
    if (!handle)
        return;
    FL_HOLD(lock);
    if (!known || 4 * known->used >= 3 * known->size) {
        map *made = grown(known);
        if (made)
            __atomic_store_n(&known, made, __ATOMIC_RELEASE);
    }
    if (known && known->used + 1 < known->size) {
        entry *mine = find(known, handle);
        known->used += mine->handle == NULL;
        __atomic_store_n(&mine->driver, driver, __ATOMIC_RELEASE);
        __atomic_store_n(&mine->handle, handle, __ATOMIC_RELEASE);
    }
}

void fl_forget(const void *handle) {
    FL_HOLD(lock);
    if (known && handle)
        __atomic_store_n(&find(known, handle)->driver, NULL, __ATOMIC_RELEASE);
}

fl_driver *fl_driver_of(const void *handle) {
    map *in = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
    const entry *there = in && handle ? find(in, handle) : NULL;
    /* What is free may be another handle's by now: its driver comes first. */
    bool is_known = there && __atomic_load_n(&there->handle, __ATOMIC_ACQUIRE) == handle;
    fl_driver *driver = is_known ? __atomic_load_n(&there->driver, __ATOMIC_ACQUIRE) : NULL;
    uintptr_t word = 0;
    if (driver || !fl_safe_read(handle, &word, sizeof word))
        return driver;
    const fl_drivers *drivers = fl_open_drivers();
    for (unsigned i = 0; drivers && i < drivers->count; i++)
        if (word >= drivers->all[i]->start && word < drivers->all[i]->end)
            return drivers->all[i];
    return NULL;
}
