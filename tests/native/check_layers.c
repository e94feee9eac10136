/* Layers in front of a table of Unified Runtime functions, and the log of calls. A process has only
 * so many layers and none is ever given up, so the scenarios share two: one in front of `own`, one
 * with nothing behind it. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness.h"
#include "layer.h"
#include "ur_slots.h"

#include "../../loader/base/native/native.cdef.h"

enum {
    UNSUPPORTED = 44,
    ORPHAN = 4711,
    ANSWER = 77,
    UNITS = 42,
    HEAD = 6,
    THREADS = 4,
    ROUNDS = 300,
    LAYERS = 16
};

#define NOWHERE ((void *)0x123456789000)
#define DEVICE ((void *)0xd0)

typedef int info_function(void *, uint32_t, size_t, void *, size_t *);
typedef int create_function(void *, const char *, void **);
typedef int finish_function(void *);

/* --- the adapter, and the layers in front of it --- */

static void **own;
static fl_layer *in_front, *alone;
static atomic_int forwarded, asked, told;

static int device_info(void *device, uint32_t name, size_t size, void *value, size_t *size_ret) {
    atomic_fetch_add(&forwarded, 1);
    if (device != DEVICE)
        return 1;
    if (value && value != NOWHERE && size >= sizeof(uint32_t))
        memcpy(value, &(uint32_t){UNITS + name}, sizeof(uint32_t));
    if (size_ret && size_ret != NOWHERE)
        *size_ret = sizeof(uint32_t);
    return 0;
}

static int create_kernel(void *program, const char *name, void **kernel) {
    atomic_fetch_add(&forwarded, 1);
    if (kernel && kernel != NOWHERE)
        *kernel = program;
    errno = EDOM;
    return name == NOWHERE ? 2 : 0;
}

static void set_up(void) {
    if (!own) {
        CHECK((own = fl_new_table_of(fl_ur_thunks())) != NULL);
        own[SLOT_urDeviceGetInfo] = (void *)device_info;
        own[SLOT_urKernelCreate] = (void *)create_kernel;
        CHECK((in_front = fl_new_layer(fl_ur_thunks(), own, 0)) != NULL);
        CHECK((alone = fl_new_layer(fl_ur_thunks(), NULL, ORPHAN)) != NULL);
    }
    fl_log_calls(in_front, NULL);
    fl_set_handlers(alone, NULL, NULL);
    atomic_store(&forwarded, 0), atomic_store(&asked, 0), atomic_store(&told, 0);
}

static void *entry(const fl_layer *layer, int slot) { return fl_layer_table(layer)[slot]; }

static int ask(uint32_t name, void *value, size_t *size) {
    return ((info_function *)entry(in_front, SLOT_urDeviceGetInfo))(DEVICE, name, sizeof(uint32_t),
                                                                    value, size);
}

static int create(const char *name, void **kernel) {
    return ((create_function *)entry(in_front, SLOT_urKernelCreate))(DEVICE, name, kernel);
}

static fl_call seen;
static uint64_t seen_arguments[16];

static void keep(const fl_call *call) {
    seen = *call;
    memcpy(seen_arguments, call->arguments, call->count * sizeof *call->arguments);
}

static int answer(fl_call *call) {
    atomic_fetch_add(&asked, 1);
    keep(call);
    call->result = ANSWER;
    return 1;
}

static int only_look(fl_call *call) {
    atomic_fetch_add(&asked, 1);
    return 0;
}

static void tell(fl_call *call) {
    atomic_fetch_add(&told, 1);
    keep(call);
}

SCENARIO(layer_forwards) {
    set_up();
    uint32_t value = 0;
    size_t size = 0;
    OK(ask(3, &value, &size));
    EQUAL(value, UNITS + 3);
    EQUAL(size, sizeof value);
    EQUAL(((info_function *)entry(in_front, SLOT_urDeviceGetInfo))(NULL, 0, 0, NULL, NULL), 1);
    EQUAL(((finish_function *)entry(in_front, SLOT_urQueueFinish))(DEVICE), UNSUPPORTED);
    /* what changes behind it is seen */
    own[SLOT_urQueueFinish] = fl_ur_thunks()->uninitialized[SLOT_urQueueFinish];
    CHECK(((finish_function *)entry(in_front, SLOT_urQueueFinish))(DEVICE) != UNSUPPORTED);
    own[SLOT_urQueueFinish] = fl_ur_thunks()->unsupported[SLOT_urQueueFinish];
    EQUAL(atomic_load(&forwarded), 2);
}

SCENARIO(layer_answers) {
    set_up();
    uint32_t value = 0;
    size_t size = 0;
    fl_set_handlers(in_front, answer, tell);
    EQUAL(ask(3, &value, &size), ANSWER);
    EQUAL(value, 0);
    EQUAL(atomic_load(&forwarded), 0);
    EQUAL(atomic_load(&told), 0);
    CHECK(seen.layer == in_front);
    EQUAL(seen.function, SLOT_urDeviceGetInfo);
    EQUAL(seen.count, 5);
    EQUAL(seen_arguments[0], (uintptr_t)DEVICE);
    EQUAL(seen_arguments[1], 3);
    EQUAL(seen_arguments[2], sizeof value);
    EQUAL(seen_arguments[3], (uintptr_t)&value);
    EQUAL(seen_arguments[4], (uintptr_t)&size);
    fl_set_handlers(in_front, only_look, tell);
    EQUAL(((info_function *)entry(in_front, SLOT_urDeviceGetInfo))(NULL, 0, 0, NULL, NULL), 1);
    EQUAL(seen.result, 1);
    EQUAL(atomic_load(&asked), 2);
    EQUAL(atomic_load(&told), 1);
    fl_set_handlers(in_front, NULL, NULL);
    OK(ask(3, &value, &size));
    EQUAL(atomic_load(&told), 1);
}

SCENARIO(layer_alone) {
    set_up();
    finish_function *finish = (finish_function *)entry(alone, SLOT_urQueueFinish);
    EQUAL(finish(DEVICE), ORPHAN);
    fl_set_handlers(alone, answer, tell);
    EQUAL(finish(DEVICE), ANSWER);
    fl_set_handlers(alone, only_look, tell);
    EQUAL(finish(DEVICE), ORPHAN);
    EQUAL(atomic_load(&told), 0);   /* nothing came back */
}

SCENARIO(layer_table_no_memory) {
    memory_fails(0, false);
    CHECK(fl_new_table_of(fl_pi_thunks()) == NULL);
    CHECK(memory_has_failed());
    void **table = fl_new_table_of(fl_pi_thunks());
    for (uint32_t slot = 0; slot < fl_pi_thunks()->slots; slot++)
        CHECK(table[slot] != NULL && table[slot] == fl_pi_thunks()->unsupported[slot]);
    free(table);
}

/* The last of all scenarios that need a layer. */
SCENARIO(layer_all_taken) {
    int took = 0;
    set_up();
    while (fl_new_layer(fl_ur_thunks(), own, 0))
        CHECK(++took <= LAYERS);
    CHECK(fl_new_layer(fl_ur_thunks(), own, 0) == NULL);
    int count = 0;
    for (fl_layer *layer = *fl_ur_thunks()->layers; layer; layer = layer->other, count++)
        for (fl_layer *other = layer->other; other; other = other->other)
            CHECK(layer->table[0] != other->table[0]);
    EQUAL(count, LAYERS);
    uint32_t value = 0;
    OK(ask(1, &value, NULL));
    EQUAL(value, UNITS + 1);
}

/* --- the log --- */

typedef struct record {
    const uint64_t *words, *arguments, *pieces;
    uint32_t length, function, count, piece_count, thread;
} record;

/* The record at the beginning of some words, which are that many at least. */
static record read_record(const uint64_t *words, size_t left) {
    record r = {.words = words,
                .arguments = words + HEAD,
                .length = (uint32_t)words[0],
                .function = (uint32_t)(words[0] >> 32)};
    r.count = words[1] & 0xffff, r.piece_count = (words[1] >> 16) & 0xffff,
    r.thread = (uint32_t)(words[1] >> 32);
    r.pieces = r.arguments + r.count;
    CHECK(r.length >= HEAD + r.count && r.length <= left);
    const uint64_t *here = r.pieces;
    for (uint32_t i = 0; i < r.piece_count; i++)
        here += 1 + ((*here >> 32) + 7) / 8;
    CHECK(here == words + r.length);
    CHECK(words[3] && words[3] <= words[4] && r.thread);
    return r;
}

/* What a parameter led to: how many bytes, and where they are; -1 if nobody looked. */
static long piece_of(const record *r, uint32_t parameter, const void **bytes) {
    const uint64_t *here = r->pieces;
    for (uint32_t i = 0; i < r->piece_count; i++, here += 1 + ((*here >> 32) + 7) / 8)
        if ((uint32_t)*here == parameter) {
            *bytes = here + 1;
            return (long)(*here >> 32);
        }
    return -1;
}

static uint64_t copied[1 << 18];

/* Everything in the log as words; returns how many. */
static size_t copy(fl_log *log) {
    size_t before = fl_log_size(log), size = fl_log_copy(log, 0, copied, sizeof copied);
    CHECK(size >= before && size % sizeof *copied == 0);
    return size / sizeof *copied;
}

static size_t records_in(size_t words) {
    size_t count = 0;
    for (size_t here = 0; here < words; count++)
        here += read_record(copied + here, words - here).length;
    return count;
}

/* A log is given up, and never freed: a call may still be on its way to it. */
static void end_log(fl_log *log) {
    fl_log_calls(in_front, NULL);
    fl_clear_log(log);
    EQUAL(fl_log_size(log), 0);
}

SCENARIO(log_one_call) {
    set_up();
    fl_log *log = fl_new_log(1 << 20);
    const void *bytes = NULL;
    uint32_t value = 0;
    size_t size = 0;
    fl_log_calls(in_front, log);
    OK(ask(3, &value, &size));
    fl_log_calls(in_front, NULL);
    OK(ask(4, &value, &size));   /* not written down */
    size_t words = copy(log);
    record r = read_record(copied, words);
    EQUAL(r.length, words);
    EQUAL(r.function, SLOT_urDeviceGetInfo);
    EQUAL(r.count, 5);
    CHECK(r.words[2] == (uintptr_t)in_front);
    EQUAL(r.words[5], 0);
    EQUAL(r.arguments[1], 3);
    CHECK(r.arguments[3] == (uintptr_t)&value);
    EQUAL(piece_of(&r, 3, &bytes), 4);
    EQUAL(*(const uint32_t *)bytes, UNITS + 3);   /* as it was when the call came back */
    EQUAL(piece_of(&r, 4, &bytes), sizeof size);
    EQUAL(*(const size_t *)bytes, 4);
    EQUAL(piece_of(&r, 0, &bytes), -1);
    end_log(log);
}

SCENARIO(log_keeps_errno) {
    set_up();
    fl_log *log = fl_new_log(1 << 20);
    fl_log_calls(in_front, log);
    errno = 0;
    EQUAL(create(NOWHERE, NOWHERE), 2);
    EQUAL(errno, EDOM);
    end_log(log);
}

SCENARIO(log_wild_pointers) {
    set_up();
    fl_log *log = fl_new_log(1 << 20);
    const void *bytes = NULL;
    void *kernel = NULL;
    size_t size = 0;
    fl_log_calls(in_front, log);
    EQUAL(create(NOWHERE, &kernel), 2);
    record r = read_record(copied, copy(log));
    EQUAL(piece_of(&r, 1, &bytes), 0);
    /* one that leads nowhere does not take the next one along */
    EQUAL(piece_of(&r, 2, &bytes), sizeof kernel);
    CHECK(*(void *const *)bytes == DEVICE);
    fl_clear_log(log);
    OK(ask(3, NOWHERE, &size));
    r = read_record(copied, copy(log));
    EQUAL(piece_of(&r, 3, &bytes), 0);
    EQUAL(piece_of(&r, 4, &bytes), sizeof size);
    fl_clear_log(log);
    EQUAL(create(NULL, NULL), 0);
    r = read_record(copied, copy(log));
    EQUAL(r.piece_count, 0);
    end_log(log);
}

/* A string that ends where memory does is read up to there. */
SCENARIO(log_end_of_memory) {
    set_up();
    fl_log *log = fl_new_log(1 << 20);
    const void *bytes = NULL;
    char *pages = mmap(NULL, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    CHECK(mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    char *name = pages + 4096 - sizeof "step";
    memcpy(name, "step", sizeof "step");
    fl_log_calls(in_front, log);
    OK(create(name, NULL));
    record r = read_record(copied, copy(log));
    EQUAL(piece_of(&r, 1, &bytes), sizeof "step");
    CHECK(strcmp(bytes, "step") == 0);
    end_log(log);
    munmap(pages, 2 * 4096);
}

SCENARIO(log_limit) {
    set_up();
    fl_log *log = fl_new_log(400);
    uint32_t value;
    size_t size;
    fl_log_calls(in_front, log);
    for (int i = 0; i < 20; i++)
        OK(ask(0, &value, &size));
    size_t words = copy(log), kept = records_in(words);
    CHECK(kept > 0 && words * sizeof *copied <= 400);
    EQUAL(kept + fl_log_lost(log), 20);
    fl_clear_log(log);
    OK(ask(0, &value, &size));
    EQUAL(records_in(copy(log)), 1);   /* there is room again */
    end_log(log);
    log = fl_new_log(0);
    fl_log_calls(in_front, log);
    OK(ask(0, &value, &size));
    EQUAL(copy(log), 0);
    EQUAL(fl_log_lost(log), 1);
    end_log(log);
}

/* More than fits into one piece of the log's memory, read in odd parts. */
SCENARIO(log_long) {
    enum { MANY = 12000 };
    static uint64_t again[sizeof copied / sizeof *copied];
    set_up();
    fl_log *log = fl_new_log(sizeof copied);
    uint32_t value;
    size_t size, done = 0;
    fl_log_calls(in_front, log);
    for (uint32_t i = 0; i < MANY; i++)
        OK(ask(i, &value, &size));
    fl_log_calls(in_front, NULL);
    size_t words = copy(log);
    CHECK(words * sizeof *copied > 1 << 20);
    EQUAL(records_in(words), MANY);
    EQUAL(fl_log_lost(log), 0);
    for (size_t part = 1; done < words * sizeof *copied; part = part * 2 + 1)
        done += fl_log_copy(log, done, (char *)again + done, part);
    EQUAL(done, words * sizeof *copied);
    CHECK(memcmp(again, copied, done) == 0);
    EQUAL(fl_log_copy(log, done, again, 8), 0);
    end_log(log);
}

SCENARIO(log_no_memory) {
    set_up();
    memory_fails(0, false);
    CHECK(fl_new_log(1 << 20) == NULL);
    CHECK(memory_has_failed());
    fl_log *log = fl_new_log(1 << 20);
    uint32_t value = 0;
    fl_log_calls(in_front, log);
    memory_fails(0, false);
    OK(ask(5, &value, NULL));
    CHECK(memory_has_failed());
    EQUAL(value, UNITS + 5);
    EQUAL(fl_log_lost(log), 1);
    OK(ask(5, &value, NULL));
    EQUAL(records_in(copy(log)), 1);
    end_log(log);
}

SCENARIO(log_look) {
    uint64_t words[FL_LOOK];
    set_up();
    const char *name = "step";
    void *kernel = DEVICE;
    uint64_t arguments[] = {(uintptr_t)DEVICE, (uintptr_t)name, (uintptr_t)&kernel};
    size_t length = fl_look(in_front, SLOT_urKernelCreate, arguments, 3, words);
    CHECK(length > 3 && length <= FL_LOOK);
    EQUAL((uint32_t)words[0], 1);
    CHECK(words[0] >> 32 >= sizeof "step" && strcmp((const char *)(words + 1), "step") == 0);
    arguments[1] = (uintptr_t)NOWHERE, arguments[2] = 0;
    EQUAL(fl_look(in_front, SLOT_urKernelCreate, arguments, 3, words), 1);
    EQUAL(words[0], 1);
}

/* --- threads --- */

static atomic_int gate, calls_done;

static void *call_many(void *data) {
    uint32_t number = *(const uint32_t *)data;
    while (!atomic_load(&gate))
        sched_yield();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        uint32_t value = 0;
        size_t size = 0;
        OK(ask(number * ROUNDS + i, &value, &size));
        EQUAL(value, UNITS + number * ROUNDS + i);
        EQUAL(size, sizeof value);
    }
    atomic_fetch_add(&calls_done, 1);
    return NULL;
}

static uint32_t numbers[THREADS];
static pthread_t threads[THREADS];

static void start(void) {
    atomic_store(&gate, 0), atomic_store(&calls_done, 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, call_many, &numbers[i]) == 0);
    }
    atomic_store(&gate, 1);
}

static void join(void) {
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

SCENARIO(thread_one_log) {
    set_up();
    fl_log *log = fl_new_log(sizeof copied);
    bool found[THREADS * ROUNDS] = {false};
    fl_log_calls(in_front, log);
    start();
    while (atomic_load(&calls_done) < THREADS)   /* what is there at any time is whole records */
        records_in(copy(log));
    join();
    size_t words = copy(log);
    EQUAL(records_in(words), THREADS * ROUNDS);
    for (size_t here = 0; here < words;) {
        record r = read_record(copied + here, words - here);
        const void *bytes = NULL;
        EQUAL(piece_of(&r, 3, &bytes), 4);
        EQUAL(*(const uint32_t *)bytes, UNITS + r.arguments[1]);
        CHECK(r.arguments[1] < THREADS * ROUNDS && !found[r.arguments[1]]);
        found[r.arguments[1]] = true;
        here += r.length;
    }
    end_log(log);
}

/* The log comes and goes while calls are under way: a call is written down whole or not at all, and
 * its result is the adapter's. */
SCENARIO(thread_log_comes_and_goes) {
    set_up();
    fl_log *log = fl_new_log(sizeof copied);
    start();
    while (atomic_load(&calls_done) < THREADS) {
        fl_log_calls(in_front, log);
        sched_yield();
        records_in(copy(log));
        fl_clear_log(log);
        fl_log_calls(in_front, NULL);
    }
    join();
    records_in(copy(log));
    EQUAL(atomic_load(&forwarded), THREADS * ROUNDS);
    end_log(log);
}

static void *take_a_layer(void *data) {
    while (!atomic_load(&gate))
        sched_yield();
    *(fl_layer **)data = fl_new_layer(fl_pi_thunks(), NULL, 0);
    return NULL;
}

/* Each gets a layer of its own, until there is none. The first variant of the mock driver leaves
 * some for the next. */
SCENARIO(thread_taking_layers) {
    fl_layer *layers[THREADS] = {NULL};
    atomic_store(&gate, 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, take_a_layer, &layers[i]) == 0);
    atomic_store(&gate, 1);
    join();
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < i; k++)
            CHECK(layers[i] != layers[k] || !layers[i]);
}
