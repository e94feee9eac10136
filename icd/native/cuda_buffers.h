/* What the parts of shared buffers have in common: memory that both OpenCL and CUDA have.
 * cuda_pieces.c gets it of CUDA, cuda_slabs.c lets OpenCL import it and divides it, and
 * cuda_buffers.c makes the program's buffers of it. */
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
    size_t mapped, used;          /* bytes */
    uint32_t users;               /* imports, and the slabs of a context that it is open for */
    int descriptor;               /* of the handle while the piece is open, or -1 */
} fl_piece;
/* Of `size` bytes, with one user. NULL if there is none to be had. */
fl_piece *fl_new_piece(const fl_cuda_device *device, size_t size);
void fl_drop_piece(fl_piece *piece);   /* one user less; NULL is allowed */
/* A file descriptor of a piece, -1 if there is none. CUDA takes half a millisecond to make one, so
 * a piece that slabs will come from (`is_open`) keeps its own. */
int fl_export_piece(fl_piece *piece, bool is_open);
bool fl_copy_to_cuda(const fl_cuda_device *device, CUdeviceptr to, const void *from, size_t size);

/* A buffer with these flags, which begins with what `host` leads to. NULL: it cannot be shared. */
cl_mem fl_new_shared_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host);
/* The driver has made an object. A handle that was a shared buffer's is not one any more. */
void fl_count_other_buffer(cl_mem memory);
/* What is known of an import. `flags` are those of the program's buffer: of a slab, the one at
 * `slot_offset`. */
typedef struct fl_import {
    bool is_slab;
    cl_mem_flags flags;
    uint64_t address;
} fl_import;
bool fl_find_import(cl_mem memory, size_t slot_offset, fl_import *found);
/* The program releases a context, which may have had its last user: what is left of it are slabs.
 */
void fl_release_slabs(cl_context context);
/* False: there is no room for one more. */
bool fl_add_shared_device(void *opencl_device, fl_cuda_device *device, fl_cuda_import *import);
bool fl_remove_shared_device(void *opencl_device);   /* false: it is none */

#endif
