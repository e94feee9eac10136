/* What C has to know of the objects behind handles: Object.words. */
#pragma once

#include <stdint.h>

/* The four words of a handle; NULL for what is none of this adapter's and kind, or not alive. */
const uintptr_t *fl_words(uint32_t adapter, uintptr_t handle, unsigned kind);
/* The same with one more reference, which fl_entry_release (counts.h) gives back. */
const uintptr_t *fl_hold(uint32_t adapter, uintptr_t handle, unsigned kind);
