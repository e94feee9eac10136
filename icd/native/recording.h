/* What the files of a recording share: its structure, and the steps from a call on a captured queue
 * to a command.
 *
 * recording.c begins and ends a block and owns the tables. record.c has the functions that a
 * recording table leads to. order.c works out what a command comes after. events.c
 * sees waits for events that were handed out in the block. */
#ifndef FL_RECORDING_H
#define FL_RECORDING_H

#include "native.h"

#include <pthread.h>
#include <stdatomic.h>

#define MOST_QUEUES 64
#define NONE UINT32_MAX

/* An event that was handed out for a command: a real user event, complete from the start, that we
 * know as a sync-point. */
typedef struct sync_point {
    cl_event event;
    uint32_t node;
} sync_point;

typedef struct queue_state {
    cl_command_queue queue;
    void **original;            /* word 0 as it was */
    void **table;               /* the driver's table for calls of our own */
    struct recording_table *recording_table;
    bool in_order;
    uint32_t *open, open_count, open_capacity; /* what a later barrier or marker has to wait for */
    uint32_t barrier; /* the last barrier of an out-of-order queue, the last command of an in-order
                         one; NONE */
    uint32_t host_waits_seen; /* how many of the recording's host waits this queue's commands
                                 already come after */
} queue_state;

struct fl_recording {
    pthread_t thread;
    atomic_int active;   /* whether; GCC 12 exchanges no byte on riscv64 without libatomic */
    queue_state queues[MOST_QUEUES];
    uint32_t queue_count;
    cl_context context;
    void **table;
    void **watched[2]; /* the driver's own table, and with ICD 2 also the one that a loader gave it:
                          a client may use either */
    int watched_count;
    int allow_unseen;
    fl_observer *observer;
    void *cookie;
    int (*holds_gil)(void);
    bool watches_svm;

    fl_command *commands;
    uint32_t command_count, command_capacity;
    uint32_t *deps, dep_count, dep_capacity;
    uint32_t *host_waits, host_wait_count,
        host_wait_capacity;      /* nodes that the host waited for: later commands follow them */
    sync_point *points;          /* open addressing by event, while the block lasts */
    uint32_t point_count, point_capacity;
    bool has_points, counts_references;
    void **pending;              /* events from before the block that had not completed */
    uint32_t pending_count, pending_capacity;
    fl_keep keep;
    uint32_t told;               /* how much of `keep` the observer was told of */
    uint64_t heard;              /* the number of the last fl_tell_memory that it heard of */
    fl_pins pins;
    struct fl_recording *next;   /* the list of active recordings */
};

/* A copy of a driver's table in which the queue's commands lead to record.c. */
typedef struct recording_table {
    void *slots[FL_SLOTS];
    _Atomic(void **) original;
    _Atomic(fl_recording *) recording;   /* NULL: the block has ended */
    atomic_uint visitors;                /* threads that are looking at `recording` now */
    uint32_t queue;
    bool used;
} recording_table;

/* Who a call belongs to. recording == NULL: the block ended while the call was on its way, so it
 * goes on to `table`. */
typedef struct call {
    fl_recording *recording;
    queue_state *queue;
    uint32_t queue_index;
    void **table;
    cl_int refused;    /* CL_SUCCESS: record it */
} call;

/* recording.c: the recording table that a dispatch pointer is, NULL if it is a driver's; the
 * recording of this thread, among the active ones, that handed out an event, NULL if none did. */
recording_table *fl_recording_table(const void *dispatch);
fl_recording *fl_owner_of(const void *event);

/* record.c: what a recording table has where it differs from the driver's; who a call belongs to;
 * refusing it. */
void fl_fill_recording_slots(void **slots);
call fl_call_on(cl_command_queue queue, int slot);
cl_int fl_refuse(fl_recording *recording, int slot, enum fl_reason reason);
/* Begins every recording function: sends late calls on to the driver, and answers refused ones. */
#define ENTER(name)                                                                          \
    call c = fl_call_on(command_queue, SLOT_##name);                                         \
    if (!c.recording)                                                                        \
        return CALL(c.table, name)(ARGUMENTS_##name);                                        \
    if (c.refused)                                                                           \
        return c.refused
#define WAITS num_events_in_wait_list, event_wait_list, event
#define RECORD(name) slots[SLOT_##name] = (void *)(fn_##name *)record_##name

/* order.c: append a command with what it comes after; nothing of it stays if any part fails. The
 * node that an event stands for, or NONE. The host waited for a node. The events of the block are
 * let go. */
cl_int fl_append(call *call, int slot, fl_command command, cl_uint wait_count,
                 const cl_event *wait_list, cl_event *event);
uint32_t fl_node_of(const fl_recording *recording, const void *event);
bool fl_follow(fl_recording *recording, uint32_t node);
void fl_forget_events(fl_recording *recording);

/* events.c: see the waits and callbacks of events that come through a driver's table. */
int fl_watch_events(void **table, fl_mapping *known);
void fl_unwatch_events(void **table, fl_mapping *known);

/* uncaptured_calls.c: see the commands of queues that are not captured. cuda_buffers.c: see the
 * memory objects that are made with contents of the host's memory. recording.c: a recording of this
 * thread and context is told of such a call. */
int fl_watch_uncaptured(void **table, fl_mapping *known);
void fl_unwatch_uncaptured(void **table, fl_mapping *known);
int fl_watch_creation(void **table, fl_mapping *known);
void fl_unwatch_creation(void **table, fl_mapping *known);
void fl_tell_call(cl_context context, enum fl_ask what, int slot, void *object);

#endif
