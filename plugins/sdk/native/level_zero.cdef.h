/* What C knows of the adapter on Level Zero (level_zero.c). Python makes these structs, and they
 * live as long as the objects. Lists and events are Level Zero's handles. */

/* A lock of one thread, which may enter it again. Python's threads take turns by another lock. */
typedef struct fl_lz_lock {
    uintptr_t owner;
} fl_lz_lock;
/* Returns whether this thread has to leave it. */
bool fl_lz_enter(fl_lz_lock *lock);
void fl_lz_leave(fl_lz_lock *lock);

/* `used`: it is signaled, or will be when its command has ended. Else it is not, or counts. */
typedef struct fl_lz_event {
    uintptr_t ze;
    bool used;
} fl_lz_event;

typedef struct fl_lz_context {
    uintptr_t table;          /* where the address of the present table is, which traces change */
    fl_lz_lock lock;
    fl_lz_event *events;      /* that C may use: a ring */
    uint32_t room, first, count;
    int32_t wants;            /* C had none that it could use */
    bool counts;              /* they are counter-based: nobody resets them */
} fl_lz_context;
/* Makes room for so many events that C may use. Returns whether there is. */
bool fl_lz_make_room(fl_lz_context *context, uint32_t room);
/* Gives C an event. */
void fl_lz_give_event(fl_lz_context *context, uintptr_t ze, bool used);
fl_lz_context *fl_lz_new_context(uintptr_t table, bool counts);
void fl_lz_free_context(fl_lz_context *context);

typedef struct fl_lz_queue {
    fl_lz_context *context;
    uintptr_t list;
    fl_lz_lock lock;          /* of the list */
    struct fl_lz_queue
        *around;              /* runs command-buffers, in order; NULL: only Python enqueues them */
    int32_t only_c;           /* C may wait for it: all that may run was enqueued by C */
    uint64_t pending;         /* how often C has enqueued since the last wait; 0: nothing runs */
} fl_lz_queue;

typedef struct fl_lz_buffer {
    uintptr_t list;
    fl_lz_lock lock;
    fl_lz_queue *around;      /* where it has run before, and C may run it again; or NULL */
    int32_t pending;          /* C has enqueued it, and Python does not know it */
} fl_lz_buffer;
