/* What the files of libze_loader.so.1 share. A *slot* is an index into the functions of loader/ze/ze.abi; a table is an array of FL_SLOTS
 * pointers. The exported functions jump to the entries of `fl_current`, so that nothing is in a call's way once the drivers are open. */
#ifndef FL_ZE_LOADER_H
#define FL_ZE_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ze_abi.h"

#define FL_EXPORT __attribute__((visibility("default")))

/* --- generated: thunks_libze.c --- */
extern void *fl_current[FL_SLOTS];             /* what the exported functions jump to */
extern void *const fl_start[FL_SLOTS];         /* before the first init: UNINITIALIZED, and the functions of entries.c */
extern void *const fl_unsupported[FL_SLOTS];   /* answer UNSUPPORTED_FEATURE, each in its function's own form */
extern void *const fl_several[FL_SLOTS];       /* look up which driver made the first handle, and call that one */
extern void *const fl_valid[FL_SLOTS];         /* check the arguments, and jump to `fl_bottom` */
extern void *fl_bottom[FL_SLOTS];              /* what is behind the checks: the only driver, or fl_several */
extern const char *const fl_getter_names[];    /* of the tables of the core API, in their order */
extern const uint16_t fl_first_slots[];        /* where each of these tables begins, and FL_SLOTS at the end */
extern const uint8_t fl_since[FL_SLOTS];       /* the minor version that has the slot */

/* --- drivers.c --- */
typedef struct fl_driver {
    void *table[FL_SLOTS]; /* no entry is NULL */
    void *library;
    uintptr_t start, end; /* where its file is mapped */
    bool ready;           /* it was initialized */
    char name[256];
} fl_driver;

enum { FL_MOST_DRIVERS = 16 };
extern fl_driver *fl_drivers[FL_MOST_DRIVERS];
extern unsigned fl_driver_count;

void fl_open_drivers(void);
void fl_keep_ready_drivers(void); /* and let `fl_current` lead to them */
bool fl_has(const fl_driver *driver, unsigned slot);
void fl_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line on stderr, if ZE_ENABLE_LOADER_DEBUG_TRACE is 1 */

/* --- handles.c: which driver made a handle. Asked only if there are several drivers. --- */
void fl_learn(fl_driver *driver, const void *handle);
void fl_forget(const void *handle);
fl_driver *fl_driver_of(const void *handle); /* NULL if no driver did */
void fl_free_handles(void);                   /* in a forked child, where another thread may have had the lock */

/* --- entries.c --- */
/* The exported getters: fill a client's table of a version, or ask the only driver for one that is not described here. */
ze_result_t fl_give(uint32_t version, void **table, unsigned first, unsigned count);
ze_result_t fl_pass_on(const char *getter, uint32_t version, void *table);
ze_result_t fl_init(ze_init_flags_t flags);
ze_result_t fl_driver_get(uint32_t *count, ze_driver_handle_t *drivers);
ze_result_t fl_init_drivers(uint32_t *count, ze_driver_handle_t *drivers, ze_init_driver_type_desc_t *desc);

#endif
