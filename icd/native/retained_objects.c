/* A set of OpenCL objects that are kept alive, each retained once. It only grows, and lets go of
 * everything at once, the newest first: drivers hold what belongs to a program or a context in
 * lists, newest at the front, and search them at each release. */
#include "native.h"

#include <stdlib.h>

/* The slots by fl_kind. All of these functions take the object and nothing else. */
static const int retain_slots[] = {SLOT_clRetainMemObject,    SLOT_clRetainKernel,
                                   SLOT_clRetainEvent,        SLOT_clRetainSampler,
                                   SLOT_clRetainCommandQueue, SLOT_clRetainContext};
static const int release_slots[] = {SLOT_clReleaseMemObject,    SLOT_clReleaseKernel,
                                    SLOT_clReleaseEvent,        SLOT_clReleaseSampler,
                                    SLOT_clReleaseCommandQueue, SLOT_clReleaseContext};

static cl_int call(void *object, int slot) {
    return ((fn_clRetainMemObject *)fl_table_of(object)[slot])(object);
}

static uint32_t place(const fl_keep *keep, const void *object) {
    uint32_t mask = keep->capacity - 1;
    uint32_t at = (uint32_t)(((uintptr_t)object >> 4) * 2654435761u) & mask;
    while (keep->places[at] && keep->entries[keep->places[at] - 1].object != object)
        at = (at + 1) & mask;
    return at;
}

/* Twice the room, and places that are at most half full. */
static bool grow(fl_keep *keep) {
    uint32_t room = keep->room ? keep->room * 2 : 32;
    struct fl_kept *entries = realloc(keep->entries, room * sizeof *entries);
    if (entries)
        keep->entries = entries;
    uint32_t *places = entries ? calloc(room * 2, sizeof *places) : NULL;
    if (!places)
        return false;
    free(keep->places);
    keep->places = places;
    keep->room = room;
    keep->capacity = room * 2;
    for (uint32_t i = 0; i < keep->count; i++)
        keep->places[place(keep, keep->entries[i].object)] = i + 1;
    return true;
}

bool fl_keep_has(const fl_keep *keep, const void *object) {
    return keep->capacity && keep->places[place(keep, object)];
}

uint32_t fl_keep_index(const fl_keep *keep, const void *object) {
    return keep->places[place(keep, object)] - 1;
}

int fl_keep_add(fl_keep *keep, void *object, fl_kind kind, bool owned) {
    if (fl_keep_has(keep, object))
        return 0;
    if (keep->count == keep->room && !grow(keep))
        return CL_OUT_OF_HOST_MEMORY;
    cl_int code = owned ? CL_SUCCESS : call(object, retain_slots[kind]);
    if (code != CL_SUCCESS)
        return code;   /* the driver does not know it */
    keep->entries[keep->count] = (struct fl_kept){object, kind};
    keep->places[place(keep, object)] = ++keep->count;
    return 1;
}

/* What a memory object is a part of or made from. OpenCL 1.0 does not know the question. */
static cl_int made_from(cl_mem mem, cl_mem *from) {
    *from = NULL;
    cl_int code = CALL(fl_table_of(mem), clGetMemObjectInfo)(mem, CL_MEM_ASSOCIATED_MEMOBJECT,
                                                             sizeof *from, from, NULL);
    return code == CL_INVALID_VALUE ? CL_SUCCESS : code;
}

int fl_keep_add_memory(fl_keep *keep, cl_mem mem) {
    cl_mem chain[4];   /* an image, of an image, of a part of a buffer (SPEC clCreateImage) */
    int count = 0, added = 0;
    for (cl_mem at = mem; at && count < 4 && !fl_keep_has(keep, at) && added == CL_SUCCESS;) {
        chain[count++] = at;
        added = made_from(at, &at);
    }
    keep->has_parts |= count > 1;
    while (count > 0 && added >= 0)
        added = fl_keep_add(keep, chain[--count], FL_KEEP_MEM, false);
    return added;
}

void fl_keep_release(fl_keep *keep) {
    for (uint32_t i = keep->count; i-- > 0;)
        call(keep->entries[i].object, release_slots[keep->entries[i].kind]);
    free(keep->entries);
    free(keep->places);
    *keep = (fl_keep){0};
}
