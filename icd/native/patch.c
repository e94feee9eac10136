/* Exchanged slots in a driver's own table.
 *
 * Kernels, events and SVM are met by other threads and other queues too, so their calls cannot be seen by exchanging one object's
 * dispatch pointer: for as long as somebody watches, the slot itself holds a function of ours, which forwards. An entry here is
 * never removed, so that a thread that is still inside such a function finds the driver's function after the slot was restored. */
#include "native.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_PATCHES 256

static struct patch {
    void **table;
    int slot;
    _Atomic(void *) original;   /* what stood there, NULL included */
    void *replacement;
    unsigned users;
} patches[MOST_PATCHES];
static atomic_uint patch_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct patch *find(void *const *table, int slot) {
    unsigned count = atomic_load_explicit(&patch_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++)
        if (patches[i].table == table && patches[i].slot == slot)
            return &patches[i];
    return NULL;
}

/* The protection of the page at `address`, from the kernel's own list; -1 if it is not mapped. */
static int protection_of(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -1;
    char line[512];
    int protection = -1;
    while (protection < 0 && fgets(line, sizeof line, maps)) {
        uintptr_t low, high;
        char r, w, x;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c%c", &low, &high, &r, &w, &x) != 5)
            continue;
        if ((uintptr_t)address >= low && (uintptr_t)address < high)
            protection = (r == 'r' ? PROT_READ : 0) | (w == 'w' ? PROT_WRITE : 0) | (x == 'x' ? PROT_EXEC : 0);
    }
    fclose(maps);
    return protection;
}

/* Store a pointer, also where a driver keeps its table in read-only memory. */
static bool store(void **slot, void *value) {
    int protection = protection_of(slot);
    if (protection < 0)
        return false;
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

/* How many slots tables have that are shorter than ours: reading past an OpenCL 1.x driver's table is a crash, writing a worse one. */
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
    pthread_mutex_lock(&lock);
    unsigned count = atomic_load(&length_count);
    if (slots < length_of(table) && count < MOST_PATCHES) {
        lengths[count] = (struct length){table, slots};
        atomic_store_explicit(&length_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
}

void *fl_slot(void *const *table, int slot) {
    void *function = (uint32_t)slot < length_of(table) ? table[slot] : NULL;
    return function && function != FL_ICD2_TAG ? function : fl_stubs[slot];
}

/* Put `replacement` into a slot; a second user of the same slot is counted. 0, or CL_OUT_OF_RESOURCES. */
int fl_patch(void **table, int slot, void *replacement) {
    int code = CL_OUT_OF_RESOURCES;
    if ((uint32_t)slot >= length_of(table))
        return CL_SUCCESS;   /* nobody can call what is not there */
    pthread_mutex_lock(&lock);
    struct patch *patch = find(table, slot);
    unsigned count = atomic_load(&patch_count);
    if (!patch && count < MOST_PATCHES) {
        patch = &patches[count];
        *patch = (struct patch){.table = table, .slot = slot, .replacement = replacement};
        atomic_store(&patch->original, table[slot]);
        atomic_store_explicit(&patch_count, count + 1, memory_order_release);
    }
    if (patch && !patch->users && table[slot] != patch->replacement)   /* another may have changed it, or be here instead */
        atomic_store(&patch->original, table[slot]);
    if (patch && (patch->users || store(&table[slot], replacement))) {
        patch->users++;
        code = CL_SUCCESS;
    }
    pthread_mutex_unlock(&lock);
    return code;
}

/* Give a slot back; the driver's function returns to it with the last user. The answer is how many users are left. */
unsigned fl_unpatch(void **table, int slot) {
    pthread_mutex_lock(&lock);
    struct patch *patch = find(table, slot);
    if (patch && patch->users && --patch->users == 0)
        store(&table[slot], atomic_load(&patch->original));
    unsigned users = patch ? patch->users : 0;
    pthread_mutex_unlock(&lock);
    return users;
}

/* The driver's function behind a slot that may be patched, for a call on `object`; a stub where it has none. */
void *fl_patched(const void *object, int slot) {
    void **table = fl_table_of(object);
    struct patch *patch = find(table, slot);
    void *function = patch ? atomic_load(&patch->original) : fl_slot(table, slot);
    return function ? function : fl_stubs[slot];
}

/* Whether somebody watches a slot in a table that calls on `object` may come through. */
bool fl_is_patched(const void *object, int slot) {
    const fl_object *o = object;
    void *const *tables[] = {o->dispatch, o->dispatch_data};
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++) {
        const struct patch *patch = tables[i] ? find(tables[i], slot) : NULL;
        found |= patch && patch->users;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
