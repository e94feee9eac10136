/* Exchanged slots in a driver's own table.
 *
 * Other threads and queues meet kernels, events and SVM, too. So exchanging one object's dispatch
 * pointer does not show their calls: for as long as somebody watches, the slot itself holds a
 * function of ours, which forwards. An entry here is never removed. So a thread that is still
 * inside such a function finds the driver's function after the slot was restored. */
#include "native.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_PATCHES 512

static struct patch {
    void **table;
    int slot;
    _Atomic(void *) original;   /* what stood there, NULL included */
    void *replacement;
    unsigned users;
    bool covered; /* nobody watches, but ours could not be taken out: somebody had put another one
                     over it */
} patches[MOST_PATCHES];
static atomic_uint patch_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
FL_FREE_IN_CHILD(lock) /* the child gives slots back (cuda_sharing.py) */

static struct patch *find(void *const *table, int slot) {
    unsigned count = atomic_load_explicit(&patch_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++)
        if (patches[i].table == table && patches[i].slot == slot)
            return &patches[i];
    return NULL;
}

/* The mapping that an address is in, from the kernel's own list; false if it is in none. */
static bool look(const void *address, fl_mapping *known) {
    uintptr_t at = (uintptr_t)address;
    if (at >= known->low && at < known->high)
        return true;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, maps)) {
        fl_mapping m;
        char r, w, x;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c%c", &m.low, &m.high, &r, &w, &x) != 5)
            continue;
        m.protection =
            (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0) | (x == 'x' ? PROT_EXEC : 0);
        found = at >= m.low && at < m.high;
        if (found)
            *known = m;
    }
    fclose(maps);
    return found;
}

/* Store a pointer, also where a driver keeps its table in read-only memory. */
static bool store(void **slot, void *value, fl_mapping *known) {
    if (!look(slot, known))
        return false;
    int protection = known->protection;
    uintptr_t page = (uintptr_t)slot & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    size_t length = (uintptr_t)slot + sizeof *slot - page;
    bool sealed = !(protection & PROT_WRITE);
    if (sealed && mprotect((void *)page, length, protection | PROT_WRITE) != 0)
        return false;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);
    if (sealed)
        mprotect((void *)page, length, protection);
    return true;
}

/* How many slots tables have that are shorter than ours: reading past an OpenCL 1.x driver's table
 * is a crash, writing a worse one. */
static struct length {
    void **table;
    uint32_t slots;
} lengths[MOST_PATCHES];
static atomic_uint length_count;

static uint32_t length_of(void *const *table) {
    unsigned count = atomic_load_explicit(&length_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++)
        if (lengths[i].table == table)
            return lengths[i].slots;
    return FL_SLOTS;
}

void fl_set_length(void **table, uint32_t slots) {
    FL_HOLD(lock);
    unsigned count = atomic_load(&length_count);
    if (slots < length_of(table) && count < MOST_PATCHES) {
        lengths[count] = (struct length){table, slots};
        atomic_store_explicit(&length_count, count + 1, memory_order_release);
    }
}

void *fl_slot(void *const *table, int slot) {
    void *function =
        (uint32_t)slot < length_of(table) ? __atomic_load_n(&table[slot], __ATOMIC_ACQUIRE) : NULL;
    return function && function != FL_ICD2_TAG ? function : fl_stubs[slot];
}

/* Before the first user: what stands in the slot now is what calls go on to, unless it is ours or
 * leads to ours. */
static void begin(struct patch *patch) {
    void *present = __atomic_load_n(&patch->table[patch->slot], __ATOMIC_ACQUIRE);
    patch->covered =
        patch->covered && present != patch->replacement && present != atomic_load(&patch->original);
    if (!patch->covered && present != patch->replacement)
        atomic_store(&patch->original, present);
}

/* Put `replacement` into a slot; a second user of the same slot is counted. 0, or
 * CL_OUT_OF_RESOURCES. */
int fl_patch(void **table, int slot, void *replacement, fl_mapping *known) {
    if ((uint32_t)slot >= length_of(table))
        return CL_SUCCESS;   /* nobody can call what is not there */
    FL_HOLD(lock);
    struct patch *patch = find(table, slot);
    unsigned count = atomic_load(&patch_count);
    if (!patch && count < MOST_PATCHES) {
        patch = &patches[count];
        *patch = (struct patch){.table = table, .slot = slot, .replacement = replacement};
        atomic_store(&patch->original, table[slot]);
        atomic_store_explicit(&patch_count, count + 1, memory_order_release);
    }
    if (patch && !patch->users)
        begin(patch);
    if (!patch || !(patch->users || patch->covered || store(&table[slot], replacement, known)))
        return CL_OUT_OF_RESOURCES;
    patch->users++;
    return CL_SUCCESS;
}

/* Put a function below whatever watches a slot, for as long as the process lives: it stands for the
 * driver's own, which comes to *below first. False: the slot cannot be written. */
bool fl_underlay(void **table, int slot, void *function, void **below, fl_mapping *known) {
    if ((uint32_t)slot >= length_of(table))
        return true;   /* nobody can call what is not there */
    FL_HOLD(lock);
    struct patch *patch = find(table, slot);
    bool is_watched = patch && (patch->users || patch->covered), done = true;
    void *present = is_watched ? atomic_load(&patch->original)
                               : __atomic_load_n(&table[slot], __ATOMIC_ACQUIRE);
    if (present && present != FL_ICD2_TAG) {
        __atomic_store_n(below, present, __ATOMIC_RELEASE);
        done = is_watched || store(&table[slot], function, known);
        if (patch && done)
            atomic_store(&patch->original, function);
    }
    return done;
}

/* With the last user the driver's function returns to the slot. If somebody else has put a function
 * over ours, it stays: it goes on to ours, which goes on to the driver's. */
static void end(struct patch *patch, fl_mapping *known) {
    void **slot = &patch->table[patch->slot], *original = atomic_load(&patch->original);
    void *present = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    patch->covered = present != patch->replacement && present != original;
    if (!patch->covered)
        store(slot, original, known);
}

/* Give a slot back. The answer is how many users are left. */
unsigned fl_unpatch(void **table, int slot, fl_mapping *known) {
    FL_HOLD(lock);
    struct patch *patch = find(table, slot);
    if (patch && patch->users && --patch->users == 0)
        end(patch, known);
    return patch ? patch->users : 0;
}

int fl_patch_all(void **table, const fl_watched *rows, int count, fl_mapping *known) {
    for (int i = 0; i < count; i++) {
        if (rows[i].stays_empty && fl_slot(table, rows[i].slot) == fl_stubs[rows[i].slot])
            continue;
        int code = fl_patch(table, rows[i].slot, rows[i].function, known);
        if (code != CL_SUCCESS) {
            fl_unpatch_all(table, rows, i, known);
            return code;
        }
    }
    return CL_SUCCESS;
}

unsigned fl_unpatch_all(void **table, const fl_watched *rows, int count, fl_mapping *known) {
    unsigned left = 0;
    while (count-- > 0)
        left = fl_unpatch(table, rows[count].slot, known);
    return left;
}

/* The driver's function behind a slot that may be patched, for a call on `object`; a stub where it
 * has none. */
void *fl_patched(const void *object, int slot) {
    void **table = fl_table_of(object);
    struct patch *patch = find(table, slot);
    void *function = patch ? atomic_load(&patch->original) : fl_slot(table, slot);
    return function ? function : fl_stubs[slot];
}

/* Whether somebody watches a slot in a table that calls on `object` may come through. */
bool fl_is_patched(const void *object, int slot) {
    const fl_object *o = object;
    void **table = o->dispatch; /* an object of ICD 1 may end after this word */
    void *const *tables[] = {table, table[0] == FL_ICD2_TAG ? o->dispatch_data : NULL};
    FL_HOLD(lock);
    for (int i = 0; i < 2; i++) {
        const struct patch *patch = tables[i] ? find(tables[i], slot) : NULL;
        if (patch && patch->users)
            return true;
    }
    return false;
}
