/* What the files of libfairlead_record.so share. record_layer.c says what the library does. */
#ifndef FL_RECORD_H
#define FL_RECORD_H

#include "../../../loader/base/native/layer.h"
#include "../../../loader/base/native/locks.h"

#include "opencl_abi.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A function of the next table. */
#define NEXT(next, name) ((fn_##name *)(next)[SLOT_##name])
#define HANDLE(type, word) ((type)(uintptr_t)(word))
#define WORD(pointer) ((uint64_t)(uintptr_t)(pointer))

typedef void *const *fl_table;

/* --- spool.c: the file of records --- */

/* icd/record_layer.py reads the records. */
enum fl_record_kind {
    FL_R_COMMAND = 1,
    FL_R_QUEUE,
    FL_R_MEMORY,
    FL_R_SAMPLER,
    FL_R_PROGRAM,
    FL_R_KERNEL,
    FL_R_DATA,
    FL_R_CONTENTS,
    FL_R_SYNC,
    FL_R_GAP,
    FL_R_END,
    FL_R_RESULT
};

/* Why a recording ends. */
enum fl_record_end {
    FL_E_CANNOT = 1,  /* a file has no such command */
    FL_E_UNSET,       /* a kernel's argument was not seen */
    FL_E_SVM,         /* it uses SVM that the program may change at any time */
    FL_E_USER_EVENT,  /* it waits for an event that the program has not set yet */
    FL_E_CONTENTS,    /* contents of memory cannot be read */
    FL_E_MEMORY,      /* memory of an unknown kind */
    FL_E_MAPPED,      /* it ends a mapping that was not seen */
    FL_E_EXTENSION,   /* what an extension enqueues */
    FL_E_QUEUE        /* a queue that was not seen */
};

/* A record that is being made: words, then pieces. */
typedef struct fl_record {
    uint64_t *words;
    size_t used, room; /* in words */
} fl_record;

bool fl_open_log(const char *folder);
/* Memory of zeros, or more of what there is. NULL: there is none, and nothing more is recorded. It
 * would be wrong without what is not known now. */
void *fl_room(void *old, size_t bytes);
void fl_reset_log(void);
void fl_add_word(fl_record *record, uint64_t word);
void fl_add_piece(fl_record *record, uint32_t tag, const void *data, size_t bytes);
/* Write a record, and forget its words. Returns where it is; NULL if there is no room. */
uint64_t *fl_write_record(fl_record *record, enum fl_record_kind kind);
/* Room for the bytes of a DATA record; NULL if there is none. They count once they are kept. */
void *fl_new_data(size_t bytes);
/* The bytes are there. Returns the number of the record that has them: perhaps an earlier one. */
uint64_t fl_keep_data(void *data);
/* The same for bytes of the program's; 0 if there is no room. */
uint64_t fl_copy_data(const void *from, size_t bytes);

/* --- objects.c: what the program has made --- */

enum fl_kind {
    FL_K_NONE,
    FL_K_QUEUE,
    FL_K_MEMORY,
    FL_K_SAMPLER,
    FL_K_PROGRAM,
    FL_K_KERNEL,
    FL_K_EVENT,
    FL_K_FUNCTION,
    FL_K_SVM
};

typedef struct fl_argument {
    uint8_t is_set, has_value, is_svm;
    size_t size;
    uint8_t *value;
} fl_argument;

typedef struct fl_seen {
    struct fl_seen *other; /* in its row of the table */
    void *handle;
    enum fl_kind kind;
    uint64_t serial;
    bool is_noted;    /* the log says what it is */
    uint32_t refused; /* the slot of a call after which files cannot hold it, 0 if there is none */
    /* memory */
    struct fl_seen *whole; /* of what it is a part, or itself */
    size_t size, element, extent[3];
    uint32_t type;
    uint64_t epoch; /* since when its contents are known */
    /* SVM: its flags, and the next one */
    uint64_t flags;
    struct fl_seen *next_svm;
    /* kernels */
    uint32_t count;
    fl_argument *arguments;
    uint32_t *address_of; /* the address qualifier of each argument, 0 if it is not known */
    char *name;
} fl_seen;

fl_seen *fl_find(const void *handle, enum fl_kind kind);
fl_seen *fl_see(void *handle, enum fl_kind kind);
fl_seen *fl_each_queue(fl_seen *last);
void fl_see_svm(void *pointer, uint64_t flags, size_t size);
void fl_forget_svm(const void *pointer);
/* Return the living SVM that an address lies in, NULL if there is none. */
fl_seen *fl_find_svm(const void *pointer);
void fl_forget_notes(void);
void fl_set_argument(fl_seen *kernel, uint32_t index, size_t size, const void *value, bool is_svm);
void fl_copy_arguments(fl_seen *to, const fl_seen *from);

/* --- facts.c: what the driver says of them --- */

void fl_note_queue(fl_table next, fl_seen *queue);
bool fl_note_memory(fl_table next, fl_seen *memory);
void fl_note_sampler(fl_table next, fl_seen *sampler);
void fl_note_kernel(fl_table next, fl_seen *kernel);

/* --- transfers.c: the host's memory that transfers use --- */

typedef struct fl_mapping {
    struct fl_mapping *other;
    void *pointer, *memory;
    uint64_t flags;
    uint64_t numbers[8]; /* offset, size; or origin, region, row and slice pitch */
    size_t bytes;
} fl_mapping;

size_t fl_host_bytes(const fl_call *call, const fl_seen *memory);
bool fl_fits(const fl_call *call, const fl_seen *memory);
bool fl_overwrites(const fl_call *call, const fl_seen *memory);
void fl_add_mapping(const fl_call *call, const fl_seen *memory, void *pointer);
fl_mapping *fl_take_mapping(const void *memory, const void *pointer);
cl_int fl_read_contents(fl_table next, cl_command_queue queue, const fl_seen *memory,
                        uint64_t *number);

/* --- commands.c: records of commands --- */

/* What is wanted,
    and the state that all files share. Whoever uses it or calls a function below holds
 * the lock. */
typedef struct fl_recorder_state {
    pthread_mutex_t lock;
    bool is_on, wants_contents, wants_results;
    uint64_t first, last; /* the numbers of commands */
    const char *only;     /* the kernel whose launches count; NULL: all commands do */
    int64_t unset;        /* user events that the program has not set */
} fl_recorder_state;

extern fl_recorder_state fl_recorder;

bool fl_is_command(const fl_call *call);
void fl_begin_command(const fl_call *call);
void fl_end_command(const fl_call *call);
void fl_add_sync(uint64_t queue, const void *events, uint64_t count);
void fl_write_end(enum fl_record_end reason, uint32_t slot, uint64_t detail, const char *name);
void fl_begin_anew(void);

#endif
