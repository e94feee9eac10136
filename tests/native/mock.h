/* A mock OpenCL driver, in the process of the test: it executes nothing, writes down what it is
 * asked to do, and stops the test at the first use of an object or of an SVM allocation that is
 * gone. A test is its client, as a loader would be. */
#ifndef MOCK_H
#define MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "opencl_abi.h"

#define MOST_ARGUMENTS 8
#define MOST_WAITS 32

/* Where the driver's table lies, and which ICD version it speaks. */
typedef enum {
    MOCK_PLAIN,       /* ICD 1, the table in .data */
    MOCK_SEALED,      /* ICD 1, the table in a page that is read-only */
    /* ICD 2: a full table of its own with the tags, and a full table in dispatch_data */
    MOCK_ICD2,
    MOCK_ICD2_BARE,   /* ICD 2: its own table has the tags and nothing else */
    MOCK_VARIANTS,
    MOCK_LOCKED = MOCK_VARIANTS,   /* ICD 1, the table in a page that can never be written */
    MOCK_ALL
} mock_variant;

/* One command that was enqueued. A kernel's `arguments` are the values, or the objects' addresses.
 */
typedef struct mock_entry {
    int slot;
    void *queue, *kernel, *source, *target, *host;
    uint32_t work_dim, has_offset, has_local;
    size_t n[13];
    uint64_t arguments[MOST_ARGUMENTS];
    unsigned char pattern[16];
    size_t pattern_size;
    uint32_t wait_count;
    int waits[MOST_WAITS];   /* number of the entry that the event is of, -1 for a user event */
    void *event;             /* only to be compared */
} mock_entry;

typedef struct mock mock;

/* A driver; the same variant and number is the same driver, with the same tables. */
mock *mock_open(mock_variant variant, int number);
/* Whether every slot of its tables and both words of every living object are as they were made;
 * says what is not. */
bool mock_is_untouched(const mock *m);
/* Whether nothing of it lives any more, and it is untouched; says what does. */
bool mock_close(mock *m);
const char *mock_variant_name(mock_variant variant);

/* Objects, each with one reference that is the caller's. */
cl_context mock_context(mock *m);
cl_command_queue mock_queue(cl_context context, bool out_of_order);
cl_mem mock_buffer(cl_context context, size_t size, void *use_host_ptr);
/* An image with pixels of 16 bytes; `made_from` (or NULL) is a buffer that it does not keep, and
 * without which it may not be used. */
cl_mem mock_image(cl_context context, cl_mem_object_type type, cl_mem made_from);
void mock_is_depth(cl_mem image);
void mock_made_from(cl_mem image, cl_mem source);   /* what it says, not what it is */
/* a new buffer at the address of one that is gone */
void mock_buffer_again(cl_context context, cl_mem gone);
cl_sampler mock_sampler(cl_context context);
/* A kernel's name says what its arguments are: "name:mlvs" has a memory object, local memory, a
 * value and a sampler. */
cl_program mock_program(cl_context context);
void mock_release_program(cl_program program);
cl_event mock_pending(cl_context context);
void mock_complete(cl_event event, cl_int status);
int mock_references(const void *object);

/* Knobs. */
/* in all tables of the driver, for good: NULL or a stub */
void mock_put_slot(mock *m, int slot, void *function);
void mock_put_back_slots(mock *m);
void *mock_exchange_slot(mock *m, int slot,
                         void *function); /* in the table that clients use, as somebody does who
                                           * looks at calls: what was there */
void mock_hide_argument_info(bool hide);
/* Samplers lie in the constant address space, and pass for memory objects that lead to one at
 * address 16: no kind is checked. */
void mock_confuse_samplers(bool confuse);
/* what events of commands made from now on are: CL_COMPLETE or CL_QUEUED */
void mock_events_are(cl_int status);
void mock_callbacks_tell(cl_int status);   /* of events that are complete */
/* The n-th call from now (0: the next) to a slot, or to any that can fail (slot -1), answers `code`
 * and does nothing. */
void mock_fail(int slot, int n, cl_int code);
bool mock_has_failed(void);                 /* whether that call came; it ends the knob */

/* What was seen. */
int mock_count(void);
const mock_entry *mock_log(int number);
void mock_clear(void);
/* since mock_clear, for the functions that count: clones, frees, flushes, waits */
int mock_calls(int slot);
int mock_living_svm(void);
bool mock_svm_lives(const void *pointer);

/* As a loader calls: through dispatch_data if the table has the tag, else through the table. */
void *mock_function(const void *object, int slot);
#define CL(object, name) ((fn_##name *)mock_function(object, SLOT_##name))

/* For the mock's own memory, which is never refused. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);

/* Ends the test with the place and the values of what was wrong. */
#define CHECK(condition) ((condition) ? (void)0 : DIE("not so: %s", #condition))
#define EQUAL(a, b)                                                                                \
    do {                                                                                           \
        long long left_ = (long long)(a), right_ = (long long)(b);                                 \
        if (left_ != right_)                                                                       \
            DIE("%s is %lld and not %s, %lld", #a, left_, #b, right_);                             \
    } while (0)
#define OK(code) EQUAL(code, CL_SUCCESS)
#define DIE(...) mock_die(__FILE__, __LINE__, __VA_ARGS__)
_Noreturn void mock_die(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
