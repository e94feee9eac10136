/* What the files of libze_loader.so.1 share. A *slot* is an index into the functions of
 * loader/ze/ze.abi; a table is an array of FL_SLOTS pointers. The exported functions jump to the
 * entries of `fl_current`, so that nothing is in a call's way once the drivers are open. */
#ifndef FL_ZE_LOADER_H
#define FL_ZE_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "locks.h"
#include "ze_abi.h"

#define FL_EXPORT __attribute__((visibility("default")))

/* --- generated: thunks_libze.c --- */
extern void *fl_current[FL_SLOTS];             /* what the exported functions jump to */
extern void *fl_untraced[FL_SLOTS];            /* the same without the tracing layer */
extern void *const
    fl_start[FL_SLOTS]; /* before the first init: UNINITIALIZED, and the functions of entries.c */
extern void *const
    fl_unsupported[FL_SLOTS]; /* answer UNSUPPORTED_FEATURE, each in its function's own form */
extern void *const
    fl_several[FL_SLOTS]; /* look up which driver made the first handle, and call that one */
extern void *const fl_valid[FL_SLOTS];         /* check the arguments, and jump to `fl_bottom` */
extern void *const
    fl_traced[FL_SLOTS];          /* call the tracers' callbacks, and `fl_untraced` between them */
extern void *fl_bottom[FL_SLOTS]; /* what is behind the checks: the only driver, or fl_several */
extern const char *const fl_getter_names[];    /* of the tables of the core API, in their order */
extern const uint16_t
    fl_first_slots[]; /* where each of these tables begins, and FL_SLOTS at the end */
extern const uint8_t fl_since[FL_SLOTS];       /* the minor version that has the slot */
extern const uint16_t
    fl_callback_slots[FL_CALLBACKS]; /* of the callbacks in a zel_core_callbacks_t */

/* --- drivers.c --- */
typedef struct fl_driver {
    void *table[FL_SLOTS]; /* no entry is NULL */
    void *tools[FL_TOOLS]; /* NULL: it has none */
    void *library;
    uintptr_t start, end; /* where its file is mapped */
    bool ready;           /* it was initialized */
    bool has_sysman;      /* zesInit has initialized it */
    char name[256];
} fl_driver;

/* Never changed and never freed once others see it. */
enum { FL_MOST_DRIVERS = 16 };
typedef struct fl_drivers {
    unsigned count;
    fl_driver *all[FL_MOST_DRIVERS];
} fl_drivers;

const fl_drivers *fl_open_drivers(
    void); /* those that are there; NULL if there is no memory, or while they are opened */
const fl_drivers *
fl_kept_drivers(void); /* those that were ready at the first init; NULL before it */
bool fl_keep_ready_drivers(
    const fl_drivers *from); /* and let `fl_current` lead to them; false if another thread has */
void fl_show(void);                                 /* the tracing layer comes or goes */
void fl_hide_drivers(void);                         /* no call reaches a driver from now on */
bool fl_has(const fl_driver *driver, unsigned slot);
void fl_note(const char *format, ...)
    __attribute__((format(printf, 1,
                          2))); /* a line on stderr, if ZE_ENABLE_LOADER_DEBUG_TRACE is 1 */
bool fl_is_set(const char *variable);                                        /* whether it is 1 */
void fl_free_drivers(void); /* as fl_free_handles */

extern _Thread_local bool fl_busy; /* this thread opens drivers, or initializes one */

/* --- tracing.c. A slot of FL_SLOTS and above is a function of runtime.c. --- */
enum { FL_MOST_TRACERS = 32, FL_TRACED = FL_SLOTS + 4 };
typedef struct fl_traced_call {
    unsigned slot, count;
    struct fl_tracer *tracers[FL_MOST_TRACERS];
    void *own[FL_MOST_TRACERS]; /* what a tracer's prologue leaves to its epilogue */
} fl_traced_call;

bool fl_is_traced(void);
bool fl_begin_call(fl_traced_call *call, unsigned slot,
                   void *params); /* calls prologues; false if nobody traces the call */
void fl_end_call(fl_traced_call *call, void *params, uintptr_t result);
void fl_read_tracing(void); /* enables the layer once, if ZE_ENABLE_TRACING_LAYER is 1 */
ze_result_t fl_register(void *tracer, uint32_t place, unsigned slot, void *callback);
void fl_free_tracers(void); /* as fl_free_handles */

/* --- handles.c: which driver made a handle. Asked only if there are several drivers. --- */
void fl_learn(fl_driver *driver, const void *handle);
void fl_forget(const void *handle);
fl_driver *fl_driver_of(const void *handle); /* NULL if no driver did */
void fl_free_handles(void); /* in a forked child, where another thread may have had the lock */

/* --- tools.c --- */
extern const char *const fl_tool_getters[];  /* generated: of the tables of tools, in their order */
extern const uint16_t fl_first_tools[];      /* where each begins, and FL_TOOLS at the end */
void *fl_find_tool(unsigned tool,
                   uintptr_t handle); /* a driver's function, or one that says what is wrong */

/* --- entries.c --- */
typedef ze_result_t fl_list_function(fl_driver *driver, uint32_t *count, ze_driver_handle_t *into,
                                     const void *data);
/* What drivers list; UNINITIALIZED for no driver. */
ze_result_t fl_list_handles(const fl_drivers *drivers, fl_list_function *list, uint32_t *count,
                            ze_driver_handle_t *into);
/* The exported getters: fill a client's table of a version, or ask the only driver for one that is
 * not described here. */
ze_result_t fl_give(uint32_t version, void **table, unsigned first, unsigned count);
ze_result_t fl_pass_on(const char *getter, uint32_t version, void *table);
ze_result_t fl_init(ze_init_flags_t flags);
ze_result_t fl_driver_get(uint32_t *count, ze_driver_handle_t *drivers);
ze_result_t fl_init_drivers(uint32_t *count, ze_driver_handle_t *drivers,
                            ze_init_driver_type_desc_t *desc);

#endif
