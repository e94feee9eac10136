/* Modules and launches. PTX names functions of this file. Everything else is OpenCL C, which the driver FAKE_CUDA_OPENCL compiles and runs. */
#include "fake.h"
#include "opencl_abi.h"

#include <dlfcn.h>

enum { MOST_PARAMETERS = 64 };

struct fl_CUfunction {
    CUfunction next;
    CUmodule module;
    char *name;
    void (*run)(void **parameters, uint32_t items);   /* NULL: the kernel of the program with this name */
    uint32_t count;
    enum { VALUE, ADDRESS, LOCAL } kinds[MOST_PARAMETERS];
    size_t sizes[MOST_PARAMETERS], offsets[MOST_PARAMETERS];
};

typedef struct variable {
    struct variable *next;
    char name[64];
    size_t size;
    char bytes[];
} variable;

struct fl_CUmodule {
    char *text;
    cl_program program;   /* NULL: PTX */
    CUfunction functions;
    variable *variables;
};

/* --- kernels of PTX --- */

static void run_scale(void **p, uint32_t items) {   /* global int *y, int factor, int summand */
    int *y = *(int **)p[0], factor = *(int *)p[1], summand = *(int *)p[2];
    for (uint32_t i = 0; i < items; i++)
        y[i] = (int)((uint32_t)y[i] * (uint32_t)factor + (uint32_t)summand);
}

static void run_total(void **p, uint32_t items) {   /* global int *to, global const int *from */
    int *to = *(int **)p[0], *from = *(int **)p[1];
    for (uint32_t i = 0; i < items; i++)
        to[i] = (int)((uint32_t)to[i] * 3u + (uint32_t)from[i]);
}

static const struct {
    const char *name;
    void (*run)(void **, uint32_t);
    uint32_t count;
    size_t sizes[3];
} kernels[] = {{"scale", run_scale, 3, {8, 4, 4}}, {"total", run_total, 2, {8, 8}}};

/* --- OpenCL --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cl_device_id device;
static cl_context context;
static __thread cl_command_queue queue;

#define CL(object, name) ((fn_##name *)((object)->dispatch[SLOT_##name]))

/* PoCL 3.0 builds nothing on CPUs that its LLVM does not know. It finds the CPU's name here, after the target's. */
static void name_cpu(void) {
    const char **cpu = (const char **)((char *)device + 640);
    char version[256] = "";
    CL(device, clGetDeviceInfo)(device, CL_DEVICE_VERSION, sizeof version - 1, version, NULL);
    if (strstr(version, "pocl 3.0") && *cpu && !strcmp(*cpu, "generic"))
        *cpu = "x86-64-v2";
}

static bool open_opencl(void) {   /* the lock is held */
    if (context)
        return true;
    const char *path = getenv("FAKE_CUDA_OPENCL");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    void *(*look_up)(const char *) = library ? (void *(*)(const char *))dlsym(library, "clGetExtensionFunctionAddress") : NULL;
    fn_clGetPlatformIDs *get = look_up ? (fn_clGetPlatformIDs *)look_up("clIcdGetPlatformIDsKHR") : NULL;
    cl_platform_id platform = NULL;
    if (!get || get(1, &platform, NULL) || CL(platform, clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL))
        return false;
    name_cpu();
    context = CL(device, clCreateContext)(NULL, 1, &device, NULL, NULL, NULL);
    return context;
}

static cl_program build(const char *text, char *log, size_t room) {
    pthread_mutex_lock(&lock);
    bool works = open_opencl();
    cl_program made = works ? CL(context, clCreateProgramWithSource)(context, 1, &text, NULL, NULL) : NULL;
    if (made && CL(made, clBuildProgram)(made, 1, &device, "-cl-kernel-arg-info", NULL, NULL)) {
        CL(made, clGetProgramBuildInfo)(made, device, CL_PROGRAM_BUILD_LOG, room, log, NULL);
        CL(made, clReleaseProgram)(made);
        made = NULL;
    }
    pthread_mutex_unlock(&lock);
    return made;
}

static size_t size_of_type(const char *name) {
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"half", 2}, {"int", 4}, {"uint", 4},
                 {"float", 4}, {"long", 8}, {"ulong", 8}, {"double", 8}, {"size_t", 8}};
    size_t length = strcspn(name, "0123456789"), width = name[length] ? (size_t)atoi(name + length) : 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == length && !strncmp(types[i].name, name, length))
            return types[i].size * (width == 3 ? 4 : width);
    return 0;
}

static CUresult describe(CUfunction f, cl_kernel kernel) {
    cl_uint count = 0;
    size_t offset = 0;
    CL(kernel, clGetKernelInfo)(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, NULL);
    if (count > MOST_PARAMETERS)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (f->count = 0; f->count < count; f->count++) {
        cl_uint i = f->count;
        uint32_t space = 0;
        char type[64] = "";
        CL(kernel, clGetKernelArgInfo)(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, NULL);
        CL(kernel, clGetKernelArgInfo)(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL);
        f->kinds[i] = space == CL_KERNEL_ARG_ADDRESS_LOCAL ? LOCAL : space == CL_KERNEL_ARG_ADDRESS_PRIVATE ? VALUE : ADDRESS;
        f->sizes[i] = f->kinds[i] == VALUE ? size_of_type(type) : 8;
        if (!f->sizes[i])
            return CUDA_ERROR_NOT_SUPPORTED;
        size_t align = f->sizes[i] < 16 ? f->sizes[i] : 16;
        offset = (offset + align - 1) / align * align;
        f->offsets[i] = offset;
        offset += f->sizes[i];
    }
    return CUDA_SUCCESS;
}

/* --- modules --- */

static variable *add_variable(CUmodule module, const char *name, size_t size) {
    variable *made = calloc(1, sizeof *made + size);
    snprintf(made->name, sizeof made->name, "%s", name);
    made->size = size;
    made->next = module->variables;
    return module->variables = made;
}

/* Finds lines such as `.visible .global .align 4 .b8 name[12]` in PTX. */
static void read_variables(CUmodule module) {
    for (const char *at = module->text; (at = strstr(at, ".global .align ")); at++) {
        char name[64];
        size_t size;
        if (sscanf(at, ".global .align %*d .b8 %63[^[ ][%zu]", name, &size) != 2)
            continue;
        add_variable(module, name, size);
    }
}

/* PoCL 3.0 has no variables of programs. Each line such as `global int name = 5;` becomes a macro for memory of the module's. */
static char *place_variables(CUmodule module, const char *text) {
    char *made = malloc(2 * strlen(text) + 4096), *end = made;
    while (*text) {
        size_t length = strcspn(text, "\n");
        char type[32], name[64];
        long long value;
        if (sscanf(text, "global %31s %63[A-Za-z0-9_] = %lld;", type, name, &value) == 3 && size_of_type(type)) {
            variable *one = add_variable(module, name, size_of_type(type));
            memcpy(one->bytes, &value, one->size);
            end += sprintf(end, "#define %s (*(global %s *)%pul)", name, type, (void *)one->bytes);
        } else {
            memcpy(end, text, length);
            end += length;
        }
        text += length;
        if (*text)
            *end++ = *text++;
    }
    *end = 0;
    return made;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, uint32_t count, CUjit_option *options, void **values) {
    char ignored[4096], *log = ignored;
    size_t room = sizeof ignored;
    BEGIN;
    for (uint32_t i = 0; i < count; i++) {
        log = options[i] == CU_JIT_ERROR_LOG_BUFFER ? values[i] : log;
        room = options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES ? (size_t)(uintptr_t)values[i] : room;
    }
    CUmodule made = calloc(1, sizeof *made);
    bool is_ptx = strstr(image, ".entry ") || strstr(image, ".version ");
    made->text = strdup(image);
    *module = made;
    if (is_ptx) {
        read_variables(made);
        return strstr(image, ".ptr .shared") ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
    }
    char *text = place_variables(made, made->text);
    made->program = build(text, log, room);
    free(text);
    if (made->program)
        return CUDA_SUCCESS;
    cuModuleUnload(made);
    return CUDA_ERROR_INVALID_PTX;
}

CUresult cuModuleUnload(CUmodule module) {
    BEGIN;
    fake_drain();   /* its kernels may run */
    for (CUfunction f = module->functions, next; f; f = next) {
        next = f->next;
        free(f->name);
        free(f);
    }
    for (variable *v = module->variables, *next; v; v = next) {
        next = v->next;
        free(v);
    }
    if (module->program)
        CL(module->program, clReleaseProgram)(module->program);
    free(module->text);
    free(module);
    return CUDA_SUCCESS;
}

static CUresult find_ptx(CUfunction f) {
    char wanted[128];
    snprintf(wanted, sizeof wanted, ".entry %s(", f->name);
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, f->name) && strstr(f->module->text, wanted)) {
            f->run = kernels[i].run;
            f->count = kernels[i].count;
            for (uint32_t p = 0; p < f->count; p++) {
                f->sizes[p] = kernels[i].sizes[p];
                f->offsets[p] = p ? f->offsets[p - 1] + f->sizes[p - 1] : 0;
            }
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

static CUresult find_opencl(CUfunction f) {
    cl_kernel kernel = CL(f->module->program, clCreateKernel)(f->module->program, f->name, NULL);
    CUresult code = kernel ? describe(f, kernel) : CUDA_ERROR_NOT_FOUND;
    if (kernel)
        CL(kernel, clReleaseKernel)(kernel);
    return code;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    BEGIN;
    for (CUfunction f = module->functions; f; f = f->next)
        if (!strcmp(f->name, name)) {
            *function = f;
            return CUDA_SUCCESS;
        }
    CUfunction made = calloc(1, sizeof *made);
    made->module = module;
    made->name = strdup(name);
    CUresult code = module->program ? find_opencl(made) : find_ptx(made);
    if (code) {
        free(made->name);
        free(made);
        return code;
    }
    made->next = module->functions;
    *function = module->functions = made;
    return CUDA_SUCCESS;
}

/* The names of the kernels of a module, with semicolons between them. */
static void list(CUmodule module, char *names, size_t size) {
    names[0] = 0;
    if (module->program) {
        CL(module->program, clGetProgramInfo)(module->program, CL_PROGRAM_KERNEL_NAMES, size, names, NULL);
        return;
    }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, ".entry %s(", kernels[i].name);
        if (strstr(module->text, wanted))
            snprintf(names + strlen(names), size - strlen(names), "%s%s", *names ? ";" : "", kernels[i].name);
    }
}

CUresult cuModuleGetFunctionCount(uint32_t *count, CUmodule module) {
    char names[4096];
    BEGIN;
    list(module, names, sizeof names);
    *count = *names != 0;
    for (const char *at = names; (at = strchr(at, ';')); at++)
        ++*count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *found, uint32_t count, CUmodule module) {
    char names[4096], *rest = NULL;
    BEGIN;
    list(module, names, sizeof names);
    for (char *name = strtok_r(names, ";", &rest); name && count--; name = strtok_r(NULL, ";", &rest)) {
        CUresult code = cuModuleGetFunction(found++, module, name);
        if (code)
            return code;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction f) {
    BEGIN;
    *name = f->name;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction f) {
    BEGIN;
    *module = f->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction f, size_t index, size_t *offset, size_t *size) {
    BEGIN;
    if (index >= f->count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = f->offsets[index];
    if (size)
        *size = f->sizes[index];
    return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module, const char *name) {
    BEGIN;
    for (variable *v = module->variables; v; v = v->next)
        if (!strcmp(v->name, name)) {
            if (address)
                *address = (CUdeviceptr)(uintptr_t)v->bytes;
            if (size)
                *size = v->size;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction f) {
    (void)f;
    BEGIN;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MOST_THREADS; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = MOST_SHARED; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 16; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    (void)f;
    BEGIN;
    return attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > MOST_SHARED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction f, int size, size_t shared) {
    (void)f;
    BEGIN;
    int by_threads = size > 0 ? 2048 / size : 0, by_memory = shared ? (int)(MOST_SHARED / shared) : by_threads;
    *count = by_threads < by_memory ? by_threads : by_memory;
    return CUDA_SUCCESS;
}

/* --- launches --- */

static size_t size_of_values(CUfunction f) { return f->count ? f->offsets[f->count - 1] + f->sizes[f->count - 1] : 0; }

CUresult fake_make_launch(launch *made, const CUDA_KERNEL_NODE_PARAMS *g) {
    static const uint32_t most[DIMENSIONS] = {2147483647, 65535, 65535};
    launch one = {g->func, {g->gridDimX, g->gridDimY, g->gridDimZ}, {g->blockDimX, g->blockDimY, g->blockDimZ}, g->sharedMemBytes, NULL};
    if (!g->func || (g->kernelParams && g->extra) || g->sharedMemBytes > MOST_SHARED || (g->func->count && !g->kernelParams))
        return CUDA_ERROR_INVALID_VALUE;
    for (int d = 0; d < DIMENSIONS; d++)
        if (!one.grid[d] || one.grid[d] > most[d] || !one.block[d])
            return CUDA_ERROR_INVALID_VALUE;
    if (one.block[0] > MOST_THREADS || (uint64_t)one.block[0] * one.block[1] * one.block[2] > MOST_THREADS)
        return CUDA_ERROR_INVALID_VALUE;
    one.bytes = calloc(1, size_of_values(g->func) + 1);
    for (uint32_t i = 0; i < g->func->count; i++)
        memcpy(one.bytes + g->func->offsets[i], g->kernelParams[i], g->func->sizes[i]);
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

/* The bytes of a local argument: from its offset to the next one, or to the end. */
static size_t local_size(const launch *one, uint32_t index) {
    uint64_t begin, end = one->shared;
    memcpy(&begin, one->bytes + one->function->offsets[index], 8);
    for (uint32_t i = 0; i < one->function->count; i++) {
        uint64_t other;
        if (one->function->kinds[i] != LOCAL)
            continue;
        memcpy(&other, one->bytes + one->function->offsets[i], 8);
        if (other > begin && other < end)
            end = other;
    }
    return end - begin;
}

/* CUDA does not know how many dimensions a launch of OpenCL has. These are the ones that can be seen; of a single work-item all. */
static cl_uint dimensions_of(const size_t *size) { return size[2] > 1 ? 3 : size[1] > 1 ? 2 : size[0] > 1 ? 1 : 3; }

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
        queue = CL(context, clCreateCommandQueue)(context, device, 0, NULL);
    if (!code)
        code = CL(queue, clEnqueueNDRangeKernel)(queue, kernel, dimensions_of(global), NULL, global, local, 0, NULL, NULL);
    if (!code)
        code = CL(queue, clFinish)(queue);
    CL(kernel, clReleaseKernel)(kernel);
    return code ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS;
}

CUresult fake_run_launch(const launch *one) {
    CUfunction f = one->function;
    uint32_t items = one->grid[0] * one->grid[1] * one->grid[2] * one->block[0] * one->block[1] * one->block[2];
    void *values[MOST_PARAMETERS];
    if (!f->run)
        return run_opencl(one);
    for (uint32_t i = 0; i < f->count; i++)
        values[i] = one->bytes + f->offsets[i];
    f->run(values, items);
    return CUDA_SUCCESS;
}

static CUresult run_launch(void *data) {
    CUresult code = fake_run_launch(data);
    fake_drop_launch(data);
    return code;
}

CUresult cuLaunchKernel(CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared, CUstream stream,
                        void **parameters, void **extra) {
    BEGIN;
    launch one;
    CUDA_KERNEL_NODE_PARAMS given = {f, gx, gy, gz, bx, by, bz, shared, parameters, extra, NULL, NULL};
    CUresult code = fake_make_launch(&one, &given);
    return code ? code : fake_push(stream, run_launch, &one, sizeof one);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by, uint32_t bz, uint32_t shared,
                                   CUstream stream, void **parameters) {
    BEGIN;
    if ((uint64_t)gx * gy * gz * bx * by * bz > 4 * 2048)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}
