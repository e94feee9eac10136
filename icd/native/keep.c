/* A set of OpenCL objects that are kept alive: open addressing, grows at half full, no removal. */
#include "native.h"

#include <stdlib.h>

static uint32_t place(const fl_keep *keep, const void *object) {
    uint32_t mask = keep->capacity - 1;
    uint32_t at = (uint32_t)(((uintptr_t)object >> 4) * 2654435761u) & mask;
    while (keep->objects[at] && keep->objects[at] != object)
        at = (at + 1) & mask;
    return at;
}

static bool grow(fl_keep *keep) {
    fl_keep larger = {.capacity = keep->capacity ? keep->capacity * 2 : 64, .count = keep->count};
    larger.objects = calloc(larger.capacity, sizeof *larger.objects);
    larger.kinds = calloc(larger.capacity, sizeof *larger.kinds);
    if (!larger.objects || !larger.kinds) {
        free(larger.objects);
        free(larger.kinds);
        return false;
    }
    for (uint32_t i = 0; i < keep->capacity; i++) {
        if (!keep->objects[i])
            continue;
        uint32_t at = place(&larger, keep->objects[i]);
        larger.objects[at] = keep->objects[i];
        larger.kinds[at] = keep->kinds[i];
    }
    free(keep->objects);
    free(keep->kinds);
    *keep = larger;
    return true;
}

/* The slots by fl_kind. All of these functions take the object and nothing else. */
static const int retain_slots[] = {SLOT_clRetainMemObject, SLOT_clRetainKernel, SLOT_clRetainEvent,
                                   SLOT_clRetainSampler, SLOT_clRetainCommandQueue, SLOT_clRetainContext};
static const int release_slots[] = {SLOT_clReleaseMemObject, SLOT_clReleaseKernel, SLOT_clReleaseEvent,
                                    SLOT_clReleaseSampler, SLOT_clReleaseCommandQueue, SLOT_clReleaseContext};

static void call(void *object, int slot) {
    ((fn_clRetainMemObject *)fl_table_of(object)[slot])(object);
}

bool fl_keep_has(const fl_keep *keep, const void *object) {
    return keep->capacity && keep->objects[place(keep, object)] == object;
}

int fl_keep_add(fl_keep *keep, void *object, fl_kind kind, bool owned) {
    if (fl_keep_has(keep, object))
        return 0;
    if (keep->count * 2 >= keep->capacity && !grow(keep))
        return -1;
    uint32_t at = place(keep, object);
    if (!owned)
        call(object, retain_slots[kind]);
    keep->objects[at] = object;
    keep->kinds[at] = (uint8_t)kind;
    keep->count++;
    return 1;
}

/* Release everything, the context last: a driver may need it to take the others apart. */
void fl_keep_release(fl_keep *keep) {
    for (int last = 0; last < 2; last++)
        for (uint32_t i = 0; i < keep->capacity; i++)
            if (keep->objects[i] && (keep->kinds[i] >= FL_KEEP_QUEUE) == last)
                call(keep->objects[i], release_slots[keep->kinds[i]]);
    free(keep->objects);
    free(keep->kinds);
    *keep = (fl_keep){0};
}
