/* Streams and events. A stream is a thread that does its work in order. An event is what its last
 * record is. */
#include "fake.h"

#include <sched.h>
#include <time.h>

typedef struct work {
    struct work *next;
    CUresult (*run)(void *data);
    _Alignas(16) char data[];
} work;

struct fl_CUstream {
    pthread_t thread;
    work *first, **last;
    bool ends, busy;
    CUresult code;   /* of the first work that has failed */
    member *member;
    CUstream next;
};

/* How often an event was recorded, and how many of these records are complete, in all processes
 * that have it. */
typedef struct counts {
    uint64_t recorded, complete;
} counts;

struct record {
    int references;
    bool done;
    uint64_t time;   /* in ns */
    counts *shared;
};

struct fl_CUevent {
    record *record;
    member *place;
    uint32_t flags;
    counts *shared;   /* NULL: it is of this process alone */
    CUipcEventHandle handle;
};

member **fake_member_of(CUstream s) { return &s->member; }
member **fake_place_of(CUevent event) { return &event->place; }

/* One lock and one condition for everything: tests have few threads. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static CUstream streams;
static bool held;

void fake_cuda_hold(int hold) {
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static bool is_idle(CUstream s) { return !s->first && !s->busy; }

static void *serve(void *argument) {
    CUstream s = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (held || (!s->first && !s->ends))
            pthread_cond_wait(&changed, &lock);
        work *one = s->first;
        if (!one)
            break;
        s->first = one->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        pthread_mutex_unlock(&lock);
        CUresult code = one->run(one->data);
        free(one);
        pthread_mutex_lock(&lock);
        s->busy = false;
        s->code = s->code ? s->code : code;
        pthread_cond_broadcast(&changed);
    }
    for (CUstream *at = &streams; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(s);
    return NULL;
}

/* The stream of the device waits for all others, and they for it. Nobody uses CUDA's here. */
static CUresult push_on_null_stream(work *made) {
    CUresult code = CUDA_ERROR_INVALID_HANDLE;
#ifdef FAKE_HIP
    fake_drain();
    code = made->run(made->data);
#endif
    free(made);
    return code;
}

CUresult fake_push(CUstream s, CUresult (*run)(void *data), const void *data, size_t size) {
    work *made = malloc(sizeof *made + size);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->next = NULL;
    made->run = run;
    memcpy(made->data, data, size);
    if (!s)
        return push_on_null_stream(made);
    if (s->member) {
        job one = {run, data, size};
        free(made);
        return fake_capture(s, fake_add_call, &one);
    }
    pthread_mutex_lock(&lock);
    *s->last = made;
    s->last = &made->next;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *stream) {
    CUstream made = calloc(1, sizeof *made);
    pthread_attr_t attributes;
    if (!fake_has_context() || !made) {
        free(made);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    made->last = &made->first;
    pthread_mutex_lock(&lock);
    made->next = streams;
    streams = made;
    pthread_mutex_unlock(&lock);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&made->thread, &attributes, serve, made);
    pthread_attr_destroy(&attributes);
    *stream = made;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *stream, uint32_t flags) {
    (void)flags;
    BEGIN;
    return create(stream);
}

CUresult cuStreamCreateWithPriority(CUstream *stream, uint32_t flags, int priority) {
    (void)flags, (void)priority;
    BEGIN;
    return create(stream);
}

CUresult cuStreamDestroy_v2(CUstream s) {
    BEGIN;
    pthread_mutex_lock(&lock);
    s->ends = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream s, CUcontext *context) {
    (void)s;
    BEGIN;
    return cuCtxGetCurrent(context);
}

/* It fails as a GPU does, once the work has ended. */
CUresult cuStreamSynchronize(CUstream s) {
    int failure = fake_called(__func__);
    if (s && s->member)
        return fake_refuse_capture(s);
    pthread_mutex_lock(&lock);
    while (s && !is_idle(s))   /* the stream of the device never has work */
        pthread_cond_wait(&changed, &lock);
    CUresult code = s ? s->code : CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return failure ? (CUresult)failure : code;
}

CUresult cuStreamQuery(CUstream s) {
    BEGIN;
    if (s->member)
        return fake_refuse_capture(s);
    pthread_mutex_lock(&lock);
    CUresult code = !is_idle(s) ? CUDA_ERROR_NOT_READY : s->code;
    pthread_mutex_unlock(&lock);
    return code;
}

void fake_drain(void) {
    pthread_mutex_lock(&lock);
    for (CUstream s = streams; s; s = s ? s->next : streams)
        while (s && !is_idle(s)) {
            pthread_cond_wait(&changed, &lock);
            s = streams;   /* the list may have changed */
        }
    pthread_mutex_unlock(&lock);
}

bool fake_all_idle(void) {
    bool idle = true;
    pthread_mutex_lock(&lock);
    for (CUstream s = streams; s; s = s->next)
        idle = idle && is_idle(s);
    pthread_mutex_unlock(&lock);
    return idle;
}

/* --- events --- */

CUresult cuEventCreate(CUevent *event, uint32_t flags) {
    BEGIN;
    NEED_CONTEXT;
    if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    CUevent made = calloc(1, sizeof *made);
    made->flags = flags;
    if (flags & CU_EVENT_INTERPROCESS)
        made->shared = fake_share(&made->handle, sizeof made->handle, sizeof(counts));
    *event = made;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
    BEGIN;
    if (!(event->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_HANDLE;
    *handle = event->handle;
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
    BEGIN;
    NEED_CONTEXT;
    CUevent made = calloc(1, sizeof *made);
    made->flags = CU_EVENT_DISABLE_TIMING;
    made->handle = handle;
    made->shared = fake_open_shared(&handle);
    *event = made;
    return made->shared ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Waits until the records of all processes are complete that there are now. */
static void wait_for_shared(counts *one, uint64_t recorded) {
    while (one && __atomic_load_n(&one->complete, __ATOMIC_ACQUIRE) < recorded)
        sched_yield();
}

static uint64_t recorded_of(CUevent event) {
    return event->shared ? __atomic_load_n(&event->shared->recorded, __ATOMIC_ACQUIRE) : 0;
}

static void drop(record *one) {   /* the lock is held */
    if (one && !--one->references)
        free(one);
}

CUresult cuEventDestroy_v2(CUevent event) {
    BEGIN;
    pthread_mutex_lock(&lock);
    drop(event->record);
    pthread_mutex_unlock(&lock);
    fake_drop_member(event->place);
    free(event);
    return CUDA_SUCCESS;
}

record *fake_new_record(CUevent event) {
    record *made = calloc(1, sizeof *made);
    made->references = 2;
    made->shared = event->shared;
    if (made->shared)
        __atomic_add_fetch(&made->shared->recorded, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&lock);
    drop(event->record);
    event->record = made;
    pthread_mutex_unlock(&lock);
    return made;
}

record *fake_record_of(CUevent event) {
    pthread_mutex_lock(&lock);
    record *found = event->record;
    if (found)
        found->references++;
    pthread_mutex_unlock(&lock);
    return found;
}

void fake_complete(record *done) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    done->done = true;
    if (done->shared)
        __atomic_add_fetch(&done->shared->complete, 1, __ATOMIC_RELEASE);
    done->time = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    drop(done);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void fake_wait_for(record *done) {
    pthread_mutex_lock(&lock);
    while (done && !done->done)
        pthread_cond_wait(&changed, &lock);
    drop(done);
    pthread_mutex_unlock(&lock);
}

static CUresult run_record(void *data) {
    fake_complete(*(record **)data);
    return CUDA_SUCCESS;
}

static CUresult run_wait(void *data) {
    fake_wait_for(*(record **)data);
    return CUDA_SUCCESS;
}

typedef struct shared_wait {
    counts *event;
    uint64_t recorded;
} shared_wait;

static CUresult run_shared_wait(void *data) {
    shared_wait *one = data;
    wait_for_shared(one->event, one->recorded);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    BEGIN;
    if (stream && stream->member)
        return fake_capture_record(event, stream);
    fake_drop_member(event->place);
    event->place = NULL;
    record *made = fake_new_record(event);
    return fake_push(stream, run_record, &made, sizeof made);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, uint32_t flags) {
    BEGIN;
    if (stream && (stream->member || event->place))
        return fake_capture_wait(stream, event);
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (event->shared) {
        shared_wait one = {event->shared, recorded_of(event)};
        return fake_push(stream, run_shared_wait, &one, sizeof one);
    }
    record *found = fake_record_of(event);
    return found ? fake_push(stream, run_wait, &found, sizeof found) : CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
    BEGIN;
    if (event->place)
        return CUDA_ERROR_CAPTURED_EVENT;
    if (event->shared)
        return __atomic_load_n(&event->shared->complete, __ATOMIC_ACQUIRE) < recorded_of(event)
                   ? CUDA_ERROR_NOT_READY
                   : CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    CUresult code = event->record && !event->record->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}

CUresult cuEventSynchronize(CUevent event) {
    BEGIN;
    if (event->place)
        return CUDA_ERROR_CAPTURED_EVENT;
    wait_for_shared(event->shared, recorded_of(event));
    fake_wait_for(fake_record_of(event));
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    BEGIN;
    CUresult code = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !start->record || !end->record)
        code = CUDA_ERROR_INVALID_HANDLE;
    else if (!start->record->done || !end->record->done)
        code = CUDA_ERROR_NOT_READY;
    else
        *milliseconds = (float)(((double)end->record->time - (double)start->record->time) / 1e6);
    pthread_mutex_unlock(&lock);
    return code;
}

typedef struct host {
    void (*function)(void *);
    void *data;
} host;

static CUresult run_host(void *data) {
    host *one = data;
    fake_call_host(one->function, one->data);
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
    BEGIN;
    host one = {(void (*)(void *))function, data};
    return function ? fake_push(stream, run_host, &one, sizeof one) : CUDA_ERROR_INVALID_VALUE;
}
