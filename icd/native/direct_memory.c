/* Where buffers lie, and which local sizes the driver chooses: what the driver has to be asked, on
 * a queue of the engine's own. */
#include "direct.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of maps, and shapes of all devices */
FL_FREE_IN_CHILD(lock)

/* The pointer of a map is where a kernel finds the buffer, on a device that shares the host's
 * memory. One thread at a time, and the last byte, which no program maps alone: PoCL finds a map by
 * its pointer, and so unmaps and frees that of another thread, which it still has to answer. */
static void *address_of(const fl_direct_device *d, cl_mem buffer, uint64_t flags, size_t size) {
    void **t = fl_table_of(buffer);
    cl_int code = CL_INVALID_OPERATION;
    if (flags & CL_MEM_HOST_NO_ACCESS)
        return NULL;
    cl_map_flags access = flags & CL_MEM_HOST_WRITE_ONLY ? CL_MAP_WRITE : CL_MAP_READ;
    pthread_mutex_lock(&lock);
    unsigned char *found = CALL(t, clEnqueueMapBuffer)(d->queue, buffer, CL_TRUE, access, size - 1,
                                                       1, 0, NULL, NULL, &code);
    found = code == CL_SUCCESS ? found : NULL;
    cl_event unmapped;
    if (found && CALL(t, clEnqueueUnmapMemObject)(d->queue, buffer, found, 0, NULL, &unmapped) ==
                     CL_SUCCESS) {
        CALL(t, clWaitForEvents)(1, &unmapped);
        CALL(t, clReleaseEvent)(unmapped);
    }
    pthread_mutex_unlock(&lock);
    return found ? found - (size - 1) : NULL;
}

static bool ask(const fl_direct_device *d, cl_mem buffer, struct fl_place *place, int *reason) {
    void **t = fl_table_of(buffer);
    cl_uint type = 0;
    fn_clGetMemObjectInfo *info = CALL(t, clGetMemObjectInfo);
    *reason = FL_DIRECT_MEMORY;
    if (info(buffer, CL_MEM_TYPE, sizeof type, &type, NULL) != CL_SUCCESS ||
        info(buffer, CL_MEM_SIZE, sizeof place->size, &place->size, NULL) != CL_SUCCESS ||
        info(buffer, CL_MEM_FLAGS, sizeof place->flags, &place->flags, NULL) != CL_SUCCESS)
        return false;
    if (type != CL_MEM_OBJECT_BUFFER) {
        *reason = FL_DIRECT_IMAGE;
        return false;
    }
    place->address = address_of(d, buffer, place->flags, place->size);
    return place->address != NULL;
}

const struct fl_place *fl_find_memory(const fl_direct_device *device, fl_direct_memory *memory,
                                      const fl_direct_memory *before, cl_mem buffer, int *reason) {
    struct fl_place place;
    if (fl_keep_has(&memory->keep, buffer))
        return &memory->places[fl_keep_index(&memory->keep, buffer)];
    if (before &&
        fl_keep_has(&before->keep, buffer)) /* it is kept there: the handle is the same buffer's */
        place = before->places[fl_keep_index(&before->keep, buffer)];
    else if (!ask(device, buffer, &place, reason))
        return NULL;
    *reason = FL_DIRECT_NO_ROOM;
    if (!FL_RESERVE(memory->places, memory->room, memory->keep.count + 1) ||
        fl_keep_add(&memory->keep, buffer, FL_KEEP_MEM, false) < 0)
        return NULL;
    *reason = FL_DIRECT_FINE;
    memory->places[memory->keep.count - 1] = place;
    return &memory->places[memory->keep.count - 1];
}

void fl_forget_memory(fl_direct_memory *memory) {
    fl_keep_release(&memory->keep);
    free(memory->places);
    *memory = (fl_direct_memory){0};
}

/* A launch of a kernel of ours tells. It is as large, so what takes long by itself stays with the
 * driver. */
static bool ask_shape(fl_direct_device *d, const fl_command *c, size_t *local) {
    void **t = fl_table_of(d->queue);
    uint64_t items = 1, answer[3];
    if (!d->shape)
        return false;
    for (uint32_t i = 0; i < c->work_dim; i++)
        if (__builtin_mul_overflow(items, c->n[3 + i], &items) || items > FL_DIRECT_MOST_ITEMS)
            return false;
    cl_int code = CALL(t, clEnqueueNDRangeKernel)(d->queue, d->shape, c->work_dim, NULL, c->n + 3,
                                                  NULL, 0, NULL, NULL);
    if (code == CL_SUCCESS)
        code = CALL(t, clEnqueueReadBuffer)(d->queue, d->answer, CL_TRUE, 0, sizeof answer, answer,
                                            0, NULL, NULL);
    for (int i = 0; i < 3; i++)
        local[i] = (size_t)answer[i];
    return code == CL_SUCCESS;
}

bool fl_choose_local(fl_direct_device *d, const fl_command *c, size_t *local) {
    const uint32_t room = sizeof d->shapes / sizeof *d->shapes;
    bool known = false;
    FL_HOLD(lock);
    for (uint32_t i = 0; !known && i < d->shape_count && i < room; i++)
        if (d->shapes[i].work_dim == c->work_dim &&
            !memcmp(d->shapes[i].global, c->n + 3, c->work_dim * sizeof *c->n)) {
            memcpy(local, d->shapes[i].local, sizeof d->shapes[i].local);
            known = true;
        }
    if (!known && (known = ask_shape(d, c, local))) {
        struct fl_direct_shape *s = &d->shapes[d->shape_count++ % room];
        s->work_dim = c->work_dim;
        memcpy(s->global, c->n + 3, sizeof s->global);
        memcpy(s->local, local, sizeof s->local);
    }
    return known;
}
