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
    void *original;
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

/* Put `replacement` into a slot; a second user of the same slot is counted. 0, or CL_OUT_OF_RESOURCES. */
int fl_patch(void **table, int slot, void *replacement) {
    int code = CL_OUT_OF_RESOURCES;
    pthread_mutex_lock(&lock);
    struct patch *patch = find(table, slot);
    unsigned count = atomic_load(&patch_count);
    if (!patch && count < MOST_PATCHES) {
        patch = &patches[count];
        *patch = (struct patch){table, slot, table[slot] ? table[slot] : fl_stubs[slot], 0};
        atomic_store_explicit(&patch_count, count + 1, memory_order_release);
    }
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
        store(&table[slot], patch->original == fl_stubs[slot] ? NULL : patch->original);
    unsigned users = patch ? patch->users : 0;
    pthread_mutex_unlock(&lock);
    return users;
}

/* The driver's function behind a patched slot, for a call on `object`. */
void *fl_patched(const void *object, int slot) {
    const fl_object *o = object;
    struct patch *patch = find(o->dispatch, slot);
    if (!patch)
        patch = find(o->dispatch_data, slot);
    return patch ? patch->original : fl_table_of(object)[slot];
}
