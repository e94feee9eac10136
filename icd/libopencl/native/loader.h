/* What the files of libOpenCL.so.1 share. A *slot* is an index into an OpenCL dispatch table
 * (icd/opencl.abi); a table is an array of FL_SLOTS pointers. Tables that are handed out are
 * complete, never moved and never freed. */
#ifndef FL_LOADER_H
#define FL_LOADER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "locks.h"
#include "opencl_abi.h"

#define FL_TAG                                                                                     \
    ((void *)(intptr_t)0x4F50454E434C3331) /* cl_khr_icd 2.0: "OPENCL31" in slots 0 and 31 */
#define FL_EXPORT __attribute__((visibility("default")))
#define FL_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* --- generated: thunks_libopencl.c --- */
extern void *const
    fl_stubs[FL_SLOTS]; /* answer CL_INVALID_OPERATION, each in its function's own form */
extern void *const
    fl_careful[FL_SLOTS]; /* look first whether a driver's table has the slot at all */
extern void *const fl_icd1[FL_SLOTS];      /* look for no tag, and for no table of another loader */
extern const uint8_t fl_since[FL_SLOTS];   /* the OpenCL version that has the slot: 0x12 is 1.2 */
extern void *fl_bottom[FL_SLOTS];          /* call the driver */
extern void *fl_current[FL_SLOTS]; /* what the exported functions jump to: the outermost layer, else
                                      fl_bottom */
extern bool fl_direct[FL_SLOTS];   /* whether the exported function calls the driver itself */
void *fl_own_extension(
    const char *name); /* our function for an extension that has slots, NULL for any other name */

/* Whether a driver's table has the tag of ICD 2. Its upper half, an instruction less, is not part
 * of any function's address on these machines. */
static inline bool fl_is_tagged(void *const *table) {
#if defined __x86_64__ || defined __aarch64__ && defined __AARCH64EL__
    uint32_t upper;
    memcpy(&upper, (const char *)table + sizeof upper, sizeof upper);
    return upper == (uint32_t)((uintptr_t)FL_TAG >> 32);
#else
    return table[0] == FL_TAG;
#endif
}

/* The table that serves an object. An ICD 1 object may be one word long, so its second is not
 * touched. */
static inline void *const *fl_table(const fl_object *object) {
    return FL_UNLIKELY(fl_is_tagged(object->dispatch)) ? object->dispatch_data : object->dispatch;
}

/* --- start.c --- */
/* Find and open the drivers, once. False in the thread that is doing so: a driver or a layer calls
 * OpenCL while it is opened. */
bool fl_start(void);
void fl_say(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* a line on stderr */
void fl_note(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* the same if OCL_ICD_ENABLE_TRACE is set */

/* --- drivers.c --- */
typedef struct fl_platform {
    cl_platform_id handle;
    char *suffix; /* CL_PLATFORM_ICD_SUFFIX_KHR */
    void *(*extension)(
        const char *name); /* clGetExtensionFunctionAddress of its library, or NULL */
} fl_platform;

extern fl_platform *fl_platforms;
extern cl_uint fl_platform_count;
/* Open a driver, no loader by its name, and append its platforms. `siblings`: libraries that it
 * misses may lie beside it. `mode`: that of dlopen. */
void fl_open_driver(const char *library, bool siblings, int mode);
/* Name the LLVM CPU of PoCL's devices from platform `first` on, where it is "generic": see
 * icd/repairs.py. */
void fl_name_cpus(cl_uint first, unsigned triple_offset, unsigned cpu_offset, const char *cpu);
bool fl_is_named_like_a_loader(const char *library);
void fl_settle(void);    /* the drivers are open: shorten the way to them where it can be */
void fl_go_direct(void); /* and there are no layers */
bool fl_lacks_slot(void *const *table, unsigned slot);
void fl_free_repairs(void);   /* in a forked child */
void fl_forget_drivers(void); /* in a forked child whose parent was about to open them */

/* --- neighbours.c --- */
typedef cl_int fl_set_dispatch_data(cl_platform_id platform,
                                    void *data); /* clIcdSetPlatformDispatchDataKHR */
bool fl_guard_table(cl_platform_id platform, void **table, fl_set_dispatch_data *set);
bool fl_guards_tables(void);   /* there is a driver of ICD 2 */
void fl_keep_tables(void);     /* before a platform or a device is asked something */
void fl_free_neighbours(void); /* in a forked child */

/* --- manifests.c --- */
void fl_search(void); /* by the plain rules of ICDs: variables, else /etc/OpenCL/vendors */
typedef void fl_take(const char *library);
void fl_each_of_list(const char *list, fl_take *take);
/* What each manifest of a directory names, in the order of the names. False if there is no such
 * directory. */
bool fl_each_of_directory(const char *directory, const char *suffix, fl_take *take);

/* --- verdict_file.c --- */
bool fl_use_verdict(void); /* what Python found; false: there is no verdict to be had */
void fl_before_fork(void); /* a child that had the descriptors of a start would hold it up */
void fl_after_fork(bool is_child);

/* --- layers.c --- */
void fl_start_layers(void); /* and fill fl_current */
void fl_end_layers(void);

#endif
