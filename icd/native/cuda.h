/* What the parts of the engine `cuda` share. cuda_buffers.c makes buffers of memory that CUDA
 * has too. cuda_nodes.c makes nodes of commands, and cuda_loops.c repeats them. cuda.c builds and
 * updates graphs, and cuda_launches.c launches them. CUDA's types and functions are generated from
 * loader/cuda/cuda.abi. */
#ifndef FL_CUDA_H
#define FL_CUDA_H

#include "native.h"

#include "cuda_abi.h"

#include <pthread.h>
#include <stdatomic.h>

/* A function of the driver, through whatever trace is in front of its table: CU(device, cuInit)(0).
 */
#define CU(device, name) ((fn_##name *)(*(void *const *const *)(device)->table)[SLOT_##name])

enum fl_cuda_kind {
    FL_NODE_NOTHING,
    FL_NODE_LAUNCH,
    FL_NODE_COPY,
    FL_NODE_FILL,
    FL_NODE_FILLS,   /* this and the next one are graphs of nodes without an order */
    FL_NODE_PARTS
};

/* Where a shared buffer lies. `reached_by` has a bit for each device, by its number, whose kernels
 * can use it. */
typedef struct fl_cuda_memory {
    uint64_t address, reached_by;
    const fl_cuda_device *device;
} fl_cuda_memory;
bool fl_find_cuda_memory(void *memory, fl_cuda_memory *found);   /* false: it is not shared */

/* A command as a node's parameters. Those of a launch lead to `bytes`. */
typedef struct fl_cuda_node {
    enum fl_cuda_kind kind;
    const fl_cuda_device *device;  /* where it runs */
    union {
        CUDA_KERNEL_NODE_PARAMS launch;
        CUDA_MEMCPY3D copy;
        CUDA_MEMSET_NODE_PARAMS fill;
    };
    const unsigned char *pattern; /* FL_NODE_FILLS: a word for each set; `fill` has the first */
    struct {
        CUfunction function;
        uint32_t grid[3];
    } parts[FL_CUDA_MOST_PARTS];   /* FL_NODE_PARTS: what differs from `launch` */
    uint32_t part_count;
    void **values;          /* of the launch, one for each parameter; in one piece with `bytes` */
    unsigned char *bytes;
    bool waits;             /* the launch, if it is started early */
    bool is_fixed; /* an argument is a Parameter's, and its value lies in the node itself */
} fl_cuda_node;

/* Parameters that launches load from the device's memory: a word each, one after the other. */
typedef struct fl_cuda_cells {
    struct {
        fl_cell *cell;      /* a reference */
        uint64_t places;    /* a bit for each device that loads it */
    } *list;
    uint32_t count;
    CUdeviceptr *words;     /* of each device; NULL: there are none yet */
} fl_cuda_cells;
/* Those of commands, without words. False: there is no memory. */
bool fl_list_cuda_cells(fl_cuda_cells *cells, const fl_cuda_functions *functions,
                        const fl_command *commands, uint32_t count);
void fl_forget_cuda_cells(fl_cuda_cells *cells);
/* What a launch loads for the cell of a number: its bytes, or the address of its memory object. */
enum fl_cuda_reason fl_word_of_cell(const fl_cuda_functions *functions, const fl_cuda_cells *cells,
                                    uint32_t number, uint64_t *word);

/* What a command becomes: enum fl_cuda_reason, FL_CUDA_FINE if it can be one. The caller frees
 * `values`. `cells` is NULL if it is only asked whether it can. */
enum fl_cuda_reason fl_describe_node(const fl_cuda_functions *functions, const fl_cuda_cells *cells,
                                     const fl_command *command, fl_cuda_node *node);

/* cuda_loops.c: a graph that repeats commands until a word of the device's memory is as wanted. The
 * context of the device is current. */
typedef struct fl_cuda_loop {
    CUgraph graph;
    CUgraphExec executable;
    CUgraphConditionalHandle condition;
    CUdeviceptr state, word;
} fl_cuda_loop;
/* An empty one: commands have to be added to *body. */
CUresult fl_begin_loop(fl_cuda_device *device, fl_cuda_loop *loop, CUdeviceptr word, CUgraph *body);
/* The nodes `last` are those after which none comes. */
CUresult fl_end_loop(const fl_cuda_device *device, fl_cuda_loop *loop, CUgraph body,
                     const CUgraphNode *last, size_t count);
/* Repeat at least once and at most `times` times, and wait. */
CUresult fl_run_loop(const fl_cuda_device *device, const fl_cuda_loop *loop, uint32_t times,
                     bool wanted, uint32_t *ran, uint32_t *stopped);
void fl_drop_loop(const fl_cuda_device *device, fl_cuda_loop *loop);

/* --- the graph --- */

typedef struct fl_cuda_job fl_cuda_job;   /* a replay that nobody waits for in its call */

struct fl_cuda {
    fl_cuda_device *device;   /* which launches it */
    fl_cuda_device **devices; /* all of them; the functions may be gone at the end */
    uint32_t device_count;
    cl_context context;
    const fl_cuda_functions *functions;
    uint32_t count;
    const fl_command *commands;
    uint32_t *first_before, *before;
    struct fl_cuda_made {
        enum fl_cuda_kind kind;
        const fl_cuda_device *device;
        CUgraphNode node;
        uint32_t followers;
        bool is_fixed, is_early, waits;   /* `waits`: a launch, if it starts early */
    } *nodes;
    fl_cuda_cells cells;
    uint64_t *words;          /* what the cells are for the next launch that is enqueued */
    CUgraph graph;
    CUgraphExec executable;
    bool starts_early;        /* whether launches may start early, and how many do */
    int in_order; /* its queues are */
    int beside; /* its queues are out of order, and nothing else in them waits for it, or is waited
                   for */
    uint32_t early;
    pthread_mutex_t running; /* of launches, some of which last as long as the GPU, and of their
                                times; nobody with it takes `lock` */
    fl_cuda_loop loop;
    bool has_no_loop;         /* the driver refuses it, as it does one of several devices */
    uint64_t *sent;           /* what the device has of the cells; NULL: nothing */
    uint64_t taken[FL_CUDA_MEASURED], on_device[FL_CUDA_MEASURED]; /* of fl_cuda_times */
    uint32_t timed;           /* how many are known; the first of them does not count */
    pthread_mutex_t ending;   /* of who completes the events of jobs; before `lock` */
    pthread_mutex_t lock;     /* of what follows */
    pthread_cond_t changed;
    fl_cuda_job *first, *newest;   /* those that have not ended */
    fl_cuda_job *unmarked;         /* which was launched last, if no event comes after it yet */
    fl_cuda_job *idle;             /* to be used again */
    uint32_t unlaunched;           /* how many of them, the newest ones */
    uint32_t waiters;              /* calls that end jobs themselves */
    atomic_uint unfinished;        /* how many there are, also without the lock */
    atomic_ullong launches;        /* how many there were, also without the lock */
    atomic_bool hurries;           /* somebody waits for the newest job */
    bool has_thread, closing;
    cl_command_queue lane;         /* cuda_lanes.c; changes with the lock of the lanes, too */
    bool shares_lane;              /* with other graphs: then all of its jobs are launched */
    fl_cuda *next_lane;
    char title[sizeof(((fl_cuda_device *)0)->lost_by)];
    fl_cuda *next_unfinished; /* of those that were released before they ended */
};

/* The same commands as a loop. None starts early in it, and each was a node already. */
CUresult fl_build_cuda_loop(fl_cuda *g, CUdeviceptr word);
/* The code after which nothing runs any more on one of its devices, or CUDA_SUCCESS. */
CUresult fl_cuda_lost(const fl_cuda *g);
/* Nobody uses it any more. */
void fl_destroy_cuda(fl_cuda *g);

/* cuda_launches.c: how many jobs have failed. */
extern atomic_uint fl_cuda_failures;
/* The end of the last job, if that has not come: a reference, or NULL. The caller has the lock, and
 * waits for it, or lets something else do so. */
cl_event fl_last_end(fl_cuda *g);
/* The same without the lock. If that event is the wanted one (NULL: any is), and all is launched,
 * *launch is not 0: then the caller has to wait by fl_end_launches, which completes the event. */
cl_event fl_begin_end(fl_cuda *g, cl_event wanted, uint64_t *launch);
void fl_end_launches(fl_cuda *g, uint64_t launch);
/* Free the idle jobs. The context is current if their events end, too. */
void fl_free_jobs(fl_cuda *g, bool with_events);

/* cuda_lanes.c: open a lane on a queue, before what is in the queue is waited for. It is the
 * graph's only one, and the queue's. False: it cannot be opened. */
bool fl_open_lane(fl_cuda *g, cl_command_queue queue);
/* Open one beside those of other graphs, whose replays are all in the same stream. */
bool fl_share_lane(fl_cuda *g, cl_command_queue queue);
void fl_close_lane(fl_cuda *g);   /* if it has one */
/* Wait for the replays in a queue's lanes. False: it has none. */
bool fl_finish_lanes(cl_command_queue queue);
/* The driver's own function, which closes no lane: of a queue that had one. */
void *fl_own_call(cl_command_queue queue, int slot);
/* The program has calls on queues that are not in the driver's table, and cannot be seen. */
void fl_forbid_lanes(void);

/* Make the context of a device current in this thread, and put back what was. A CUresult. */
CUresult fl_cuda_enter(const fl_cuda_device *device);
void fl_cuda_leave(const fl_cuda_device *device);

#endif
