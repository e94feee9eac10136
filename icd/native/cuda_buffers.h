/* What the parts of shared buffers have in common: memory that both OpenCL and CUDA have.
 * cuda_pieces.c gets it of CUDA. cuda_slabs.c lets OpenCL import it, divides it, and keeps what the
 * program releases. cuda_idle.c knows when OpenCL does not use that any more. cuda_buffers.c makes
 * the program's buffers of it. */
#ifndef FL_CUDA_BUFFERS_H
#define FL_CUDA_BUFFERS_H

#include "cuda.h"

/* Of everything here that several threads change. It is new in a forked child. */
extern pthread_mutex_t fl_shared_lock;

/* A piece of CUDA's memory. Slabs whose slots are small share one, because CUDA's pieces have 2 MiB
 * at least and take long to make. */
typedef struct fl_piece {
    const fl_cuda_device *device;
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
    uint64_t reached_by;          /* fl_cuda_memory */
    size_t mapped, used;          /* bytes */
    uint32_t users;               /* imports, and the slabs of a context that it is open for */
} fl_piece;
/* Of `size` bytes, with one user. NULL if there is none to be had. */
fl_piece *fl_new_piece(const fl_cuda_device *device, uint64_t reached_by, size_t size);
void fl_drop_piece(fl_piece *piece);   /* one user less; NULL is allowed */
int fl_export_piece(const fl_piece *piece);   /* a file descriptor, -1 if there is none */
bool fl_copy_to_cuda(const fl_cuda_device *device, CUdeviceptr to, const void *from, size_t size);

/* --- cuda_idle.c: what a context's queues may still use --- */

typedef struct fl_known_queue {
    struct fl_known_queue *next;
    cl_command_queue handle;
    uint32_t references;          /* the program's; 0: it is gone, and we still use it */
    uint32_t users;               /* threads of ours that are putting a marker into it */
    bool in_order;
} fl_known_queue;

typedef struct fl_marker {
    struct fl_marker *next;
    cl_event event;
} fl_marker;

/* The queues of a context. Everything here changes under the lock.
 *
 * A buffer that the program releases may still be used by commands. If the context has one queue,
 * which is in order, each later command comes after them. Otherwise markers tell when they have
 * ended. `turn` counts the sets of markers: what is released in a turn is not used any more when
 * `idle_turn` has reached it. */
typedef struct fl_queues {
    bool are_known;               /* the context was created while we watched */
    uint32_t references;          /* of the context, the program's */
    fl_known_queue *first;
    fl_marker *last;              /* of queues that are gone, until they are complete */
    fl_marker *asked;             /* those of `asked_turn`, until all are complete */
    uint64_t turn, asked_turn, idle_turn;
    uint64_t released, released_bytes;   /* in this turn */
    bool asking;                  /* a thread looks at `last` and `asked`, which are empty then */
    bool last_looked_at;          /* `last` was not empty */
} fl_queues;

/* Whether each command that comes now runs after all earlier ones. The caller has the lock. */
bool fl_runs_in_order(const fl_queues *queues);
/* Whether the program has let go of the context and of all its queues. The caller has the lock. */
bool fl_is_let_go(const fl_queues *queues);
/* Look whether markers are complete, and put new ones if that pays. True: more may be used again.
 * It calls the driver. */
bool fl_ask_queues(fl_queues *queues);
/* Nobody will ask any more. The caller has the lock, and releases the answer by fl_drop_markers. */
fl_marker *fl_forget_queues(fl_queues *queues);
void fl_drop_markers(fl_marker *markers);   /* it calls the driver */
void fl_add_queue(fl_queues *queues, cl_command_queue queue, bool in_order);
bool fl_has_queue(fl_queues *queues, cl_command_queue queue);   /* the caller has the lock */
/* The program retains or releases one of its queues. False: it is the driver's to release, because
 * the program has more references. */
void fl_retain_queue(fl_queues *queues, cl_command_queue queue);
bool fl_release_queue(fl_queues *queues, cl_command_queue queue);

/* --- cuda_slabs.c --- */

/* A buffer with these flags, which begins with what `host` leads to. NULL: it cannot be shared. */
cl_mem fl_new_shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host);
/* The program releases a buffer. False: it is the driver's to release. */
bool fl_keep_buffer(cl_mem memory, cl_int *code);
/* Whether the program has released a buffer that is kept: its handle is none any more. */
bool fl_is_kept(cl_mem memory);
/* Others than the program may hold a buffer, or want to hear of its end: it is not kept. */
void fl_never_keep(cl_mem memory);
/* The driver has made an object. A handle that was a shared buffer's is not one any more. */
void fl_count_other_buffer(cl_mem memory);
/* What is known of a buffer. `origin` is where it begins in the import, in bytes. */
typedef struct fl_place_facts {
    cl_mem_flags flags;           /* the program's */
    fl_cuda_memory memory;
    size_t origin;
} fl_place_facts;
bool fl_find_place(cl_mem memory, fl_place_facts *found);
/* Give back memory that nobody uses, which is waiting for that. It calls the driver. */
void fl_give_back(void);
/* The program has created a context, retains it, or releases it. */
void fl_add_context(cl_context context);
void fl_retain_shared_context(cl_context context);
void fl_release_shared_context(cl_context context);
/* The queues of a context, or those that a queue is one of. NULL: they are unknown. */
fl_queues *fl_queues_of(cl_context context);
fl_queues *fl_queues_with(cl_command_queue queue);
/* After the program has released a queue or a context. It calls the driver. */
void fl_end_context(fl_queues *queues);
/* False: there is no room for one more. */
bool fl_add_shared_device(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import);
bool fl_remove_shared_device(void *opencl_device);   /* false: it is none */
bool fl_shares_table(const void *object); /* it has the table of a shared device */

#endif
