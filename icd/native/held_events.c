/* Events that are held until they have ended: some drivers use the event of a failing command after
 * its last reference is gone.
 *
 * What ends an event may still be at work with it when its status is there. So an event is let go
 * when it is found to have ended twice. */
#include "native.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

_Thread_local bool fl_holds_events;

static struct {
    pthread_mutex_t lock;
    struct held {
        cl_event event;
        bool ended;
    } *list;
    uint32_t count, room;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(held.lock)

/* Of who asks and of the callback: the last of them frees it. */
typedef struct {
    atomic_int status, holders;
} told;

static void let_go(told *t) {
    if (atomic_fetch_sub(&t->holders, 1) == 1)
        free(t);
}

static void tell(cl_event event, cl_int status, void *t) {
    (void)event;
    atomic_store(&((told *)t)->status, status);
    let_go(t);
}

/* The status with which a driver calls back, at once, for a command that has ended. A wait would
 * tell it, too, but Intel's does not return while a callback of the same event runs: one in that
 * callback never does. */
static cl_int told_status(void **table, cl_event event) {
    told *t = malloc(sizeof *t);
    if (!t)
        return CL_OUT_OF_HOST_MEMORY;
    atomic_init(&t->status, CL_COMPLETE);
    atomic_init(&t->holders, 2);
    if (CALL(table, clSetEventCallback)(event, CL_COMPLETE, (void *)tell, t) != CL_SUCCESS)
        let_go(t);   /* there is no callback */
    cl_int status = atomic_load(&t->status);
    let_go(t);
    return status;
}

/* The tables of drivers whose callbacks tell of failures that the status hides. */
enum { MOST_TABLES = 8 };
static void *_Atomic asked[MOST_TABLES];

void fl_ask_callbacks(void **table) {
    for (unsigned i = 0; i < MOST_TABLES; i++) {
        void *none = NULL;
        if (atomic_compare_exchange_strong(&asked[i], &none, table) || none == table)
            return;
    }
}

static bool is_asked(void **table) {
    void *one;
    for (unsigned i = 0; i < MOST_TABLES && (one = atomic_load(&asked[i])); i++)
        if (one == table)
            return true;
    return false;
}

int32_t fl_status_of(void *event) {
    void **table = fl_table_of(event);
    cl_int status = CL_COMPLETE;
    cl_int code = CALL(table, clGetEventInfo)(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                              sizeof status, &status, NULL);
    if (code != CL_SUCCESS)
        return code;
    return status == CL_COMPLETE && is_asked(table) ? told_status(table, event) : status;
}

bool fl_has_ended(void *event) { return fl_status_of(event) <= CL_COMPLETE; }

bool fl_has_failed(void *event) { return fl_status_of(event) < CL_COMPLETE; }

/* Those that ended before the last look are put behind the others, and the answer is how many these
 * are. */
static uint32_t sort(void) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < held.count; i++) {
        struct held one = held.list[i];
        if (one.ended)
            continue;
        one.ended = fl_has_ended(one.event);
        held.list[i] = held.list[kept];
        held.list[kept++] = one;
    }
    return kept;
}

/* Without memory the event is never let go. */
void fl_hold_event(void *event) {
    struct held *gone = NULL;
    uint32_t gone_count = 0;
    pthread_mutex_lock(&held.lock);
    if (held.count == held.room) {
        uint32_t kept = sort(), room = held.room ? held.room * 2 : 64;
        gone = malloc((held.count - kept + 1) * sizeof *gone);
        for (uint32_t i = kept; gone && i < held.count; i++)
            gone[gone_count++] = held.list[i];
        if (gone)
            held.count = kept;
        struct held *larger = held.count * 2 > held.room || !held.room
                                  ? realloc(held.list, room * sizeof *larger)
                                  : NULL;
        if (larger) {
            held.list = larger;
            held.room = room;
        }
    }
    if (held.count < held.room)
        held.list[held.count++] = (struct held){event, false};
    pthread_mutex_unlock(&held.lock);
    for (uint32_t i = 0; i < gone_count;
         i++) /* without the lock: a driver may call the program back */
        CALL(fl_table_of(gone[i].event), clReleaseEvent)(gone[i].event);
    free(gone);
}

void fl_drop_event(void *event) {
    if (fl_holds_events)
        fl_hold_event(event);
    else
        CALL(fl_table_of(event), clReleaseEvent)(event);
}
