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

bool fl_open_log(const char *name) { return (folder = strdup(name)) != NULL; }

/* A forked child has a file of its own. */
void fl_reset_log(void) {
    pthread_mutex_init(&lock, NULL);
    path = NULL, size = 0, here = end = NULL, data_count = 0;
}

/* A process that went on by exec has another file for each program. */
static int create_file(void) {
    for (int program = 0; program < 1000; program++) {
        if (asprintf(&path, "%s/%d.%d.record", folder, (int)getpid(), program) < 0)
            return -1;
        int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (file >= 0 || errno != EEXIST)
            return file;
        free(path);
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

static void more(fl_record *record, size_t words) {
    if (!record->used)
        record->used = 1; /* the head */
    if (record->used + words <= record->room)
        return;
    size_t room = 2 * (record->used + words) + 64;
    uint64_t *larger = realloc(record->words, room * sizeof *larger);
    if (!larger) { /* there is nothing sensible left to do for this record */
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
    pthread_mutex_lock(&lock);
    uint64_t *place = take(words);
    if (place) {
        memcpy(place + 1, record->words + 1, (words - 1) * sizeof *place);
        __atomic_store_n(place, words | (uint64_t)kind << 32, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return place;
}

void *fl_new_data(size_t bytes, uint64_t *number) {
    size_t words = 4 + (bytes + 7) / 8;
    pthread_mutex_lock(&lock);
    uint64_t *place = take(words);
    if (place) {
        *number = place[1] = ++data_count;
        place[3] = bytes;
        __atomic_store_n(place, words | (uint64_t)FL_R_DATA << 32, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return place ? place + 4 : NULL;
}

void fl_data_is_there(void *data) { __atomic_store_n((uint64_t *)data - 2, 1, __ATOMIC_RELEASE); }

uint64_t fl_copy_data(const void *from, size_t bytes) {
    uint64_t number = 0;
    void *data = fl_new_data(bytes, &number);
    if (!data)
        return 0;
    memcpy(data, from, bytes);
    fl_data_is_there(data);
    return number;
}
