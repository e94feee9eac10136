/* Imports of CUDA's memory by OpenCL, and buffers that are made of them.
 *
 * A large buffer is an import by itself, a small one a sub-buffer of a slab: an import takes some
 * 80 µs, and CUDA half a millisecond for a piece's file descriptor. A slab is filled once,
 * and given up when all its buffers are gone. Its memory is not used again, since OpenCL may still
 * run what uses it. */
#include "cuda_buffers.h"

#include <stdlib.h>
#include <unistd.h>

enum { BUCKETS = 1024, MOST_SLOTS = 128 };
enum { FIRST_CLASS = 9, CLASSES = 12 };   /* slots of 512 bytes to 1 MiB */
#define OWN_FROM ((size_t)1 << 20)
_Static_assert((size_t)1 << (FIRST_CLASS + CLASSES - 1) == OWN_FROM,
               "each smaller buffer has a class");
#define MOST_OF_A_SLAB ((size_t)16 << 20)
#define PIECE ((size_t)2 << 20)   /* CUDA's granularity */

/* An import of a piece by OpenCL: a slab, which has a range of it, or a buffer of the program's. */
typedef struct root {
    struct root *next;            /* in its bucket, or of the slabs that are given up */
    cl_mem memory;
    cl_context context;
    fl_piece *piece;
    size_t first,
        slot; /* where a slab begins in the piece; `slot` is 0 for a buffer of the program's */
    struct filling *home;         /* of a slab, and its place there */
    uint32_t class;
    uint32_t slots, used, live;
    cl_mem_flags flags[MOST_SLOTS];   /* with which the program created it, or each of its slots */
} root;

static root *buckets[BUCKETS];
static root *given_up;
/* The slabs that a context's buffers come from. `released`: the program has released the context,
 * so that empty slabs must not hold it, and another context may have its handle. */
static struct filling {
    struct filling *next;
    cl_context context;
    const fl_cuda_device *device; /* NULL: ask */
    root *slabs[CLASSES];
    fl_piece *open;               /* has room for slabs, or is NULL */
    bool released;
} *fillings;
static struct {
    cl_device_id opencl;
    fl_cuda_device *cuda;
} devices[FL_CUDA_MOST_DEVICES];
static uint32_t device_count;
static fl_cuda_import *import_memory;
static fl_cuda_counts counts;

static root **bucket_of(const void *memory) { return &buckets[((uintptr_t)memory >> 4) % BUCKETS]; }

static root *find(const void *memory) {
    root *r = *bucket_of(memory);
    while (r && r->memory != memory)
        r = r->next;
    return r;
}

static void unlist(root *r) {
    for (root **at = bucket_of(r->memory); *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            return;
        }
}

static void give_back(root *r) {
    fl_drop_piece(r->piece);
    free(r);
}

/* The driver's import of a file descriptor, which it owns from then on. */
static void *import_descriptor(void *context, uint64_t flags, uint64_t address, int descriptor,
                               size_t size, int32_t *code) {
    cl_mem_properties properties[] = {CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR,
                                      (cl_mem_properties)descriptor, 0};
    fn_clCreateBufferWithProperties *create =
        (fn_clCreateBufferWithProperties *)fl_patched(context, SLOT_clCreateBufferWithProperties);
    void *memory = create(context, properties, flags, size, NULL, code);
    if (!memory)
        close(descriptor);
    return memory;
}

/* Memory of both, listed. It takes over one use of the piece. NULL: OpenCL does not import it. */
static root *new_root(cl_context context, fl_piece *p, cl_mem_flags flags, size_t size,
                      bool is_open) {
    root *r = calloc(1, sizeof *r);
    const fl_cuda_device *device = p->device;
    cl_int code = CL_SUCCESS;
    if (!r || fl_cuda_enter(device) != CUDA_SUCCESS) {
        free(r);
        fl_drop_piece(p);
        return NULL;
    }
    r->piece = p;
    r->context = context;
    int descriptor = fl_export_piece(p, is_open);
    if (descriptor >= 0)
        r->memory = (import_memory ? import_memory : import_descriptor)(context, flags, p->address,
                                                                        descriptor, size, &code);
    fl_cuda_leave(device);
    if (!r->memory) {
        give_back(r);
        return NULL;
    }
    pthread_mutex_lock(&fl_shared_lock);
    r->next = *bucket_of(r->memory);
    *bucket_of(r->memory) = r;
    pthread_mutex_unlock(&fl_shared_lock);
    return r;
}

/* OpenCL has destroyed a buffer of the program's. Its handle may be another object's by now. */
static void root_gone(cl_mem memory, void *data) {
    (void)memory;
    pthread_mutex_lock(&fl_shared_lock);
    unlist(data);
    counts.own--;
    pthread_mutex_unlock(&fl_shared_lock);
    give_back(data);
}

/* The caller has the lock. */
static void give_up(root *slab) {
    if (slab->home && slab->home->slabs[slab->class] == slab)
        slab->home->slabs[slab->class] = NULL;
    unlist(slab);
    slab->next = given_up;
    given_up = slab;
}

static void slot_gone(cl_mem memory, void *data) {
    root *slab = data;
    (void)memory;
    pthread_mutex_lock(&fl_shared_lock);
    counts.small--;
    if (!--slab->live && (slab->used == slab->slots || slab->home->released))
        give_up(slab);
    pthread_mutex_unlock(&fl_shared_lock);
}

/* Not in the driver's callback, where its functions must not be called. */
static void drop_given_up(void) {
    pthread_mutex_lock(&fl_shared_lock);
    root *first = given_up;
    given_up = NULL;
    pthread_mutex_unlock(&fl_shared_lock);
    while (first) {
        root *r = first;
        first = r->next;
        ((fn_clReleaseMemObject *)fl_patched(r->memory, SLOT_clReleaseMemObject))(r->memory);
        give_back(r);
    }
}

static bool watch(cl_mem memory, void (*gone)(cl_mem, void *), void *data) {
    fn_clSetMemObjectDestructorCallback *set = (fn_clSetMemObjectDestructorCallback *)fl_patched(
        memory, SLOT_clSetMemObjectDestructorCallback);
    return set(memory, (void *)gone, data) == CL_SUCCESS;
}

/* The slabs of a context. The caller has the lock. */
static struct filling *find_filling(cl_context context) {
    struct filling *f = fillings;
    while (f && f->context != context)
        f = f->next;
    return f;
}

static const fl_cuda_device *device_of(cl_context context) {
    cl_device_id all[2];
    pthread_mutex_lock(&fl_shared_lock);
    struct filling *f = find_filling(context);
    const fl_cuda_device *known = f && !f->released ? f->device : NULL;
    pthread_mutex_unlock(&fl_shared_lock);
    if (known)
        return known->lost ? NULL : known;
    size_t size = 0;
    fn_clGetContextInfo *ask = (fn_clGetContextInfo *)fl_patched(context, SLOT_clGetContextInfo);
    if (ask(context, CL_CONTEXT_DEVICES, sizeof all, all, &size) != CL_SUCCESS ||
        size != sizeof *all)
        return NULL;
    pthread_mutex_lock(&fl_shared_lock);
    for (uint32_t i = 0; i < device_count && !known; i++)
        if (devices[i].opencl == all[0] && !devices[i].cuda->lost)
            known = devices[i].cuda;
    pthread_mutex_unlock(&fl_shared_lock);
    return known;
}

/* The caller has the lock. */
static struct filling *filling_of(cl_context context, const fl_cuda_device *device) {
    struct filling *f = find_filling(context);
    if (!f) {
        f = calloc(1, sizeof *f);
        if (!f)
            return NULL;
        f->context = context;
        f->next = fillings;
        fillings = f;
    }
    f->released = false;
    f->device = device;
    return f;
}

static uint32_t class_of(size_t size) {
    uint32_t class = 0;
    while (size > (size_t)1 << (FIRST_CLASS + class))
        class++;
    return class;
}

/* A use of the open piece, if it has room for so many bytes. They begin at `first`. */
static fl_piece *take_range(struct filling *home, size_t size, size_t *first) {
    pthread_mutex_lock(&fl_shared_lock);
    fl_piece *p = home->open;
    if (p && p->mapped - p->used >= size) {
        *first = p->used;
        p->used += size;
        p->users++;
    } else
        p = NULL;
    pthread_mutex_unlock(&fl_shared_lock);
    return p;
}

/* Later slabs come from a piece. */
static void open_piece(struct filling *home, fl_piece *p) {
    pthread_mutex_lock(&fl_shared_lock);
    fl_piece *before = home->open;
    int descriptor = before ? before->descriptor : -1; /* its slabs have theirs */
    if (before)
        before->descriptor = -1;
    home->open = p;
    p->users++;
    pthread_mutex_unlock(&fl_shared_lock);
    if (descriptor >= 0)
        close(descriptor);
    fl_drop_piece(before);
}

static root *new_slab(cl_context context, const fl_cuda_device *device, struct filling *home,
                      uint32_t class) {
    size_t slot = (size_t)1 << (FIRST_CLASS + class);
    uint32_t slots =
        MOST_OF_A_SLAB / slot < MOST_SLOTS ? (uint32_t)(MOST_OF_A_SLAB / slot) : MOST_SLOTS;
    size_t first = 0, size = slot * slots;
    fl_piece *p = take_range(home, size, &first);
    root *made = p ? new_root(context, p, CL_MEM_READ_WRITE, p->mapped, true) : NULL;
    if (!made) {
        first = 0;
        p = fl_new_piece(device, size < PIECE ? PIECE : size);
        if (p)
            p->used = size;
        bool has_room = p && p->mapped - size >= size;
        if (has_room)
            open_piece(home, p);
        made = p ? new_root(context, p, CL_MEM_READ_WRITE, p->mapped, has_room) : NULL;
    }
    if (!made)
        return NULL;
    made->first = first;
    made->slot = slot;
    made->slots = slots;
    made->home = home;
    made->class = class;
    return made;
}

/* A place in a slab, counted as live; NULL if there is none to be had. */
static root *take_slot(cl_context context, const fl_cuda_device *device, size_t size,
                       uint32_t *number) {
    uint32_t class = class_of(size);
    pthread_mutex_lock(&fl_shared_lock);
    struct filling *home = filling_of(context, device);
    root **at = home ? &home->slabs[class] : NULL;
    if (at && !*at) {
        /* this may take a millisecond, and calls the driver */
        pthread_mutex_unlock(&fl_shared_lock);
        root *made = new_slab(context, device, home, class);
        if (!made)
            return NULL;
        pthread_mutex_lock(&fl_shared_lock);
        if (*at)
            give_up(made);   /* another thread has put one there meanwhile */
        else
            *at = made;
    }
    root *slab = at ? *at : NULL;
    if (slab) {
        *number = slab->used++;
        slab->live++;
        counts.small++;
        if (slab->used == slab->slots)
            *at = NULL;
    }
    pthread_mutex_unlock(&fl_shared_lock);
    return slab;
}

/* A sub-buffer of a slab that looks like a buffer. */
static cl_mem small_buffer(cl_context context, const fl_cuda_device *device, cl_mem_flags flags,
                           size_t size, void *host) {
    uint32_t number;
    cl_int code;
    root *slab = take_slot(context, device, size, &number);
    if (!slab)
        return NULL;
    struct {
        size_t origin, size;
    } region = {slab->first + number * slab->slot, size};   /* a cl_buffer_region */
    slab->flags[number] = flags;
    fn_clCreateSubBuffer *create =
        (fn_clCreateSubBuffer *)fl_patched(slab->memory, SLOT_clCreateSubBuffer);
    cl_mem memory = NULL;
    if (!host || fl_copy_to_cuda(device, slab->piece->address + region.origin, host, size))
        memory = create(slab->memory, flags & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR,
                        CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (memory && watch(memory, slot_gone, slab))
        return memory;
    if (memory)
        ((fn_clReleaseMemObject *)fl_patched(memory, SLOT_clReleaseMemObject))(memory);
    slot_gone(NULL, slab);
    return NULL;
}

static cl_mem own_buffer(cl_context context, const fl_cuda_device *device, cl_mem_flags flags,
                         size_t size, void *host) {
    fl_piece *p = fl_new_piece(device, size);
    root *r =
        p ? new_root(context, p, flags & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR, size, false) : NULL;
    if (!r)
        return NULL;
    r->flags[0] = flags;
    cl_mem memory = r->memory;
    pthread_mutex_lock(&fl_shared_lock);
    counts.own++;
    pthread_mutex_unlock(&fl_shared_lock);
    if ((!host || fl_copy_to_cuda(device, r->piece->address, host, size)) &&
        watch(memory, root_gone, r))
        return memory;
    ((fn_clReleaseMemObject *)fl_patched(memory, SLOT_clReleaseMemObject))(memory);
    root_gone(NULL, r);
    return NULL;
}

cl_mem fl_new_shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host) {
    drop_given_up();
    const fl_cuda_device *device = device_of(context);
    if (!device)
        return NULL;
    return size < OWN_FROM ? small_buffer(context, device, flags, size, host)
                           : own_buffer(context, device, flags, size, host);
}

void fl_count_other_buffer(cl_mem memory) {
    pthread_mutex_lock(&fl_shared_lock);
    root *r = memory ? find(memory) : NULL;
    if (r)
        unlist(r);
    counts.other += memory != NULL;
    pthread_mutex_unlock(&fl_shared_lock);
}

bool fl_find_import(cl_mem memory, size_t slot_offset, fl_import *found) {
    pthread_mutex_lock(&fl_shared_lock);
    root *r = find(memory);
    if (r) {
        size_t slot = r->slot ? (slot_offset - r->first) / r->slot : 0;
        found->is_slab = r->slot;
        found->flags = r->flags[slot < MOST_SLOTS ? slot : 0];
        found->address = r->piece->address;
    }
    pthread_mutex_unlock(&fl_shared_lock);
    return r;
}

void fl_release_slabs(cl_context context) {
    pthread_mutex_lock(&fl_shared_lock);
    struct filling *f = find_filling(context);
    if (f)
        f->released = true;
    for (uint32_t i = 0; f && i < CLASSES; i++)
        if (f->slabs[i] && !f->slabs[i]->live)
            give_up(f->slabs[i]);
    fl_piece *open = f ? f->open : NULL;
    if (f)
        f->open = NULL;
    pthread_mutex_unlock(&fl_shared_lock);
    fl_drop_piece(open);
    drop_given_up();
}

bool fl_add_shared_device(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import) {
    if (device_count == FL_CUDA_MOST_DEVICES)
        return false;
    pthread_mutex_lock(&fl_shared_lock);
    devices[device_count].opencl = opencl_device;
    devices[device_count].cuda = device;
    import_memory = import;
    device_count++;
    pthread_mutex_unlock(&fl_shared_lock);
    return true;
}

bool fl_remove_shared_device(void *opencl_device) {
    bool was = false;
    pthread_mutex_lock(&fl_shared_lock);
    for (uint32_t i = 0; i < device_count; i++)
        if (devices[i].opencl == opencl_device) {
            devices[i] = devices[--device_count];
            was = true;
        }
    for (struct filling *f = fillings; f; f = f->next)
        f->device = NULL;
    pthread_mutex_unlock(&fl_shared_lock);
    return was;
}

fl_cuda_counts fl_count_shared(void) {
    pthread_mutex_lock(&fl_shared_lock);
    fl_cuda_counts now = counts;
    pthread_mutex_unlock(&fl_shared_lock);
    return now;
}
