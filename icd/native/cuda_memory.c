/* Buffers of memory that both OpenCL and CUDA have.
 *
 * While somebody shares memory, a few slots of the driver's own table lead to functions of ours. A
 * buffer that the program creates is made of CUDA's memory, which the driver imports: a large one
 * by itself, a small one as a sub-buffer of a slab. The program sees no difference: what it asks of
 * such a buffer is answered as for any other. Where a buffer cannot be shared, the driver makes it
 * as always.
 *
 * A slab is filled once, and given up when all its buffers are gone. Its memory is not used again,
 * since OpenCL may still run what uses it. */
#include "cuda.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 1024, MOST_SLOTS = 128 };
enum { FIRST_CLASS = 9, CLASSES = 12 };   /* slots of 512 bytes to 1 MiB */
#define OWN_FROM ((size_t)1 << 20)
_Static_assert((size_t)1 << (FIRST_CLASS + CLASSES - 1) == OWN_FROM,
               "each smaller buffer has a class");
#define MOST_OF_A_SLAB ((size_t)16 << 20)
#define PIECE ((size_t)2 << 20)   /* CUDA's granularity */
/* Flags of buffers that can be shared: not those of host memory, nor unknown ones. */
#define SHAREABLE                                                                                  \
    (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY | CL_MEM_COPY_HOST_PTR |             \
     CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS)

/* A piece of CUDA's memory. Slabs whose slots are small share one, because CUDA's pieces have 2 MiB
 * at least and take long to make. */
typedef struct piece {
    const fl_cuda_device *device;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    size_t mapped, used;          /* bytes */
    uint32_t users;               /* roots, and the filling that it is open in */
    int descriptor;               /* of the handle while the piece is open, or -1 */
} piece;

/* An import of a piece by OpenCL: a slab, which has a range of it, or a buffer of the program's. */
typedef struct root {
    struct root *next;            /* in its bucket, or of the slabs that are given up */
    cl_mem memory;
    cl_context context;
    struct piece *piece;
    size_t first,
        slot; /* where a slab begins in the piece; `slot` is 0 for a buffer of the program's */
    struct filling *home;         /* of a slab, and its place there */
    uint32_t class;
    uint32_t slots, used, live;
    cl_mem_flags flags[MOST_SLOTS];   /* with which the program created it, or each of its slots */
} root;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static root *buckets[BUCKETS];
static root *given_up;
/* The slabs that a context's buffers come from. `released`: the program has released the context,
 * so that empty slabs must not hold it, and another context may have its handle. */
static struct filling {
    struct filling *next;
    cl_context context;
    const fl_cuda_device *device; /* NULL: ask */
    root *slabs[CLASSES];
    piece *open;                  /* has room for slabs, or is NULL */
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

/* --- CUDA's side --- */

static CUresult take(piece *p, size_t size) {
    const fl_cuda_device *d = p->device;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->number}};
    CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity = 0;
    CUresult code =
        CU(d, cuMemGetAllocationGranularity)(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (code == CUDA_SUCCESS && !granularity)
        code = CUDA_ERROR_NOT_SUPPORTED;
    if (code != CUDA_SUCCESS)
        return code;
    p->mapped = (size + granularity - 1) / granularity * granularity;
    code = CU(d, cuMemCreate)(&p->handle, p->mapped, &kind, 0);
    if (code != CUDA_SUCCESS)
        return code;
    code = CU(d, cuMemAddressReserve)(&p->address, p->mapped, 0, 0, 0);
    if (code == CUDA_SUCCESS) {
        code = CU(d, cuMemMap)(p->address, p->mapped, 0, p->handle, 0);
        if (code == CUDA_SUCCESS) {
            code = CU(d, cuMemSetAccess)(p->address, p->mapped, &access, 1);
            if (code == CUDA_SUCCESS)
                return code;
            CU(d, cuMemUnmap)(p->address, p->mapped);
        }
        CU(d, cuMemAddressFree)(p->address, p->mapped);
    }
    CU(d, cuMemRelease)(p->handle);
    return code;
}

/* Of `size` bytes, with one user. NULL if there is none to be had. */
static piece *new_piece(const fl_cuda_device *device, size_t size) {
    piece *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = device;
    p->users = 1;
    p->descriptor = -1;
    CUresult taken = fl_cuda_enter(device);
    if (taken == CUDA_SUCCESS) {
        taken = take(p, size);
        fl_cuda_leave(device);
    }
    if (taken == CUDA_SUCCESS)
        return p;
    free(p);
    return NULL;
}

static void drop_piece(piece *p) {
    pthread_mutex_lock(&lock);
    bool last = p && !--p->users;
    pthread_mutex_unlock(&lock);
    if (!last)
        return;
    const fl_cuda_device *d = p->device;
    if (p->descriptor >= 0)
        close(p->descriptor);
    if (fl_cuda_enter(d) == CUDA_SUCCESS) {
        CU(d, cuMemUnmap)(p->address, p->mapped);
        CU(d, cuMemAddressFree)(p->address, p->mapped);
        CU(d, cuMemRelease)(p->handle);
        fl_cuda_leave(d);
    }
    free(p);
}

static void give_back(root *r) {
    drop_piece(r->piece);
    free(r);
}

/* --- OpenCL's side --- */

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

/* A file descriptor of a piece, -1 if there is none. CUDA takes half a millisecond to make one, so
 * a piece that slabs will come from keeps its own. */
static int descriptor_of(piece *p, bool is_open) {
    const fl_cuda_device *d = p->device;
    int made = -1;
    pthread_mutex_lock(&lock);
    int kept = p->descriptor;
    pthread_mutex_unlock(&lock);
    if (kept >= 0)
        return fcntl(kept, F_DUPFD_CLOEXEC, 0);
    if (CU(d, cuMemExportToShareableHandle)(
            &made, p->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return -1;
    kept = is_open ? fcntl(made, F_DUPFD_CLOEXEC, 0) : -1;
    pthread_mutex_lock(&lock);
    if (p->descriptor < 0) {
        p->descriptor = kept;
        kept = -1;
    }
    pthread_mutex_unlock(&lock);
    if (kept >= 0) /* another thread was faster */
        close(kept);
    return made;
}

/* Memory of both, listed. It takes over one use of the piece. NULL: OpenCL does not import it. */
static root *new_root(cl_context context, piece *p, cl_mem_flags flags, size_t size, bool is_open) {
    root *r = calloc(1, sizeof *r);
    const fl_cuda_device *device = p->device;
    cl_int code = CL_SUCCESS;
    if (!r || fl_cuda_enter(device) != CUDA_SUCCESS) {
        free(r);
        drop_piece(p);
        return NULL;
    }
    r->piece = p;
    r->context = context;
    int descriptor = descriptor_of(p, is_open);
    if (descriptor >= 0)
        r->memory = (import_memory ? import_memory : import_descriptor)(context, flags, p->address,
                                                                        descriptor, size, &code);
    fl_cuda_leave(device);
    if (!r->memory) {
        give_back(r);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    r->next = *bucket_of(r->memory);
    *bucket_of(r->memory) = r;
    pthread_mutex_unlock(&lock);
    return r;
}

/* OpenCL has destroyed a buffer of the program's. Its handle may be another object's by now. */
static void root_gone(cl_mem memory, void *data) {
    (void)memory;
    pthread_mutex_lock(&lock);
    unlist(data);
    counts.own--;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    counts.small--;
    if (!--slab->live && (slab->used == slab->slots || slab->home->released))
        give_up(slab);
    pthread_mutex_unlock(&lock);
}

/* Not in the driver's callback, where its functions must not be called. */
static void drop_given_up(void) {
    pthread_mutex_lock(&lock);
    root *first = given_up;
    given_up = NULL;
    pthread_mutex_unlock(&lock);
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
    pthread_mutex_lock(&lock);
    struct filling *f = find_filling(context);
    const fl_cuda_device *known = f && !f->released ? f->device : NULL;
    pthread_mutex_unlock(&lock);
    if (known)
        return known->lost ? NULL : known;
    size_t size = 0;
    fn_clGetContextInfo *ask = (fn_clGetContextInfo *)fl_patched(context, SLOT_clGetContextInfo);
    if (ask(context, CL_CONTEXT_DEVICES, sizeof all, all, &size) != CL_SUCCESS ||
        size != sizeof *all)
        return NULL;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < device_count && !known; i++)
        if (devices[i].opencl == all[0] && !devices[i].cuda->lost)
            known = devices[i].cuda;
    pthread_mutex_unlock(&lock);
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
static piece *take_range(struct filling *home, size_t size, size_t *first) {
    pthread_mutex_lock(&lock);
    piece *p = home->open;
    if (p && p->mapped - p->used >= size) {
        *first = p->used;
        p->used += size;
        p->users++;
    } else
        p = NULL;
    pthread_mutex_unlock(&lock);
    return p;
}

/* Later slabs come from a piece. */
static void open_piece(struct filling *home, piece *p) {
    pthread_mutex_lock(&lock);
    piece *before = home->open;
    int descriptor = before ? before->descriptor : -1; /* its slabs have theirs */
    if (before)
        before->descriptor = -1;
    home->open = p;
    p->users++;
    pthread_mutex_unlock(&lock);
    if (descriptor >= 0)
        close(descriptor);
    drop_piece(before);
}

static root *new_slab(cl_context context, const fl_cuda_device *device, struct filling *home,
                      uint32_t class) {
    size_t slot = (size_t)1 << (FIRST_CLASS + class);
    uint32_t slots =
        MOST_OF_A_SLAB / slot < MOST_SLOTS ? (uint32_t)(MOST_OF_A_SLAB / slot) : MOST_SLOTS;
    size_t first = 0, size = slot * slots;
    piece *p = take_range(home, size, &first);
    root *made = p ? new_root(context, p, CL_MEM_READ_WRITE, p->mapped, true) : NULL;
    if (!made) {
        first = 0;
        p = new_piece(device, size < PIECE ? PIECE : size);
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
    pthread_mutex_lock(&lock);
    struct filling *home = filling_of(context, device);
    root **at = home ? &home->slabs[class] : NULL;
    if (at && !*at) {
        pthread_mutex_unlock(&lock);   /* this may take a millisecond, and calls the driver */
        root *made = new_slab(context, device, home, class);
        if (!made)
            return NULL;
        pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return slab;
}

static bool copy_in(const fl_cuda_device *device, CUdeviceptr to, const void *from, size_t size) {
    if (fl_cuda_enter(device) != CUDA_SUCCESS)
        return false;
    CUresult code = CU(device, cuMemcpyHtoD_v2)(to, from, size);
    if (code == CUDA_SUCCESS)
        code = CU(device, cuStreamSynchronize)(
            NULL); /* SPEC cuMemcpyHtoD: it may return when the source is read */
    fl_cuda_leave(device);
    return code == CUDA_SUCCESS;
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
    if (!host || copy_in(device, slab->piece->address + region.origin, host, size))
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
    piece *p = new_piece(device, size);
    root *r =
        p ? new_root(context, p, flags & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR, size, false) : NULL;
    if (!r)
        return NULL;
    r->flags[0] = flags;
    cl_mem memory = r->memory;
    pthread_mutex_lock(&lock);
    counts.own++;
    pthread_mutex_unlock(&lock);
    if ((!host || copy_in(device, r->piece->address, host, size)) && watch(memory, root_gone, r))
        return memory;
    ((fn_clReleaseMemObject *)fl_patched(memory, SLOT_clReleaseMemObject))(memory);
    root_gone(NULL, r);
    return NULL;
}

/* Whether flags exclude each other. Of parts, NVIDIA's driver does not look. */
static bool is_contradictory(cl_mem_flags flags) {
    cl_mem_flags access = flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY);
    cl_mem_flags host =
        flags & (CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS);
    return access & (access - 1) || host & (host - 1);
}

/* NULL: the driver makes it, or refuses it in its own words. */
static cl_mem shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host) {
    if (!(flags & (CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY)))
        flags |= CL_MEM_READ_WRITE;
    if (!context || !size || flags & ~(cl_mem_flags)SHAREABLE || is_contradictory(flags) ||
        !host != !(flags & CL_MEM_COPY_HOST_PTR))
        return NULL;
    drop_given_up();
    const fl_cuda_device *device = device_of(context);
    if (!device)
        return NULL;
    return size < OWN_FROM ? small_buffer(context, device, flags, size, host)
                           : own_buffer(context, device, flags, size, host);
}

/* The driver has made an object. A handle that was a shared buffer's is not one any more. */
static cl_mem not_shared(cl_mem memory) {
    pthread_mutex_lock(&lock);
    root *r = memory ? find(memory) : NULL;
    if (r)
        unlist(r);
    counts.other += memory != NULL;
    pthread_mutex_unlock(&lock);
    return memory;
}

static cl_mem create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                            cl_int *code) {
    cl_mem memory = shared_buffer(context, flags, size, host);
    if (memory) {
        if (code)
            *code = CL_SUCCESS;
        return memory;
    }
    return not_shared(((fn_clCreateBuffer *)fl_patched(context, SLOT_clCreateBuffer))(
        context, flags, size, host, code));
}

static cl_mem create_buffer_with_properties(cl_context context, const cl_mem_properties *properties,
                                            cl_mem_flags flags, size_t size, void *host,
                                            cl_int *code) {
    if (!properties)
        return create_buffer(context, flags, size, host, code);
    fn_clCreateBufferWithProperties *create =
        (fn_clCreateBufferWithProperties *)fl_patched(context, SLOT_clCreateBufferWithProperties);
    return not_shared(create(context, properties, flags, size, host, code));
}

/* What the driver says of a buffer: what it is a part of, and where. NVIDIA's driver counts from
 * the beginning of the outermost one, of which PoCL has no parts of parts. */
static cl_mem parent_of(cl_mem memory, size_t *offset) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
    cl_mem parent = NULL;
    *offset = 0;
    if (ask(memory, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof parent, &parent, NULL) != CL_SUCCESS ||
        (parent && ask(memory, CL_MEM_OFFSET, sizeof *offset, offset, NULL) != CL_SUCCESS))
        return NULL;
    return parent;
}

enum { DEEPEST = 8 };

/* Where a buffer lies that is shared. `depth` counts from 0, the driver's import, to parts of parts
 * of it. `offset` is the buffer's in the import, and `slot_offset` that of the part of depth 1 that
 * it is, or is in. */
typedef struct place {
    int depth;
    size_t offset, slot_offset;
    bool is_in_slab;
    cl_mem_flags flags;           /* of the program's buffer */
    uint64_t address;
} place;

/* False: it is not shared. */
static bool locate(cl_mem memory, place *found) {
    size_t offset = 0;
    *found = (place){0};
    while (memory && found->depth < DEEPEST) {
        pthread_mutex_lock(&lock); /* not around calls of the driver, which may hold a lock of its
                                      own when it calls back */
        root *r = find(memory);
        if (r) {
            size_t slot = r->slot ? (found->slot_offset - r->first) / r->slot : 0;
            found->is_in_slab = r->slot;
            found->flags = r->flags[slot < MOST_SLOTS ? slot : 0];
            found->address = r->piece->address + found->offset;
        }
        pthread_mutex_unlock(&lock);
        if (r)
            return true;
        memory = parent_of(memory, &offset);
        if (!found->depth++)
            found->offset = offset;
        found->slot_offset = offset;
    }
    return false;
}

uint64_t fl_cuda_address(void *memory) {
    place found;
    return locate(memory, &found) ? found.address : 0;
}

static cl_int answer(const void *value, size_t size, size_t room, void *to, size_t *size_ret) {
    if (to && room < size)
        return CL_INVALID_VALUE;
    if (to && size)
        memcpy(to, value, size);
    if (size_ret)
        *size_ret = size;
    return CL_SUCCESS;
}

/* A slot of a slab is a buffer without a parent, and an import one without properties. */
static cl_int get_info(cl_mem memory, cl_mem_info what, size_t room, void *to, size_t *size_ret) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
    bool concerns = what == CL_MEM_ASSOCIATED_MEMOBJECT || what == CL_MEM_OFFSET ||
                    what == CL_MEM_FLAGS || what == CL_MEM_HOST_PTR || what == CL_MEM_PROPERTIES;
    void *none = NULL;
    cl_mem_flags flags = 0;
    place found;
    if (!concerns || !locate(memory, &found))
        return ask(memory, what, room, to, size_ret);
    bool is_part = found.depth > found.is_in_slab;
    size_t offset = is_part ? found.offset - found.slot_offset : 0;
    if (is_part && what == CL_MEM_FLAGS &&
        ask(memory, what, sizeof flags, &flags, NULL) == CL_SUCCESS)
        found.flags = (flags & SHAREABLE) | (found.flags & CL_MEM_COPY_HOST_PTR); /* of the whole */
    else if (is_part && what != CL_MEM_HOST_PTR && !(what == CL_MEM_OFFSET && found.is_in_slab))
        return ask(memory, what, room, to, size_ret);
    switch (what) {
    case CL_MEM_HOST_PTR:
    case CL_MEM_ASSOCIATED_MEMOBJECT: return answer(&none, sizeof none, room, to, size_ret);
    case CL_MEM_OFFSET: return answer(&offset, sizeof offset, room, to, size_ret);
    case CL_MEM_FLAGS: return answer(&found.flags, sizeof flags, room, to, size_ret);
    default: return answer(NULL, 0, room, to, size_ret);
    }
}

/* A part of a shared buffer must lie in it: behind it others lie, and NVIDIA's driver looks at the
 * beginning alone. */
static cl_mem create_part(cl_mem memory, cl_mem_flags flags, cl_buffer_create_type type,
                          const void *region, cl_int *code) {
    fn_clGetMemObjectInfo *ask =
        (fn_clGetMemObjectInfo *)fl_patched(memory, SLOT_clGetMemObjectInfo);
    const size_t *bounds = region;   /* a cl_buffer_region */
    size_t size = 0;
    place found;
    if (type == CL_BUFFER_CREATE_TYPE_REGION && bounds && locate(memory, &found) &&
        ask(memory, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS &&
        (bounds[0] > size || bounds[1] > size - bounds[0])) {
        if (code)
            *code = CL_INVALID_VALUE;
        return NULL;
    }
    return ((fn_clCreateSubBuffer *)fl_patched(memory, SLOT_clCreateSubBuffer))(memory, flags, type,
                                                                                region, code);
}

/* The context may have had its last user: what is left of it are slabs. */
static cl_int release_context(cl_context context) {
    pthread_mutex_lock(&lock);
    struct filling *f = find_filling(context);
    if (f)
        f->released = true;
    for (uint32_t i = 0; f && i < CLASSES; i++)
        if (f->slabs[i] && !f->slabs[i]->live)
            give_up(f->slabs[i]);
    piece *open = f ? f->open : NULL;
    if (f)
        f->open = NULL;
    pthread_mutex_unlock(&lock);
    drop_piece(open);
    fn_clReleaseContext *release =
        (fn_clReleaseContext *)fl_patched(context, SLOT_clReleaseContext);
    drop_given_up();
    return release(context);
}

/* A thread that does not exist in a forked child may have the lock. */
static void in_child(void) { pthread_mutex_init(&lock, NULL); }

static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }

int fl_share_memory(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import) {
    static const struct {
        int slot;
        void *function;
    } ours[] = {
        {SLOT_clCreateBuffer, (void *)create_buffer},
        {SLOT_clCreateBufferWithProperties, (void *)create_buffer_with_properties},
        {SLOT_clGetMemObjectInfo, (void *)get_info},
        {SLOT_clCreateSubBuffer, (void *)create_part},
        {SLOT_clReleaseContext, (void *)release_context},
    };
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    void **table = fl_table_of(opencl_device);
    fl_mapping known = {0};
    pthread_once(&once, watch_forks);
    if (device_count == FL_CUDA_MOST_DEVICES)
        return CL_OUT_OF_RESOURCES;
    pthread_mutex_lock(&lock);
    devices[device_count].opencl = opencl_device;
    devices[device_count].cuda = device;
    import_memory = import;
    device_count++;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        int code = fl_patch(table, ours[i].slot, ours[i].function, &known);
        if (code != CL_SUCCESS) {
            fl_unshare_memory(opencl_device);
            return code;
        }
    }
    return CL_SUCCESS;
}

void fl_unshare_memory(void *opencl_device) {
    void **table = fl_table_of(opencl_device);
    fl_mapping known = {0};
    bool was = false;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < device_count; i++)
        if (devices[i].opencl == opencl_device) {
            devices[i] = devices[--device_count];
            was = true;
        }
    for (struct filling *f = fillings; f; f = f->next)
        f->device = NULL;
    pthread_mutex_unlock(&lock);
    if (was) {
        fl_unpatch(table, SLOT_clCreateBuffer, &known);
        fl_unpatch(table, SLOT_clCreateBufferWithProperties, &known);
    }
    /* the others stay: buffers that were shared live on */
}

fl_cuda_counts fl_count_shared(void) {
    pthread_mutex_lock(&lock);
    fl_cuda_counts now = counts;
    pthread_mutex_unlock(&lock);
    return now;
}
