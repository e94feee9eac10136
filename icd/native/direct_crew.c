/* The threads that run long launches together with the thread that runs an image: pieces of one launch, or launches that need no order.
 *
 * There is one crew, and one run at a time has it. Each thread has a ticket: which work it is, and how many of its own pieces are left. Who has
 * none left takes those of others. So a thread has the same pieces in each replay, whose memory is in its cache, and none waits for a thread
 * that is kept from running. A thread without work looks for more for some microseconds, for the next launch often follows at once. Then it
 * sleeps. */
#define _GNU_SOURCE
#include "direct.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define LOOKS 2000             /* before it sleeps, and before the run lets others have its processor */
#define STACK ((size_t)8 << 20)
#define LINE 64                /* of a cache: one thread writes its ticket seldom where others look */

static struct {
    pthread_mutex_t owner;     /* held by the run that has the crew */
    pthread_mutex_t lock;      /* of those who sleep */
    pthread_cond_t woken;
    uint32_t sleepers, started;
    atomic_uint threads;       /* that may take pieces, with the one that runs the image */
    uint32_t number;           /* of the last work */
    fl_work work;
    struct {
        _Alignas(LINE) _Atomic uint64_t ticket;   /* the number of the work, and how many pieces are left */
    } members[FL_MOST_THREADS];
    _Alignas(LINE) atomic_uint open;              /* pieces that have not ended */
} crew = {.owner = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .woken = PTHREAD_COND_INITIALIZER};

static inline void pause_briefly(void) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static uint32_t first_piece(uint32_t member, uint32_t threads) { return crew.work.pieces * member / threads; }

/* Run a piece of a member's, if one is left. Until it has ended, `work` stays as it is. */
static bool take_piece_of(uint32_t member, unsigned *flags) {
    uint64_t ticket = atomic_load_explicit(&crew.members[member].ticket, memory_order_acquire);
    if (!(uint32_t)ticket || !atomic_compare_exchange_strong(&crew.members[member].ticket, &ticket, ticket - 1))
        return false;
    fl_run_piece(&crew.work, first_piece(member + 1, atomic_load(&crew.threads)) - (uint32_t)ticket, flags);
    atomic_fetch_sub(&crew.open, 1);
    return true;
}

/* Run one of a thread's own pieces, or else one of the others'. */
static bool take_piece(uint32_t member, unsigned *flags) {
    uint32_t threads = atomic_load_explicit(&crew.threads, memory_order_relaxed);
    for (uint32_t i = 0; member < threads && i < threads; i++)
        if (take_piece_of((member + i) % threads, flags))
            return true;
    return false;
}

static bool pieces_are_left(void) {
    for (uint32_t i = 0; i < FL_MOST_THREADS; i++)
        if ((uint32_t)atomic_load(&crew.members[i].ticket))
            return true;
    return false;
}

static void sleep_until_there_is_work(void) {
    pthread_mutex_lock(&crew.lock);
    crew.sleepers++;
    while (!pieces_are_left())
        pthread_cond_wait(&crew.woken, &crew.lock);
    crew.sleepers--;
    pthread_mutex_unlock(&crew.lock);
}

static void *help(void *number) {
    uint32_t member = (uint32_t)(uintptr_t)number;
    unsigned flags = fl_present_flags();
    for (uint32_t looks = 0;; looks++)
        if (take_piece(member, &flags))
            looks = 0;
        else if (looks < LOOKS)
            pause_briefly();
        else {
            sleep_until_there_is_work();
            looks = 0;
        }
    return NULL;
}

/* In a forked child there is none of these threads. */
static void forget_crew(void) {
    pthread_mutex_init(&crew.owner, NULL);
    pthread_mutex_init(&crew.lock, NULL);
    pthread_cond_init(&crew.woken, NULL);
    crew.sleepers = crew.started = 0;
    for (uint32_t i = 0; i < FL_MOST_THREADS; i++)
        atomic_store(&crew.members[i].ticket, 0);
}

/* One more thread, on the processors of the process, which gets no signals. */
static bool start(uint32_t member) {
    static bool told;
    pthread_attr_t attributes;
    pthread_t thread;
    cpu_set_t processors;
    sigset_t all, before;
    if (!told && pthread_atfork(NULL, NULL, forget_crew) != 0)
        return false;
    told = true;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    if (sched_getaffinity(getpid(), sizeof processors, &processors) == 0)
        pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, &attributes, help, (void *)(uintptr_t)member) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return made;
}

bool fl_take_crew(uint32_t threads) {
    if (pthread_mutex_trylock(&crew.owner) != 0)
        return false;
    while (crew.started + 1 < threads && start(crew.started + 1))
        crew.started++;
    atomic_store(&crew.threads, threads);
    return true;
}

void fl_give_crew_back(void) { pthread_mutex_unlock(&crew.owner); }

void fl_run_together(const fl_work *work, unsigned *flags) {
    uint32_t threads = atomic_load(&crew.threads);
    uint64_t number = ++crew.number;
    crew.work = *work;
    atomic_store(&crew.open, work->pieces);
    for (uint32_t i = 0; i < threads; i++)
        atomic_store(&crew.members[i].ticket, number << 32 | (first_piece(i + 1, threads) - first_piece(i, threads)));
    pthread_mutex_lock(&crew.lock);
    if (crew.sleepers)
        pthread_cond_broadcast(&crew.woken);
    pthread_mutex_unlock(&crew.lock);
    while (take_piece(0, flags) || pieces_are_left())   /* another thread may have taken it meanwhile */
        ;
    for (uint32_t looks = 0; atomic_load(&crew.open); looks++)
        if (looks < LOOKS)
            pause_briefly();
        else
            sched_yield();
}
