/* The threads that run long launches together with the thread that runs an image: pieces of one
 * launch, or launches that need no order.
 *
 * There is one pool of threads, and one run at a time has it. Each thread has a ticket: which work
 * it is, and how many of its own pieces are left. A thread without pieces steals from a stalled
 * thread. So no thread waits for a descheduled one. In each replay a thread has the same pieces,
 * whose memory is in its cache. Every second work is taken from its end on: what was used last is
 * used first, and the cache still has it. A thread without work looks for more for some
 * microseconds, for the next launch often follows at once. Then it sleeps. The system may wake it
 * on the processor of the run, and leave it there. So it is kept away from that one. */
#define _GNU_SOURCE
#include "direct.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 2000             /* before it sleeps, or before others get the run's processor */
#define PATIENCE 50            /* looks at another thread that begins no piece */
#define STACK ((size_t)8 << 20)
#define UNKNOWN (-1)           /* a processor */
#define LINE 64                /* of a cache: who waits looks at one that is seldom written */

static struct {
    pthread_mutex_t owner;     /* held by the run that has the pool */
    pthread_mutex_t lock;      /* of those who sleep */
    pthread_cond_t woken;
    atomic_uint sleepers, ready;
    uint32_t started;
    struct {
        _Alignas(LINE) atomic_uint number;        /* of the last work, stored when all else is */
        atomic_uint threads;                      /* with the one that runs the image */
        fl_work work;
    } last;
    struct {
        /* The number of the work, and how many pieces are left; how many this thread has run. */
        _Alignas(LINE) _Atomic uint64_t ticket;
        _Alignas(LINE) _Atomic uint64_t ended;
        pthread_t thread;
        int away;                                 /* the processor that it does not use */
        atomic_int processor;                     /* where it woke; UNKNOWN since `away` changed */
    } members[FL_MOST_THREADS];
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .woken = PTHREAD_COND_INITIALIZER};

static inline void pause_briefly(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static uint64_t of_work(uint32_t number, uint32_t count) { return (uint64_t)number << 32 | count; }

static uint32_t first_piece(uint32_t member, uint32_t threads) {
    return pool.last.work.pieces * member / threads;
}

/* How many pieces a member has not begun. */
static uint32_t left_of(uint32_t member, uint32_t number) {
    uint64_t ticket = atomic_load_explicit(&pool.members[member].ticket, memory_order_acquire);
    return ticket >> 32 == number ? (uint32_t)ticket : 0;
}

/* Run the next piece of a member's, of which so many are left. Until it has ended, `last` stays as
 * it is. false: it is not the next any more. */
static bool take_piece(uint32_t member, uint32_t number, uint32_t left, unsigned *flags) {
    uint64_t ticket = of_work(number, left);
    _Atomic uint64_t *place = &pool.members[member].ticket;
    if (!left || !atomic_compare_exchange_strong(place, &ticket, ticket - 1))
        return false;
    uint32_t threads = atomic_load_explicit(&pool.last.threads, memory_order_relaxed);
    uint32_t first = first_piece(member, threads), end = first_piece(member + 1, threads);
    uint32_t piece = number % 2 ? first + left - 1 : end - left;
    fl_run_piece(&pool.last.work, piece, flags);
    return true;
}

/* Run a thread's own pieces, then those of others that begin none for a while: their memory is in
 * the others' caches, where the next work would need it again. The answer is how many it were. */
static uint32_t take_pieces(uint32_t member, uint32_t number, unsigned *flags) {
    uint32_t threads = atomic_load_explicit(&pool.last.threads, memory_order_relaxed), done = 0;
    for (uint32_t i = 0; member < threads && i < threads; i++) {
        uint32_t of = (member + i) % threads, looks = i ? 0 : PATIENCE;
        for (uint32_t left, before = UINT32_MAX; (left = left_of(of, number)) != 0; before = left) {
            if (i && left != before)
                looks = 0;
            if (looks++ < PATIENCE)
                pause_briefly();
            else if (take_piece(of, number, left, flags)) {
                done++;
                left--;
            }
        }
        atomic_store(&pool.members[member].ended, of_work(number, done));
    }
    return done;
}

static void sleep_until_there_is_work(uint32_t seen) {
    pthread_mutex_lock(&pool.lock);
    atomic_fetch_add(&pool.sleepers, 1);
    while (atomic_load(&pool.last.number) == seen)
        pthread_cond_wait(&pool.woken, &pool.lock);
    atomic_fetch_sub(&pool.sleepers, 1);
    pthread_mutex_unlock(&pool.lock);
}

static void *help(void *number) {
    uint32_t member = (uint32_t)(uintptr_t)number, seen = 0;
    unsigned flags = fl_present_flags();
    atomic_store(&pool.members[member].processor, sched_getcpu());
    atomic_fetch_add(&pool.ready, 1);
    for (uint32_t looks = 0;; looks++) {
        uint32_t present = atomic_load(&pool.last.number);
        if (present != seen) {
            seen = present;
            take_pieces(member, seen, &flags);
            looks = 0;
        } else if (looks < LOOKS)
            pause_briefly();
        else {
            sleep_until_there_is_work(seen);
            atomic_store(&pool.members[member].processor, sched_getcpu());
            looks = 0;
        }
    }
    return NULL;
}

/* In a forked child there is none of these threads. */
static void forget_pool(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.woken, NULL);
    atomic_store(&pool.sleepers, 0);
    atomic_store(&pool.ready, 0);
    pool.started = 0;
    for (uint32_t i = 0; i < FL_MOST_THREADS; i++)
        atomic_store(&pool.members[i].ticket, 0);
}

/* The processors of the process without one, if that leaves any. */
static bool all_but(int processor, cpu_set_t *found) {
    if (sched_getaffinity(getpid(), sizeof *found, found) != 0)
        return false;
    if (processor >= 0 && CPU_COUNT(found) > 1)
        CPU_CLR((size_t)processor, found);
    return true;
}

/* One more thread, on other processors than this one. It gets no signals. */
static bool start(uint32_t member) {
    static bool told;
    pthread_attr_t attributes;
    cpu_set_t processors;
    sigset_t all, before;
    if (!told && pthread_atfork(NULL, NULL, forget_pool) != 0)
        return false;
    told = true;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    int here = pool.members[member].away = sched_getcpu();
    atomic_store(&pool.members[member].processor, UNKNOWN);
    if (all_but(here, &processors))
        pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t *thread = &pool.members[member].thread;
    bool made = pthread_create(thread, &attributes, help, (void *)(uintptr_t)member) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return made;
}

/* A new thread may be put on the processor of this one, which keeps it busy for milliseconds. */
static void wait_until_ready(void) {
    static const struct timespec briefly = {.tv_nsec = 50000};
    for (int i = 0; i < 20 && atomic_load(&pool.ready) < pool.started; i++)
        nanosleep(&briefly, NULL);
}

/* Threads that may be on this processor go to others. */
static void keep_away(uint32_t threads) {
    int here = sched_getcpu();
    for (uint32_t i = 1; i < threads && i <= pool.started; i++) {
        int processor = atomic_load(&pool.members[i].processor);
        bool elsewhere = processor != here && processor != UNKNOWN;
        cpu_set_t processors;
        if (elsewhere || pool.members[i].away == here || !all_but(here, &processors))
            continue;
        atomic_store(&pool.members[i].processor, UNKNOWN);
        pool.members[i].away = here;
        pthread_setaffinity_np(pool.members[i].thread, sizeof processors, &processors);
    }
}

bool fl_take_threads(uint32_t threads) {
    if (pthread_mutex_trylock(&pool.owner) != 0)
        return false;
    uint32_t before = pool.started;
    while (pool.started + 1 < threads && start(pool.started + 1))
        pool.started++;
    if (pool.started > before)
        wait_until_ready();
    keep_away(threads);
    atomic_store(&pool.last.threads, threads);
    return true;
}

void fl_give_threads_back(void) { pthread_mutex_unlock(&pool.owner); }

/* How many pieces of a work the other threads have told that they have run. */
static uint32_t ended(uint32_t number, uint32_t threads) {
    uint32_t count = 0;
    for (uint32_t i = 1; i < threads; i++) {
        uint64_t told = atomic_load_explicit(&pool.members[i].ended, memory_order_acquire);
        count += told >> 32 == number ? (uint32_t)told : 0;
    }
    return count;
}

void fl_run_together(const fl_work *work, unsigned *flags) {
    uint32_t threads = atomic_load(&pool.last.threads), number = atomic_load(&pool.last.number) + 1;
    pool.last.work = *work;
    for (uint32_t i = 0; i < threads; i++) {
        uint32_t count = first_piece(i + 1, threads) - first_piece(i, threads);
        atomic_store(&pool.members[i].ticket, of_work(number, count));
    }
    atomic_store(&pool.last.number, number);
    if (atomic_load(&pool.sleepers)) {
        pthread_mutex_lock(&pool.lock);
        pthread_cond_broadcast(&pool.woken);
        pthread_mutex_unlock(&pool.lock);
    }
    uint32_t own = take_pieces(0, number, flags);
    for (uint32_t looks = 0; own + ended(number, threads) < work->pieces; looks++)
        if (looks < LOOKS)
            pause_briefly();
        else
            sched_yield();
}
