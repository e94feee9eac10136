/* Counts the references to handles without Python.
 *
 * A runtime retains and releases in threads of its own and under its own locks. A thread of a
 * Python program may wait for such a lock while it holds the GIL. Then the thread with the lock
 * must not wait for the GIL. So a count is a number in the handle itself, and is changed here. In
 * such a program a handle whose last reference is released goes on a list. Every entry point in
 * Python takes the list first. The main thread is also asked to take it soon.
 *
 * An address is read only if it is a handle's. Handles are in aligned blocks that are never
 * freed. A bitmap in two levels has these blocks. */
#include "../../../loader/base/native/untraced.h"
#include "handles.h"
#include "interrupts.cdef.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Functions of every Python, some of which cffi's headers hide. */
int PyGILState_Check(void);
int Py_AddPendingCall(int (*function)(void *), void *data);

_Atomic(fl_map *) fl_maps[FL_BYTES];
static _Atomic(struct handle *) gone;    /* the last comes first */
static _Atomic(bool) python_waits;
static _Atomic(int) reap_is_due;    /* whether; GCC 12 exchanges no byte on riscv64 */
static void (*reap)(void);

/* --- the blocks of handles --- */

uintptr_t fl_block(uintptr_t table) {
    struct handle *block = aligned_alloc(FL_BYTES, FL_BYTES);
    uint64_t address = (uintptr_t)block;
    if (!block || address >> 3 * FL_BITS) {
        free(block);
        return 0;
    }
    _Atomic(fl_map *) *slot = &fl_maps[address >> 2 * FL_BITS];
    fl_map *new = *slot ? NULL : calloc(1, sizeof *new), *none = NULL;
    if (new && !atomic_compare_exchange_strong(slot, &none, new))
        free(new);
    if (!*slot) {
        free(block);
        return 0;
    }
    for (unsigned i = 0; i < FL_BLOCK; i++)
        block[i] = (struct handle){.table = table};
    (*slot)->has[address >> FL_BITS & (FL_BYTES - 1)] = true;
    return address;
}

const uintptr_t *fl_get_state(uint32_t adapter, uintptr_t handle, unsigned kind) {
    struct handle *found = fl_find(handle, adapter, kind);
    return found ? found->words : NULL;
}

/* --- what Python calls, with handles that exist --- */

static struct handle *at(uintptr_t address) {
    static struct handle nobody;
    return address ? (struct handle *)address : &nobody;
}

void fl_begin(uintptr_t handle, uint64_t number, uint16_t adapter, uint16_t kind,
              int32_t references) {
    at(handle)->number = number;
    at(handle)->adapter = adapter;
    at(handle)->kind = (uint8_t)kind;
    at(handle)->of_c = false;
    at(handle)->references = references;   /* last: a thread that finds it may read the others */
}

void fl_describe(uintptr_t handle, const uintptr_t *words) {
    memcpy(at(handle)->words, words, sizeof at(handle)->words);
}

bool fl_end(uintptr_t handle) {
    return handle && atomic_exchange(&at(handle)->references, 0) != FL_GONE;
}

int32_t fl_references(uintptr_t handle) {
    int32_t count = at(handle)->references;
    return count == FL_FIXED ? 1 : count;
}

bool fl_own(uintptr_t handle) {
    int32_t none = 0;
    return handle && atomic_compare_exchange_strong(&at(handle)->references, &none, 1);
}

bool fl_retain(uintptr_t handle) { return fl_add_reference(at(handle)); }

int32_t fl_release(uintptr_t handle) { return fl_remove_reference(at(handle), 1, 0); }

void fl_counting(bool may_wait, void (*function)(void)) {
    reap = function;
    python_waits = may_wait;
}

fl_handle *fl_take(void) {
    struct handle *last = atomic_exchange(&gone, NULL), *first = NULL;
    while (last) {
        struct handle *before = last->next;
        last->next = first;
        first = last;
        last = before;
    }
    return (fl_handle *)first;
}

const uintptr_t *fl_gone(void) { return (const uintptr_t *)&gone; }

/* --- handles that C makes, whose objects Python does not know --- */

enum { ADAPTERS = 16, KINDS = 256, UNUSED = 4096 };

/* Handles that are not alive. An address is used again after UNUSED others. */
static struct pool {
    uintptr_t table;
    fl_lock lock;
    struct handle *first, *last, **blocks;
    unsigned count, block_count;
    uint64_t number;
} pools[ADAPTERS];

static fl_end_body *ends[KINDS];
static unsigned forks = 1;   /* a lock that another number has taken is free */

static void in_child(void) { forks++; }

unsigned fl_forks(void) { return forks; }

bool fl_try_lock(fl_lock *lock) {
    return __atomic_exchange_n(lock, forks, __ATOMIC_ACQUIRE) != forks;
}

void fl_enter_lock(fl_lock *lock) {
    while (!fl_try_lock(lock))
        sched_yield();
}

void fl_leave_lock(fl_lock *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

void fl_make_handles(uint32_t adapter, uintptr_t table) {
    static _Atomic(int) follows;
    if (!atomic_exchange(&follows, true))
        pthread_atfork(NULL, NULL, in_child);
    if (adapter < ADAPTERS)
        pools[adapter].table = table;
}

void fl_end_by(unsigned kind, fl_end_body *end) { ends[kind] = end; }

static void put_back(struct pool *pool, struct handle *handle) {
    handle->next = NULL;
    *(pool->last ? &pool->last->next : &pool->first) = handle;
    pool->last = handle;
    pool->count++;
}

static void add_block(struct pool *pool) {
    size_t size = (pool->block_count + 1) * sizeof *pool->blocks;
    struct handle **blocks = realloc(pool->blocks, size);
    pool->blocks = blocks ? blocks : pool->blocks;
    struct handle *block = blocks ? (struct handle *)fl_block(pool->table) : NULL;
    if (!block)
        return;
    pool->blocks[pool->block_count++] = block;
    for (unsigned i = 0; i < FL_BLOCK; i++)
        put_back(pool, &block[i]);
}

uintptr_t fl_reserve(uint32_t adapter) {
    struct pool *pool = adapter < ADAPTERS ? &pools[adapter] : NULL;
    if (!pool || !pool->table)
        return 0;
    FL_HOLD_LOCK(pool->lock);
    if (pool->count <= UNUSED)
        add_block(pool);
    struct handle *handle = pool->first;
    if (handle) {
        pool->first = handle->next;
        pool->last = pool->first ? pool->last : NULL;
        pool->count--;
        handle->number = UINT64_C(1) << 62 | pool->number++;   /* younger than Python's */
    }
    return (uintptr_t)handle;
}

void fl_give_back(uint32_t adapter, uintptr_t handle) {
    if (!handle)
        return;
    FL_HOLD_LOCK(pools[adapter].lock);
    put_back(&pools[adapter], at(handle));
}

void fl_begin_made(uintptr_t handle, uint32_t adapter, unsigned kind, const uintptr_t *words) {
    memcpy(at(handle)->words, words, sizeof at(handle)->words);
    at(handle)->adapter = (uint16_t)adapter;
    at(handle)->kind = (uint8_t)kind;
    at(handle)->of_c = true;
    at(handle)->references = 1;
}

void fl_end_made(uintptr_t handle) {
    if (!at(handle)->of_c)
        return;
    at(handle)->references = 0;
    fl_give_back(at(handle)->adapter, handle);
}

static void end_made(struct handle *handle) {
    ends[handle->kind](handle->words);
    fl_end_made((uintptr_t)handle);
}

const uintptr_t *fl_hold_made(uint32_t adapter, uintptr_t handle, uint16_t kind) {
    struct handle *found = fl_find(handle, adapter, kind);
    return found && found->of_c && fl_add_reference(found) ? found->words : NULL;
}

void fl_let_go_made(uintptr_t handle) {
    if (fl_remove_reference(at(handle), 1, FL_GONE) == 1)
        end_made(at(handle));
}

void fl_adopt(uintptr_t handle) { at(handle)->of_c = false; }

uintptr_t fl_find_made(uint32_t adapter, uint16_t kind, uintptr_t word, uintptr_t *after) {
    struct pool *pool = adapter < ADAPTERS ? &pools[adapter] : NULL;
    uintptr_t found = 0;
    if (!pool)
        return 0;
    FL_HOLD_LOCK(pool->lock);
    for (; !found && *after < (uintptr_t)pool->block_count * FL_BLOCK; ++*after) {
        struct handle *one = &pool->blocks[*after / FL_BLOCK][*after % FL_BLOCK];
        if (one->references > 0 && one->of_c && one->kind == kind &&
            (!word || one->words[2] == word))
            found = (uintptr_t)one;
    }
    return found;
}

/* --- what programs call --- */

static int reap_now(void *unused) {
    (void)unused;
    reap_is_due = false;
    PyThreadState *thread = fl_stop_tracing();
    reap();
    fl_trace_again(thread);
    fl_raise_interrupt();
    return 0;
}

static void add_to_gone(struct handle *handle) {
    handle->next = gone;
    while (!atomic_compare_exchange_weak(&gone, &handle->next, handle))
        continue;
    /* If Python takes no more pending calls, the next entry point takes the list. */
    if (!atomic_exchange(&reap_is_due, true) && Py_AddPendingCall(reap_now, NULL) != 0)
        reap_is_due = false;
}

const uintptr_t *fl_hold(uint32_t adapter, uintptr_t handle, unsigned kind) {
    struct handle *found = fl_find(handle, adapter, kind);
    return found && fl_add_reference(found) ? found->words : NULL;
}

bool fl_is_fixed(uintptr_t handle) { return at(handle)->references == FL_FIXED; }

int32_t fl_entry_retain(uint32_t adapter, uintptr_t handle, unsigned kind,
                        fl_counting_body *python) {
    struct handle *found = fl_find(handle, adapter, kind);
    return found && fl_add_reference(found) ? 0 : python(adapter, handle);
}

int32_t fl_entry_release(uint32_t adapter, uintptr_t handle, unsigned kind,
                         fl_counting_body *python) {
    struct handle *found = fl_find(handle, adapter, kind);
    if (found && fl_remove_reference(found, 2, FL_GONE) >= 2)   /* the usual case */
        return 0;
    /* It may wait for the GIL, or has it. */
    bool waits = !(found && found->of_c) && (python_waits || PyGILState_Check());
    int32_t least = waits ? 2 : 1, count = found ? fl_remove_reference(found, least, FL_GONE) : 0;
    if (count < least)
        return python(adapter, handle);
    if (count == 1)   /* Python may have adopted it meanwhile */
        found->of_c ? end_made(found) : add_to_gone(found);
    return 0;
}
