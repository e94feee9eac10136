/* A fake OpenCL driver with knobs: one platform list, one device each, contexts and queues, and
 * every way to break the ICD protocol. A knob is a macro given to the compiler (-DSET_ERROR=-6);
 * conftest.py's fixture `fake_driver` builds the variants. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver.h"

/* How well it speaks the protocol. */
#ifndef ICD
#define ICD 1 /* 1 or 2 */
#endif
#ifndef TAG_IN_SLOT_0
#define TAG_IN_SLOT_0 (ICD == 2)
#endif
#ifndef TAG_IN_SLOT_31
#define TAG_IN_SLOT_31 (ICD == 2)
#endif
#ifndef HAS_GET_FUNCTION
#define HAS_GET_FUNCTION (ICD == 2)
#endif
#ifndef HAS_SET_DATA
#define HAS_SET_DATA (ICD == 2)
#endif
#ifndef SET_ERROR
#define SET_ERROR 0
#endif
#ifndef SET_STORES
#define SET_STORES 1
#endif
#ifndef SET_CHECKS
#define SET_CHECKS                                                                                 \
    1 /* whether it takes complete tables only; Khronos' loader has NULL for Direct3D */
#endif
#ifndef EXPORTS
#define EXPORTS 2 /* 2: clGetExtensionFunctionAddress, 1: only clIcdGetPlatformIDsKHR, 0: nothing */
#endif
#ifndef IS_LOADER
#define IS_LOADER 0 /* answer to clGetICDLoaderInfoOCLICD, as libOpenCL.so.1 does */
#endif

/* Its platforms. COUNT is what it says, PLATFORMS what it has; what is broken is broken in platform
 * 0. */
#ifndef PLATFORMS
#define PLATFORMS 1
#endif
#ifndef COUNT
#define COUNT PLATFORMS
#endif
#ifndef COUNT_ERROR
#define COUNT_ERROR 0
#endif
#ifndef FETCH_ERROR
#define FETCH_ERROR 0
#endif
#ifndef HANDLE
#define HANDLE &platforms[0]
#endif
#ifndef TABLE
#define TABLE table
#endif
#ifndef NAME
#define NAME "Fake"
#endif
#ifndef NUMBERED
#define NUMBERED 1 /* whether the platform's number follows its name */
#endif
#ifndef VENDOR
#define VENDOR "fairlead's tests"
#endif
#ifndef VERSION
#define VERSION "OpenCL 3.0 fake"
#endif
#ifndef EXTENSIONS
#define EXTENSIONS "cl_khr_icd cl_khr_icd_unloadable"
#endif
#ifndef EXTENSIONS_ERROR
#define EXTENSIONS_ERROR 0
#endif
#ifndef NAME_ERROR
#define NAME_ERROR 0
#endif
#ifndef VENDOR_ERROR
#define VENDOR_ERROR 0
#endif
#ifndef SUFFIX_ERROR
#define SUFFIX_ERROR 0
#endif
#ifndef SUFFIX_SIZE
#define SUFFIX_SIZE 5 /* sizeof "FAKE" */
#endif
#ifndef UNLOADABLE
#define UNLOADABLE 0
#endif

/* Its dispatch table: the slots that it has before memory ends, one that is NULL and one that leads
 * nowhere. */
#ifndef SLOTS
#define SLOTS FL_SLOTS
#endif
#ifndef NULL_SLOT
#define NULL_SLOT -1
#endif
#ifndef WILD_SLOT
#define WILD_SLOT -1
#endif
#ifndef AT_TABLE
#define AT_TABLE /* a statement that changes the table */
#endif

/* Its devices. */
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef DEVICE_TYPE
#define DEVICE_TYPE CL_DEVICE_TYPE_ACCELERATOR
#endif
#ifndef DEVICE_COUNT
#define DEVICE_COUNT DEVICES /* what it says */
#endif
#ifndef NULL_DEVICE
#define NULL_DEVICE -1 /* the device whose handle is NULL */
#endif
#ifndef FAULTY_DEVICE
#define FAULTY_DEVICE 0 /* the device of each platform at whose queries AT_QUERY runs */
#endif
#ifndef AT_QUERY
#define AT_QUERY /* a statement, such as return CL_OUT_OF_RESOURCES */
#endif
#ifndef DEVICE_NAME
#define DEVICE_NAME "Fake device"
#endif
#ifndef DEVICE_EXTENSION
#define DEVICE_EXTENSION "cl_khr_fake"
#endif
#ifndef EXTENSION_VERSION
#define EXTENSION_VERSION version
#endif
#ifndef CONTEXT_ERROR
#define CONTEXT_ERROR 0
#endif

/* The first two words of the objects that it makes. */
#ifndef OBJECT_TABLE
#define OBJECT_TABLE parent->dispatch
#endif
#ifndef OBJECT_DATA
#define OBJECT_DATA parent->dispatch_data
#endif

/* What it does to the process. */
#ifndef AT_LOAD
#define AT_LOAD /* a statement, such as abort() */
#endif
#ifndef AT_LIST
#define AT_LIST
#endif
#ifndef AT_DEVICES
#define AT_DEVICES /* a statement when devices are listed */
#endif
#ifndef AT_EXIT
#define AT_EXIT
#endif

#define TAG ((void *)(intptr_t)0x4F50454E434C3331)
#define NOWHERE ((void *)0x123456789000)
#define EXPORTED __attribute__((visibility("default")))
#define HIDDEN static __attribute__((unused))
#define ENTRY_LINKAGE_2 EXPORTED
#define ENTRY_LINKAGE_1 HIDDEN
#define ENTRY_LINKAGE_0 HIDDEN
#define LIST_LINKAGE_2 HIDDEN
#define LIST_LINKAGE_1 EXPORTED
#define LIST_LINKAGE_0 HIDDEN
#define JOIN(a, b) a##b
#define LINKAGE(what, exports) JOIN(what##_LINKAGE_, exports)

HIDDEN void hang(void) {
    for (;;)
        pause();
}

HIDDEN void crash(void) {
    *(volatile int *)NOWHERE = 1;
}

static void **table;
static fl_object platforms[PLATFORMS + 1], devices[PLATFORMS + 1][DEVICES + 1];

cl_int give(const void *value, size_t size, size_t room, void *into, size_t *size_ret) {
    if (size_ret)
        *size_ret = size;
    if (into) {
        if (room < size)
            return CL_INVALID_VALUE;
        memcpy(into, value, size);
    }
    return CL_SUCCESS;
}

cl_int give_text(const char *value, size_t room, void *into, size_t *size_ret) {
    return give(value, strlen(value) + 1, room, into, size_ret);
}

static cl_int get_platform_info(cl_platform_id platform, cl_platform_info name, size_t room,
                                void *into, size_t *size) {
    cl_bool unloadable = UNLOADABLE;
    char numbered[64];
    if (!platform)
        return CL_INVALID_PLATFORM;
    snprintf(numbered, sizeof numbered, NUMBERED ? "%s %d" : "%s%.0d", NAME,
             (int)(platform - platforms));
    switch (name) {
    case CL_PLATFORM_NAME:
        return NAME_ERROR ? NAME_ERROR : give_text(numbered, room, into, size);
    case CL_PLATFORM_VENDOR:
        return VENDOR_ERROR ? VENDOR_ERROR : give_text(VENDOR, room, into, size);
    case CL_PLATFORM_VERSION: return give_text(VERSION, room, into, size);
    case CL_PLATFORM_PROFILE: return give_text("FULL_PROFILE", room, into, size);
    case CL_PLATFORM_EXTENSIONS:
        return EXTENSIONS_ERROR ? EXTENSIONS_ERROR : give_text(EXTENSIONS, room, into, size);
    case CL_PLATFORM_ICD_SUFFIX_KHR:
        return SUFFIX_ERROR ? SUFFIX_ERROR : give("FAKE", SUFFIX_SIZE, room, into, size);
    case CL_PLATFORM_UNLOADABLE_KHR: return give(&unloadable, sizeof unloadable, room, into, size);
    default: return CL_INVALID_VALUE;
    }
}

static cl_int get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint room,
                             cl_device_id *into, cl_uint *count) {
    (void)type;
    AT_DEVICES;
    if (!DEVICES)
        return CL_DEVICE_NOT_FOUND;
    if (count)
        *count = DEVICE_COUNT;
    for (int i = 0; into && i < (int)room && i < DEVICES; i++)
        into[i] = i == NULL_DEVICE ? NULL : &devices[platform - platforms][i];
    return CL_SUCCESS;
}

static cl_int get_device_info(cl_device_id device, cl_device_info name, size_t room, void *into,
                              size_t *size) {
    cl_bool yes = 1;
    cl_uint units = 7, align = 128, version = (3u << 22) | (1u << 12) | 4u;
    cl_device_type type = DEVICE_TYPE;
    cl_ulong memory = (cl_ulong)3 << 30;
    size_t sizes[3] = {64, 32, 16};
    struct { cl_uint version; char name[64]; } extension = {EXTENSION_VERSION, DEVICE_EXTENSION};
    cl_device_id whole = NULL;
    cl_platform_id platform = &platforms[(device - devices[0]) / (DEVICES + 1)];
    size_t group = 64;
    cl_ulong svm = CL_DEVICE_SVM_COARSE_GRAIN_BUFFER | CL_DEVICE_SVM_FINE_GRAIN_BUFFER;
    /* on out-of-order queues */
    cl_ulong queues = CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE,
             recorded = CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR | 1 << 3;
    if (!device)
        return CL_INVALID_DEVICE;
    if ((device - devices[0]) % (DEVICES + 1) == FAULTY_DEVICE) {
        AT_QUERY;
    }
    switch (name) {
    case CL_DEVICE_NAME: return give_text(DEVICE_NAME, room, into, size);
    case CL_DEVICE_VENDOR: return give_text("fairlead's tests", room, into, size);
    case CL_DEVICE_VERSION: return give_text("OpenCL 3.0 fake", room, into, size);
    case CL_DRIVER_VERSION: return give_text("1.2.3", room, into, size);
    case CL_DEVICE_EXTENSIONS: return give_text(DEVICE_EXTENSION " cl_khr_other", room, into, size);
    case CL_DEVICE_PLATFORM: return give(&platform, sizeof platform, room, into, size);
    case CL_DEVICE_PARENT_DEVICE: return give(&whole, sizeof whole, room, into, size);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE: return give(&group, sizeof group, room, into, size);
    case CL_DEVICE_IL_VERSION: return give_text("", room, into, size);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE: return give(&memory, sizeof memory, room, into, size);
    case CL_DEVICE_MEM_BASE_ADDR_ALIGN: return give(&align, sizeof align, room, into, size);
    case CL_DEVICE_MIN_DATA_TYPE_ALIGN_SIZE: return give(&align, sizeof align, room, into, size);
    case CL_DEVICE_SVM_CAPABILITIES: return give(&svm, sizeof svm, room, into, size);
    case CL_DEVICE_QUEUE_ON_HOST_PROPERTIES: return give(&queues, sizeof queues, room, into, size);
    case CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR:
        return give(&recorded, sizeof recorded, room, into, size);
    case CL_DEVICE_TYPE: return give(&type, sizeof type, room, into, size);
    case CL_DEVICE_AVAILABLE: return give(&yes, sizeof yes, room, into, size);
    case CL_DEVICE_MAX_COMPUTE_UNITS: return give(&units, sizeof units, room, into, size);
    case CL_DEVICE_NUMERIC_VERSION: return give(&version, sizeof version, room, into, size);
    case CL_DEVICE_GLOBAL_MEM_SIZE: return give(&memory, sizeof memory, room, into, size);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES: return give(sizes, sizeof sizes, room, into, size);
    case CL_DEVICE_EXTENSIONS_WITH_VERSION:
        return give(&extension, sizeof extension, room, into, size);
    case CL_DEVICE_UUID: return give("0123456789abcdef", 16, room, into, size);
    default: return CL_INVALID_VALUE;
    }
}

void say(const char *format, ...) {
    const char *path = getenv("FAKE_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    va_list arguments;
    if (!file)
        return;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

void *make(const fl_object *parent, thing *context) {
    thing *made = calloc(1, sizeof *made);
    made->head.dispatch = OBJECT_TABLE;
    made->head.dispatch_data = OBJECT_DATA;
    made->references = 1;
    made->context = context;
    return made;
}

static cl_context create_context(const cl_context_properties *properties, cl_uint count,
                                 const cl_device_id *on, void *notify, void *user_data,
                                 cl_int *errcode_ret) {
    thing *made;
    (void)properties, (void)count, (void)notify, (void)user_data;
    if (errcode_ret)
        *errcode_ret = CONTEXT_ERROR;
    if (CONTEXT_ERROR)
        return NULL;
    made = make(on[0], NULL);
    made->context = made;
    made->device = on[0];
    return &made->head;
}

static cl_int finish(cl_command_queue queue) {
    say("clFinish");
    return queue ? CL_SUCCESS : CL_INVALID_COMMAND_QUEUE;
}

static int vendor_function(void) {
    return 4242;
}

static void *extension_function(cl_platform_id platform, const char *name) {
    return !platform                                 ? NULL
           : strcmp(name, "clFakeFunctionFAKE") == 0 ? (void *)vendor_function
                                                     : command_extension(name);
}

static const entry entries[] = {
    {"clGetPlatformInfo", SLOT_clGetPlatformInfo, (void *)get_platform_info},
    {"clGetDeviceIDs", SLOT_clGetDeviceIDs, (void *)get_device_ids},
    {"clGetDeviceInfo", SLOT_clGetDeviceInfo, (void *)get_device_info},
    {"clCreateContext", SLOT_clCreateContext, (void *)create_context},
    {"clReleaseContext", SLOT_clReleaseContext, (void *)release},
    {"clFinish", SLOT_clFinish, (void *)finish},
    {"clGetExtensionFunctionAddressForPlatform", SLOT_clGetExtensionFunctionAddressForPlatform,
     (void *)extension_function},
    {NULL, 0, NULL},
};

/* The ICD protocol. */

LINKAGE(LIST, EXPORTS)
cl_int clIcdGetPlatformIDsKHR(cl_uint room, cl_platform_id *into, cl_uint *count) {
    AT_LIST;
    if (count)
        *count = COUNT;
    if (!into)
        return COUNT_ERROR;
    for (int i = 0; i < (int)room && i < PLATFORMS; i++)
        into[i] = i ? &platforms[i] : HANDLE;
    return FETCH_ERROR;
}

static void *find_function(const entry *first, const char *name) {
    for (; first->name; first++)
        if (first->slot != NULL_SLOT && strcmp(first->name, name) == 0)
            return first->function;
    return NULL;
}

static void *get_function(cl_platform_id platform, const char *name) {
    void *own = platform ? find_function(entries, name) : NULL;
    return own || !platform ? own : find_function(command_entries, name);
}

/* Takes only a table that is complete already: the driver may call through it from now on. */
static cl_int set_data(cl_platform_id platform, void *dispatch_data) {
    void **theirs = dispatch_data;
    for (int slot = 0; SET_CHECKS && slot < FL_SLOTS; slot++)
        if (!theirs[slot] || theirs[slot] == TAG)
            return CL_INVALID_VALUE;
    if (SET_STORES)
        platform->dispatch_data = dispatch_data;
    for (int i = 0; i < DEVICES; i++)
        devices[platform - platforms][i].dispatch_data = platform->dispatch_data;
    return SET_ERROR;
}

LINKAGE(ENTRY, EXPORTS) void *clGetExtensionFunctionAddress(const char *name) {
    if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0)
        return (void *)clIcdGetPlatformIDsKHR;
    if (HAS_GET_FUNCTION && strcmp(name, "clIcdGetFunctionAddressForPlatformKHR") == 0)
        return (void *)get_function;
    if (HAS_SET_DATA && strcmp(name, "clIcdSetPlatformDispatchDataKHR") == 0)
        return (void *)set_data;
    if (IS_LOADER && strcmp(name, "clGetICDLoaderInfoOCLICD") == 0)
        return (void *)get_platform_info;
    if (strcmp(name, "clGetPlatformInfo") == 0) /* ocl-icd asks here, and not in the table */
        return (void *)get_platform_info;
    if (strcmp(name, "clOfTheLibraryFAKE") == 0) /* unknown to the function of a platform */
        return (void *)vendor_function;
    return extension_function(platforms, name);
}

static void fill(const entry *first) {
    for (; first->name; first++)
        if (first->slot < SLOTS && first->slot != NULL_SLOT)
            table[first->slot] = first->slot == WILD_SLOT ? NOWHERE : first->function;
}

/* The table ends where a page that nobody may read begins, so that whoever reads past it crashes.
 */
static void make_table(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages + page, page, PROT_NONE);
    table = (void **)(pages + page) - SLOTS;
    fill(entries);
    fill(command_entries);
    if (TAG_IN_SLOT_0)
        table[SLOT_clGetPlatformIDs] = TAG;
    if (TAG_IN_SLOT_31)
        table[SLOT_clUnloadCompiler] = TAG;
    AT_TABLE;
}

__attribute__((constructor)) static void load(void) {
    AT_LOAD;
    make_table();
    for (int i = 0; i < PLATFORMS; i++) {
        platforms[i].dispatch = i ? table : TABLE;
        for (int j = 0; j < DEVICES; j++)
            devices[i][j].dispatch = table;
    }
}

__attribute__((destructor)) static void unload(void) {
    AT_EXIT;
}
