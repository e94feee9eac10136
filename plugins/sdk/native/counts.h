/* Counts of references to handles: what the generated entry points and plugins/sdk/objects.py
 * call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "words.h"

typedef int32_t fl_counting_body(uint32_t adapter, uintptr_t handle);

/* ur...Retain and ur...Release for a kind of handles. `python` does what C cannot do: it refuses
 * what is not a handle, makes lent objects owned, and closes objects without references. */
int32_t fl_entry_retain(uint32_t adapter, uintptr_t handle, unsigned kind,
                        fl_counting_body *python);
int32_t fl_entry_release(uint32_t adapter, uintptr_t handle, unsigned kind,
                         fl_counting_body *python);
