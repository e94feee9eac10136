/* Handles of command-buffers and of their commands, and the functions that count references and
 * enqueue.
 *
 * A program may pass anything for a handle. So handles lie in blocks that are never freed. A
 * pointer is a handle if it leads to the beginning of one that is in use. Free ones are used again
 * as late as possible. */
#include "extension_names.h"
#include "hooks.h"

#include <pthread.h>
#include <stdlib.h>

enum { BLOCK = 1024, MOST_BLOCKS = 1 << 16 };

typedef struct handle {
    void *dispatch; /* of the driver, as in any object */
    atomic_uint kind, references;
    pthread_mutex_t lock; /* around changes of `route` and its use */
    _Atomic(void *) route;
    struct handle *next_free;
} handle;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static handle *blocks[MOST_BLOCKS];
static atomic_uint block_count;
static handle *first_free, *last_free;

static void free_locks(void) {
    pthread_mutex_init(&lock, NULL);
    for (unsigned i = 0; i < block_count; i++)
        for (unsigned j = 0; j < BLOCK; j++)
            pthread_mutex_init(&blocks[i][j].lock, NULL);
}
FL_IN_CHILD(free_locks())

static handle *known(void *pointer, uint32_t kind) {
    unsigned count = atomic_load_explicit(&block_count, memory_order_acquire);
    for (unsigned i = 0; i < count; i++) {
        uintptr_t offset = (uintptr_t)pointer - (uintptr_t)blocks[i];
        if (offset < BLOCK * sizeof(handle))
            return offset % sizeof(handle) == 0 && ((handle *)pointer)->kind == kind ? pointer
                                                                                     : NULL;
    }
    return NULL;
}

static void put_last(handle *free) {
    free->next_free = NULL;
    *(last_free ? &last_free->next_free : &first_free) = free;
    last_free = free;
}

static bool grow(void) {
    unsigned count = block_count;
    handle *block = count < MOST_BLOCKS ? calloc(BLOCK, sizeof *block) : NULL;
    if (!block)
        return false;
    for (unsigned i = 0; i < BLOCK; i++) {
        pthread_mutex_init(&block[i].lock, NULL);
        put_last(&block[i]);
    }
    blocks[count] = block;
    atomic_store_explicit(&block_count, count + 1, memory_order_release);
    return true;
}

void *fl_new_handle(uint32_t kind, void *like) {
    pthread_mutex_lock(&lock);
    handle *made = first_free || grow() ? first_free : NULL;
    if (made && !(first_free = made->next_free))
        last_free = NULL;
    pthread_mutex_unlock(&lock);
    if (made) {
        made->dispatch = *(void **)like;
        made->references = 1;
        made->kind = kind;
    }
    return made;
}

void fl_free_handle(void *pointer) {
    handle *h = pointer;
    h->kind = FL_FREE;
    FL_HOLD(lock);
    put_last(h);
}

uint32_t fl_references(void *pointer) {
    handle *h = known(pointer, FL_BUFFER);
    return h ? h->references : 0;
}

void fl_set_route(void *pointer, void *route) {
    handle *h = pointer;
    FL_HOLD(h->lock);
    h->route = route;
}

/* Whoever has the lock may be in the driver, and may need the GIL there. So nobody waits for it. */
intptr_t fl_enqueue_known(void *pointer) {
    handle *h = known(pointer, FL_BUFFER);
    if (!h || !h->route || pthread_mutex_trylock(&h->lock))
        return 0;
    intptr_t event = h->route && fl_state.enqueue_again ? fl_state.enqueue_again(h->route) : 0;
    pthread_mutex_unlock(&h->lock);
    return event;
}

cl_int fl_clRetainCommandBufferKHR(cl_command_buffer_khr command_buffer) {
    handle *h = known(command_buffer, FL_BUFFER);
    unsigned count = h ? h->references : 0;
    while (count && !atomic_compare_exchange_weak(&h->references, &count, count + 1))
        ;
    return count ? CL_SUCCESS : CL_INVALID_COMMAND_BUFFER_KHR;
}

/* The last reference is Python's to take. After the end of Python nothing is left to do. */
cl_int fl_clReleaseCommandBufferKHR(cl_command_buffer_khr command_buffer) {
    handle *h = known(command_buffer, FL_BUFFER);
    unsigned count = h ? h->references : 0;
    while (count && !atomic_compare_exchange_weak(&h->references, &count, count - 1))
        ;
    if (!count)
        return CL_INVALID_COMMAND_BUFFER_KHR;
    fn_clReleaseCommandBufferKHR *body =
        count == 1 ? (fn_clReleaseCommandBufferKHR *)fl_body(ENTRY_clReleaseCommandBufferKHR)
                   : NULL;
    return body ? fl_leave(body(command_buffer)) : CL_SUCCESS;
}

cl_int fl_clEnqueueCommandBufferKHR(PARAMETERS_clEnqueueCommandBufferKHR) {
    bool is_plain = !num_queues && !queues && !num_events_in_wait_list && !event_wait_list;
    intptr_t done = is_plain ? fl_enqueue_known(command_buffer) : 0;
    if (done > 0) { /* an event */
        cl_event made = (cl_event)done;
        if (event) {
            fl_note_event(made, NULL, 0);
            *event = made;
        } else {
            fl_release_event(made);
        }
        return CL_SUCCESS;
    }
    if (done)
        return (cl_int)done;
    fn_clEnqueueCommandBufferKHR *body =
        (fn_clEnqueueCommandBufferKHR *)fl_body(ENTRY_clEnqueueCommandBufferKHR);
    return body ? fl_leave(body(num_queues, queues, command_buffer, num_events_in_wait_list,
                                event_wait_list, event))
                : fl_without_body();
}
