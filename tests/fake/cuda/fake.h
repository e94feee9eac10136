/* What the files of the CUDA driver for tests share. driver.c says what it is. */
#pragma once
#define _GNU_SOURCE
#include "cuda_abi.h"
#include "cuda_functions.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIMENSIONS = 3, MOST_THREADS = 1024, MEMORY = 1 << 30 };
enum { MOST_SHARED = 49152, MOST_ASKED = 232448 };   /* of a function, and if it was asked for */

/* Counts a call of a function. Returns the code that a test has set for it, or 0. */
int fake_called(const char *name);

#define BEGIN                             \
    do {                                  \
        int code = fake_called(__func__); \
        if (code)                         \
            return code;                  \
    } while (0)

/* Calls a host function of the program, in which every function of CUDA's fails. */
void fake_call_host(void (*function)(void *), void *data);

/* How many devices there are. */
int fake_device_count(void);
/* The device of the context that is current in this thread, -1 without one, and whether one device
 * reaches the memory of another one: not if a test isolates one of them. */
int fake_current_device(void);
bool fake_reaches(int device, int other);
/* Whether a context is current in this thread. */
bool fake_has_context(void);
/* Makes a context current in this thread, in place of the one that is. */
void fake_set_context(CUcontext context);
#define NEED_CONTEXT              \
    if (!fake_has_context())      \
    return CUDA_ERROR_INVALID_CONTEXT

/* --- streams.c: work in the order of a stream, each stream with a thread of its own --- */

/* Gives a stream a copy of `size` bytes. Its thread calls `run` with the copy. */
CUresult fake_push(CUstream stream, CUresult (*run)(void *data), const void *data, size_t size);
/* Waits until nothing is left to do in any stream. */
void fake_drain(void);
/* Whether nothing is left to do in any stream. */
bool fake_all_idle(void);

/* What a record of an event is: pending until its place in the stream is reached. */
typedef struct record record;
/* The event's from now on; the caller has a reference, too. */
record *fake_new_record(CUevent event);
record *fake_record_of(CUevent event);     /* with a reference; NULL: it was never recorded */
void fake_complete(record *done);          /* gives the reference back */
void fake_wait_for(record *done);          /* gives the reference back */

/* --- captures.c: a stream that is captured gives its work to a graph --- */
typedef struct member member;
/* Where the capture of a stream is, NULL while it is not captured. The memory lives as long as the
 * stream. */
member **fake_member_of(CUstream stream);
/* Where the part of a capture is in which an event was recorded last, NULL if it was not recorded
 * in one. */
member **fake_place_of(CUevent event);
void fake_drop_member(member *one);
/* Makes a capture invalid, as calls do that no capture allows. Returns the code of the call. */
CUresult fake_refuse_capture(CUstream stream);
/* Adds a node behind what the stream has. `add` is called with `what`. */
typedef CUresult adder(CUgraphNode *node, CUgraph graph, const CUgraphNode *before, size_t count,
                       const void *what);
CUresult fake_capture(CUstream stream, adder *add, const void *what);
CUresult fake_capture_record(CUevent event, CUstream stream);
CUresult fake_capture_wait(CUstream stream, CUevent event);

/* --- fat_binaries.c --- */
/* The part of a fat binary that is for a device, such as 90; NULL without one. Other images are
 * returned as they are. */
const void *fake_image_in(const void *image, uint32_t device);

/* --- arrays.c --- */
struct fl_CUarray {
    CUDA_ARRAY3D_DESCRIPTOR about;
    size_t pitch, rows;   /* bytes of a row, rows of a slice */
    char *bytes;
};

/* --- memory.c --- */
/* What an allocation is. */
enum { IS_DEVICE, IS_HOST, IS_MANAGED, IS_REGISTERED, IS_OPENED, IS_POOLED };
/* Lets queries find memory, and forgets it. That returns its size, 0 if it is not known. */
CUresult fake_remember(void *memory, size_t size, int kind);
size_t fake_forget(uint64_t address, int kind);
/* Makes memory that other processes open by a handle of `room` bytes, and opens it. NULL: it cannot
 * be had. */
void *fake_share(void *handle, size_t room, size_t size);
void *fake_open_shared(const void *handle);
void fake_copy(const CUDA_MEMCPY3D *copy);
void fake_fill(const CUDA_MEMSET_NODE_PARAMS *fill);
/* Whether a device may use mapped memory, as cuMemSetAccess says. Other memory each may. */
bool fake_may_use(uint64_t address, int device);
/* Whether all the bytes are the driver's memory, or are in no allocation of it at all. */
bool fake_is_whole(uint64_t address, size_t size);

/* --- pools.c --- */
/* Frees memory of a pool that no stream uses any more. */
void fake_give_back(uint64_t address);

/* --- launches.c: a launch, with a copy of its arguments --- */
typedef struct launch {
    CUfunction function;
    uint32_t grid[DIMENSIONS], block[DIMENSIONS], shared;
    size_t offset[DIMENSIONS];
    unsigned char *bytes;   /* the values one after the other */
} launch;
CUresult fake_make_launch(launch *made, const CUDA_KERNEL_NODE_PARAMS *given);
launch fake_copy_launch(const launch *one);
CUresult fake_run_launch(const launch *one);
void fake_drop_launch(launch *one);
bool fake_is_of_same_device(const launch *one, const launch *other);
bool fake_mentions(const launch *one, const char *what);   /* in the text of its module */

/* --- graphs.c --- */
/* Adds a node that calls `run` with a copy of `size` bytes of `data`. */
typedef struct job {
    CUresult (*run)(void *data);
    const void *data;
    size_t size;
} job;
adder fake_add_call, fake_add_launch, fake_add_child;   /* `what` is a job, a launch, a CUgraph */
bool fake_comes_after(CUgraphNode node, CUgraphNode other);

/* What CUDA does in other functions than HIP. */
/* What cudaGraphSetConditional does in kernels. */
void fake_set_condition(uint64_t handle, uint32_t value);
CUgraph fake_copy_graph(const CUgraph graph);
/* Gives an executable the nodes of another graph. Returns false if kinds or edges differ. */
bool fake_replace_graph(CUgraphExec executable, CUgraph graph);
/* Lets a launch, a copy or a fill be run or not. Returns false if the node is another one. */
bool fake_enable(CUgraphExec executable, CUgraphNode node, bool enabled);
