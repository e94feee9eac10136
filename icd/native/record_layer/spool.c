/* The file of a recording. It is mapped into memory, so a process that crashes has written it.
 *
 * The file is a run of chunks. A chunk begins with its length in bytes. Its records follow:
 *     length in words | kind << 32, then what the kind has (icd/record_layer.py)
 * The first word of a record is written last. Zeros end a chunk. */
#define _GNU_SOURCE
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, PAGE = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *folder, *path;
static off_t size; /* of the file; -1: it cannot be written */
static uint64_t *here, *end;
static uint64_t data_count;

static void forget_data(void);

bool fl_open_log(const char *name) { return (folder = strdup(name)) != NULL; }

/* A forked child has a file of its own. */
void fl_reset_log(void) {
    pthread_mutex_init(&lock, NULL);
    path = NULL, size = 0, here = end = NULL, data_count = 0;
    forget_data();
}

/* Set `path`. A process that went on by exec has another file for each program. */
static int create_file(void) {
    for (int program = 0; program < 1000; program++) {
        char *name = NULL;
        if (asprintf(&name, "%s/%d.%d.record", folder, (int)getpid(), program) < 0)
            return -1;
        int file = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file >= 0 || errno != EEXIST) {
            path = name;
            return file;
        }
        free(name);
    }
    return -1;
}

/* Map another chunk. The disk's room is reserved: a full disk must not end the program later. */
static bool grow(size_t bytes) {
    size_t wanted = bytes + 2 * sizeof(uint64_t);
    wanted = wanted < CHUNK ? CHUNK : (wanted + PAGE - 1) / PAGE * PAGE;
    if (size < 0)
        return false;
    int file = size ? open(path, O_RDWR | O_CLOEXEC) : create_file();
    void *at = MAP_FAILED;
    if (file >= 0) {
        do
            errno = posix_fallocate(file, size, (off_t)wanted);
        while (errno == EINTR); /* a signal of the program's */
        if (!errno)
            at = mmap(NULL, wanted, PROT_READ | PROT_WRITE, MAP_SHARED, file, size);
    }
    if (at == MAP_FAILED) {
        dprintf(STDERR_FILENO,
                "fairlead: the recording of process %d ends, %s cannot be written: %s\n",
                (int)getpid(), path ? path : folder, strerror(errno));
        size = -1;
    }
    if (file >= 0)
        close(file);
    if (at == MAP_FAILED)
        return false;
    size += (off_t)wanted;
    here = at, end = here + wanted / sizeof *here;
    *here++ = wanted;
    return true;
}

/* Room for so many words; one word of zero stays behind it. */
static uint64_t *take(size_t words) {
    if ((size_t)(end - here) <= words && !grow(words * sizeof *here))
        return NULL;
    uint64_t *place = here;
    here += words;
    return place;
}

void *fl_room(void *old, size_t bytes) {
    void *room = realloc(old, bytes ? bytes : 1);
    if (room)
        return old ? room : memset(room, 0, bytes);
    FL_HOLD(lock);
    if (size >= 0)
        dprintf(STDERR_FILENO, "fairlead: the recording of process %d ends: there is no memory\n",
                (int)getpid());
    size = -1, here = end = NULL;
    return NULL;
}

static void more(fl_record *record, size_t words) {
    if (!record->used)
        record->used = 1; /* the head */
    if (record->used + words <= record->room)
        return;
    size_t room = 2 * (record->used + words) + 64;
    uint64_t *larger = fl_room(record->words, room * sizeof *larger);
    if (!larger) { /* it will not be written */
        record->used = 1;
        return;
    }
    record->words = larger, record->room = room;
}

void fl_add_word(fl_record *record, uint64_t word) {
    more(record, 1);
    if (record->used < record->room)
        record->words[record->used++] = word;
}

void fl_add_piece(fl_record *record, uint32_t tag, const void *data, size_t bytes) {
    size_t words = (bytes + 7) / 8;
    more(record, 1 + words);
    if (record->used + 1 + words > record->room)
        return;
    uint64_t *place = record->words + record->used;
    place[0] = tag | (uint64_t)bytes << 32;
    if (words)
        place[words] = 0; /* the padding */
    memcpy(place + 1, data, bytes);
    record->used += 1 + words;
}

uint64_t *fl_write_record(fl_record *record, enum fl_record_kind kind) {
    more(record, 0);
    size_t words = record->used;
    record->used = 0;
    FL_HOLD(lock);
    uint64_t *place = take(words);
    if (place) {
        memcpy(place + 1, record->words + 1, (words - 1) * sizeof *place);
        __atomic_store_n(place, words | (uint64_t)kind << 32, __ATOMIC_RELEASE);
    }
    return place;
}

/* --- data: equal bytes are in the log once --- */

/* The words of a DATA record. `other` leads to the next one of its row, or of the spare ones: it
 * means nothing to a reader. */
enum { HEAD, NUMBER, IS_THERE, BYTES, HASH, OTHER, DATA_HEAD, ROWS = 1 << 16 };

static uint64_t *rows[ROWS]; /* those that are there, by hash */
static uint64_t *spares;     /* records whose bytes were there already; new ones use their place */

static void forget_data(void) {
    memset(rows, 0, sizeof rows);
    spares = NULL;
}

static uint64_t hash_of(const unsigned char *data, size_t bytes) {
    static const uint64_t odd = UINT64_C(0x9E3779B97F4A7C15);
    uint64_t lanes[4] = {bytes, 1, 2, 3}, words[4] = {0};
    for (; bytes >= sizeof words; data += sizeof words, bytes -= sizeof words) {
        memcpy(words, data, sizeof words);
        for (int i = 0; i < 4; i++)
            lanes[i] = (lanes[i] ^ words[i]) * odd, lanes[i] ^= lanes[i] >> 29;
    }
    memset(words, 0, sizeof words);
    if (bytes)
        memcpy(words, data, bytes);
    uint64_t hash = 0;
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (i < 4 ? lanes[i] : words[i - 4])) * odd, hash ^= hash >> 29;
    return hash;
}

/* The number of the record with these bytes, 0 if there is none. */
static uint64_t number_of(uint64_t hash, const void *data, size_t bytes) {
    for (uint64_t *one = rows[hash % ROWS]; one; one = HANDLE(uint64_t *, one[OTHER]))
        if (one[HASH] == hash && one[BYTES] == bytes && !memcmp(one + DATA_HEAD, data, bytes))
            return one[NUMBER];
    return 0;
}

static size_t room_of(const uint64_t *one) { return ((uint32_t)*one - DATA_HEAD) * sizeof *one; }

/* The smallest spare record that has room, and not much more; NULL if there is none. */
static uint64_t *take_spare(size_t bytes) {
    uint64_t *best = NULL;
    for (uint64_t *one = spares; one; one = HANDLE(uint64_t *, one[OTHER])) {
        size_t room = room_of(one);
        if (room >= bytes && room / 2 <= bytes && (!best || room < room_of(best)))
            best = one;
    }
    if (best == spares && best)
        spares = HANDLE(uint64_t *, best[OTHER]);
    for (uint64_t *one = spares; best && one; one = HANDLE(uint64_t *, one[OTHER]))
        if (one[OTHER] == WORD(best))
            one[OTHER] = best[OTHER];
    return best;
}

void *fl_new_data(size_t bytes) {
    size_t words = DATA_HEAD + (bytes + 7) / 8;
    FL_HOLD(lock);
    uint64_t *made = take_spare(bytes), *place = made ? made : take(words);
    if (place) {
        place[NUMBER] = ++data_count;
        place[BYTES] = bytes;
        if (!made)
            __atomic_store_n(place, words | (uint64_t)FL_R_DATA << 32, __ATOMIC_RELEASE);
    }
    return place ? place + DATA_HEAD : NULL;
}

uint64_t fl_keep_data(void *data) {
    uint64_t *place = (uint64_t *)data - DATA_HEAD, hash = hash_of(data, place[BYTES]);
    FL_HOLD(lock);
    uint64_t number = number_of(hash, data, place[BYTES]);
    uint64_t **row = number ? &spares : &rows[hash % ROWS];
    place[HASH] = hash;
    place[OTHER] = WORD(*row);
    *row = place;
    if (!number) {
        number = place[NUMBER];
        __atomic_store_n(place + IS_THERE, 1, __ATOMIC_RELEASE);
    }
    return number;
}

uint64_t fl_copy_data(const void *from, size_t bytes) {
    uint64_t hash = hash_of(from, bytes);
    pthread_mutex_lock(&lock);
    uint64_t number = number_of(hash, from, bytes);
    pthread_mutex_unlock(&lock);
    void *data = number ? NULL : fl_new_data(bytes);
    if (!data)
        return number;
    memcpy(data, from, bytes);
    return fl_keep_data(data);
}
