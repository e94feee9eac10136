/* Handing out layers. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const fl_thunks fl_thunks_ur, fl_thunks_pi;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

fl_layer *fl_new_layer(const fl_thunks *thunks, void *const *next, uint64_t orphan) {
    fl_layer *found = NULL;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < FL_LAYERS && !found; i++)
        if (!thunks->layers[i].taken)
            found = &thunks->layers[i];
    if (found)
        *found = (fl_layer){.next = next, .thunks = thunks, .orphan = orphan, .number = (uint32_t)(found - thunks->layers), .taken = 1};
    pthread_mutex_unlock(&lock);
    return found;
}

void fl_turn_layer(fl_layer *layer, void *const *next, uint64_t orphan) {
    __atomic_store_n(&layer->orphan, orphan, __ATOMIC_RELEASE);
    __atomic_store_n(&layer->next, next, __ATOMIC_RELEASE);
}

void *const *fl_layer_table(const fl_layer *layer) { return layer->thunks->tables[layer->number]; }

void fl_set_handlers(fl_layer *layer, int (*before)(fl_call *), void (*after)(fl_call *)) {
    __atomic_store_n(&layer->after, after, __ATOMIC_RELEASE);
    __atomic_store_n(&layer->before, before, __ATOMIC_RELEASE);
}

const fl_thunks *fl_ur_thunks(void) { return &fl_thunks_ur; }

const fl_thunks *fl_pi_thunks(void) { return &fl_thunks_pi; }

void **fl_new_table_of(const fl_thunks *thunks) {
    size_t size = thunks->slots * sizeof(void *);
    void **table = malloc(size);
    if (table)
        memcpy(table, thunks->unsupported, size);
    return table;
}
