/* Launches of the engine `cuda`.
 *
 * The GPU takes 140 µs to change between OpenCL's context and CUDA's, so all commands of a graph
 * run on CUDA's side. A replay that is waited for finishes the queue, launches the graph and waits,
 * in the caller's thread. Any other one is a job, which ends with a user event:
 *
 *     the queue is in order, and has had nothing but replays of the graph since its last job:
 *         the caller launches it into the stream, behind the job before it, and goes on
 *     otherwise: a thread of the graph's waits for what comes before it in the queue, and launches.
 *
 * A replay joins the job before it if nobody has that job's event any more: a loop that drops the
 * events of its replays has one job. It may end later then, which nobody sees.
 *
 * The thread waits for the ends of the jobs, one after the other, and completes their events. What
 * the program enqueues behind a job waits for such an event: cuda_lanes.c sees to it when that
 * comes, or the queue is given a barrier at once. So nothing comes too early, and no call blocks.
 * Who waits for a job in a call completes its event there, since to wake a thread takes 40 µs.
 */
#include "cuda_buffers.h"

#include "waits.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct fl_cuda_job {
    fl_cuda_job *next;
    cl_event before, end;     /* references; `end` is a user event */
    CUevent done;             /* in the stream after the launches; it is used again */
    bool is_launched;         /* or will not be */
    bool is_ending;           /* its event is being completed: nothing joins it */
    enum { ENDED, UNMARKED, MARKED } mark;   /* ENDED: with the launch. MARKED: by that event */
    uint64_t launch;          /* the number of its last launch */
    CUresult code;            /* of the launches */
    cl_int failure;           /* of what it came after */
    uint32_t times, joined, held_count;
    cl_mem *held;             /* references: what the words have the addresses of */
    uint64_t words[];         /* of the cells */
};
typedef fl_cuda_job job;

/* How long the thread looks for another job before it sleeps, in ns: to wake it takes longer than a
 * launch. While one launch follows the other it looks at no ends, because a launch takes twice as
 * long then: until none has come for QUIET, but not longer than LONGEST. */
enum { SOON = 50000, QUIET = 20000, LONGEST = 1000000 };

/* So many replays are one job at most, since a callback may wait for its event. */
enum { MOST_JOINED = 256 };

atomic_uint fl_cuda_failures;

/* Codes after which the context cannot be used: a kernel failed. */
static bool is_deadly(CUresult code) {
    return code >= CUDA_ERROR_ILLEGAL_ADDRESS && code < CUDA_ERROR_NOT_PERMITTED;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of who ended a context */
FL_FREE_IN_CHILD(lock)

/* Nothing runs in the context any more. The first graph to see that is the one that ended it, since
 * only one at a time runs in the stream. Which device of several it was is not said. */
static void lose(const fl_cuda *g, CUresult code) {
    if (!is_deadly(code))
        return;
    FL_HOLD(lock);
    for (uint32_t i = 0; i < g->device_count; i++) {
        fl_cuda_device *d = g->devices[i];
        if (d->lost)
            continue;
        memcpy(d->lost_by, g->title, sizeof d->lost_by);
        __atomic_store_n(&d->lost, code, __ATOMIC_RELEASE);
    }
}

/* The next launches load these words, which live until these launches have ended. */
static CUresult send(fl_cuda *g, const uint64_t *words) {
    const fl_cuda_device *d = g->device;
    size_t size = g->cells.count * sizeof *words;
    if (!size || (g->sent && !memcmp(g->sent, words, size)))
        return CUDA_SUCCESS;
    if (!g->sent && !(g->sent = malloc(size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(g->sent, words, size);
    /* copies to other devices are not in order with the stream */
    CUresult code = g->device_count > 1 ? CU(d, cuStreamSynchronize)(d->stream) : CUDA_SUCCESS;
    for (uint32_t i = 0; i < g->device_count && code == CUDA_SUCCESS; i++)
        if (g->devices[i] == d)
            code = CU(d, cuMemcpyAsync)(g->cells.words[i], (CUdeviceptr)(uintptr_t)words, size,
                                        d->stream);
        else if (!fl_copy_to_cuda(g->devices[i], g->cells.words[i], words, size))
            code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS) {
        free(g->sent);
        g->sent = NULL;
    }
    return code;
}

/* An event in the stream; NULL: there is none. */
static void mark(const fl_cuda_device *d, CUevent *event) {
    if (CU(d, cuEventCreate)(event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
        *event = NULL;
    else if (CU(d, cuEventRecord)(*event, d->stream) != CUDA_SUCCESS) {
        CU(d, cuEventDestroy_v2)(*event);
        *event = NULL;
    }
}

/* The device's time from one event to the other, in ns, UINT64_MAX if it is unknown. The first one
 * comes when the GPU has changed to CUDA's context. The events end here. */
static uint64_t time_between(const fl_cuda_device *d, const CUevent *marks) {
    float milliseconds;
    bool known = marks[0] && marks[1] &&
                 CU(d, cuEventElapsedTime)(&milliseconds, marks[0], marks[1]) == CUDA_SUCCESS;
    for (int i = 0; i < 2; i++)
        if (marks[i])
            CU(d, cuEventDestroy_v2)(marks[i]);
    return known ? (uint64_t)((double)milliseconds * 1e6) : UINT64_MAX;
}

/* Enter the context of a graph whose devices all work. */
static CUresult enter(fl_cuda *g) {
    CUresult code = fl_cuda_lost(g);
    return code == CUDA_SUCCESS ? fl_cuda_enter(g->device) : code;
}

/* Launch and wait. The caller has `running`, so that nobody updates or launches it meanwhile. */
static CUresult launch_here(fl_cuda *g, uint32_t times, const uint64_t *words) {
    fl_cuda_device *d = g->device;
    CUresult code = enter(g);
    if (code != CUDA_SUCCESS)
        return code;
    bool measures = g->timed < FL_CUDA_MEASURED && times;
    CUevent marks[2] = {NULL, NULL};
    int64_t begin = fl_now();
    if (measures)
        mark(d, &marks[0]);
    code = send(g, words);
    for (uint32_t i = 0; i < times && code == CUDA_SUCCESS; i++)
        code = CU(d, cuGraphLaunch)(g->executable, d->stream);
    if (measures)
        mark(d, &marks[1]);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    if (measures) {
        g->taken[g->timed] = (uint64_t)(fl_now() - begin) / times;
        g->on_device[g->timed] = time_between(d, marks) / times;
        g->timed++;
    }
    fl_cuda_leave(d);
    code = code == CUDA_SUCCESS ? end : code;
    lose(g, code);
    return code;
}

static cl_int launch(fl_cuda *g, uint32_t times, const uint64_t *words) {
    FL_HOLD(g->running);
    CUresult code = launch_here(g, times, words);
    return code == CUDA_SUCCESS ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

int fl_run_cuda(void *cuda, uint32_t times) {
    fl_cuda *g = cuda;
    return fl_cuda_lost(g) ? FL_BUILD_ANEW : launch(g, times, g->words);
}

/* Run it so often without a look, and look at the word. The context is current. */
static CUresult run_and_look(fl_cuda *g, uint32_t times, CUdeviceptr word, bool wanted,
                             uint32_t *ran, uint32_t *stopped) {
    const fl_cuda_device *d = g->device;
    uint32_t value = 0;
    CUresult code = times ? CU(d, cuGraphLaunch)(g->executable, d->stream) : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS)
        code = CU(d, cuMemcpyAsync)((CUdeviceptr)(uintptr_t)&value, word, sizeof value, d->stream);
    CUresult end = CU(d, cuStreamSynchronize)(d->stream);
    *ran = times;
    *stopped = (value != 0) == wanted;
    return code == CUDA_SUCCESS ? end : code;
}

/* Whether a WHILE node repeats the graph until this word is as wanted. */
static bool has_loop(fl_cuda *g, CUdeviceptr word) {
    if (g->has_no_loop)
        return false;
    if (g->loop.executable && g->loop.word == word)
        return true;
    fl_drop_loop(g->device, &g->loop);
    g->has_no_loop = fl_build_cuda_loop(g, word) != CUDA_SUCCESS;
    return !g->has_no_loop;
}

/* The look before the first turn is the host's: an IF node takes longer. Where there is no WHILE
 * node, so are the others. They are CUDA's, since OpenCL reads a shared buffer on its own device
 * alone. */
static CUresult run_until(fl_cuda *g, uint32_t times, CUdeviceptr word, bool wanted, bool first,
                          uint32_t *ran, uint32_t *stopped) {
    uint32_t one = 0;
    CUresult code = first ? run_and_look(g, 0, word, wanted, &one, stopped) : CUDA_SUCCESS;
    if (code == CUDA_SUCCESS && !*stopped)
        code = send(g, g->words);
    if (code != CUDA_SUCCESS || *stopped)
        return code;
    if (times > 1 && has_loop(g, word))
        return fl_run_loop(g->device, &g->loop, times, wanted, ran, stopped);
    for (; code == CUDA_SUCCESS && !*stopped && *ran < times; *ran += one)
        code = run_and_look(g, 1, word, wanted, &one, stopped);
    return code;
}

int fl_run_cuda_until(void *cuda, uint32_t times, void *flag, size_t offset, int wanted, int first,
                      uint32_t *ran, uint32_t *stopped) {
    fl_cuda *g = cuda;
    fl_cuda_device *d = g->device;
    CUdeviceptr word = fl_cuda_address(flag);
    *ran = *stopped = 0;
    if (!word || (word += offset) % sizeof(uint32_t) || enter(g) != CUDA_SUCCESS)
        return FL_BUILD_ANEW;
    pthread_mutex_lock(&g->running);
    CUresult code = run_until(g, times, word, wanted, first, ran, stopped);
    pthread_mutex_unlock(&g->running);
    fl_cuda_leave(d);
    lose(g, code);
    return code == CUDA_SUCCESS ? CL_SUCCESS : CL_OUT_OF_RESOURCES;
}

/* Values that differ from turn to turn come one by one. */
int fl_take_series_cuda(void *cuda, const fl_value *values, uint32_t count, uint32_t times) {
    (void)cuda, (void)times;
    for (const fl_value *v = values; v < values + count; v++)
        if (v->series)
            return CL_INVALID_OPERATION;
    return CL_SUCCESS;
}

/* Launch, and go on: the job's mark is still to come. The caller has `running`. */
static CUresult launch_behind(fl_cuda *g, job *j, uint32_t times) {
    fl_cuda_device *d = g->device;
    CUresult code = enter(g);
    if (code != CUDA_SUCCESS)
        return code;
    code = send(g, j->words);
    for (uint32_t i = 0; i < times && code == CUDA_SUCCESS; i++)
        code = CU(d, cuGraphLaunch)(g->executable, d->stream);
    j->mark = code == CUDA_SUCCESS ? UNMARKED : ENDED;
    if (code != CUDA_SUCCESS)   /* some of it may run */
        CU(d, cuStreamSynchronize)(d->stream);
    fl_cuda_leave(d);
    lose(g, code);
    return code;
}

/* Note that a job was launched. The caller has the lock. */
static void note_launch(fl_cuda *g, job *j) {
    j->is_launched = true;
    j->launch = atomic_fetch_add(&g->launches, 1) + 1;
    g->unmarked = j->mark == UNMARKED ? j : NULL;
}

/* Let the event of the job that was launched last come now. The caller has the lock. */
static void mark_newest(fl_cuda *g) {
    const fl_cuda_device *d = g->device;
    job *j = g->unmarked;
    if (!j)
        return;
    CUresult code = enter(g);
    g->unmarked = NULL;
    j->mark = ENDED;
    if (code == CUDA_SUCCESS) {
        if (!j->done)
            code = CU(d, cuEventCreate)(&j->done, CU_EVENT_DISABLE_TIMING);
        if (code == CUDA_SUCCESS)
            code = CU(d, cuEventRecord)(j->done, d->stream);
        if (code == CUDA_SUCCESS)
            j->mark = MARKED;
        else
            CU(d, cuStreamSynchronize)(d->stream);
        fl_cuda_leave(d);
    }
    j->code = code;
}

/* The first ones are measured. The caller is the thread. */
static void launch_job(fl_cuda *g, job *j) {
    FL_HOLD(g->running);
    j->code = g->timed < FL_CUDA_MEASURED ? launch_here(g, j->times, j->words)
                                          : launch_behind(g, j, j->times);
}

/* A launch of what the cells are now. */
static job *new_job(fl_cuda *g, uint32_t times) {
    uint32_t count = g->cells.count;
    pthread_mutex_lock(&g->lock);
    job *j = g->idle;
    if (j)
        g->idle = j->next;
    pthread_mutex_unlock(&g->lock);
    CUevent done = j ? j->done : NULL;
    if (!j)
        j = malloc(sizeof *j + count * (sizeof *j->words + sizeof *j->held));
    if (!j)
        return NULL;
    *j = (job){.times = times, .done = done, .held = (cl_mem *)(j->words + count)};
    for (uint32_t i = 0; i < count; i++) {
        const fl_cell *cell = g->cells.list[i].cell;
        j->words[i] = g->words[i];
        if (cell->conversion ==
            FL_AS_MEMORY) { /* the program may set the Parameter to another one and release it */
            cl_mem object = j->held[j->held_count++] = fl_object_of(cell);
            CALL(fl_table_of(object), clRetainMemObject)(object);
        }
    }
    return j;
}

static void drop(fl_cuda *g, job *j) {
    for (uint32_t i = 0; i < j->held_count; i++)
        CALL(fl_table_of(j->held[i]), clReleaseMemObject)(j->held[i]);
    if (j->end)
        CALL(fl_table_of(j->end), clReleaseEvent)(j->end);
    if (j->before)
        CALL(fl_table_of(j->before), clReleaseEvent)(j->before);
    FL_HOLD(g->lock);
    j->next = g->idle;
    g->idle = j;
}

void fl_free_jobs(fl_cuda *g, bool with_events) {
    for (job *j = g->idle; j && with_events; j = j->next)
        if (j->done)
            CU(g->device, cuEventDestroy_v2)(j->done);
    for (job *j = g->idle, *next; j && !with_events; j = next) {
        next = j->next;
        free(j);
    }
}

static cl_int wait_for_turn(const job *j) {
    cl_int code = CALL(fl_table_of(j->before), clWaitForEvents)(1, &j->before);
    return code == CL_SUCCESS && fl_has_failed(j->before)
               ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
               : code;
}

/* Launch the first job that is not launched. The caller has the lock, which is given up meanwhile.
 */
static void launch_next(fl_cuda *g, job *j) {
    mark_newest(g);
    pthread_mutex_unlock(&g->lock);
    launch_job(g, j);
    pthread_mutex_lock(&g->lock);
}

/* The same of the oldest job, after what comes before it, and of those behind it that come after
 * nothing else. */
static void launch_oldest(fl_cuda *g, job *oldest) {
    cl_int code = CL_SUCCESS;
    if (oldest->before && !oldest->is_launched) {
        pthread_mutex_unlock(&g->lock);
        code = wait_for_turn(oldest);
        pthread_mutex_lock(&g->lock);
    }
    for (job *j = oldest; j && (j == oldest || !j->before); j = j->next) {
        if (j->is_launched)
            continue;
        if (j != oldest || code == CL_SUCCESS)
            launch_next(g, j);
        else
            j->failure = code;
        note_launch(g, j);
        g->unlaunched--;
    }
    pthread_cond_broadcast(&g->changed);
}

static cl_int status_of(const job *j, CUresult code) {
    if (j->code != CUDA_SUCCESS || code != CUDA_SUCCESS)
        return CL_OUT_OF_RESOURCES;
    return j->failure;
}

/* The jobs up to a launch have ended. Complete their events, in their order. */
static void end_jobs(fl_cuda *g, uint64_t launch, CUresult code) {
    pthread_mutex_lock(&g->ending);
    pthread_mutex_lock(&g->lock);
    for (job *j = g->first; j && j->is_launched && j->launch <= launch; j = g->first) {
        cl_int status = status_of(j, code);
        j->is_ending = true;
        if (g->unmarked == j)
            g->unmarked = NULL;
        pthread_mutex_unlock(&g->lock);
        if (status != CL_SUCCESS)
            atomic_fetch_add(&fl_cuda_failures, 1);
        CALL(fl_table_of(j->end), clSetUserEventStatus)(j->end, status);
        pthread_mutex_lock(&g->lock);
        g->first = j->next;
        pthread_mutex_unlock(&g->lock);
        drop(g, j);
        pthread_mutex_lock(&g->lock);
        atomic_fetch_sub(&g->unfinished, 1);
    }
    if (!g->first)
        atomic_store(&g->hurries, false);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_mutex_unlock(&g->ending);
}

/* Wait until a job ends, and end it. The caller has the lock, which is given up. */
static void end_oldest(fl_cuda *g, job *j) {
    const fl_cuda_device *d = g->device;
    if (g->unmarked == j)
        mark_newest(g);
    bool is_marked = j->mark == MARKED;
    CUevent done = j->done;
    uint64_t launch = j->launch;
    pthread_mutex_unlock(&g->lock);
    CUresult code = is_marked ? fl_cuda_enter(d) : CUDA_SUCCESS;
    if (is_marked && code == CUDA_SUCCESS) {
        code = CU(d, cuEventSynchronize)(done);
        fl_cuda_leave(d);
        lose(g, code);
    }
    end_jobs(g, launch, code);
}

/* Wait for the newest launch in this thread, and end what has ended then. */
static void end_here(fl_cuda *g, uint64_t launch) {
    const fl_cuda_device *d = g->device;
    CUresult code = fl_cuda_enter(d);
    if (code == CUDA_SUCCESS) {   /* the fastest wait */
        code = CU(d, cuStreamSynchronize)(d->stream);
        fl_cuda_leave(d);
        lose(g, code);
    }
    end_jobs(g, launch, code);
}

cl_event fl_begin_end(fl_cuda *g, cl_event wanted, uint64_t *launch) {
    pthread_mutex_lock(&g->lock);
    cl_event end = fl_last_end(g);
    bool is_fit = end && !g->unlaunched && (!wanted || wanted == end);
    *launch = is_fit ? g->newest->launch : 0;
    g->waiters += is_fit;
    pthread_mutex_unlock(&g->lock);
    return end;
}

void fl_end_launches(fl_cuda *g, uint64_t launch) {
    if (!launch)
        return;
    end_here(g, launch);
    pthread_mutex_lock(&g->lock);
    g->waiters--;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Another job comes soon, often. */
static void look_for_job(fl_cuda *g) {
    for (int64_t end = fl_now() + SOON; !atomic_load(&g->unfinished) && fl_now() < end;)
        sched_yield();
}

/* Launches follow each other. Nobody waits for one. */
static void wait_for_quiet(fl_cuda *g) {
    enum { PAUSES = 32 };   /* to look takes the caller's cache line from it */
    int64_t begin = fl_now(), last = begin;
    uint64_t count = atomic_load(&g->launches);
    for (int64_t time = begin; time - last < QUIET && time - begin < LONGEST; time = fl_now()) {
        uint64_t launches = atomic_load(&g->launches);
        if (atomic_load(&g->hurries) || !atomic_load(&g->unfinished))
            return;
        if (launches != count)
            last = time;
        count = launches;
        for (int i = 0; i < PAUSES; i++)
            fl_pause();
        sched_yield();
    }
}

/* The graph's thread. It ends when the graph is released and nothing is left to do. */
static void *work(void *cuda) {
    fl_cuda *g = cuda;
    pthread_mutex_lock(&g->lock);
    for (;;) {
        while (g->waiters || (!g->first && !g->closing))
            pthread_cond_wait(&g->changed, &g->lock);
        if (!g->first)
            break;
        if (g->unlaunched)
            launch_oldest(g, g->first);
        pthread_mutex_unlock(&g->lock);
        wait_for_quiet(g);
        pthread_mutex_lock(&g->lock);
        if (!g->first || !g->first->is_launched || g->waiters)
            continue;
        end_oldest(g, g->first);
        look_for_job(g);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    fl_destroy_cuda(g);
    return NULL;
}

cl_event fl_last_end(fl_cuda *g) {
    cl_event end = g->first ? g->newest->end : NULL;
    atomic_store(&g->hurries, end != NULL);
    if (end)
        CALL(fl_table_of(end), clRetainEvent)(end);
    return end;
}

/* The caller has the lock. */
static bool has_thread(fl_cuda *g) {
    pthread_t thread;
    g->has_thread = g->has_thread || fl_start_thread(&thread, NULL, work, g);
    return g->has_thread;
}

/* The caller has the lock, and there is a thread. */
static void append(fl_cuda *g, job *j) {
    if (g->first)
        g->newest->next = j;
    else
        g->first = j;
    g->newest = j;
    g->unlaunched += !j->is_launched;
    atomic_fetch_add(&g->unfinished, 1);
    pthread_cond_broadcast(&g->changed);
}

/* Whether the job is in the queue's lane now. If it comes after nothing else it is launched at
 * once, unless the one before it is not. Where the lane is shared, it has to be. */
static bool follow(fl_cuda *g, cl_command_queue queue, job *j) {
    pthread_mutex_lock(&g->lock);
    bool launches = false, follows = g->lane == queue && has_thread(g);
    if (follows && !j->before && !g->unlaunched) {
        mark_newest(g);
        pthread_mutex_lock(&g->running);
        launches = g->timed == FL_CUDA_MEASURED;
        if (launches)
            j->code = launch_behind(g, j, j->times);
        pthread_mutex_unlock(&g->running);
    }
    follows &= launches || !g->shares_lane;
    if (launches)
        note_launch(g, j);
    if (follows)
        append(g, j);
    pthread_mutex_unlock(&g->lock);
    return follows;
}

/* Whether only we know of a job's event. */
static bool is_unseen(const job *j) {
    cl_uint count = 0, ours = 1 + (j->end == fl_repeated.event ? fl_repeated.references : 0);
    fn_clGetEventInfo *ask = CALL(fl_table_of(j->end), clGetEventInfo);
    return ask(j->end, CL_EVENT_REFERENCE_COUNT, sizeof count, &count, NULL) == CL_SUCCESS &&
           count == ours;
}

/* The newest job, if a replay may join it. The caller has the lock. */
static job *find_joined(const fl_cuda *g, cl_command_queue queue) {
    job *j = g->first ? g->newest : NULL;
    bool fits = j && g->lane == queue && !g->unlaunched && !j->is_ending && !j->failure &&
                j->code == CUDA_SUCCESS && j->mark != ENDED && j->joined < MOST_JOINED &&
                !memcmp(j->words, g->words, g->cells.count * sizeof *g->words);
    return fits && is_unseen(j) ? j : NULL;
}

/* Launch as a part of the newest job. Its event is returned, without a reference; NULL: that
 * cannot be. */
static cl_event join(fl_cuda *g, cl_command_queue queue, uint32_t times) {
    pthread_mutex_lock(&g->lock);
    job *j = find_joined(g, queue);
    if (j) {
        pthread_mutex_lock(&g->running);
        j->code = launch_behind(g, j, times);
        pthread_mutex_unlock(&g->running);
        j->joined++;
        note_launch(g, j);
    }
    cl_event end = j ? j->end : NULL;
    pthread_mutex_unlock(&g->lock);
    return end;
}

/* The place of a replay in the order of its queue. */
static cl_int put_place(const fl_cuda *g, cl_command_queue queue, cl_uint waits,
                        const cl_event *list, cl_event *event) {
    void **t = fl_table_of(queue);
    return g->beside ? fl_put_place(queue, 0, waits, (void *const *)list, (void **)event)
                     : CALL(t, clEnqueueBarrierWithWaitList)(queue, waits, list, event);
}

/* Give the thread a job that comes after what is in the queue, and after the list. What comes next
 * waits for its end, because the job is in a lane, or by a barrier with the event *end. */
static cl_int give(fl_cuda *g, cl_command_queue queue, job *j, cl_uint waits, const cl_event *list,
                   cl_event *end) {
    void **t = fl_table_of(queue);
    cl_int code;
    fl_close_lane(g);
    if (g->in_order && fl_open_lane(g, queue)) {
        fn_clEnqueueBarrierWithWaitList *put = (fn_clEnqueueBarrierWithWaitList *)fl_own_call(
            queue, SLOT_clEnqueueBarrierWithWaitList);
        code = put(queue, waits, list, &j->before);
    } else
        code = put_place(g, queue, waits, list, &j->before);
    if (code == CL_SUCCESS && follow(g, queue, j)) {
        CALL(t, clFlush)(queue);
        return CL_SUCCESS;
    }
    if (code == CL_SUCCESS)
        code = put_place(g, queue, 1, &j->end, end);
    else
        fl_close_lane(g);
    CALL(t, clFlush)(queue);
    FL_HOLD(g->lock);
    if (code == CL_SUCCESS && has_thread(g)) {
        atomic_store(&g->hurries, true);   /* the queue waits for it */
        append(g, j);
    } else if (code == CL_SUCCESS)
        code = CL_OUT_OF_HOST_MEMORY;
    return code;
}

int fl_enqueue_cuda(void *cuda, void *const *queues, uint32_t queue_count, uint32_t times,
                    uint32_t wait_count, void *const *wait_list, void **event, uint32_t *failed) {
    fl_cuda *g = cuda;
    cl_command_queue queue = *queues;
    void **table = fl_table_of(queue);
    cl_int code = CL_OUT_OF_HOST_MEMORY;
    (void)queue_count;
    *failed = UINT32_MAX;
    if (fl_cuda_lost(g))
        return FL_BUILD_ANEW;
    cl_event joined = event && !wait_count ? join(g, queue, times) : NULL;
    if (joined) {
        *event = joined;
        if (joined != fl_repeated.event)
            CALL(table, clRetainEvent)(joined);
        return CL_SUCCESS;
    }
    job *j = new_job(g, times);
    if (!j)
        return code;
    cl_event last = NULL, end = j->end = CALL(table, clCreateUserEvent)(g->context, &code);
    if (end)
        CALL(table, clRetainEvent)(end);   /* the job may end here and now */
    bool follows = code == CL_SUCCESS && !wait_count &&
                   (follow(g, queue, j) ||
                    (g->in_order && fl_share_lane(g, queue) && follow(g, queue, j)));
    if (code == CL_SUCCESS && !follows)
        code = give(g, queue, j, wait_count, (const cl_event *)wait_list, &last);
    if (code != CL_SUCCESS) {
        if (end)
            CALL(table, clSetUserEventStatus)(end, code);
        drop(g, j);
    }
    bool is_wanted = event && code == CL_SUCCESS;
    cl_event given = last ? last : end, other = last ? end : NULL;
    if (is_wanted)
        *event = given;
    else if (given)
        CALL(table, clReleaseEvent)(given);
    if (other)
        CALL(table, clReleaseEvent)(other);
    return code;
}

/* What comes after that, and nothing that is waited for, is behind a lane that opens here. */
int fl_finish_for_cuda(void *cuda, void *queue) {
    fl_cuda *g = cuda;
    cl_command_queue q = queue;
    pthread_mutex_lock(&g->lock);
    bool has_lane = g->lane == q;
    pthread_mutex_unlock(&g->lock);
    if ((has_lane || (g->in_order && fl_share_lane(g, q))) && fl_finish_lanes(q))
        return CL_SUCCESS;
    fl_close_lane(g);
    bool opens = g->in_order && fl_open_lane(g, q);
    cl_int code = CALL(fl_table_of(q), clFinish)(q);
    if (opens && code != CL_SUCCESS)
        fl_close_lane(g);
    return code;
}

int fl_cuda_times(fl_cuda *g, uint64_t *taken, uint64_t *on_device) {
    if (pthread_mutex_trylock(&g->running))
        return 0; /* nobody waits for a replay here */
    bool known = g->timed == FL_CUDA_MEASURED;
    if (known) {
        memcpy(taken, g->taken, sizeof g->taken);
        memcpy(on_device, g->on_device, sizeof g->on_device);
    }
    pthread_mutex_unlock(&g->running);
    return known;
}

void fl_measure_cuda_again(fl_cuda *g) {
    if (pthread_mutex_trylock(&g->running))
        return; /* a replay runs: the times of the last ones count */
    g->timed = 0;
    pthread_mutex_unlock(&g->running);
}
