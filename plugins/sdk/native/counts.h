/* Counts of references to handles: what the generated entry points and plugins/sdk/objects.py
 * call. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "object_state.h"

typedef int32_t fl_counting_body(uint32_t adapter, uintptr_t handle);

/* ur...Retain and ur...Release for a kind of handles. `python` does what C cannot do: it refuses
 * what is not a handle, makes lent objects owned, and closes objects without references. */
int32_t fl_entry_retain(uint32_t adapter, uintptr_t handle, unsigned kind,
                        fl_counting_body *python);
int32_t fl_entry_release(uint32_t adapter, uintptr_t handle, unsigned kind,
                         fl_counting_body *python);

/* Whether a handle that is alive is never released. */
bool fl_is_fixed(uintptr_t handle);

/* Handles that C makes. Python makes an object for one when it needs it (Registry.adopt).
 *
 * fl_reserve comes before anything that cannot be undone: it returns a handle that is not alive, or
 * 0. fl_begin_made makes it alive, with one reference, and fl_give_back does not. What C has made
 * ends by a function of its kind, with its numbers, after the last reference. */
typedef void fl_end_body(const uintptr_t *words);
uintptr_t fl_reserve(uint32_t adapter);
void fl_give_back(uint32_t adapter, uintptr_t handle);
/* Ends a handle that C has made, unless Python has adopted it. */
void fl_end_made(uintptr_t handle);
void fl_begin_made(uintptr_t handle, uint32_t adapter, unsigned kind, const uintptr_t *words);
void fl_end_by(unsigned kind, fl_end_body *end);

/* A lock for a few instructions. It is free in a forked child, whoever had it. */
typedef unsigned fl_lock;
void fl_enter_lock(fl_lock *lock);
bool fl_try_lock(fl_lock *lock);
void fl_leave_lock(fl_lock *lock);
static inline fl_lock *fl_take_lock(fl_lock *lock) {
    fl_enter_lock(lock);
    return lock;
}
static inline void fl_drop_lock(fl_lock **held) { fl_leave_lock(*held); }
/* Hold a lock from here to the end of the block. */
#define FL_HOLD_LOCK(lock)                                                                         \
    __attribute__((cleanup(fl_drop_lock), unused)) fl_lock *fl_held = fl_take_lock(&(lock))
/* A number that is another one in each forked child. */
unsigned fl_forks(void);
