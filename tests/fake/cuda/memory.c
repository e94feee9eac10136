/* Memory: allocations that queries find by any address in them, copies and fills. */
#include "fake.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { GRANULARITY = 65536, ALIGNMENT = 512 };

typedef struct allocation {
    struct allocation *next;
    uint64_t base;
    size_t size;
    int kind, device;
    int file;   /* where its bytes are for other processes, -1 */
} allocation;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allocation *allocations;
static size_t used;

static allocation *find(uint64_t address) {   /* the lock is held */
    for (allocation *one = allocations; one; one = one->next)
        if (address - one->base < one->size)
            return one;
    return NULL;
}

CUresult fake_remember(void *memory, size_t size, int kind) {
    allocation *made = malloc(sizeof *made);
    CUcontext context = NULL;
    cuCtxGetCurrent(&context);
    *made = (allocation){NULL, (uint64_t)(uintptr_t)memory, size,
                         kind, (int)(uintptr_t)context - 1, -1};
    pthread_mutex_lock(&lock);
    made->next = allocations;
    allocations = made;
    used += kind == IS_DEVICE ? size : 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

size_t fake_forget(uint64_t address, int kind) {
    allocation *found = NULL;
    pthread_mutex_lock(&lock);
    for (allocation **at = &allocations; *at && !found; at = *at ? &(*at)->next : at)
        if ((*at)->base == address && (*at)->kind == kind) {
            found = *at;
            *at = found->next;
        }
    pthread_mutex_unlock(&lock);
    size_t size = found ? found->size : 0;
    free(found);
    return size;
}

static CUresult allocate(void **to, size_t size, int kind) {
    NEED_CONTEXT;
    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    bool fits = kind == IS_DEVICE ? size <= MEMORY - used : size <= MEMORY;
    pthread_mutex_unlock(&lock);
    if (!fits || (kind != IS_DEVICE && posix_memalign(to, ALIGNMENT, size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (kind == IS_DEVICE) {   /* whole pages, which other processes can have */
        *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (*to == MAP_FAILED)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memset(*to, 0xCD, size);   /* nobody may rely on zeros */
    return fake_remember(*to, size, kind);
}

static CUresult forget(uint64_t address, bool is_host, int registered) {
    allocation *found = NULL;
    NEED_CONTEXT;
    fake_drain();   /* as CUDA does */
    pthread_mutex_lock(&lock);
    for (allocation **at = &allocations; *at; at = &(*at)->next)
        if ((*at)->base == address && ((*at)->kind == IS_HOST) == is_host &&
            ((*at)->kind == IS_REGISTERED) == registered) {
            found = *at;
            *at = found->next;
            used -= found->kind == IS_DEVICE ? found->size : 0;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!found)
        return registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    if (found->kind == IS_DEVICE)
        munmap((void *)(uintptr_t)address, found->size);
    else if (!registered)
        free((void *)(uintptr_t)address);
    if (found->file >= 0)
        close(found->file);
    free(found);
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t size) {
    BEGIN;
    void *made;
    CUresult code = allocate(&made, size, IS_DEVICE);
    if (!code)
        *to = (CUdeviceptr)(uintptr_t)made;
    return code;
}

CUresult cuMemAllocManaged(CUdeviceptr *to, size_t size, uint32_t flags) {
    BEGIN;
    void *made;
    CUresult code = CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_MEM_ATTACH_GLOBAL)
        code = allocate(&made, size, IS_MANAGED);
    if (!code)
        *to = (CUdeviceptr)(uintptr_t)made;
    return code;
}

CUresult cuMemHostAlloc(void **to, size_t size, uint32_t flags) {
    (void)flags;
    BEGIN;
    return allocate(to, size, IS_HOST);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    BEGIN;
    if (!fake_forget(address, IS_POOLED))
        return address ? forget(address, false, false) : CUDA_SUCCESS;
    fake_drain();
    fake_give_back(address);
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *memory) {
    BEGIN;
    return forget((uint64_t)(uintptr_t)memory, true, false);
}

CUresult cuMemHostRegister_v2(void *memory, size_t size, uint32_t flags) {
    (void)flags;
    BEGIN;
    pthread_mutex_lock(&lock);
    bool known = find((uint64_t)(uintptr_t)memory);
    pthread_mutex_unlock(&lock);
    if (known)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return fake_remember(memory, size, IS_REGISTERED);
}

CUresult cuMemHostUnregister(void *memory) {
    BEGIN;
    return forget((uint64_t)(uintptr_t)memory, false, true);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    BEGIN;
    pthread_mutex_lock(&lock);
    *total = MEMORY;
    *free_bytes = MEMORY - used;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    BEGIN;
    pthread_mutex_lock(&lock);
    allocation *found = find(address), copy = found ? *found : (allocation){0};
    pthread_mutex_unlock(&lock);
    if (!found)
        return CUDA_ERROR_INVALID_VALUE;
    bool is_host = copy.kind == IS_HOST || copy.kind == IS_REGISTERED;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(uint32_t *)data = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(uint32_t *)data = copy.kind == IS_MANAGED; break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = copy.device; break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(uint64_t *)data = copy.base; break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = copy.size; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

bool fake_is_whole(uint64_t address, size_t size) {
    pthread_mutex_lock(&lock);
    allocation *found = size ? find(address) : NULL;
    bool whole = !found || address + size <= found->base + found->size;
    pthread_mutex_unlock(&lock);
    return whole;
}

/* --- memory of other processes: device memory moves to a file, which they map --- */

typedef struct shared {
    pid_t process;
    int file;
    uint64_t size;
} shared;

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    BEGIN;
    fake_drain();   /* nothing writes meanwhile */
    pthread_mutex_lock(&lock);
    allocation *found = find(address);
    CUresult code = found && found->kind == IS_DEVICE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (!code && found->file < 0) {
        void *bytes = (void *)(uintptr_t)found->base;
        found->file = memfd_create("fake", MFD_CLOEXEC);
        bool moved = found->file >= 0 &&
                     write(found->file, bytes, found->size) == (ssize_t)found->size &&
                     mmap(bytes, found->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          found->file, 0) == bytes;
        code = moved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (!code)
        memcpy(memset(handle, 0, sizeof *handle), &(shared){getpid(), found->file, found->size},
               sizeof(shared));
    pthread_mutex_unlock(&lock);
    return code;
}

static void *map_file(pid_t process, int file, size_t size) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, file);
    int opened = open(path, O_RDWR | O_CLOEXEC);
    void *made =
        opened < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (opened >= 0)
        close(opened);
    return made == MAP_FAILED ? NULL : made;
}

void *fake_share(void *handle, size_t room, size_t size) {
    int file = memfd_create("fake", MFD_CLOEXEC);
    memcpy(memset(handle, 0, room), &(shared){getpid(), file, size}, sizeof(shared));
    return ftruncate(file, (off_t)size) ? NULL : map_file(getpid(), file, size);
}

void *fake_open_shared(const void *handle) {
    shared one;
    memcpy(&one, handle, sizeof one);
    return map_file(one.process, one.file, one.size);
}

/* The driver opens no handle in the process that has made it. */
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, uint32_t flags) {
    BEGIN;
    NEED_CONTEXT;
    shared one;
    memcpy(&one, &handle, sizeof one);
    if (one.process == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    void *made = flags > CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS ? NULL : fake_open_shared(&handle);
    *address = (CUdeviceptr)(uintptr_t)made;
    return made ? fake_remember(made, one.size, IS_OPENED) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    BEGIN;
    size_t size = fake_forget(address, IS_OPENED);
    if (size)
        munmap((void *)(uintptr_t)address, size);
    return size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- copies and fills --- */

/* Memory as rows and slices. */
typedef struct rows {
    char *bytes;
    size_t pitch, rows;
} rows;

static rows place(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                  size_t pitch, size_t height) {
    if (type == CU_MEMORYTYPE_ARRAY)
        return (rows){array->bytes, array->pitch, array->rows};
    return (rows){
        (char *)(uintptr_t)(type == CU_MEMORYTYPE_HOST ? (uint64_t)(uintptr_t)host : device), pitch,
        height};
}

void fake_copy(const CUDA_MEMCPY3D *c) {
    rows from =
        place(c->srcMemoryType, c->srcHost, c->srcDevice, c->srcArray, c->srcPitch, c->srcHeight);
    rows to =
        place(c->dstMemoryType, c->dstHost, c->dstDevice, c->dstArray, c->dstPitch, c->dstHeight);
    for (size_t z = 0; z < c->Depth; z++)
        for (size_t y = 0; y < c->Height; y++)
            memmove(to.bytes + c->dstXInBytes + ((c->dstZ + z) * to.rows + c->dstY + y) * to.pitch,
                    from.bytes + c->srcXInBytes +
                        ((c->srcZ + z) * from.rows + c->srcY + y) * from.pitch,
                    c->WidthInBytes);
}

void fake_fill(const CUDA_MEMSET_NODE_PARAMS *f) {
    for (size_t y = 0; y < f->height; y++)
        for (size_t x = 0; x < f->width; x++)
            memcpy((char *)(uintptr_t)f->dst + y * f->pitch + x * f->elementSize, &f->value,
                   f->elementSize);
}

typedef struct transfer {
    uint64_t to, from;
    size_t size;
} transfer;

static CUresult run_transfer(void *data) {
    transfer *one = data;
    memmove((void *)(uintptr_t)one->to, (void *)(uintptr_t)one->from, one->size);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    BEGIN;
    transfer one = {to, from, size};
    if (!fake_is_whole(to, size) || !fake_is_whole(from, size))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_push(stream, run_transfer, &one, sizeof one);
}

/* Whether memory of a device is called the host's. */
static bool is_device(CUmemorytype type, const void *host) {
    pthread_mutex_lock(&lock);
    allocation *found = type == CU_MEMORYTYPE_HOST ? find((uint64_t)(uintptr_t)host) : NULL;
    bool is = found && found->kind == IS_DEVICE;
    pthread_mutex_unlock(&lock);
    return is;
}

static CUresult run_rows(void *data) {
    fake_copy(data);
    return CUDA_SUCCESS;
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D *copy, CUstream stream) {
    BEGIN;
    if ((copy->srcPitch && copy->srcPitch < copy->WidthInBytes) ||
        (copy->dstPitch && copy->dstPitch < copy->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_device(copy->srcMemoryType, copy->srcHost) ||
        is_device(copy->dstMemoryType, copy->dstHost))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_push(stream, run_rows, copy, sizeof *copy);
}

static CUresult run_set(void *data) {
    fake_fill(data);
    return CUDA_SUCCESS;
}

static CUresult set_rows(CUdeviceptr to, size_t pitch, uint32_t value, uint32_t size, size_t width,
                         size_t height, CUstream stream) {
    CUDA_MEMSET_NODE_PARAMS one = {to, pitch, value, size, width, height};
    bool fits = !(to % size) && !(pitch % size) && (height == 1 || pitch >= width * size);
    return fits && fake_is_whole(to, (height - 1) * pitch + width * size)
               ? fake_push(stream, run_set, &one, sizeof one)
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult set(CUdeviceptr to, uint32_t value, uint32_t size, size_t count, CUstream stream) {
    return set_rows(to, 0, value, size, count, 1, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, uint8_t value, size_t count, CUstream stream) {
    BEGIN;
    return set(to, value, 1, count, stream);
}

CUresult cuMemsetD16Async(CUdeviceptr to, uint16_t value, size_t count, CUstream stream) {
    BEGIN;
    return set(to, value, 2, count, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, uint32_t value, size_t count, CUstream stream) {
    BEGIN;
    return set(to, value, 4, count, stream);
}

CUresult cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, uint8_t value, size_t width, size_t height,
                           CUstream stream) {
    BEGIN;
    return set_rows(to, pitch, value, 1, width, height, stream);
}

CUresult cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, uint16_t value, size_t width,
                            size_t height, CUstream stream) {
    BEGIN;
    return set_rows(to, pitch, value, 2, width, height, stream);
}

CUresult cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, uint32_t value, size_t width,
                            size_t height, CUstream stream) {
    BEGIN;
    return set_rows(to, pitch, value, 4, width, height, stream);
}

static CUresult hint(CUdeviceptr address, CUmemLocation location) {
    pthread_mutex_lock(&lock);
    allocation *found = find(address);
    bool fits = found && found->kind == IS_MANAGED && location.type <= CU_MEM_LOCATION_TYPE_HOST;
    pthread_mutex_unlock(&lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t size, CUmemLocation location,
                               uint32_t flags, CUstream stream) {
    (void)size, (void)flags, (void)stream;
    BEGIN;
    return hint(address, location);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t size, CUmem_advise advice,
                        CUmemLocation location) {
    (void)size, (void)advice;
    BEGIN;
    return hint(address, location);
}

/* --- memory that is mapped to addresses --- */

typedef struct mapping {
    struct mapping *next;
    uint64_t base, may_use;   /* a bit for each device */
    size_t size;
    int device;               /* whose memory it is */
} mapping;

static mapping *mappings;

static mapping **find_mapping(uint64_t address) {   /* the lock is held */
    mapping **at = &mappings;
    while (*at && address - (*at)->base >= (*at)->size)
        at = &(*at)->next;
    return at;
}

bool fake_may_use(uint64_t address, int device) {
    pthread_mutex_lock(&lock);
    const mapping *found = *find_mapping(address);
    bool may = !found || device < 0 || found->may_use >> device & 1;
    pthread_mutex_unlock(&lock);
    return may;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *kind,
                                       CUmemAllocationGranularity_flags option) {
    (void)kind, (void)option;
    BEGIN;
    *granularity = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *kind, uint64_t flags) {
    (void)flags;
    BEGIN;
    *handle = size | (uint64_t)kind->location.id << 48;
    return size % GRANULARITY ||
                   kind->requestedHandleTypes > CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    (void)handle;
    BEGIN;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                             CUdeviceptr wanted, uint64_t flags) {
    (void)alignment, (void)wanted, (void)flags;
    BEGIN;
    char *memory =
        mmap(NULL, size + GRANULARITY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t before = -(uintptr_t)memory % GRANULARITY;   /* addresses are aligned as sizes are */
    munmap(memory, before);
    munmap(memory + before + size, GRANULARITY - before);
    *address = (CUdeviceptr)(uintptr_t)(memory + before);
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    BEGIN;
    munmap((void *)(uintptr_t)address, size);
    return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, uint64_t flags) {
    (void)offset, (void)flags;
    BEGIN;
    mapping *made = malloc(sizeof *made);
    pthread_mutex_lock(&lock);
    *made = (mapping){mappings, address, 0, size, (int)(handle >> 48)};
    mappings = made;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    BEGIN;
    pthread_mutex_lock(&lock);
    for (mapping **at; (at = find_mapping(address), *at && (*at)->base < address + size);) {
        mapping *gone = *at;
        *at = gone->next;
        free(gone);
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *access,
                        size_t count) {
    CUresult code = CUDA_SUCCESS;
    (void)size;
    BEGIN;
    pthread_mutex_lock(&lock);
    mapping *found = *find_mapping(address);
    for (size_t i = 0; found && i < count && !code; i++) {
        int device = access[i].location.id;
        if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE)
            continue;
        if (!fake_reaches(device, found->device))
            code = CUDA_ERROR_INVALID_DEVICE;
        else if (access[i].flags)
            found->may_use |= (uint64_t)1 << device;
        else
            found->may_use &= ~((uint64_t)1 << device);
    }
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, uint64_t flags) {
    (void)handle, (void)type, (void)flags;
    BEGIN;
    *(int *)shareable = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return *(int *)shareable < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *file,
                                        CUmemAllocationHandleType type) {
    BEGIN;
    *handle = GRANULARITY;
    return type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && (intptr_t)file >= 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t size) {
    BEGIN;
    memcpy((void *)(uintptr_t)to, from, size);
    return CUDA_SUCCESS;
}

/* The OpenCL driver's clCreateBuffer, with CL_MEM_USE_HOST_PTR: its devices are this process's CPU.
 */
void *fake_cuda_import(void *context, void *device, uint64_t flags, uint64_t address,
                       int descriptor, size_t size, int32_t *code) {
    void *(*create)(void *, uint64_t, size_t, void *, int32_t *) =
        (void *(*)(void *, uint64_t, size_t, void *, int32_t *))(*(void ***)context)[14];
    (void)device;
    *code = fake_called(__func__);
    if (*code) {
        close(descriptor);
        return NULL;
    }
    close(descriptor);   /* it belongs to OpenCL */
    return create(context, flags | 8, size, (void *)(uintptr_t)address, code);
}
