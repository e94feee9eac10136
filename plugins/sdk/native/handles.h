/* Handles as C sees them, and references to them: what every call does, so it is inline. counts.c
 * says how a handle is found and counted. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "counts.h"
#include "counts.cdef.h"

struct handle {   /* fl_handle; what several threads change is atomic here */
    uintptr_t table;
    uint64_t number;
    struct handle *next;
    uint16_t adapter;
    uint8_t kind;
    _Atomic(bool) of_c;
    _Atomic(int32_t) references;
    uintptr_t words[4];
};
_Static_assert(sizeof(struct handle) == sizeof(fl_handle) &&
                   offsetof(struct handle, references) == offsetof(fl_handle, references),
               "");

enum { FL_BITS = 16, FL_BYTES = 1 << FL_BITS };   /* bytes of a block, and entries of a map */
_Static_assert(FL_BLOCK * sizeof(struct handle) == FL_BYTES, "");

typedef struct {
    _Atomic(bool) has[FL_BYTES];
} fl_map;

/* By the highest of the 48 bits of an address. */
extern _Atomic(fl_map *) fl_maps[FL_BYTES];

static inline struct handle *fl_find(uint64_t address, uint32_t adapter, unsigned kind) {
    fl_map *of = address >> 3 * FL_BITS ? NULL : fl_maps[address >> 2 * FL_BITS];
    if (!of || !of->has[address >> FL_BITS & (FL_BYTES - 1)] || address % sizeof(struct handle))
        return NULL;
    struct handle *handle = (struct handle *)(uintptr_t)address;
    bool found = handle->references > 0 && handle->adapter == adapter && handle->kind == kind;
    return found ? handle : NULL;
}

static inline bool fl_add_reference(struct handle *handle) {
    int32_t count = handle->references;
    while (count > 0 && count != FL_FIXED)
        if (atomic_compare_exchange_weak(&handle->references, &count, count + 1))
            return true;
    return count == FL_FIXED;
}

/* Removes a reference if there are at least `least`. `last` is stored instead of 0. Returns how
 * many there were. */
static inline int32_t fl_remove_reference(struct handle *handle, int32_t least, int32_t last) {
    int32_t count = handle->references;
    while (count >= least && count != FL_FIXED)
        if (atomic_compare_exchange_weak(&handle->references, &count,
                                         count == 1 ? last : count - 1))
            break;
    return count;
}
