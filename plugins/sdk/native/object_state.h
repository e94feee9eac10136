/* What C knows of the objects behind handles: Object.describe_to_c. */
#pragma once

#include <stdint.h>

/* The four numbers of a handle, NULL if it is not alive, or not of this adapter and kind. */
const uintptr_t *fl_get_state(uint32_t adapter, uintptr_t handle, unsigned kind);
/* The same, with a reference that fl_entry_release (counts.h) has to release. */
const uintptr_t *fl_hold(uint32_t adapter, uintptr_t handle, unsigned kind);
