/* Modules. PTX and cubins name functions of this file. Everything else is OpenCL C, which the
 * driver FAKE_CUDA_OPENCL compiles and runs. */
#include "modules.h"

#include <dlfcn.h>
#include <elf.h>

/* --- kernels of PTX --- */

static void run_scale(void **p, uint32_t items) {   /* global int *y, int factor, int summand */
    int *y = *(int **)p[0], factor = *(int *)p[1], summand = *(int *)p[2];
    for (uint32_t i = 0; i < items; i++)
        y[i] = (int)((uint32_t)y[i] * (uint32_t)factor + (uint32_t)summand);
}

/* As DPC++ makes one of scale, with the global offset behind its arguments. */
static void run_scale_with_offset(void **p, uint32_t items) {
    int summand = *(int *)p[2] + *(int *)p[3];
    run_scale((void *[]){p[0], p[1], &summand}, items);
}

static void run_total(void **p, uint32_t items) {   /* global int *to, global const int *from */
    int *to = *(int **)p[0], *from = *(int **)p[1];
    for (uint32_t i = 0; i < items; i++)
        to[i] = (int)((uint32_t)to[i] * 3u + (uint32_t)from[i]);
}

static void run_turn(void **p, uint32_t items) { /* the condition, global uint4 *state, global uint
                                                    *word: icd/native/cuda_loops.c */
    uint32_t *state = *(uint32_t **)p[1], set = **(uint32_t **)p[2] != 0;
    (void)items;
    state[2]++;
    state[3] = set == state[1];
    fake_set_condition(*(uint64_t *)p[0], !state[3] && state[2] < state[0]);
}

static void run_invert(void **p,
                       uint32_t items) { /* texture object from, surface object to: bytes */
    CUarray from = *(CUarray *)p[0], to = *(CUarray *)p[1];
    for (uint32_t i = 0; i < items * from->about.NumChannels; i++)
        to->bytes[i] = (char)(255 - (unsigned char)from->bytes[i]);
}

static const struct {
    const char *name;
    void (*run)(void **, uint32_t);
    uint32_t count;
    size_t sizes[4];
} kernels[] = {{"scale", run_scale, 3, {8, 4, 4}},
               {"scale_with_offset", run_scale_with_offset, 4, {8, 4, 4, 12}},
               {"total", run_total, 2, {8, 8}},
               {"invert", run_invert, 2, {8, 8}},
               {"fl_turn", run_turn, 3, {8, 8, 8}}};

/* --- OpenCL --- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
cl_device_id fake_device;
cl_context fake_context;

/* PoCL 3.0 builds nothing on CPUs that its LLVM does not know. It finds the CPU's name here, after
 * the target's. */
static void name_cpu(void) {
    const char **cpu = (const char **)((char *)fake_device + 640);
    char version[256] = "";
    CL(fake_device, clGetDeviceInfo)(fake_device, CL_DEVICE_VERSION, sizeof version - 1, version,
                                     NULL);
    if (strstr(version, "pocl 3.0") && *cpu && !strcmp(*cpu, "generic"))
        *cpu = "x86-64-v2";
}

static bool open_opencl(void) {   /* the lock is held */
    if (fake_context)
        return true;
    const char *path = getenv("FAKE_CUDA_OPENCL");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    void *(*look_up)(const char *) =
        library ? (void *(*)(const char *))dlsym(library, "clGetExtensionFunctionAddress") : NULL;
    fn_clGetPlatformIDs *get =
        look_up ? (fn_clGetPlatformIDs *)look_up("clIcdGetPlatformIDsKHR") : NULL;
    cl_platform_id platform = NULL;
    if (!get || get(1, &platform, NULL) ||
        CL(platform, clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &fake_device, NULL))
        return false;
    name_cpu();
    fake_context = CL(fake_device, clCreateContext)(NULL, 1, &fake_device, NULL, NULL, NULL);
    return fake_context;
}

/* A driver's compiler takes longer than most tests: programs of the last texts are kept. */
static struct {
    char *text;
    cl_program program;
} kept[32];

static cl_program build_kept(const char *text, char *log, size_t room) {   /* the lock is held */
    static size_t place;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (kept[i].text && !strcmp(kept[i].text, text))
            return kept[i].program;
    cl_program made = open_opencl() ? CL(fake_context, clCreateProgramWithSource)(
                                          fake_context, 1, &text, NULL, NULL)
                                    : NULL;
    if (made &&
        CL(made, clBuildProgram)(made, 1, &fake_device, "-cl-kernel-arg-info", NULL, NULL)) {
        CL(made, clGetProgramBuildInfo)(made, fake_device, CL_PROGRAM_BUILD_LOG, room, log, NULL);
        CL(made, clReleaseProgram)(made);
        made = NULL;
    }
    if (made) {
        place = (place + 1) % (sizeof kept / sizeof *kept);
        if (kept[place].text)
            CL(kept[place].program, clReleaseProgram)(kept[place].program);
        free(kept[place].text);
        kept[place].text = strdup(text);
        kept[place].program = made;
    }
    return made;
}

static cl_program build(const char *text, char *log, size_t room) {
    pthread_mutex_lock(&lock);
    cl_program made = build_kept(text, log, room);
    if (made)
        CL(made, clRetainProgram)(made);
    pthread_mutex_unlock(&lock);
    return made;
}

static size_t size_of_type(const char *name) {
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"char", 1}, {"uchar", 1}, {"short", 2},  {"ushort", 2},
                 {"half", 2}, {"int", 4},   {"uint", 4},   {"float", 4},
                 {"long", 8}, {"ulong", 8}, {"double", 8}, {"size_t", 8}};
    size_t length = strcspn(name, "0123456789"),
           width = name[length] ? (size_t)atoi(name + length) : 1;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strlen(types[i].name) == length && !strncmp(types[i].name, name, length))
            return types[i].size * (width == 3 ? 4 : width);
    return 0;
}

/* Of a structure: the only size that the driver takes. */
static size_t size_of_argument(cl_kernel kernel, cl_uint index) {
    static const unsigned char none[256];
    size_t size = sizeof none;
    while (size && CL(kernel, clSetKernelArg)(kernel, index, size, none))
        size--;
    return size;
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
        CL(kernel, clGetKernelArgInfo)(kernel, i, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space,
                                       &space, NULL);
        CL(kernel, clGetKernelArgInfo)(kernel, i, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL);
        f->kinds[i] = space == CL_KERNEL_ARG_ADDRESS_LOCAL     ? LOCAL
                      : space == CL_KERNEL_ARG_ADDRESS_PRIVATE ? VALUE
                                                               : ADDRESS;
        f->sizes[i] = f->kinds[i] == VALUE   ? size_of_type(type)
                      : f->kinds[i] == LOCAL ? SIZE_OF_LOCAL
                                             : 8;
        if (!f->sizes[i])
            f->sizes[i] = size_of_argument(kernel, i);
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

enum { EM_NVIDIA = 190 };

/* What a cubin has, as lines of PTX: a section .text.NAME for each kernel, and symbols of
 * variables. NULL: the file is for no GPU. */
static char *declarations(const void *image) {
    const char *bytes = image;
    const Elf64_Ehdr *head = image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(bytes + head->e_shoff);
    const char *names = bytes + sections[head->e_shstrndx].sh_offset;
    char *text = NULL;
    size_t size = 0;
    if (head->e_machine != EM_NVIDIA)
        return NULL;
    FILE *out = open_memstream(&text, &size);
    for (int i = 0; i < head->e_shnum; i++) {
        const Elf64_Shdr *one = &sections[i];
        const Elf64_Sym *symbols = (const Elf64_Sym *)(bytes + one->sh_offset);
        if (!strncmp(names + one->sh_name, ".text.", 6))
            fprintf(out, ".entry %s(\n", names + one->sh_name + 6);
        for (size_t s = 0; one->sh_type == SHT_SYMTAB && s < one->sh_size / sizeof *symbols; s++)
            if (ELF64_ST_TYPE(symbols[s].st_info) == STT_OBJECT)
                fprintf(out, ".global .align 4 .b8 %s[%zu]\n",
                        bytes + sections[one->sh_link].sh_offset + symbols[s].st_name,
                        (size_t)symbols[s].st_size);
    }
    fclose(out);
    return text;
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

/* PoCL 3.0 has no variables of programs. Each line such as `global int name = 5;` becomes a macro
 * for memory of the module's. */
static char *place_variables(CUmodule module, const char *text) {
    char *made = malloc(2 * strlen(text) + 4096), *end = made;
    while (*text) {
        size_t length = strcspn(text, "\n");
        char type[32], name[64];
        long long value;
        if (sscanf(text, "global %31s %63[A-Za-z0-9_] = %lld;", type, name, &value) == 3 &&
            size_of_type(type)) {
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

static void free_variables(CUmodule module) {
    for (variable *v = module->variables, *next; v; v = next) {
        next = v->next;
        free(v);
    }
}

bool fake_compiles(const char *source, char *log, size_t room) {
    struct fl_CUmodule unused = {0};
    char *text = place_variables(&unused, source);
    pthread_mutex_lock(&lock);
    bool works = open_opencl();
    cl_program made = works ? CL(fake_context, clCreateProgramWithSource)(
                                  fake_context, 1, (const char **)&text, NULL, NULL)
                            : NULL;
    bool fine =
        made && !CL(made, clCompileProgram)(made, 1, &fake_device, NULL, 0, NULL, NULL, NULL, NULL);
    if (made && !fine)
        CL(made, clGetProgramBuildInfo)(made, fake_device, CL_PROGRAM_BUILD_LOG, room, log, NULL);
    if (made)
        CL(made, clReleaseProgram)(made);
    pthread_mutex_unlock(&lock);
    free_variables(&unused);
    free(text);
    return fine;
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, uint32_t count,
                            CUjit_option *options, void **values) {
    char ignored[4096], *log = ignored;
    size_t room = sizeof ignored;
    BEGIN;
    for (uint32_t i = 0; i < count; i++) {
        log = options[i] == CU_JIT_ERROR_LOG_BUFFER ? values[i] : log;
        room =
            options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES ? (size_t)(uintptr_t)values[i] : room;
    }
    if (!(image = fake_image_in(image, 90)))
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    bool is_binary = !memcmp(image, ELFMAG, SELFMAG);
    char *given = is_binary ? declarations(image) : strdup(image);
    if (!given)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    CUmodule made = calloc(1, sizeof *made);
    bool is_ptx = is_binary || strstr(image, ".entry ") || strstr(image, ".version ");
    made->text = given;
    made->device = fake_current_device();
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

/* --- the linker: what is linked is the texts one after the other --- */

struct fl_CUlinkState {
    char *text, *log;
    size_t room;
    bool has_ptx, has_opencl;
};

CUresult cuLinkCreate_v2(uint32_t count, CUjit_option *options, void **values, CUlinkState *state) {
    BEGIN;
    NEED_CONTEXT;
    CUlinkState made = calloc(1, sizeof *made);
    made->text = strdup("");
    for (uint32_t i = 0; i < count; i++) {
        made->log = options[i] == CU_JIT_ERROR_LOG_BUFFER ? values[i] : made->log;
        made->room = options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES ? (size_t)(uintptr_t)values[i]
                                                                      : made->room;
    }
    *state = made;
    return CUDA_SUCCESS;
}

static CUresult refuse_link(CUlinkState state, const char *why) {
    if (state->log)
        snprintf(state->log, state->room, "%s", why);
    return CUDA_ERROR_INVALID_IMAGE;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, uint32_t count, CUjit_option *options, void **values) {
    BEGIN;
    (void)name, (void)count, (void)options, (void)values;
    if (type != CU_JIT_INPUT_PTX || !size || ((char *)data)[size - 1])   /* PTX ends with a NUL */
        return refuse_link(state, "this is no PTX");
    bool is_ptx = strstr(data, ".version ");
    state->has_ptx |= is_ptx;
    state->has_opencl |= !is_ptx;
    state->text = realloc(state->text, strlen(state->text) + size + 1);
    strcat(strcat(state->text, data), "\n");
    return CUDA_SUCCESS;
}

/* Whether a function is declared with `.extern .func` and defined nowhere. */
static bool lacks_function(const char *text) {
    for (const char *at = text; (at = strstr(at, ".extern .func ")); at++) {
        char name[64], defined[96];
        if (sscanf(at, ".extern .func %63[a-z_]", name) != 1)
            continue;
        snprintf(defined, sizeof defined, ".visible .func %s", name);
        if (!strstr(text, defined))
            return true;
    }
    return false;
}

CUresult cuLinkComplete(CUlinkState state, void **made, size_t *size) {
    char log[4096] = "";
    BEGIN;
    if (state->has_ptx && (state->has_opencl || lacks_function(state->text)))
        return refuse_link(state, "Undefined reference");
    cl_program program = state->has_ptx ? NULL : build(state->text, log, sizeof log - 1);
    if (!program && !state->has_ptx)
        return refuse_link(state, log);
    if (program)
        CL(program, clReleaseProgram)(program);
    *made = state->text;
    *size = strlen(state->text) + 1;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state) {
    BEGIN;
    free(state->text);
    free(state);
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    BEGIN;
    fake_drain();   /* its kernels may run */
    for (CUfunction f = module->functions, next; f; f = next) {
        next = f->next;
        free(f->name);
        free(f);
    }
    free_variables(module);
    if (module->program)
        CL(module->program, clReleaseProgram)(module->program);
    free(module->text);
    free(module);
    return CUDA_SUCCESS;
}

/* A kernel of this file, also as K_fl_BITS, which is given addresses of those parameters. */
static CUresult find_ptx(CUfunction f) {
    char wanted[128], base[128];
    const char *bits = strstr(f->name, "_fl_");
    snprintf(wanted, sizeof wanted, ".entry %s(", f->name);
    snprintf(base, sizeof base, "%.*s", bits ? (int)(bits - f->name) : 100, f->name);
    f->loads = bits ? strtoull(bits + strlen("_fl_"), NULL, 16) : 0;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, base) && strstr(f->module->text, wanted)) {
            f->run = kernels[i].run;
            f->count = kernels[i].count;
            for (uint32_t p = 0; p < f->count; p++) {
                f->sizes[p] = f->loads >> p & 1 ? sizeof(void *) : kernels[i].sizes[p];
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
    if (!*name)
        return CUDA_ERROR_INVALID_VALUE;
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
        CL(module->program, clGetProgramInfo)(module->program, CL_PROGRAM_KERNEL_NAMES, size, names,
                                              NULL);
        return;
    }
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        char wanted[128];
        snprintf(wanted, sizeof wanted, ".entry %s(", kernels[i].name);
        if (strstr(module->text, wanted))
            snprintf(names + strlen(names), size - strlen(names), "%s%s", *names ? ";" : "",
                     kernels[i].name);
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
    for (char *name = strtok_r(names, ";", &rest); name && count--;
         name = strtok_r(NULL, ";", &rest)) {
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

CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *size, CUmodule module,
                              const char *name) {
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
    BEGIN;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MOST_THREADS; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = f->shared ? f->shared : MOST_SHARED;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 16; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute attribute, int value) {
    BEGIN;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: f->any_cluster = value; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || value > MOST_ASKED)
            return CUDA_ERROR_INVALID_VALUE;
        f->shared = value;
        break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *count, CUfunction f, int size,
                                                     size_t shared) {
    BEGIN;
    size_t most = f->shared ? (size_t)f->shared : MOST_SHARED;
    if (shared > most)
        return CUDA_ERROR_INVALID_VALUE;
    int by_threads = size > 0 ? 2048 / size : 0,
        by_memory = shared ? (int)(MOST_ASKED / shared) : by_threads;
    *count = by_threads < by_memory ? by_threads : by_memory;
    return CUDA_SUCCESS;
}
