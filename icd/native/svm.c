/* SVM that a graph uses outlives the program's own free.
 *
 * SVM has no reference count. So a pointer that a command uses is pinned, and while anything is
 * pinned the driver's clSVMAlloc, clSVMFree and clEnqueueSVMFree are watched: the free of a pinned
 * allocation is put off until the last pin is gone. An allocation made before anything was watched
 * has no known size; a pinned pointer at or above its base may lie in it, so its free is put off as
 * well: too late is harmless, too early is not. */
#include "native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct allocation {
    const char *base;
    size_t size;          /* 0: not known, and the free has been put off */
    cl_context context;   /* retained once freed */
    void **table;         /* the watched table that it came through */
    unsigned pins;
    bool freed;
} allocation;

static struct {
    pthread_mutex_t lock;
    allocation *known;
    uint32_t count, capacity;
    fl_pins
        loose; /* pinned pointers that lie in no known allocation, each as often as it is pinned */
} svm = {.lock = PTHREAD_MUTEX_INITIALIZER};
FL_FREE_IN_CHILD(svm.lock)

bool fl_list(fl_pins *list, const void *pointer) {
    if (!FL_RESERVE(list->pointers, list->capacity, list->count + 1))
        return false;
    list->pointers[list->count++] = pointer;
    return true;
}

static allocation *containing(const void *pointer) {
    for (uint32_t i = 0; i < svm.count; i++) {
        allocation *a = &svm.known[i];
        if (a->size ? (const char *)pointer >= a->base && (const char *)pointer < a->base + a->size
                    : pointer == a->base)
            return a;
    }
    return NULL;
}

static allocation *remember(const void *base, size_t size, cl_context context) {
    if (!FL_RESERVE(svm.known, svm.capacity, svm.count + 1))
        return NULL;
    svm.known[svm.count] =
        (allocation){.base = base, .size = size, .context = context, .table = context->dispatch};
    return &svm.known[svm.count++];
}

static bool loose_above(const void *base) {
    for (uint32_t i = 0; i < svm.loose.count; i++)
        if ((const char *)svm.loose.pointers[i] >= (const char *)base)
            return true;
    return false;
}

/* Whether a free has to wait; if so it is noted, and *noted says that it was by this call. Called
 * with the lock held. An allocation that nobody pins is forgotten. Without memory to note it a free
 * that has to wait comes to nothing. */
static bool put_off(cl_context context, const void *pointer, bool *noted) {
    allocation *a = containing(pointer);
    *noted = false;
    if (!pointer || (a && a->pins == 0 && a->size)) {
        if (a)
            *a = svm.known[--svm.count];
        return false;
    }
    if (!a && !loose_above(pointer))
        return false;
    if (!a)
        a = remember(pointer, 0, context);
    if (!a || a->freed)
        return true;
    a->freed = *noted = true;
    a->context = context;
    CALL(fl_table_of(context), clRetainContext)(context);
    return true;
}

/* The call that noted a free has failed: it is as if it had not been made. */
static void take_back(const void *pointer) {
    allocation *a = containing(pointer);
    if (!a || !a->freed)
        return;
    a->freed = false;
    CALL(fl_table_of(a->context), clReleaseContext)(a->context);
    if (!a->size)
        *a = svm.known[--svm.count];
}

static void *watched_clSVMAlloc(PARAMETERS_clSVMAlloc) {
    void *pointer = DRIVER(context, clSVMAlloc)(context, flags, size, alignment);
    if (pointer &&
        fl_is_patched(
            context,
            SLOT_clSVMAlloc)) { /* else somebody else still leads here, after the last block */
        pthread_mutex_lock(&svm.lock);
        remember(pointer, size, context);
        pthread_mutex_unlock(&svm.lock);
    }
    return pointer;
}

static void watched_clSVMFree(cl_context context, void *svm_pointer) {
    bool noted;
    pthread_mutex_lock(&svm.lock);
    bool later = put_off(context, svm_pointer, &noted);
    pthread_mutex_unlock(&svm.lock);
    if (!later)
        DRIVER(context, clSVMFree)(context, svm_pointer);
}

static void list_done(cl_event event, cl_int status, void *list) {
    free(list);
}

/* Free those of a list that nobody pins. PoCL reads the list when the command runs, so it has to
 * last until then. */
static cl_int free_some(cl_command_queue queue, cl_uint count, void **list, cl_uint wait_count,
                        const cl_event *wait_list, cl_event *event) {
    void **table = fl_table_of(queue);
    cl_event done = NULL;
    cl_int code = DRIVER(queue, clEnqueueSVMFree)(queue, count, list, NULL, NULL, wait_count,
                                                  wait_list, &done);
    if (code != CL_SUCCESS)
        return code;
    DRIVER(done, clSetEventCallback)(done, CL_COMPLETE, (void *)list_done, list);
    if (event)
        *event = done;
    else
        CALL(table, clReleaseEvent)(done);
    return CL_SUCCESS;
}

static cl_int watched_clEnqueueSVMFree(cl_command_queue queue, cl_uint count, void **pointers,
                                       void *free_function, void *user_data, cl_uint wait_count,
                                       const cl_event *wait_list, cl_event *event) {
    void **table = fl_table_of(queue);
    fn_clEnqueueSVMFree *of_driver = fl_patched(queue, SLOT_clEnqueueSVMFree);
    cl_context context = NULL;
    cl_uint left = 0, noted = 0;
    if (free_function || !count ||
        !pointers || /* the program frees by its own function, or the driver has an error to name */
        CALL(table, clGetCommandQueueInfo)(queue, CL_QUEUE_CONTEXT, sizeof context, &context,
                                           NULL) != CL_SUCCESS)
        return of_driver(queue, count, pointers, free_function, user_data, wait_count, wait_list,
                         event);
    void **now = malloc(2 * (size_t)count * sizeof *now), **later = now + count;
    if (!now)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutex_lock(&svm.lock);
    for (cl_uint i = 0; i < count; i++) {
        bool by_us;
        if (!put_off(context, pointers[i], &by_us))
            now[left++] = pointers[i];
        else if (by_us)
            later[noted++] = pointers[i];
    }
    pthread_mutex_unlock(&svm.lock);
    cl_int code =
        left == count ? of_driver(queue, count, pointers, NULL, NULL, wait_count, wait_list, event)
        : left ? free_some(queue, left, now, wait_count, wait_list, event)
               : CALL(table, clEnqueueMarkerWithWaitList)(queue, wait_count, wait_list, event);
    pthread_mutex_lock(&svm.lock);
    for (cl_uint i = 0; code != CL_SUCCESS && i < noted; i++)
        take_back(later[i]);
    pthread_mutex_unlock(&svm.lock);
    if (!left || left == count || code != CL_SUCCESS)
        free(now);   /* else it is freed when the command has read it */
    return code;
}

static const fl_watched watched[] = {
    {SLOT_clSVMAlloc, (void *)watched_clSVMAlloc, false},
    {SLOT_clSVMFree, (void *)watched_clSVMFree, false},
    {SLOT_clEnqueueSVMFree, (void *)watched_clEnqueueSVMFree, false},
};

int fl_watch_svm(void **table, fl_mapping *known) { return fl_patch_all(table, watched, 3, known); }

/* What was known of a table's allocations is forgotten with its last watcher: their frees are not
 * seen any more. */
void fl_unwatch_svm(void **table, fl_mapping *known) {
    FL_HOLD(svm.lock);
    if (fl_unpatch_all(table, watched, 3, known) == 0)
        for (uint32_t i = svm.count; i-- > 0;)
            if (svm.known[i].table == table && !svm.known[i].pins && !svm.known[i].freed)
                svm.known[i] = svm.known[--svm.count];
}

bool fl_pin(fl_pins *pins, const void *pointer) {
    for (uint32_t i = 0; i < pins->count; i++)
        if (pins->pointers[i] == pointer)
            return true;
    if (!fl_list(pins, pointer))
        return false;
    pthread_mutex_lock(&svm.lock);
    allocation *a = containing(pointer);
    bool done = true;
    if (a)
        a->pins++;
    else
        done = fl_list(&svm.loose, pointer);
    pthread_mutex_unlock(&svm.lock);
    if (!done)
        pins->count--;
    return done;
}

/* A free that the program recorded on a captured queue: it takes effect with the last pin, and the
 * recording holds one. */
void fl_free_with_pins(cl_context context, void *pointer) {
    bool noted;
    FL_HOLD(svm.lock);
    put_off(context, pointer, &noted);
}

static void unpin(const void *pointer) {
    allocation *a = containing(pointer);
    if (a && a->pins) {
        a->pins--;
        return;
    }
    for (uint32_t i = 0; i < svm.loose.count; i++)
        if (svm.loose.pointers[i] == pointer) {
            svm.loose.pointers[i] = svm.loose.pointers[--svm.loose.count];
            return;
        }
}

/* Take an allocation whose free was put off and that nothing pins any more out of the list; false
 * if there is none. */
static bool take_free(allocation *taken) {
    for (uint32_t i = 0; i < svm.count; i++) {
        const allocation *a = &svm.known[i];
        if (a->freed && a->pins == 0 && (a->size || !loose_above(a->base))) {
            *taken = *a;
            svm.known[i] = svm.known[--svm.count];
            return true;
        }
    }
    return false;
}

void fl_unpin_all(fl_pins *pins) {
    pthread_mutex_lock(&svm.lock);
    for (uint32_t i = 0; i < pins->count; i++)
        unpin(pins->pointers[i]);
    allocation a;
    while (take_free(&a)) {
        pthread_mutex_unlock(&svm.lock);   /* the driver is called without the lock */
        DRIVER(a.context, clSVMFree)(a.context, (void *)a.base);
        CALL(fl_table_of(a.context), clReleaseContext)(a.context);
        pthread_mutex_lock(&svm.lock);
    }
    pthread_mutex_unlock(&svm.lock);
    free(pins->pointers);
    *pins = (fl_pins){0};
}
