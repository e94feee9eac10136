/* Opens drivers without trusting them, as icd/drivers.py and icd/tables.py do. */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory.h"
#include "slot_names.h"

enum {
    MOST_PLATFORMS = 1024,
    MOST_TEXT = 1 << 20,
    MOST_SIBLINGS = 64,
    TAG_SLOT = SLOT_clUnloadCompiler,
    PROOF = 3
};

fn_clGetExtensionFunctionAddress clGetExtensionFunctionAddress; /* ours */

typedef void *get_extension_function(const char *name);
typedef cl_int get_platform_ids(cl_uint room, cl_platform_id *into, cl_uint *count);
typedef void *get_function(cl_platform_id platform, const char *name);

fl_platform *fl_platforms;
cl_uint fl_platform_count;

static struct short_table {
    void *const *table;
    unsigned slots;
    struct short_table *next;
} *short_tables; /* drivers' own tables that end early */
static void **handles; /* of the open libraries */
static size_t handle_count;

static struct repair *repairs; /* that wait for the first question for devices */

void fl_forget_drivers(void) {
    fl_platforms = NULL, fl_platform_count = 0;
    handles = NULL, handle_count = 0;
    repairs = NULL;
}

bool fl_lacks_slot(void *const *table, unsigned slot) {
    for (struct short_table *one = short_tables; one; one = one->next)
        if (one->table == table)
            return slot >= one->slots;
    return false;
}

/* How many bytes can be read there, `size` at most. */
static size_t read_memory(const void *address, void *into, size_t size) {
    struct iovec ours = {into, size}, theirs = {(void *)address, size};
    ssize_t got = process_vm_readv(getpid(), &ours, 1, &theirs, 1, 0);
    if (got >= 0)
        return (size_t)got;
    size_t done = 0;
    if (errno == ENOSYS || errno == EPERM) /* a sandbox forbids it */
        for (size_t word = 0;
             done < size && (word = fl_safe_read((const char *)address + done, (char *)into + done,
                                                 sizeof(void *)));)
            done += word;
    return done;
}

/* A platform's answer, to be freed; NULL if it fails. */
static char *ask(cl_platform_id platform, cl_platform_info name) {
    fn_clGetPlatformInfo *info = (fn_clGetPlatformInfo *)fl_table(platform)[SLOT_clGetPlatformInfo];
    size_t size = 0;
    if (info(platform, name, 0, NULL, &size) || !size || size > MOST_TEXT)
        return NULL;
    char *text = calloc(size + 1, 1);
    if (text && info(platform, name, size, text, NULL)) {
        free(text);
        return NULL;
    }
    return text;
}

/* --- binding --- */

/* Return why a platform of an ICD 2 driver cannot be used, NULL if it is bound now. */
static const char *bind_2(cl_platform_id platform, get_function *function_of,
                          fl_set_dispatch_data *set) {
    static const char *const names[FL_SLOTS] = {FL_SLOT_NAMES};
    if (!function_of || !set)
        return "its table has the ICD 2 tags, but the driver lacks "
               "clIcdGetFunctionAddressForPlatformKHR or "
               "clIcdSetPlatformDispatchDataKHR";
    void **table = malloc(sizeof fl_stubs);
    if (!table)
        return "there is no memory for a dispatch table";
    for (unsigned slot = 0; slot < FL_SLOTS; slot++) {
        void *function = function_of(platform, names[slot]);
        table[slot] = function ? function : fl_stubs[slot];
    }
    if (set(platform, table))
        return "clIcdSetPlatformDispatchDataKHR failed"; /* the driver may have kept the table */
    void *words[2] = {NULL, NULL};
    if (read_memory(platform, words, sizeof words) < sizeof words || words[1] != table)
        return "it took the dispatch data but did not store it";
    return fl_guard_table(platform, table, set) ? NULL : "there is no memory for a dispatch table";
}

static unsigned slots_of(const char *version) {
    char *end = NULL;
    unsigned long major = 1, minor = 0;
    unsigned slots = 0;
    if (strncmp(version, "OpenCL ", 7) == 0)
        major = strtoul(version + 7, &end, 10),
        minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 16;
    if (major > 15 || minor > 15)
        major = 1, minor = 0;
    while (slots < FL_SLOTS && fl_since[slots] <= (major << 4 | minor))
        slots++;
    return slots;
}

/* The slots from `slots` on are not there: whoever asks for one of them looks first which table it
 * is. False: there is no memory to remember that. */
static bool be_careful(void *const *table, unsigned slots) {
    if (slots == FL_SLOTS || fl_lacks_slot(table, slots))
        return true;
    struct short_table *one = malloc(sizeof *one);
    if (!one)
        return false;
    *one = (struct short_table){table, slots, short_tables};
    short_tables = one;
    for (unsigned slot = slots; slot < FL_SLOTS; slot++)
        if (fl_careful[slot])
            fl_bottom[slot] = fl_careful[slot];
    return true;
}

/* Without a driver of ICD 2 no table has a tag. The careful forms stay, and so do those in
 * entries.c. */
void fl_settle(void) {
    for (unsigned slot = 0; slot < FL_SLOTS && !fl_guards_tables(); slot++)
        if (fl_icd1[slot] && fl_bottom[slot] != fl_careful[slot])
            fl_bottom[slot] = fl_icd1[slot];
}

/* And a slot that every driver has needs no look whether it is NULL. */
void fl_go_direct(void) {
    for (unsigned slot = 0; slot < FL_SLOTS; slot++) {
        bool all = fl_icd1[slot] && fl_bottom[slot] == fl_icd1[slot];
        for (cl_uint i = 0; all && i < fl_platform_count; i++)
            all = fl_platforms[i].handle->dispatch[slot] != NULL;
        fl_direct[slot] = all; /* nobody has a handle yet */
    }
}

/* The code around an address: that of a library. */
struct code {
    uintptr_t inside, start, end;
};

static int find_code(struct dl_phdr_info *info, size_t size, void *into) {
    struct code *code = into;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && code->inside >= start &&
            code->inside < end)
            return code->start = start, code->end = end, 1;
    }
    return 0;
}

static bool is_among(const void *word, void *const *words, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        if (words[i] == word)
            return true;
    return false;
}

/* Some drivers have functions of versions that they do not claim, and nothing says how long their
 * tables are. A further version is there if its slots are not all NULL, and the others are
 * functions of that driver, each another one. What else lies behind a table seldom looks so. */
static unsigned unclaimed_slots(void *const *words, unsigned slots, unsigned there) {
    struct code code = {(uintptr_t)words[SLOT_clGetPlatformInfo], 0, 0};
    unsigned functions = 0, whole = slots, slot = slots;
    dl_iterate_phdr(find_code, &code);
    for (; slot < there; slot++) {
        if (functions >= PROOF && fl_since[slot] != fl_since[slot - 1])
            whole = slot;
        if (!words[slot])
            continue;
        if ((uintptr_t)words[slot] < code.start || (uintptr_t)words[slot] >= code.end ||
            is_among(words[slot], words, slot))
            return whole;
        functions++;
    }
    return functions >= PROOF && slot == FL_SLOTS ? slot : whole;
}

/* `there`: how many slots of its table can be read, and are in `words`. */
static const char *bind_1(cl_platform_id platform, void *const *own, void *const *words,
                          unsigned there) {
    char *version = own[SLOT_clGetPlatformInfo] ? ask(platform, CL_PLATFORM_VERSION) : NULL;
    if (!version)
        return own[SLOT_clGetPlatformInfo] ? "it does not answer CL_PLATFORM_VERSION"
                                           : "clGetPlatformInfo is NULL in its dispatch table";
    unsigned slots =
        slots_of(version) < there ? unclaimed_slots(words, slots_of(version), there) : there;
    free(version);
    return be_careful(own, slots) ? NULL : "there is no memory for what its table lacks";
}

static const char *bind(cl_platform_id platform, get_function *function_of,
                        fl_set_dispatch_data *set) {
    void *own = NULL, *words[FL_SLOTS];
    if (!platform || read_memory(platform, &own, sizeof own) < sizeof own)
        return platform ? "its handle leads to memory that cannot be read" : "its handle is NULL";
    unsigned there = own ? (unsigned)(read_memory(own, words, sizeof words) / sizeof *words) : 0;
    if (there <= TAG_SLOT)
        return own ? "its dispatch table cannot be read" : "its dispatch table is NULL";
    if (words[0] != FL_TAG)
        return bind_1(platform, own, words, there);
    return words[TAG_SLOT] == FL_TAG ? bind_2(platform, function_of, set)
                                     : "its table has the ICD 2 tag in slot 0 but not in slot 31";
}

static bool is_known(cl_platform_id platform) {
    for (cl_uint i = 0; i < fl_platform_count; i++)
        if (fl_platforms[i].handle == platform)
            return true;
    return false;
}

/* Return why a platform cannot be used, NULL if it was appended. */
static const char *add(cl_platform_id platform, get_extension_function *extension,
                       get_function *function_of, fl_set_dispatch_data *set) {
    if (platform && is_known(platform))
        return "it was listed before";
    const char *reason = bind(platform, function_of, set);
    if (reason)
        return reason;
    const char *assumed = secure_getenv("OCL_ICD_ASSUME_ICD_EXTENSION"); /* some exit if asked */
    char *extensions = assumed && *assumed ? NULL : ask(platform, CL_PLATFORM_EXTENSIONS),
         *suffix = ask(platform, CL_PLATFORM_ICD_SUFFIX_KHR);
    bool answers = suffix && (extensions || (assumed && *assumed));
    fl_platform *more =
        answers ? realloc(fl_platforms, (fl_platform_count + 1) * sizeof *more) : NULL;
    free(extensions);
    if (!more) {
        free(suffix);
        return "it does not answer CL_PLATFORM_EXTENSIONS or CL_PLATFORM_ICD_SUFFIX_KHR";
    }
    more[fl_platform_count] = (fl_platform){platform, suffix, extension};
    fl_platforms = more, fl_platform_count++;
    return NULL;
}

/* --- libraries --- */

/* Whether a file is an OpenCL loader by its real name: libOpenCL.so.1.0.0, or
 * libOpenCL-5519dec5.so.1.0.0 in a wheel. */
bool fl_is_named_like_a_loader(const char *library) {
    char path[PATH_MAX];
    if (!strchr(library, '/') || !realpath(library, path))
        snprintf(path, sizeof path, "%s", library);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strncmp(name, "libOpenCL", 9) != 0)
        return false;
    name += 9;
    if (*name == '-' && strspn(name + 1, "0123456789abcdef"))
        name += 1 + strspn(name + 1, "0123456789abcdef");
    return strncmp(name, ".so", 3) == 0 && (!name[3] || name[3] == '.');
}

/* dlerror begins with the name of the missing library. Once that is open, its soname satisfies the
 * dependency. */
static void *open_with_siblings(const char *library, unsigned depth) {
    char sibling[PATH_MAX], folder[PATH_MAX], before[PATH_MAX] = "";
    snprintf(folder, sizeof folder, "%s", library);
    dirname(folder);
    for (unsigned tries = 0; tries < MOST_SIBLINGS; tries++) {
        void *handle = dlopen(library, RTLD_NOW);
        const char *error = handle ? NULL : dlerror(), *end = error ? strchr(error, ':') : NULL;
        if (handle || !end || depth > 8)
            return handle;
        int length =
            snprintf(sibling, sizeof sibling, "%s/%.*s", folder, (int)(end - error), error);
        if (*error == '/' || length >= (int)sizeof sibling || strcmp(sibling, before) == 0 ||
            !open_with_siblings(sibling, depth + 1))
            return NULL;
        strcpy(before, sibling);
    }
    return NULL;
}

static bool is_new(void *handle) {
    for (size_t i = 0; i < handle_count; i++)
        if (handles[i] == handle)
            return false;
    void **more = realloc(handles, (handle_count + 1) * sizeof *more);
    if (more)
        more[handle_count++] = handle, handles = more;
    return more != NULL;
}

static void *function(void *handle, get_extension_function *extension, const char *name) {
    void *found = extension ? extension(name) : NULL;
    return found ? found : dlsym(handle, name);
}

static void list(const char *library, void *handle) {
    get_extension_function *extension =
        (get_extension_function *)dlsym(handle, "clGetExtensionFunctionAddress");
    if (extension && extension("clGetICDLoaderInfoOCLICD")) {
        fl_note("%s: it is an OpenCL loader, not a driver", library);
        return;
    }
    get_platform_ids *ids =
        (get_platform_ids *)function(handle, extension, "clIcdGetPlatformIDsKHR");
    cl_uint count = 0;
    cl_int code = ids ? ids(0, NULL, &count) : CL_INVALID_OPERATION;
    if (code || !count || count > MOST_PLATFORMS) {
        fl_note("%s: it lists no platform (%s; code %d, count %u)", library,
                ids ? "clIcdGetPlatformIDsKHR" : "no clIcdGetPlatformIDsKHR", code, count);
        return;
    }
    cl_platform_id *found = calloc(count, sizeof *found);
    get_function *function_of =
        (get_function *)function(handle, extension, "clIcdGetFunctionAddressForPlatformKHR");
    fl_set_dispatch_data *set =
        (fl_set_dispatch_data *)function(handle, extension, "clIcdSetPlatformDispatchDataKHR");
    code = found ? ids(count, found, NULL) : CL_OUT_OF_HOST_MEMORY;
    if (code)
        fl_note("%s: it counts platforms and then fails to list them (code %d)", library, code);
    for (cl_uint i = 0; !code && i < count; i++) {
        const char *reason = add(found[i], extension, function_of, set);
        if (reason)
            fl_note("%s, platform %u: %s", library, i, reason);
    }
    free(found);
}

void fl_open_driver(const char *library, bool siblings, int mode) {
    void *handle = siblings ? open_with_siblings(library, 0) : NULL;
    if (!handle) /* once more after siblings, because they have used up what dlerror says */
        handle = dlopen(library, mode);
    if (!handle) {
        fl_note("%s: %s", library, dlerror());
        return;
    }
    if (dlsym(handle, "clGetExtensionFunctionAddress") == (void *)clGetExtensionFunctionAddress ||
        !is_new(handle)) {
        dlclose(handle);
        fl_note("%s: it is open already", library);
        return;
    }
    list(library, handle);
}

/* --- repairs --- */

static bool reads(const void *address, const char *start, const char *end) {
    char *text = NULL, copy[128] = "";
    if (read_memory(address, &text, sizeof text) < sizeof text || !text ||
        read_memory(text, copy, sizeof copy - 1) < strlen(start) + 1)
        return false;
    size_t length = strlen(copy), last = strlen(end);
    return strncmp(copy, start, strlen(start)) == 0 && length >= last &&
           strcmp(copy + length - last, end) == 0;
}

static void name_cpu(cl_device_id device, unsigned triple_offset, unsigned cpu_offset,
                     const char *cpu) {
    char *place = (char *)device + cpu_offset;
    if (!device || !reads(place, "generic", "generic") ||
        !reads((char *)device + triple_offset, "x86_64-", "linux-gnu"))
        return;
    char *name = strdup(cpu); /* the driver may read it until the end */
    if (name)
        memcpy(place, &name, sizeof name);
}

/* A repair waits until the program asks for devices: a driver may take long to find them. */
struct repair {
    cl_uint first, end; /* platforms */
    unsigned triple_offset, cpu_offset;
    char cpu[32];
    struct repair *next;
};
static pthread_mutex_t repair_lock =
    PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* a driver may call OpenCL */
static fn_clGetDeviceIDs *next_device_ids;
static fn_clCreateContextFromType *next_context_from_type;

static void do_repair(const struct repair *repair) {
    for (cl_uint i = repair->first; i < repair->end && i < fl_platform_count; i++) {
        cl_platform_id platform = fl_platforms[i].handle;
        fn_clGetDeviceIDs *get = (fn_clGetDeviceIDs *)fl_table(platform)[SLOT_clGetDeviceIDs];
        cl_device_id devices[64] = {NULL};
        cl_uint count = 0;
        if (get && !get(platform, (cl_device_type)0xFFFFFFFF, 64, devices, &count))
            for (cl_uint j = 0; j < count && j < 64; j++)
                name_cpu(devices[j], repair->triple_offset, repair->cpu_offset, repair->cpu);
    }
}

static void do_repairs(void) {
    if (!__atomic_load_n(&repairs, __ATOMIC_ACQUIRE))
        return;
    FL_HOLD(repair_lock);
    for (struct repair *one = repairs; one; one = one->next)
        do_repair(one);
    __atomic_store_n(&repairs, NULL, __ATOMIC_RELEASE);
}

void fl_free_repairs(void) {
    repair_lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
}

static cl_int repaired_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room,
                                  cl_device_id *into, cl_uint *count) {
    do_repairs();
    return next_device_ids(platform, type, room, into, count);
}

static cl_context repaired_context_from_type(const cl_context_properties *properties,
                                             cl_device_type type, void *notify, void *data,
                                             cl_int *errcode_ret) {
    do_repairs();
    return next_context_from_type(properties, type, notify, data, errcode_ret);
}

void fl_name_cpus(cl_uint first, unsigned triple_offset, unsigned cpu_offset, const char *cpu) {
    struct repair *repair = calloc(1, sizeof *repair);
    if (!repair)
        return;
    *repair = (struct repair){first, fl_platform_count, triple_offset, cpu_offset, "", repairs};
    snprintf(repair->cpu, sizeof repair->cpu, "%s", cpu);
    if (!next_device_ids) {
        next_device_ids = (fn_clGetDeviceIDs *)fl_bottom[SLOT_clGetDeviceIDs];
        next_context_from_type =
            (fn_clCreateContextFromType *)fl_bottom[SLOT_clCreateContextFromType];
        fl_bottom[SLOT_clGetDeviceIDs] = (void *)repaired_device_ids;
        fl_bottom[SLOT_clCreateContextFromType] = (void *)repaired_context_from_type;
    }
    repairs = repair;
}
