/* Allocates layers. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
FL_FREE_IN_CHILD(lock)

fl_layer *fl_new_layer(const fl_thunks *thunks, void *const *next, uint64_t orphan) {
    FL_HOLD(lock);
    fl_layer *found = *thunks->layers;
    while (found && found->taken)
        found = found->other;
    if (found)
        found->next = next, found->thunks = thunks, found->orphan = orphan, found->taken = 1;
    return found;
}

void fl_redirect_layer(fl_layer *layer, void *const *next, uint64_t orphan) {
    __atomic_store_n(&layer->orphan, orphan, __ATOMIC_RELEASE);
    __atomic_store_n(&layer->next, next, __ATOMIC_RELEASE);
}

void *const *fl_layer_table(const fl_layer *layer) { return layer->table; }

void fl_set_handlers(fl_layer *layer, int (*before)(fl_call *), void (*after)(fl_call *)) {
    __atomic_store_n(&layer->after, after, __ATOMIC_RELEASE);
    __atomic_store_n(&layer->before, before, __ATOMIC_RELEASE);
}

void **fl_new_table_of(const fl_thunks *thunks) {
    size_t size = thunks->slots * sizeof(void *);
    void **table = malloc(size);
    if (table)
        memcpy(table, thunks->unsupported, size);
    return table;
}
