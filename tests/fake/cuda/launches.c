/* Launches: arguments are copied at the call. */
#include "modules.h"

static __thread cl_command_queue queue;
uint32_t fake_cuda_cluster[DIMENSIONS];   /* of the last launch with clusters, for tests */

static size_t size_of_values(CUfunction f) {
    return f->count ? f->offsets[f->count - 1] + f->sizes[f->count - 1] : 0;
}

CUresult fake_make_launch(launch *made, const CUDA_KERNEL_NODE_PARAMS *g) {
    static const uint32_t most[DIMENSIONS] = {2147483647, 65535, 65535};
    launch one = {g->func,
                  {g->gridDimX, g->gridDimY, g->gridDimZ},
                  {g->blockDimX, g->blockDimY, g->blockDimZ},
                  g->sharedMemBytes,
                  {0},
                  NULL};
    if (!g->func || (g->kernelParams && g->extra) || (g->func->count && !g->kernelParams))
        return CUDA_ERROR_INVALID_VALUE;
    if (g->sharedMemBytes > (g->func->shared ? (uint32_t)g->func->shared : MOST_SHARED))
        return CUDA_ERROR_INVALID_VALUE;
    for (int d = 0; d < DIMENSIONS; d++)
        if (!one.grid[d] || one.grid[d] > most[d] || !one.block[d])
            return CUDA_ERROR_INVALID_VALUE;
    if (one.block[0] > MOST_THREADS ||
        (uint64_t)one.block[0] * one.block[1] * one.block[2] > MOST_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    one.bytes = calloc(1, size_of_values(g->func) + 1);
    for (uint32_t i = 0; i < g->func->count; i++)
        memcpy(one.bytes + g->func->offsets[i], g->kernelParams[i], g->func->sizes[i]);
    for (int d = 0; g->func->module->takes_offsets && d < DIMENSIONS; d++)
        memcpy(&one.offset[d], g->kernelParams[g->func->count + (uint32_t)d], sizeof one.offset[d]);
    *made = one;
    return CUDA_SUCCESS;
}

launch fake_copy_launch(const launch *one) {
    launch made = *one;
    size_t size = size_of_values(one->function);
    made.bytes = malloc(size + 1);
    memcpy(made.bytes, one->bytes, size);
    return made;
}

void fake_drop_launch(launch *one) { free(one->bytes); }

bool fake_is_of_same_device(const launch *one, const launch *other) {
    return one->function->module->device == other->function->module->device;
}

bool fake_mentions(const launch *one, const char *what) {
    return strstr(one->function->module->text, what);
}

/* The bytes of a local argument: from its offset to the next one, or to the end. */
static size_t local_size(const launch *one, uint32_t index) {
    uint64_t begin = 0, end = one->shared;
    memcpy(&begin, one->bytes + one->function->offsets[index], SIZE_OF_LOCAL);
    for (uint32_t i = 0; i < one->function->count; i++) {
        uint64_t other = 0;
        if (one->function->kinds[i] != LOCAL)
            continue;
        memcpy(&other, one->bytes + one->function->offsets[i], SIZE_OF_LOCAL);
        if (other > begin && other < end)
            end = other;
    }
    return end - begin;
}

/* CUDA does not know how many dimensions a launch of OpenCL has. These are the ones that can be
 * seen; of a single work-item all. */
static cl_uint dimensions_of(const size_t *size, const size_t *offset) {
    return size[2] > 1 || offset[2] ? 3 : size[1] > 1 || offset[1] ? 2 : size[0] > 1 ? 1 : 3;
}

static CUresult run_opencl(const launch *one) {
    CUfunction f = one->function;
    size_t global[DIMENSIONS], local[DIMENSIONS];
    cl_kernel kernel = CL(f->module->program, clCreateKernel)(f->module->program, f->name, NULL);
    cl_int code = CL_SUCCESS;
    for (uint32_t i = 0; i < f->count && !code; i++) {
        unsigned char *value = one->bytes + f->offsets[i];
        if (f->kinds[i] == VALUE)
            code = CL(kernel, clSetKernelArg)(kernel, i, f->sizes[i], value);
        else if (f->kinds[i] == LOCAL)
            code = CL(kernel, clSetKernelArg)(kernel, i, local_size(one, i), NULL);
        else if (*(void **)value)
            code = CL(kernel, clSetKernelArgSVMPointer)(kernel, i, *(void **)value);
        else
            code = CL(kernel, clSetKernelArg)(kernel, i, sizeof(cl_mem), NULL);
    }
    for (int d = 0; d < DIMENSIONS; d++) {
        local[d] = one->block[d];
        global[d] = (size_t)one->grid[d] * one->block[d];
    }
    if (!queue)
        queue = CL(fake_context, clCreateCommandQueue)(fake_context, fake_device, 0, NULL);
    if (!code)
        code = CL(queue, clEnqueueNDRangeKernel)(queue, kernel, dimensions_of(global, one->offset),
                                                 one->offset, global, local, 0, NULL, NULL);
    if (!code)
        code = CL(queue, clFinish)(queue);
    CL(kernel, clReleaseKernel)(kernel);
    return code ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult fake_run_launch(const launch *one) {
    CUfunction f = one->function;
    uint32_t items =
        one->grid[0] * one->grid[1] * one->grid[2] * one->block[0] * one->block[1] * one->block[2];
    void *values[MOST_PARAMETERS];
    for (uint32_t i = 0; i < f->count; i++) {
        uint64_t value = 0;
        memcpy(&value, one->bytes + f->offsets[i], f->sizes[i] == sizeof value ? sizeof value : 0);
        if (!fake_may_use(value, f->module->device))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    if (!f->run)
        return run_opencl(one);
    for (uint32_t i = 0; i < f->count; i++)
        values[i] =
            f->loads >> i & 1 ? *(void **)(one->bytes + f->offsets[i]) : one->bytes + f->offsets[i];
    f->run(values, items);
    return CUDA_SUCCESS;
}

static CUresult run_launch(void *data) {
    CUresult code = fake_run_launch(data);
    fake_drop_launch(data);
    return code;
}

CUresult cuLaunchKernel(CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                        uint32_t by, uint32_t bz, uint32_t shared, CUstream stream,
                        void **parameters, void **extra) {
    BEGIN;
    launch one;
    CUDA_KERNEL_NODE_PARAMS given = {f,  gx,     gy,         gz,    bx,   by,
                                     bz, shared, parameters, extra, NULL, NULL};
    CUresult code = fake_make_launch(&one, &given);
    if (!code && stream && *fake_member_of(stream))
        return fake_capture(stream, fake_add_launch, &one);
    return code ? code : fake_push(stream, run_launch, &one, sizeof one);
}

/* Of the attributes clusters count, which have 8 work-groups at most. */
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
    BEGIN;
    const uint32_t grid[DIMENSIONS] = {c->gridDimX, c->gridDimY, c->gridDimZ};
    for (uint32_t i = 0; i < c->numAttrs; i++) {
        const CUlaunchAttribute *one = &c->attrs[i];
        uint32_t of[DIMENSIONS];
        memcpy(of, one->value, sizeof of);
        if (one->id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
            continue;
        if (one->id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            return CUDA_ERROR_INVALID_VALUE;
        uint64_t groups = (uint64_t)of[0] * of[1] * of[2];
        if (!groups || groups > (f->any_cluster ? 16 : 8))
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        for (int d = 0; d < DIMENSIONS; d++)
            if (grid[d] % of[d])
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(fake_cuda_cluster, of, sizeof of);
    }
    return cuLaunchKernel(f, grid[0], grid[1], grid[2], c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx,
                                   uint32_t by, uint32_t bz, uint32_t shared, CUstream stream,
                                   void **parameters) {
    BEGIN;
    if ((uint64_t)gx * gy * gz * bx * by * bz > 4 * 2048)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}
