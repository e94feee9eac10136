/* The threads that run long launches together with the thread that runs a script: pieces of one
 * launch, or launches that need no order.
 *
 * A run takes a team of threads that no other run has. While several runs want threads at the same
 * time, each gets its share of the processors, which its own thread has a part in. Each thread has
 * a ticket: which work it is, and how many of its own pieces are left. A thread without pieces
 * steals from a stalled thread of the team. So no thread waits for a descheduled one. In each
 * replay a thread has the same pieces, whose memory is in its cache. Every second work is taken
 * from its end on: what was used last is used first, and the cache still has it. The system may
 * wake a thread on the processor of the run, and leave it there. So it is kept away from that one.
 *
 * A thread without work looks at its ticket for a while, for the next launch often follows at once.
 * Then it sleeps, and to wake it takes longer than a short work. So a short work is shared with
 * threads that are awake, and wakes those that sleep only if there was another one shortly before.
 * Where other programs want the processors, it is not shared: a thread that lost its processor
 * amid a piece would hold up the run. */
#define _GNU_SOURCE
#include "direct.h"
#include "float_flags.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 2000             /* before others get the run's processor */
#define LOOKED 50000           /* ns: so long a thread looks for work */
#define LATE 20000             /* ns more than it should take: another program had the processor */
#define CROWDED 2000000        /* ns: so long after that short works are not shared */
#define PATIENCE 50            /* looks at another thread that begins no piece */
#define STACK ((size_t)8 << 20)
#define UNKNOWN (-1)           /* a processor */
#define LINE 64                /* of a cache: who waits looks at one that is seldom written */
#define MOST_TEAMS 8

/* A thread that takes pieces. Those of a team's run come first, then those that help. */
typedef struct member {
    /* The number of the work, and how many pieces are left; how many this thread has run. */
    _Alignas(LINE) _Atomic uint64_t ticket;
    _Alignas(LINE) _Atomic uint64_t ended;
    _Atomic(fl_team *) team;   /* of the work, stored before the ticket */
    atomic_uint place;         /* in the team */
    atomic_bool sleeps;
    pthread_cond_t woken;
    pthread_t thread;
    bool taken;
    int away;                  /* the processor that it does not use */
    atomic_int processor;      /* where it woke; UNKNOWN since `away` changed */
} member;

/* One that is late may still look at a work that has ended, whose team another run has by now. So
 * what it reads is atomic, or it reads it with a piece of the present work in its hand. */
struct fl_team {
    bool taken;
    uint32_t size;
    atomic_uint threads;       /* of the present work */
    _Atomic(member *) members[FL_MOST_THREADS];   /* the one that runs the script is the first */
    fl_work work;
    bool is_second;
};

static struct {
    pthread_mutex_t lock;      /* of who is taken, and of those who sleep */
    atomic_uint number;        /* of the last work of any team */
    atomic_uint runs, ready;
    _Atomic int64_t last, crowded;   /* the end of the last short work; till when none is shared */
    uint32_t started;
    member own[MOST_TEAMS], helpers[FL_MOST_THREADS - 1];
    fl_team teams[MOST_TEAMS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t of_work(uint32_t number, uint32_t count) { return (uint64_t)number << 32 | count; }

static uint32_t first_piece(const fl_team *team, uint32_t place, uint32_t threads) {
    return (uint32_t)((uint64_t)team->work.pieces * place / threads);
}

/* How many pieces a member has not begun. */
static uint32_t left_of(member *m, uint32_t number) {
    uint64_t ticket = atomic_load_explicit(&m->ticket, memory_order_acquire);
    return ticket >> 32 == number ? (uint32_t)ticket : 0;
}

/* Run the next piece of a member's, of which so many are left. Until it has ended, the work stays
 * as it is. false: it is not the next any more. */
static bool take_piece(fl_team *team, member *m, uint32_t place, uint32_t number, uint32_t left,
                       uint32_t *flags) {
    uint64_t ticket = of_work(number, left);
    if (!left || !atomic_compare_exchange_strong(&m->ticket, &ticket, ticket - 1))
        return false;
    uint32_t threads = atomic_load_explicit(&team->threads, memory_order_relaxed);
    uint32_t first = first_piece(team, place, threads),
             end = first_piece(team, place + 1, threads);
    fl_run_piece(&team->work, team->is_second ? first + left - 1 : end - left, flags);
    return true;
}

/* Run a thread's own pieces, then those of others that begin none for a while: their memory is in
 * the others' caches, where the next work would need it again. The answer is how many it were. */
static uint32_t take_pieces(member *m, uint32_t number, uint32_t *flags) {
    fl_team *team = atomic_load(&m->team);
    uint32_t place = atomic_load(&m->place), threads = atomic_load(&team->threads), done = 0;
    for (uint32_t i = 0; i < threads; i++) {
        uint32_t of = (place + i) % threads, looks = i ? 0 : PATIENCE;
        member *other = atomic_load(&team->members[of]);
        for (uint32_t left, before = UINT32_MAX; (left = left_of(other, number)) != 0;
             before = left) {
            if (i && left != before)
                looks = 0;
            if (looks++ < PATIENCE)
                fl_pause();
            else if (take_piece(team, other, of, number, left, flags)) {
                done++;
                left--;
            }
        }
        atomic_store(&m->ended, of_work(number, done));
    }
    return done;
}

static uint32_t number_of(member *m) { return (uint32_t)(atomic_load(&m->ticket) >> 32); }

static void sleep_until_there_is_work(member *m, uint32_t seen) {
    FL_HOLD(pool.lock);
    atomic_store(&m->sleeps, true);
    while (number_of(m) == seen)
        pthread_cond_wait(&m->woken, &pool.lock);
    atomic_store(&m->sleeps, false);
}

/* Whether a thread goes on looking. Others need the processor more if it was away from it. */
static bool goes_on(int64_t began, int64_t *last) {
    int64_t now = fl_now(), before = *last;
    *last = now;
    if (now - before <= LATE)
        return now - began < LOOKED;
    atomic_store(&pool.crowded, now + CROWDED);
    return false;
}

static void *help(void *self) {
    member *m = self;
    uint32_t seen = 0;
    uint32_t flags = fl_float_flags();
    atomic_store(&m->processor, sched_getcpu());
    atomic_fetch_add(&pool.ready, 1);
    for (int64_t began = fl_now(), last = began;;) {
        uint32_t present = number_of(m);
        if (present == seen && goes_on(began, &last)) {
            fl_pause();
            continue;
        }
        if (present == seen) {
            sleep_until_there_is_work(m, seen);
            atomic_store(&m->processor, sched_getcpu());
        } else
            take_pieces(m, seen = present, &flags);
        began = last = fl_now();
    }
    return NULL;
}

/* In a forked child there is none of these threads. */
static void forget_pool(void) {
    pthread_mutex_init(&pool.lock, NULL);
    atomic_store(&pool.runs, 0);
    atomic_store(&pool.ready, 0);
    pool.started = 0;
    for (uint32_t i = 0; i < FL_MOST_THREADS - 1; i++)
        pool.helpers[i].taken = false;
    for (uint32_t i = 0; i < MOST_TEAMS; i++)
        pool.teams[i].taken = false;
}

/* The processors of the process without one, if that leaves any. */
static bool all_but(int processor, cpu_set_t *found) {
    if (sched_getaffinity(getpid(), sizeof *found, found) != 0)
        return false;
    if (processor >= 0 && CPU_COUNT(found) > 1)
        CPU_CLR((size_t)processor, found);
    return true;
}

/* One more thread, on other processors than this one. */
static bool start(member *m) {
    static bool told;
    pthread_attr_t attributes;
    cpu_set_t processors;
    if (!told && pthread_atfork(NULL, NULL, forget_pool) != 0)
        return false;
    told = true;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setstacksize(&attributes, STACK);
    atomic_store(&m->ticket, 0);
    atomic_store(&m->sleeps, false);
    pthread_cond_init(&m->woken, NULL);
    int here = m->away = sched_getcpu();
    atomic_store(&m->processor, UNKNOWN);
    if (all_but(here, &processors))
        pthread_attr_setaffinity_np(&attributes, sizeof processors, &processors);
    bool made = fl_start_thread(&m->thread, &attributes, help, m);
    pthread_attr_destroy(&attributes);
    return made;
}

/* A new thread may be put on the processor of this one, which keeps it busy for milliseconds. */
static void wait_until_ready(uint32_t started) {
    static const struct timespec briefly = {.tv_nsec = 50000};
    for (int i = 0; i < 20 && atomic_load(&pool.ready) < started; i++)
        nanosleep(&briefly, NULL);
}

/* Threads that may be on this processor go to others. */
static void keep_away(const fl_team *team) {
    int here = sched_getcpu();
    for (uint32_t i = 1; i < team->size; i++) {
        member *m = atomic_load(&team->members[i]);
        int processor = atomic_load(&m->processor);
        bool elsewhere = processor != here && processor != UNKNOWN;
        cpu_set_t processors;
        if (elsewhere || m->away == here || !all_but(here, &processors))
            continue;
        atomic_store(&m->processor, UNKNOWN);
        m->away = here;
        pthread_setaffinity_np(m->thread, sizeof processors, &processors);
    }
}

/* A team that nobody has, of up to so many threads; NULL if there is none. The lock is held. */
static fl_team *gather(uint32_t threads) {
    uint32_t t = 0;
    while (t < MOST_TEAMS && pool.teams[t].taken)
        t++;
    if (t == MOST_TEAMS)
        return NULL;
    fl_team *team = &pool.teams[t];
    atomic_store(&team->members[0], &pool.own[t]);
    team->size = 1;
    for (uint32_t i = 0; i < FL_MOST_THREADS - 1 && team->size < threads; i++) {
        member *m = &pool.helpers[i];
        if (m->taken)
            continue;
        if (i == pool.started) {
            if (!start(m))
                break;
            pool.started++;
        }
        m->taken = true;
        atomic_store(&team->members[team->size++], m);
    }
    team->taken = team->size > 1;
    return team->taken ? team : NULL;
}

fl_team *fl_take_threads(uint32_t threads, uint32_t most) {
    uint32_t share = most / (atomic_fetch_add(&pool.runs, 1) + 1);
    threads = threads < share ? threads : share;
    if (threads < 2)
        return NULL;
    pthread_mutex_lock(&pool.lock);
    uint32_t before = pool.started;
    fl_team *team = gather(threads);
    uint32_t started = pool.started;
    pthread_mutex_unlock(&pool.lock);
    if (started > before)
        wait_until_ready(started);
    if (team)
        keep_away(team);
    return team;
}

uint32_t fl_team_size(const fl_team *team) { return team ? team->size : 1; }

void fl_give_threads_back(fl_team *team) {
    atomic_fetch_sub(&pool.runs, 1);
    if (!team)
        return;
    FL_HOLD(pool.lock);
    for (uint32_t i = 1; i < team->size; i++)
        atomic_load(&team->members[i])->taken = false;
    team->taken = false;
}

/* How many pieces of a work the other threads have told that they have run. */
static uint32_t ended(const fl_team *team, uint32_t number, uint32_t threads) {
    uint32_t count = 0;
    for (uint32_t i = 1; i < threads; i++) {
        member *m = atomic_load_explicit(&team->members[i], memory_order_relaxed);
        uint64_t told = atomic_load_explicit(&m->ended, memory_order_acquire);
        count += told >> 32 == number ? (uint32_t)told : 0;
    }
    return count;
}

static void wake(member *m) {
    if (!atomic_load(&m->sleeps))
        return;
    FL_HOLD(pool.lock);
    pthread_cond_signal(&m->woken);
}

/* Hand a work to so many threads. Returns its number. */
static uint32_t hand_out(fl_team *team, uint32_t threads, const fl_work *work) {
    uint32_t number = atomic_fetch_add(&pool.number, 1) + 1;
    team->work = *work;
    team->is_second = !team->is_second;
    atomic_store(&team->threads, threads);
    for (uint32_t i = 0; i < threads; i++) {
        member *m = atomic_load(&team->members[i]);
        uint32_t count = first_piece(team, i + 1, threads) - first_piece(team, i, threads);
        atomic_store(&m->team, team);
        atomic_store(&m->place, i);
        atomic_store(&m->ticket, of_work(number, count));
    }
    for (uint32_t i = 1; i < threads; i++)
        wake(atomic_load(&team->members[i]));
    return number;
}

bool fl_wake_threads(fl_team *team) {
    uint32_t number = hand_out(team, team->size, &(fl_work){0}), awake = 0;
    int64_t end = fl_now() + (int64_t)team->size * FL_SHORT;
    for (; awake + 1 < team->size && fl_now() < end; fl_pause()) {
        awake = 0;
        for (uint32_t i = 1; i < team->size; i++)
            awake += atomic_load(&atomic_load(&team->members[i])->ended) >> 32 == number;
    }
    return awake + 1 == team->size;
}

/* Whether a short work is shared that comes now. Threads that sleep are woken only if works follow
 * each other so soon that the next one finds them awake. With longer pauses each would wake them.
 */
static bool is_shared(const fl_team *team, uint32_t threads, uint64_t alone, int64_t now) {
    bool are_awake = true;
    int64_t pause = now - atomic_exchange(&pool.last, now + (int64_t)alone);
    for (uint32_t i = 1; i < threads; i++)
        are_awake &= !atomic_load(&atomic_load(&team->members[i])->sleeps);
    return (are_awake || pause < LOOKED) && now >= atomic_load(&pool.crowded);
}

bool fl_run_together(fl_team *team, uint32_t threads, const fl_work *work, uint32_t *flags) {
    bool is_short = work->alone < FL_SHORT;
    int64_t began = is_short ? fl_now() : 0;
    threads = threads < team->size ? threads : team->size;
    if (is_short && !is_shared(team, threads, work->alone, began))
        return false;
    uint32_t number = hand_out(team, threads, work);
    uint32_t own = take_pieces(atomic_load(&team->members[0]), number, flags);
    for (uint32_t looks = 0; own + ended(team, number, threads) < work->pieces; looks++)
        if (looks < LOOKS)
            fl_pause();
        else
            sched_yield();
    int64_t end = is_short ? fl_now() : 0;
    if (is_short && (uint64_t)(end - began) > 2 * work->alone + LATE)
        atomic_store(&pool.crowded, end + CROWDED);
    return true;
}
