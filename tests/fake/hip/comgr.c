/* AMD's compiler library for tests, libamd_comgr.so.2 beside the driver: PoCL says whether a
 * program compiles, and what its kernels take. A code object is an ELF file with nothing but the
 * metadata, and the text behind it, which the driver compiles (hip.c).
 *
 * Of the options -D counts. They become lines of the text. */
#include "fake_hip.h"

#include <elf.h>

typedef struct { uint64_t handle; } handle;
enum { SOURCE = 1, LOG = 5, CODE = 6, RELOCATABLE = 7, EXECUTABLE = 8 };
enum { HEADERS = 1, COMPILE = 2, DEVICE_LIBRARIES = 3, LINK_CODE = 4, GENERATE = 6, LINK = 9 };
enum { FINE, FAILED, INVALID };

typedef struct { int kind, users; size_t size; char *bytes; } data;
typedef struct { size_t count; data *items[8]; } set;
typedef struct { char target[128], defines[2048]; } action;

#define OBJECT(type, given) ((type *)(uintptr_t)(given).handle)

static int make(handle *made, size_t size) {
    made->handle = (uintptr_t)calloc(1, size);
    return FINE;
}

static void drop(data *one) {
    if (--one->users)
        return;
    free(one->bytes);
    free(one);
}

/* --- data and sets --- */

int amd_comgr_create_data(int kind, handle *made) {
    make(made, sizeof(data));
    OBJECT(data, *made)->kind = kind;
    OBJECT(data, *made)->users = 1;
    return FINE;
}

int amd_comgr_release_data(handle one) {
    drop(OBJECT(data, one));
    return FINE;
}

int amd_comgr_set_data(handle one, size_t size, const char *bytes) {
    data *to = OBJECT(data, one);
    free(to->bytes);
    to->bytes = calloc(1, size + 1);
    memcpy(to->bytes, bytes, to->size = size);
    return FINE;
}

int amd_comgr_set_data_name(handle one, const char *name) {
    return one.handle && *name ? FINE : INVALID;
}

int amd_comgr_get_data(handle one, size_t *size, char *bytes) {
    data *from = OBJECT(data, one);
    if (bytes)
        memcpy(bytes, from->bytes, *size < from->size ? *size : from->size);
    *size = from->size;
    return FINE;
}

int amd_comgr_create_data_set(handle *made) { return make(made, sizeof(set)); }

int amd_comgr_destroy_data_set(handle one) {
    for (size_t i = 0; i < OBJECT(set, one)->count; i++)
        drop(OBJECT(set, one)->items[i]);
    free(OBJECT(set, one));
    return FINE;
}

int amd_comgr_data_set_add(handle to, handle one) {
    OBJECT(data, one)->users++;
    OBJECT(set, to)->items[OBJECT(set, to)->count++] = OBJECT(data, one);
    return FINE;
}

static data *find(const set *in, int kind, size_t index) {
    for (size_t i = 0; i < in->count; i++)
        if (in->items[i]->kind == kind && !index--)
            return in->items[i];
    return NULL;
}

int amd_comgr_action_data_count(handle in, int kind, size_t *count) {
    for (*count = 0; find(OBJECT(set, in), kind, *count); ++*count)
        ;
    return FINE;
}

int amd_comgr_action_data_get_data(handle in, int kind, size_t index, handle *found) {
    data *one = find(OBJECT(set, in), kind, index);
    if (!one)
        return INVALID;
    one->users++;
    found->handle = (uintptr_t)one;
    return FINE;
}

/* --- what is to be done --- */

int amd_comgr_create_action_info(handle *made) { return make(made, sizeof(action)); }

int amd_comgr_destroy_action_info(handle one) {
    free(OBJECT(action, one));
    return FINE;
}

int amd_comgr_action_info_set_language(handle one, int language) {
    return one.handle && language == 2 ? FINE : INVALID;
}

int amd_comgr_action_info_set_logging(handle one, bool wanted) {
    return one.handle && wanted ? FINE : INVALID;
}

int amd_comgr_action_info_set_isa_name(handle one, const char *name) {
    snprintf(OBJECT(action, one)->target, sizeof OBJECT(action, one)->target, "%s", name);
    return strncmp(name, "amdgcn-amd-amdhsa--gfx9", 23) ? INVALID : FINE;
}

int amd_comgr_action_info_set_option_list(handle one, const char **options, size_t count) {
    char *to = OBJECT(action, one)->defines;
    for (size_t i = 0; i < count; i++)
        if (!strncmp(options[i], "-D", 2)) {
            const char *value = strchr(options[i], '=');
            int length = (int)(value ? value - options[i] - 2 : (long)strlen(options[i]) - 2);
            to += sprintf(to, "#define %.*s %s\n", length, options[i] + 2, value ? value + 1 : "1");
        }
    return FINE;
}

int amd_comgr_status_string(int status, const char **words) {
    *words = status == FINE ? "SUCCESS" : status == FAILED ? "ERROR" : "INVALID_ARGUMENT";
    return FINE;
}

/* --- metadata, in MessagePack --- */

typedef struct { unsigned char bytes[1 << 16], *at; } pack;

static void put_text(pack *to, const char *text) {
    size_t length = strlen(text);
    if (length < 32)
        *to->at++ = (unsigned char)(0xA0 | length);
    else
        *to->at++ = 0xD9, *to->at++ = (unsigned char)length;
    memcpy(to->at, text, length);
    to->at += length;
}

static void put_number(pack *to, const char *key, uint32_t value) {
    put_text(to, key);
    *to->at++ = 0xCE;
    for (int shift = 24; shift >= 0; shift -= 8)
        *to->at++ = (unsigned char)(value >> shift);
}

static void put_list(pack *to, const char *key, uint32_t count) {
    put_text(to, key);
    *to->at++ = 0xDC, *to->at++ = (unsigned char)(count >> 8), *to->at++ = (unsigned char)count;
}

static void put_parameter(pack *to, size_t offset, size_t size, const char *kind) {
    *to->at++ = 0x83;
    put_number(to, ".offset", (uint32_t)offset);
    put_number(to, ".size", (uint32_t)size);
    put_text(to, ".value_kind");
    put_text(to, kind);
}

static void put_kernel(pack *to, CUfunction f) {
    static const char *const hidden[] = {"hidden_global_offset_x", "hidden_global_offset_y",
                                         "hidden_global_offset_z"};
    size_t required[DIMENSIONS] = {0},
           end = f->count ? f->offsets[f->count - 1] + f->sizes[f->count - 1] + 7 : 7;
    cl_kernel kernel = CL(f->module->program, clCreateKernel)(f->module->program, f->name, NULL);
    CL(kernel, clGetKernelWorkGroupInfo)(kernel, fake_device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                         sizeof required, required, NULL);
    CL(kernel, clReleaseKernel)(kernel);
    *to->at++ = required[0] ? 0x87 : 0x86;
    put_text(to, ".name");
    put_text(to, f->name);
    put_number(to, ".kernarg_segment_size", (uint32_t)(end / 8 * 8 + 24));
    put_number(to, ".group_segment_fixed_size", 0);
    put_number(to, ".max_flat_workgroup_size", MOST_THREADS);
    put_number(to, ".wavefront_size", 64);
    put_list(to, ".args", f->count + DIMENSIONS);
    for (uint32_t i = 0; i < f->count; i++)
        put_parameter(to, f->offsets[i], f->sizes[i],
                      f->kinds[i] == VALUE   ? "by_value"
                      : f->kinds[i] == LOCAL ? "dynamic_shared_pointer"
                                             : "global_buffer");
    for (int d = 0; d < DIMENSIONS; d++)
        put_parameter(to, end / 8 * 8 + 8 * (size_t)d, 8, hidden[d]);
    if (!required[0])
        return;
    put_list(to, ".reqd_workgroup_size", DIMENSIONS);
    for (int d = 0; d < DIMENSIONS; d++)
        *to->at++ = 0xCE, *to->at++ = 0, *to->at++ = 0,
        *to->at++ = (unsigned char)(required[d] >> 8), *to->at++ = (unsigned char)required[d];
}

static void put_program(pack *to, CUmodule module, const char *target) {
    uint32_t count = 0;
    to->at = to->bytes;
    *to->at++ = 0x82;
    cuModuleGetFunctionCount(&count, module);
    CUfunction *functions = calloc(count + 1, sizeof *functions);
    cuModuleEnumerateFunctions(functions, count, module);
    put_list(to, "amdhsa.kernels", count);
    for (uint32_t i = 0; i < count; i++)
        put_kernel(to, functions[i]);
    put_text(to, "amdhsa.target");
    put_text(to, target);
    free(functions);
}

/* --- steps --- */

static void add(set *to, int kind, const char *bytes, size_t size) {
    handle made, in = {(uintptr_t)to};
    amd_comgr_create_data(kind, &made);
    amd_comgr_set_data(made, size, bytes);
    amd_comgr_data_set_add(in, made);
    amd_comgr_release_data(made);
}

/* Compiles a text. PoCL's messages become the log. */
static CUmodule load(const char *text, char *log, size_t room) {
    CUmodule module = NULL;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)room};
    return cuModuleLoadDataEx(&module, text, 2, options, values) ? NULL : module;
}

static int compile(const action *how, const data *source, set *out) {
    static __thread char log[1 << 14];
    size_t size = strlen(how->defines) + source->size;
    char *text = calloc(1, size + 1);
    log[0] = 0;
    sprintf(text, "%s", how->defines);
    memcpy(text + strlen(text), source->bytes, source->size);
    bool fine = fake_compiles(text, log, sizeof log);
    if (fine)
        add(out, CODE, text, size);
    add(out, LOG, log, strlen(log));
    free(text);
    return fine ? FINE : FAILED;
}

static int link_code(const action *how, const data *text, set *out) {
    static __thread pack metadata;
    CUmodule module = load(text->bytes, (char[256]){0}, 256);
    if (!module)
        return FAILED;
    put_program(&metadata, module, how->target);
    cuModuleUnload(module);
    size_t length = (size_t)(metadata.at - metadata.bytes), whole = (length + 3) / 4 * 4;
    struct __attribute__((packed)) {
        Elf64_Ehdr head;
        Elf64_Phdr segment;
        Elf64_Nhdr note;
        char owner[8];
    } start = {
        {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, 64},
         .e_type = ET_DYN,
         .e_machine = EM_AMDGPU,
         .e_version = EV_CURRENT,
         .e_phoff = sizeof(Elf64_Ehdr),
         .e_ehsize = sizeof(Elf64_Ehdr),
         .e_phentsize = sizeof(Elf64_Phdr),
         .e_phnum = 1},
        {.p_type = PT_NOTE,
         .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr),
         .p_filesz = sizeof(Elf64_Nhdr) + 8 + whole,
         .p_align = 4},
        {7, (Elf64_Word)length, 32},
        "AMDGPU"};
    char *made = calloc(1, sizeof start + whole + text->size);
    memcpy(made, &start, sizeof start);
    memcpy(made + sizeof start, metadata.bytes, length);
    memcpy(made + sizeof start + whole, text->bytes, text->size);
    add(out, EXECUTABLE, made, sizeof start + whole + text->size);
    free(made);
    return FINE;
}

/* Bitcode is text here. Several pieces become one. */
static int link_text(const set *in, set *out) {
    char *text = calloc(1, 1), log[1 << 12] = "";
    for (size_t i = 0; find(in, CODE, i); i++) {
        text = realloc(text, strlen(text) + find(in, CODE, i)->size + 2);
        strcat(strcat(text, find(in, CODE, i)->bytes), "\n");
    }
    CUmodule module = load(text, log, sizeof log);
    add(out, module ? CODE : LOG, module ? text : log, strlen(module ? text : log));
    if (module)
        cuModuleUnload(module);
    free(text);
    return module ? FINE : FAILED;
}

int amd_comgr_do_action(int step, handle how, handle in, handle out) {
    static const int given[] = {[HEADERS] = SOURCE, [COMPILE] = SOURCE, [DEVICE_LIBRARIES] = CODE,
                                [LINK_CODE] = CODE, [GENERATE] = CODE,  [LINK] = RELOCATABLE};
    data *one = step <= LINK && given[step] ? find(OBJECT(set, in), given[step], 0) : NULL;
    if (!one)
        return INVALID;
    if (step == COMPILE)
        return compile(OBJECT(action, how), one, OBJECT(set, out));
    if (step == LINK_CODE)
        return link_text(OBJECT(set, in), OBJECT(set, out));
    if (step == DEVICE_LIBRARIES) {
        for (size_t i = 0; (one = find(OBJECT(set, in), CODE, i)); i++)
            add(OBJECT(set, out), CODE, one->bytes, one->size);
        return FINE;
    }
    if (step == LINK)
        return link_code(OBJECT(action, how), one, OBJECT(set, out));
    add(OBJECT(set, out), step == GENERATE ? RELOCATABLE : given[step], one->bytes, one->size);
    return FINE;
}
