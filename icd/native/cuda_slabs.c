/* Imports of CUDA's memory by OpenCL, and buffers that are made of them.
 *
 * A buffer of the program's is a sub-buffer of an import: a small one of a slab, which has room for
 * many, a large one of an import of its own. An import takes some 200 µs, a sub-buffer 3. So what
 * the program releases is kept, up to a limit, and handed out again: the same object for the same
 * size and flags, and otherwise the memory. cuda_idle.c tells when. */
#include "cuda_buffers.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 1024, MOST_SLOTS = 128 };
enum { FIRST_CLASS = 9, SMALL_CLASSES = 12 };   /* slots of 512 bytes to 1 MiB */
#define OWN_FROM ((size_t)1 << 20)
_Static_assert((size_t)1 << (FIRST_CLASS + SMALL_CLASSES - 1) == OWN_FROM,
               "each smaller buffer has a class");
#define MOST_OF_A_SLAB ((size_t)16 << 20)
#define PIECE ((size_t)2 << 20)   /* CUDA's granularity */
/* Large buffers: 16 classes of 2 MiB each, and then eight for each power of two. */
enum { STEPS = 16, MOST_DOUBLINGS = 20 };
enum { CLASSES = SMALL_CLASSES + STEPS + MOST_DOUBLINGS * STEPS / 2 };
enum { MOST_LOOKED_AT = 32 };   /* of the released buffers of a class */

typedef struct place {
    struct place *next;           /* in its bucket */
    struct place *next_given_up;
    struct place *older, *newer;  /* released ones of its class */
    struct root *root;
    cl_mem memory;                /* the program's buffer, or the one that it released, or NULL */
    size_t size;
    cl_mem_flags flags;           /* with which the program created it */
    uint64_t turn;                /* of its context's queues, when it was released */
    uint32_t ends;                /* callbacks of buffers that we have released, still to come */
    bool is_free, is_held;        /* `is_held`: others may hold the buffer */
} place;

/* An import of a piece by OpenCL: a slab, which has a range of it, or the place of one buffer. */
typedef struct root {
    struct root *next;            /* of its home, or of those that are given up */
    cl_mem memory;
    fl_piece *piece;
    struct home *home;
    size_t first, slot;           /* where its places begin in the piece, and the size of each */
    uint32_t class;
    uint32_t slots, used;         /* places, and those that had a buffer */
    uint32_t busy;                /* places with a buffer of the program's, and callbacks to come */
    uint64_t turn;                /* of the place that was released last */
    bool is_given_up;
    place places[];
} root;

/* The buffers of a device in a context. */
typedef struct home {
    struct home *next;            /* of its context */
    struct shared_context *context;
    cl_device_id opencl;
    const fl_cuda_device *device; /* NULL: ask */
    uint64_t most;                /* bytes of a buffer, as OpenCL says */
    uint64_t reached_by;          /* fl_cuda_memory */
    root *roots;
    root *slabs[SMALL_CLASSES];   /* with places that had no buffer */
    fl_piece *open;               /* has room for slabs, or is NULL */
    place *newest[CLASSES], *oldest[CLASSES];   /* released ones */
} home;

/* A context whose buffers are shared. It lives as long as the process: another context may get its
 * handle. */
typedef struct shared_context {
    struct shared_context *next;
    cl_context context;
    cl_device_id devices[FL_CUDA_MOST_DEVICES];
    size_t device_count;          /* 0: ask */
    home *homes;
    fl_queues queues;
    bool has_ended; /* the program has let go of it: what is empty must not hold it */
} shared_context;

static place *buckets[BUCKETS];
static shared_context *contexts;
static root *given_up_roots;
static place *given_up_places;
static uint64_t most_kept;        /* bytes */
static struct {
    cl_device_id opencl;
    fl_cuda_device *cuda;
} devices[FL_CUDA_MOST_DEVICES];
static uint32_t device_count;
static fl_cuda_import *import_memory;
static fl_cuda_counts counts;
static __thread cl_device_id made_on;   /* fl_make_buffers_on */

void *fl_make_buffers_on(void *opencl_device) {
    void *before = made_on;
    made_on = opencl_device;
    return before;
}

static place **bucket_of(const void *memory) {
    return &buckets[((uintptr_t)memory >> 4) % BUCKETS];
}

/* The place of a buffer of the program's, or of one that it has released and that is kept. */
static place *find(const void *memory) {
    place *p = *bucket_of(memory);
    while (p && p->memory != memory)
        p = p->next;
    return p;
}

static place *find_used(const void *memory) {
    place *p = find(memory);
    return p && !p->is_free ? p : NULL;
}

static void list(place *p) {
    place **bucket = bucket_of(p->memory);
    p->next = *bucket;
    *bucket = p;
}

static void unlist(place *p) {
    for (place **at = bucket_of(p->memory); *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            return;
        }
}

static size_t origin_of(const place *p) {
    return p->root->first + (size_t)(p - p->root->places) * p->root->slot;
}

/* The caller has the lock here, and in the functions that follow. */
static void add_free(place *p) {
    home *h = p->root->home;
    uint32_t class = p->root->class;
    p->is_free = true;
    p->newer = NULL;
    p->older = h->newest[class];
    *(p->older ? &p->older->newer : &h->oldest[class]) = p;
    h->newest[class] = p;
    counts.kept += p->root->slot;
}

static void take_free(place *p) {
    home *h = p->root->home;
    uint32_t class = p->root->class;
    p->is_free = false;
    *(p->older ? &p->older->newer : &h->oldest[class]) = p->newer;
    *(p->newer ? &p->newer->older : &h->newest[class]) = p->older;
    counts.kept -= p->root->slot;
}

static void give_up_place(place *p) {
    p->ends++;
    p->root->busy++;
    p->next_given_up = given_up_places;
    given_up_places = p;
}

/* Without a buffer of the program's a root can go, when what was kept of it is gone, too. */
static void give_up(root *r) {
    home *h = r->home;
    if (!r->is_given_up) {
        r->is_given_up = true;
        root **at = &h->roots;
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        if (r->class < SMALL_CLASSES && h->slabs[r->class] == r)
            h->slabs[r->class] = NULL;
        for (uint32_t i = 0; i < r->used; i++)
            if (r->places[i].is_free) {
                take_free(&r->places[i]);
                if (r->places[i].memory)
                    give_up_place(&r->places[i]);
            }
    }
    if (r->busy)
        return;
    r->next = given_up_roots;
    given_up_roots = r;
}

static bool is_to_be_kept(const root *r) {
    return r->slot <= most_kept && r->home->device && r->home->context->queues.are_known;
}

/* A place has no buffer of the program's any more. */
static void release_place(place *p) {
    root *r = p->root;
    shared_context *c = r->home->context;
    *(r->slots == 1 ? &counts.own : &counts.small) -= 1;
    r->busy--;
    bool is_kept = is_to_be_kept(r);
    if (is_kept) {
        r->turn = p->turn = c->queues.turn;
        c->queues.released++;
        c->queues.released_bytes += r->slot;
        add_free(p);
    } else if (p->memory) {
        give_up_place(p);
    }
    if (!r->busy && (r->is_given_up || c->has_ended || (!is_kept && r->used == r->slots)))
        give_up(r);
}

/* Give up what nobody uses, the oldest first, until so many bytes are left. */
static void trim_home(home *h, uint64_t most) {
    for (uint32_t class = 0; class < CLASSES && counts.kept > most; class ++)
        for (place *p = h->oldest[class], *next; p && counts.kept > most; p = next) {
            root *r = p->root;
            for (next = p->newer; next && next->root == r; next = next->newer)
                ;
            if (!r->busy && r->turn <= h->context->queues.idle_turn)
                give_up(r);
        }
}

static void trim(uint64_t most) {
    for (shared_context *c = contexts; c; c = c->next)
        for (home *h = c->homes; h; h = h->next)
            trim_home(h, most);
}

/* OpenCL has destroyed a buffer. Its handle may be another object's by now. */
static void buffer_gone(cl_mem memory, void *data) {
    place *p = data;
    (void)memory;
    FL_HOLD(fl_shared_lock);
    if (p->ends) {
        /* which of two buffers has ended does not matter: both have to */
        p->ends--;
        if (!--p->root->busy && p->root->is_given_up)
            give_up(p->root);
    } else {
        unlist(p);
        p->memory = NULL;
        release_place(p);
    }
}

static void release_memory(cl_mem memory) { DRIVER(memory, clReleaseMemObject)(memory); }

/* Not in the driver's callback, where its functions must not be called. */
void fl_give_back(void) {
    for (;;) {
        cl_mem memory = NULL;
        pthread_mutex_lock(&fl_shared_lock);
        place *p = given_up_places;
        root *r = p ? NULL : given_up_roots;
        if (p) {
            given_up_places = p->next_given_up;
            memory = p->memory;
            unlist(p);
            p->memory = NULL;
        } else if (r) {
            given_up_roots = r->next;
        }
        pthread_mutex_unlock(&fl_shared_lock);
        if (memory) {
            release_memory(memory);
        } else if (r) {
            release_memory(r->memory);
            fl_drop_piece(r->piece);
            free(r);
        } else if (!p) {
            return;
        }
    }
}

/* The driver's import of a file descriptor, which it owns from then on. In a context of several
 * devices NVIDIA's takes the memory for one of them. */
static void *import_descriptor(void *context, void *opencl_device, uint64_t flags, uint64_t address,
                               int descriptor, size_t size, int32_t *code) {
    cl_mem_properties properties[] = {CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR,
                                      (cl_mem_properties)descriptor,
                                      opencl_device ? CL_MEM_DEVICE_HANDLE_LIST_KHR : 0,
                                      (cl_mem_properties)(uintptr_t)opencl_device,
                                      CL_MEM_DEVICE_HANDLE_LIST_END_KHR,
                                      0};
    (void)address;
    fn_clCreateBufferWithProperties *create = DRIVER(context, clCreateBufferWithProperties);
    void *memory = create(context, properties, flags, size, NULL, code);
    if (!memory)
        close(descriptor);
    return memory;
}

/* Memory of both. It takes over one use of the piece. NULL: OpenCL does not import it. */
static root *new_root(home *h, fl_piece *p, uint32_t slots) {
    root *r = calloc(1, sizeof *r + slots * sizeof *r->places);
    const fl_cuda_device *device = p->device;
    cl_int code = CL_SUCCESS;
    if (!r || fl_cuda_enter(device) != CUDA_SUCCESS) {
        free(r);
        fl_drop_piece(p);
        return NULL;
    }
    r->piece = p;
    r->home = h;
    r->slots = slots;
    for (uint32_t i = 0; i < slots; i++)
        r->places[i].root = r;
    int descriptor = fl_export_piece(p);
    if (descriptor >= 0)
        r->memory = (import_memory ? import_memory : import_descriptor)(
            h->context->context, h->context->device_count > 1 ? h->opencl : NULL,
            CL_MEM_READ_WRITE, p->address, descriptor, p->mapped, &code);
    fl_cuda_leave(device);
    if (r->memory)
        return r;
    fl_drop_piece(p);
    free(r);
    return NULL;
}

static bool watch(cl_mem memory, place *p) {
    fn_clSetMemObjectDestructorCallback *set = DRIVER(memory, clSetMemObjectDestructorCallback);
    return set(memory, (void *)buffer_gone, p) == CL_SUCCESS;
}

static shared_context *find_context(cl_context context) {
    shared_context *c = contexts;
    while (c && c->context != context)
        c = c->next;
    return c;
}

/* The caller has the lock. */
static shared_context *context_of(cl_context context) {
    shared_context *c = find_context(context);
    if (!c) {
        c = calloc(1, sizeof *c);
        if (!c)
            return NULL;
        c->context = context;
        c->queues.turn = 1;
        c->next = contexts;
        contexts = c;
    }
    return c;
}

/* The caller has the lock. */
static fl_cuda_device *shared_device(cl_device_id opencl) {
    for (uint32_t i = 0; i < device_count; i++)
        if (devices[i].opencl == opencl && !devices[i].cuda->lost)
            return devices[i].cuda;
    return NULL;
}

/* Larger buffers are left to the driver: on a machine with two GPUs NVIDIA's ended the process when
 * it imported one. */
static uint64_t most_on(cl_device_id opencl) {
    cl_ulong most = 0;
    CALL(fl_table_of(opencl), clGetDeviceInfo)
    (opencl, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, NULL);
    return most;
}

/* Where the context's buffers on a device are. The caller has the lock. */
static home *home_on(shared_context *c, cl_device_id opencl) {
    home *h = c->homes;
    while (h && h->opencl != opencl)
        h = h->next;
    if (h && h->device)
        return h->device->lost ? NULL : h;
    const fl_cuda_device *device = shared_device(opencl);
    if (!device || !(h || (h = calloc(1, sizeof *h))))
        return NULL;
    if (!h->context) {
        h->next = c->homes;
        c->homes = h;
    }
    h->context = c;
    h->opencl = opencl;
    h->device = device;
    h->most = most_on(opencl);
    h->reached_by = (uint64_t)1 << device->number;
    for (size_t i = 0; i < c->device_count; i++) {
        const fl_cuda_device *other = shared_device(c->devices[i]);
        if (other && other->reaches >> device->number & 1)
            h->reached_by |= (uint64_t)1 << other->number;
    }
    return h;
}

/* Where a context's new buffers go: to its device, or to one of several that was asked for. NULL:
 * they are not shared. */
static home *find_home(cl_context context, const fl_cuda_device **device) {
    cl_device_id all[FL_CUDA_MOST_DEVICES];
    size_t size = 0, place = 0;
    pthread_mutex_lock(&fl_shared_lock);
    shared_context *c = find_context(context);
    bool is_known = c && c->device_count;
    pthread_mutex_unlock(&fl_shared_lock);
    fn_clGetContextInfo *ask = DRIVER(context, clGetContextInfo);
    if (!is_known &&
        (ask(context, CL_CONTEXT_DEVICES, sizeof all, all, &size) != CL_SUCCESS || !size))
        return NULL;
    pthread_mutex_lock(&fl_shared_lock);
    home *found = NULL;
    if ((c = context_of(context))) {
        if (!is_known) {
            memcpy(c->devices, all, size);
            c->device_count = size / sizeof *all;
        }
        c->has_ended = false;
        while (c->device_count > 1 && place < c->device_count && c->devices[place] != made_on)
            place++;
        found = place < c->device_count ? home_on(c, c->devices[place]) : NULL;
        *device = found ? found->device : NULL;
    }
    pthread_mutex_unlock(&fl_shared_lock);
    return found;
}

/* CLASSES: none is so large. */
static uint32_t class_of(size_t size) {
    uint32_t class = 0, doublings = 0;
    if (size < OWN_FROM) {
        while (size > (size_t)1 << (FIRST_CLASS + class))
            class ++;
        return class;
    }
    size_t step = PIECE;
    while (size > step * STEPS && doublings < MOST_DOUBLINGS) {
        step *= 2;
        doublings++;
    }
    size_t number = (size - 1) / step;   /* after the first doubling, from STEPS / 2 on */
    return number < STEPS ? SMALL_CLASSES + doublings * STEPS / 2 + (uint32_t)number : CLASSES;
}

typedef struct wanted {
    home *home;
    const fl_cuda_device *device;   /* its home's, which may stop to share meanwhile */
    uint32_t class;
    size_t size;
    cl_mem_flags flags;
    bool is_written_now;          /* by the host, so no command may use the memory any more */
} wanted;

/* A use of the open piece, if it has room for so many bytes. They begin at `first`. */
static fl_piece *take_range(home *h, size_t size, size_t *first) {
    FL_HOLD(fl_shared_lock);
    fl_piece *p = h->open;
    if (p && p->mapped - p->used >= size) {
        *first = p->used;
        p->used += size;
        p->users++;
    } else
        p = NULL;
    return p;
}

/* Later slabs come from a piece; NULL: from one that is still to be made. */
static void open_piece(home *h, fl_piece *p) {
    pthread_mutex_lock(&fl_shared_lock);
    fl_piece *before = h->open;
    h->open = p;
    if (p)
        p->users++;
    pthread_mutex_unlock(&fl_shared_lock);
    fl_drop_piece(before);
}

/* A new piece. What is kept goes if there is no room for one. */
static fl_piece *new_piece(home *h, const fl_cuda_device *device, size_t size) {
    fl_piece *p = fl_new_piece(device, h->reached_by, size);
    if (p)
        return p;
    fl_ask_queues(&h->context->queues);
    pthread_mutex_lock(&fl_shared_lock);
    trim(0);
    pthread_mutex_unlock(&fl_shared_lock);
    fl_give_back();
    return fl_new_piece(device, h->reached_by, size);
}

static root *new_slab(const wanted *w) {
    home *h = w->home;
    uint32_t class = w->class;
    size_t slot = (size_t)1 << (FIRST_CLASS + class);
    uint32_t slots =
        MOST_OF_A_SLAB / slot < MOST_SLOTS ? (uint32_t)(MOST_OF_A_SLAB / slot) : MOST_SLOTS;
    size_t first = 0, size = slot * slots;
    fl_piece *p = take_range(h, size, &first);
    root *made = p ? new_root(h, p, slots) : NULL;
    if (!made) {
        first = 0;
        p = new_piece(h, w->device, size < PIECE ? PIECE : size);
        if (p)
            p->used = size;
        if (p && p->mapped - size >= size)
            open_piece(h, p);
        made = p ? new_root(h, p, slots) : NULL;
    }
    if (!made)
        return NULL;
    made->first = first;
    made->slot = slot;
    made->class = class;
    return made;
}

static root *new_own(const wanted *w) {
    fl_piece *p = new_piece(w->home, w->device, w->size);
    root *made = p ? new_root(w->home, p, 1) : NULL;
    if (!made)
        return NULL;
    made->slot = p->mapped;
    made->class = w->class;
    return made;
}

/* Whether the buffer of a released place has the size and the flags that are wanted. */
static bool is_same(const place *p, const wanted *w) {
    return p->memory && p->size == w->size &&
           !((p->flags ^ w->flags) & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR);
}

/* A place that was released, or a new one of a slab; NULL if there is none. */
static place *find_place(const wanted *w) {
    home *h = w->home;
    const fl_queues *queues = &h->context->queues;
    uint64_t idle = queues->idle_turn;
    bool is_ordered = fl_runs_in_order(queues) && !w->is_written_now;
    uint32_t looked = 0;
    for (place *p = h->newest[w->class]; p && looked < MOST_LOOKED_AT; p = p->older, looked++)
        if ((is_ordered || p->turn <= idle) && is_same(p, w))
            return p;
    root *slab = w->class < SMALL_CLASSES ? h->slabs[w->class] : NULL;
    if (slab)
        return &slab->places[slab->used];
    looked = 0;
    for (place *p = h->oldest[w->class]; p && looked < MOST_LOOKED_AT; p = p->newer, looked++)
        if (p->turn <= idle && p->root->slot >= w->size)
            return p;
    return NULL;
}

/* A place for the program, with the buffer that it is to get, or without one. The caller has the
 * lock. */
static void take(place *p, const wanted *w) {
    root *r = p->root;
    if (p->is_free) {
        take_free(p);
        counts.reused++;
        if (p->memory && !is_same(p, w))
            give_up_place(p);
    } else if (++r->used == r->slots && r->class < SMALL_CLASSES) {
        w->home->slabs[r->class] = NULL;
    }
    r->busy++;
    *(r->slots == 1 ? &counts.own : &counts.small) += 1;
    p->is_held = false;
}

static place *take_place(const wanted *w) {
    home *h = w->home;
    for (int asked = 0;; asked++) {
        pthread_mutex_lock(&fl_shared_lock);
        place *p = find_place(w);
        bool may_ask = !p && !asked && h->newest[w->class];
        if (p)
            take(p, w);
        pthread_mutex_unlock(&fl_shared_lock);
        if (p)
            return p;
        if (!may_ask || !fl_ask_queues(&h->context->queues))
            break;
    }
    /* this may take a millisecond, and calls the driver */
    root *made = w->class < SMALL_CLASSES ? new_slab(w) : new_own(w);
    if (!made)
        return NULL;
    pthread_mutex_lock(&fl_shared_lock);
    made->next = h->roots;
    h->roots = made;
    if (w->class < SMALL_CLASSES && !h->slabs[w->class])
        h->slabs[w->class] = made;   /* unless another thread was faster */
    take(&made->places[0], w);
    pthread_mutex_unlock(&fl_shared_lock);
    return &made->places[0];
}

/* The program gets no buffer after all. */
static void put_back(place *p) {
    FL_HOLD(fl_shared_lock);
    release_place(p);
}

/* A sub-buffer of an import that looks like a buffer. */
static cl_mem new_part(place *p, cl_mem_flags flags, size_t size) {
    cl_mem whole = p->root->memory;
    cl_int code;
    struct {
        size_t origin, size;
    } region = {origin_of(p), size};   /* a cl_buffer_region */
    fn_clCreateSubBuffer *create = DRIVER(whole, clCreateSubBuffer);
    cl_mem memory = create(whole, flags & ~(cl_mem_flags)CL_MEM_COPY_HOST_PTR,
                           CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (!memory || watch(memory, p))
        return memory;
    release_memory(memory);
    return NULL;
}

cl_mem fl_new_shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host) {
    wanted w = {NULL, NULL, class_of(size), size, flags, host != NULL};
    w.home = find_home(context, &w.device);
    if (!w.home || w.class == CLASSES || size > w.home->most)
        return NULL;
    place *p = take_place(&w);
    fl_give_back();
    if (!p)
        return NULL;
    cl_mem memory = p->memory;
    CUdeviceptr address = p->root->piece->address + origin_of(p);
    bool is_written = !host || fl_copy_to_cuda(w.device, address, host, size);
    if (is_written && !memory)
        memory = new_part(p, flags, size);
    if (!is_written || !memory) {
        put_back(p);
        return NULL;
    }
    FL_HOLD(fl_shared_lock);
    p->size = size;
    p->flags = flags;
    if (!p->memory) {
        place *before = find(memory);   /* was destroyed, and its callback is still to come */
        if (before)
            unlist(before);
        p->memory = memory;
        list(p);
    }
    return memory;
}

bool fl_is_kept(cl_mem memory) {
    FL_HOLD(fl_shared_lock);
    const place *p = find(memory);
    return p && p->is_free;
}

bool fl_keep_buffer(cl_mem memory, cl_int *code) {
    cl_uint references = 0, maps = 0;
    pthread_mutex_lock(&fl_shared_lock);
    place *p = find(memory);
    bool is_kept = p && p->is_free;
    bool may_keep = p && !p->is_held && is_to_be_kept(p->root);
    pthread_mutex_unlock(&fl_shared_lock);
    *code = is_kept ? CL_INVALID_MEM_OBJECT : CL_SUCCESS;
    if (is_kept)
        return true;
    if (!may_keep)
        return false;
    fn_clGetMemObjectInfo *ask = DRIVER(memory, clGetMemObjectInfo);
    if (ask(memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL) != CL_SUCCESS ||
        ask(memory, CL_MEM_MAP_COUNT, sizeof maps, &maps, NULL) != CL_SUCCESS || references != 1 ||
        maps)
        return false;
    pthread_mutex_lock(&fl_shared_lock);
    fl_queues *queues = &p->root->home->context->queues;
    release_place(p);
    bool is_full = counts.kept > most_kept;
    pthread_mutex_unlock(&fl_shared_lock);
    if (is_full) {
        fl_ask_queues(queues);
        pthread_mutex_lock(&fl_shared_lock);
        trim(most_kept);
        pthread_mutex_unlock(&fl_shared_lock);
    }
    fl_give_back();
    return true;
}

void fl_never_keep(cl_mem memory) {
    FL_HOLD(fl_shared_lock);
    place *p = find_used(memory);
    if (p)
        p->is_held = true;
}

void fl_count_other_buffer(cl_mem memory) {
    FL_HOLD(fl_shared_lock);
    place *p = memory ? find(memory) : NULL;
    if (p)
        unlist(p);
    counts.other += memory != NULL;
}

bool fl_find_place(cl_mem memory, fl_place_facts *found) {
    FL_HOLD(fl_shared_lock);
    const place *p = find_used(memory);
    if (p) {
        size_t origin = origin_of(p);
        const fl_piece *piece = p->root->piece;
        *found = (fl_place_facts){
            p->flags, {piece->address + origin, piece->reached_by, piece->device}, origin};
    }
    return p;
}

void fl_add_context(cl_context context) {
    pthread_mutex_lock(&fl_shared_lock);
    shared_context *c = context_of(context);
    fl_marker *markers = c ? fl_forget_queues(&c->queues) : NULL;   /* of one that is gone */
    for (home *h = c ? c->homes : NULL; h; h = h->next)
        h->device = NULL;
    if (c) {
        c->device_count = 0;
        c->queues.first = NULL;   /* theirs have ended with it */
        c->queues.are_known = true;
        c->queues.references = 1;
    }
    pthread_mutex_unlock(&fl_shared_lock);
    fl_drop_markers(markers);
}

void fl_retain_shared_context(cl_context context) {
    FL_HOLD(fl_shared_lock);
    shared_context *c = find_context(context);
    if (c)
        c->queues.references++;
}

/* What is kept holds its context. So it goes when the program has let go of the context, and of
 * an unknown one whenever it releases it. */
void fl_end_context(fl_queues *queues) {
    fl_marker *markers = NULL;
    pthread_mutex_lock(&fl_shared_lock);
    shared_context *c = contexts;
    while (c && &c->queues != queues)
        c = c->next;
    bool ends = c && (fl_is_let_go(queues) || !queues->are_known);
    if (ends) {
        markers = fl_forget_queues(queues);
        c->has_ended = true;
    }
    for (home *h = ends ? c->homes : NULL; h; h = h->next)
        for (root *r = h->roots, *next; r; r = next) {
            next = r->next;
            if (!r->busy)
                give_up(r);
        }
    pthread_mutex_unlock(&fl_shared_lock);
    fl_drop_markers(markers);
    for (home *h = ends ? c->homes : NULL; h; h = h->next)   /* they live as long as the process */
        open_piece(h, NULL);
    fl_give_back();
}

void fl_release_shared_context(cl_context context) {
    pthread_mutex_lock(&fl_shared_lock);
    shared_context *c = find_context(context);
    if (c && c->queues.references)
        c->queues.references--;
    pthread_mutex_unlock(&fl_shared_lock);
    if (c)
        fl_end_context(&c->queues);
}

fl_queues *fl_queues_of(cl_context context) {
    FL_HOLD(fl_shared_lock);
    shared_context *c = find_context(context);
    return c ? &c->queues : NULL;
}

fl_queues *fl_queues_with(cl_command_queue queue) {
    FL_HOLD(fl_shared_lock);
    shared_context *c = contexts;
    while (c && !fl_has_queue(&c->queues, queue))
        c = c->next;
    return c ? &c->queues : NULL;
}

bool fl_add_shared_device(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import) {
    if (device_count == FL_CUDA_MOST_DEVICES || device->number >= FL_CUDA_MOST_DEVICES)
        return false;
    FL_HOLD(fl_shared_lock);
    devices[device_count].opencl = opencl_device;
    devices[device_count].cuda = device;
    import_memory = import;
    device_count++;
    return true;
}

bool fl_shares_table(const void *object) {
    bool found = false;
    FL_HOLD(fl_shared_lock);
    for (uint32_t i = 0; i < device_count && !found; i++)
        found = fl_table_of(devices[i].opencl) == fl_table_of(object);
    return found;
}

bool fl_remove_shared_device(void *opencl_device) {
    bool was = false;
    FL_HOLD(fl_shared_lock);
    for (uint32_t i = 0; i < device_count; i++)
        if (devices[i].opencl == opencl_device) {
            devices[i] = devices[--device_count];
            was = true;
        }
    for (shared_context *c = contexts; c; c = c->next)
        for (home *h = c->homes; h; h = h->next)
            h->device = NULL;
    return was;
}

void fl_limit_kept(uint64_t bytes) {
    pthread_mutex_lock(&fl_shared_lock);
    most_kept = bytes;
    trim(bytes);
    pthread_mutex_unlock(&fl_shared_lock);
    fl_give_back();
}

fl_cuda_counts fl_count_shared(void) {
    FL_HOLD(fl_shared_lock);
    return counts;
}
