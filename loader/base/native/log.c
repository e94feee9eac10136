/* Records calls in memory: arguments, result, times, and the memory behind the pointers when the
 * call returned.
 *
 * A record is a run of 64-bit words:
 *     its length in words | function << 32
 *     number of arguments | pieces << 16 | thread << 32
 *     address of the layer, begin (ns, CLOCK_MONOTONIC), end, result, arguments...
 *     pieces: parameter | bytes << 32, the bytes, padded to a word
 * A record whose function is FL_COMMAND or FL_THREAD is not a call, but a note (native.cdef.h).
 * Its first word is written last, so a process that is killed leaves whole records.
 *
 * The kernel reads the memory, so an invalid pointer gives a piece of 0 bytes and no crash. */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = FL_LOG_CHUNK, MOST = 32, PIECE = 128, RECORD = 6 + MOST + MOST * (1 + PIECE / 8) };

_Static_assert(FL_LOOK == MOST * (1 + PIECE / 8), "room for every piece");

typedef struct chunk {
    struct chunk *next;
    size_t used;
    uint64_t *words;
} chunk;

struct fl_log {
    pthread_mutex_t lock;
    fl_log *older; /* logs are never freed */
    chunk *first, *last;
    size_t size, limit;
    uint64_t own_lost, *lost; /* calls without room */
    fl_log_memory *memory;    /* where chunks are; NULL: on the heap */
    bool names_threads;
};

typedef struct piece {
    uint32_t parameter;
    size_t bytes;
    const void *address;
    uint64_t *place; /* its head in the record */
} piece;

static __thread uint64_t thread_id __attribute__((tls_model("initial-exec")));

static __thread const fl_log *named __attribute__((tls_model("initial-exec"))); /* has its name */

static uint64_t thread(void) {
    if (!thread_id)
        thread_id = (uint64_t)syscall(SYS_gettid);
    return thread_id;
}

/* The log is empty first: a child may be forked meanwhile, and drops it, too. */
static void drop(fl_log *log) {
    chunk *here = log->first;
    log->first = log->last = NULL;
    log->size = 0;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    for (chunk *next; here; here = next) {
        next = here->next;
        if (log->memory)
            munmap(here->words, CHUNK);
        free(here);
    }
}

static fl_log *newest;

/* A forked child starts with empty logs: the records are its parent's. A thread that does not
 * exist in the child may hold the lock. */
static void begin_again(void) {
    thread_id = 0, named = NULL;
    for (fl_log *log = newest; log; log = log->older) {
        pthread_mutex_init(&log->lock, NULL);
        drop(log);
    }
}

FL_IN_CHILD(begin_again())

fl_log *fl_new_log(size_t limit) {
    fl_log *log = calloc(1, sizeof *log);
    if (log) {
        pthread_mutex_init(&log->lock, NULL);
        log->limit = limit;
        log->lost = &log->own_lost;
        do
            log->older = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
        while (!__atomic_compare_exchange_n(&newest, &log->older, log, false, __ATOMIC_RELEASE,
                                            __ATOMIC_RELAXED));
    }
    return log;
}

void fl_log_into(fl_log *log, fl_log_memory *memory) { log->memory = memory; }

void fl_count_lost_at(fl_log *log, uint64_t *lost) { log->lost = lost; }

/* Another chunk behind the last one. */
static bool grow(fl_log *log) {
    chunk *fresh = malloc(sizeof *fresh + (log->memory ? 0 : CHUNK));
    if (!fresh)
        return false;
    *fresh = (chunk){.words = log->memory ? log->memory() : (uint64_t *)(fresh + 1)};
    if (!fresh->words) {
        free(fresh);
        return false;
    }
    *(log->last ? &log->last->next : &log->first) = fresh;
    log->last = fresh;
    return true;
}

/* Allocate `bytes` at the end of the log; NULL if it is full. A record lies in one chunk. */
static uint64_t *room(fl_log *log, size_t bytes) {
    if (log->size + bytes > log->limit)
        return NULL;
    if ((!log->last || log->last->used + bytes > CHUNK) && !grow(log))
        return NULL;
    uint64_t *place = log->last->words + log->last->used / sizeof(uint64_t);
    log->last->used += bytes;
    log->size += bytes;
    return place;
}

/* How many bytes behind a parameter are read. */
static size_t wanted(const fl_shape *shape, const fl_call *call) {
    if (shape->kind == 2)
        return PIECE;
    uint64_t count = shape->counted_by < 0 ? 1 : call->arguments[shape->counted_by];
    uint32_t number = 0;
    if (shape->kind == 4) {
        if (!fl_safe_read((const void *)(uintptr_t)count, &number, sizeof number))
            return 0;
        count = number;
    }
    uint64_t most = PIECE / shape->size;
    return (size_t)(count > most ? most : count) * shape->size;
}

/* A string may end where memory ends. If not all can be read, read up to the end of its page. */
static size_t fetch_one(const piece *piece) {
    size_t page = 4096 - ((uintptr_t)piece->address & 4095);
    size_t done = fl_safe_read(piece->address, piece->place + 1, piece->bytes);
    if (done || page >= piece->bytes)
        return done;
    return fl_safe_read(piece->address, piece->place + 1, page);
}

/* Read all pieces with one system call. If a pointer is invalid, or a sandbox forbids the call,
 * read them one by one. */
static void fetch(piece *pieces, uint32_t count) {
    struct iovec here[MOST], there[MOST];
    size_t total = 0;
    for (uint32_t i = 0; i < count; i++) {
        here[i] = (struct iovec){pieces[i].place + 1, pieces[i].bytes};
        there[i] = (struct iovec){(void *)pieces[i].address, pieces[i].bytes};
        total += pieces[i].bytes;
    }
    if (!count || process_vm_readv(getpid(), here, count, there, count, 0) == (ssize_t)total)
        return;
    for (uint32_t i = 0; i < count; i++)
        pieces[i].bytes = fetch_one(&pieces[i]);
}

static uint32_t look(const fl_call *call, piece *pieces, uint64_t **end) {
    const fl_thunks *thunks = call->layer->thunks;
    const fl_shape *shapes = thunks->shapes + thunks->first_shape[call->function];
    uint64_t *here = *end;
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->count && i < MOST; i++) {
        size_t bytes = shapes[i].kind && call->arguments[i] ? wanted(&shapes[i], call) : 0;
        if (bytes) {
            size_t words = (bytes + 7) / 8;
            pieces[count++] = (piece){i, bytes, (const void *)(uintptr_t)call->arguments[i], *end};
            memset(*end + 1, 0, words * sizeof **end); /* the padding is recorded too */
            *end += 1 + words;
        }
    }
    fetch(pieces, count);
    for (uint32_t i = 0; i < count; i++) { /* what could not be read takes no space */
        size_t words = (pieces[i].bytes + 7) / 8;
        memmove(here + 1, pieces[i].place + 1, words * sizeof *here);
        *here = pieces[i].parameter | (uint64_t)pieces[i].bytes << 32;
        here += 1 + words;
    }
    *end = here;
    return count;
}

size_t fl_look(const fl_layer *layer, uint32_t function, const uint64_t *arguments, uint32_t count,
               uint64_t *into) {
    fl_call call = {.layer = (fl_layer *)layer,
                    .function = function,
                    .count = count,
                    .arguments = (uint64_t *)arguments};
    piece pieces[MOST];
    uint64_t *end = into;
    look(&call, pieces, &end);
    return (size_t)(end - into);
}

int fl_log_begin(fl_call *call) {
    call->begin = fl_now();
    return 0;
}

/* Append a record. */
static void append(fl_log *log, const uint64_t *record, size_t words) {
    FL_HOLD(log->lock);
    uint64_t *place = room(log, words * sizeof *record);
    if (place) {
        memcpy(place + 1, record + 1, (words - 1) * sizeof *record);
        __atomic_store_n(place, *record, __ATOMIC_RELEASE);
    } else {
        ++*log->lost;
    }
}

void fl_log_note(fl_log *log, uint32_t kind, const fl_call *call, const uint64_t *values,
                 uint32_t count) {
    uint64_t record[6 + MOST] = {(6 + count) | (uint64_t)kind << 32,
                                 count | thread() << 32,
                                 (uint64_t)(uintptr_t)call->layer,
                                 call->begin,
                                 fl_now(),
                                 0};
    memcpy(record + 6, values, count * sizeof *values);
    append(log, record, 6 + count);
}

/* The name of this thread, once in each log. */
static void note_thread(fl_log *log, const fl_call *call) {
    uint64_t name[2] = {0};
    prctl(PR_GET_NAME, name, 0, 0, 0);
    fl_log_note(log, FL_THREAD, call, name, 2);
    named = log;
}

void fl_log_end(fl_call *call) {
    uint64_t time = fl_now(), record[RECORD], *end = record + 6;
    fl_log *log = __atomic_load_n(&call->layer->log, __ATOMIC_ACQUIRE);
    piece pieces[MOST];
    int error = errno;
    if (!log || !call->begin) /* it began before the trace */
        return;
    fl_dump_call(call);
    if (log->names_threads && named != log)
        note_thread(log, call);
    memcpy(end, call->arguments, call->count * sizeof *end);
    end += call->count;
    uint64_t count = look(call, pieces, &end);
    size_t words = (size_t)(end - record);
    record[0] = words | (uint64_t)call->function << 32;
    record[1] = call->count | count << 16 | thread() << 32;
    record[2] = (uint64_t)(uintptr_t)call->layer;
    record[3] = call->begin, record[4] = time, record[5] = call->result;
    append(log, record, words);
    errno = error;
}

void fl_name_threads(fl_log *log) { log->names_threads = true; }

void fl_log_calls(fl_layer *layer, fl_log *log) {
    if (log)
        __atomic_store_n(&layer->log, log, __ATOMIC_RELEASE);
    fl_set_handlers(layer, log ? fl_log_begin : NULL, log ? fl_log_end : NULL);
    if (!log)
        __atomic_store_n(&layer->log, NULL, __ATOMIC_RELEASE);
}

size_t fl_log_copy(fl_log *log, size_t from, void *into, size_t size) {
    size_t done = 0, start = 0;
    FL_HOLD(log->lock);
    for (chunk *here = log->first; here && done < size; start += here->used, here = here->next) {
        if (from + done >= start + here->used)
            continue;
        size_t skip = from + done - start, part = here->used - skip;
        if (part > size - done)
            part = size - done;
        memcpy((char *)into + done, (char *)here->words + skip, part);
        done += part;
    }
    return done;
}

size_t fl_log_size(fl_log *log) {
    FL_HOLD(log->lock);
    return log->size;
}

uint64_t fl_log_lost(fl_log *log) {
    FL_HOLD(log->lock);
    return *log->lost;
}

void fl_clear_log(fl_log *log) {
    FL_HOLD(log->lock);
    drop(log);
}
