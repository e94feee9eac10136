/* Pools: memory that is allocated and freed in a stream's order. It has garbage until the stream
 * has come to the allocation, and again from the free on. So whoever uses it too early or too late
 * sees that. Its bytes are given in pieces of 512. The pool takes them in pieces of 64 KiB. */
#include "fake.h"

#include <sys/mman.h>

enum { PIECE = 512, RESERVED_PIECE = 65536, MOST_DEVICES = 8 };

typedef struct block {
    struct block *next;
    CUmemoryPool pool;
    char *bytes;
    size_t size;   /* what was asked for, in whole pieces */
    bool is_free;
} block;

struct fl_CUmemoryPool {
    uint64_t threshold, reserved, reserved_high, used, used_high;
    int device;
    bool is_default, destroyed;
    uint32_t access[MOST_DEVICES];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fl_CUmemoryPool defaults[MOST_DEVICES];
/* All pools have one list of blocks, so that a free finds its pool. */
static block *blocks;

static size_t whole(size_t size, size_t piece) { return (size + piece - 1) / piece * piece; }

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    BEGIN;
    if (device < 0 || device >= fake_device_count())
        return CUDA_ERROR_INVALID_DEVICE;
    defaults[device].device = device;
    defaults[device].is_default = true;
    *pool = &defaults[device];
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *about) {
    BEGIN;
    if (about->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || about->handleTypes ||
        about->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        about->location.id >= fake_device_count())
        return CUDA_ERROR_INVALID_VALUE;
    CUmemoryPool made = calloc(1, sizeof *made);
    made->device = about->location.id;
    *pool = made;
    return CUDA_SUCCESS;
}

/* Gives unused blocks back until no more than `keep` bytes are held. The lock is held. */
static void trim(CUmemoryPool pool, uint64_t keep) {
    for (block **at = &blocks; *at;) {
        block *one = *at;
        if (one->pool != pool || !one->is_free || pool->reserved <= keep) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        pool->reserved -= whole(one->size, RESERVED_PIECE);
        munmap(one->bytes, one->size);
        free(one);
    }
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    BEGIN;
    if (pool->is_default)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    pool->destroyed = true;
    trim(pool, 0);
    bool empty = !pool->used;   /* else the last free ends it */
    pthread_mutex_unlock(&lock);
    if (empty)
        free(pool);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    BEGIN;
    pthread_mutex_lock(&lock);
    trim(pool, keep);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static uint64_t *number(CUmemoryPool pool, CUmemPool_attribute attribute) {
    switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
    }
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    BEGIN;
    uint64_t *found = number(pool, attribute);
    pthread_mutex_lock(&lock);
    if (found)
        *(uint64_t *)value = *found;
    pthread_mutex_unlock(&lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
    BEGIN;
    uint64_t *found = number(pool, attribute), given = *(uint64_t *)value;
    if (found == &pool->used || found == &pool->reserved || !found ||
        (found != &pool->threshold && given))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    *found = found == &pool->used_high       ? pool->used
             : found == &pool->reserved_high ? pool->reserved
                                             : given;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    BEGIN;
    for (size_t i = 0; i < count; i++) {
        int device = access[i].location.id;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
            device >= fake_device_count() || device >= MOST_DEVICES)
            return CUDA_ERROR_INVALID_VALUE;
        if (device == pool->device && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            return CUDA_ERROR_INVALID_DEVICE;
        pool->access[device] = access[i].flags;
    }
    return CUDA_SUCCESS;
}

/* What a pool lets a device do, a CUmemAccess_flags. */
int fake_cuda_pool_access(CUmemoryPool pool, int device) { return (int)pool->access[device]; }

/* An unused block of this size, or a new one. The lock is held. */
static block *block_of(CUmemoryPool pool, size_t size) {
    for (block *one = blocks; one; one = one->next)
        if (one->pool == pool && one->is_free && one->size == size)
            return one;
    block *made = calloc(1, sizeof *made);
    *made = (block){blocks, pool, NULL, size, true};
    made->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made->bytes == MAP_FAILED) {
        free(made);
        return NULL;
    }
    blocks = made;
    pool->reserved += whole(size, RESERVED_PIECE);
    pool->reserved_high = pool->reserved > pool->reserved_high ? pool->reserved
                                                               : pool->reserved_high;
    return made;
}

typedef struct spoiled {
    char *bytes;
    size_t size;
} spoiled;

static CUresult run_allocation(void *data) {
    spoiled *one = data;
    memset(one->bytes, 0xCD, one->size);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *to, size_t size, CUmemoryPool pool, CUstream stream) {
    BEGIN;
    NEED_CONTEXT;
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream && *fake_member_of(stream)) /* CUDA would make a node that allocates */
        return fake_refuse_capture(stream);
    size = whole(size, PIECE);
    pthread_mutex_lock(&lock);
    block *made = size <= MEMORY - pool->reserved ? block_of(pool, size) : NULL;
    if (made) {
        made->is_free = false;
        pool->used += size;
        pool->used_high = pool->used > pool->used_high ? pool->used : pool->used_high;
    }
    pthread_mutex_unlock(&lock);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *to = (CUdeviceptr)(uintptr_t)made->bytes;
    fake_remember(made->bytes, size, IS_POOLED);
    spoiled one = {made->bytes, size};
    return fake_push(stream, run_allocation, &one, sizeof one);
}

void fake_give_back(uint64_t address) {
    bool ends = false;
    pthread_mutex_lock(&lock);
    block *one = blocks;
    while (one && (uint64_t)(uintptr_t)one->bytes != address)
        one = one->next;
    CUmemoryPool pool = one->pool;
    memset(one->bytes, 0xDD, one->size);
    one->is_free = true;
    pool->used -= one->size;
    if (pool->destroyed || pool->reserved > pool->threshold) {
        trim(pool, pool->destroyed ? 0 : pool->threshold);
        ends = pool->destroyed && !pool->used;
    }
    pthread_mutex_unlock(&lock);
    if (ends)
        free(pool);
}

static CUresult run_free(void *data) {
    fake_give_back(*(uint64_t *)data);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    BEGIN;
    if (stream && *fake_member_of(stream))
        return fake_refuse_capture(stream);
    if (!fake_forget(address, IS_POOLED))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_push(stream, run_free, &address, sizeof address);
}
