/* The objects that the program has made, by their handles, and what kernels' arguments are set to.
 *
 * A handle is seen when it is made. A driver may give the address of a freed object to a new one,
 * which then is another object here. The caller holds the layer's lock. */
#include "record.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 4096 };

static fl_seen *rows[ROWS];
static uint64_t serials;

static fl_seen **row_of(const void *handle) {
    uint64_t mixed = WORD(handle) * UINT64_C(0x9E3779B97F4A7C15);
    return &rows[mixed >> 52];
}

/* The living object with a handle; NULL if the layer saw no such object of this kind. */
fl_seen *fl_find(const void *handle, enum fl_kind kind) {
    for (fl_seen *one = *row_of(handle); one; one = one->other)
        if (one->handle == handle && one->kind == kind)
            return one;
    return NULL;
}

/* A new object. One that had the handle is gone; its memory stays, others may be parts of it. */
fl_seen *fl_see(void *handle, enum fl_kind kind) {
    fl_seen **row = row_of(handle);
    for (fl_seen **one = row; *one; one = &(*one)->other)
        if ((*one)->handle == handle) {
            *one = (*one)->other;
            break;
        }
    fl_seen *made = fl_room(NULL, sizeof *made);
    if (!made)
        return NULL;
    *made = (fl_seen){.other = *row, .handle = handle, .kind = kind, .serial = ++serials};
    *row = made;
    return made;
}

static fl_seen *svm;

void fl_see_svm(void *pointer, uint64_t flags, size_t size) {
    fl_forget_svm(pointer); /* a queue may have freed it */
    fl_seen *made = fl_see(pointer, FL_K_SVM);
    if (!made)
        return;
    made->whole = made, made->flags = flags, made->size = size;
    made->next_svm = svm;
    svm = made;
}

void fl_forget_svm(const void *pointer) {
    for (fl_seen **one = &svm; *one; one = &(*one)->next_svm)
        if ((*one)->handle == pointer) {
            *one = (*one)->next_svm;
            return;
        }
}

fl_seen *fl_find_svm(const void *pointer) {
    fl_seen *one = svm;
    while (one && WORD(pointer) - WORD(one->handle) >= one->size)
        one = one->next_svm;
    return one;
}

/* The queue after another one, NULL after the last one. */
fl_seen *fl_each_queue(fl_seen *last) {
    size_t row = last ? (size_t)(row_of(last->handle) - rows) : 0;
    fl_seen *one = last ? last->other : rows[0];
    for (;;) {
        for (; one; one = one->other)
            if (one->kind == FL_K_QUEUE)
                return one;
        if (++row == ROWS)
            return NULL;
        one = rows[row];
    }
}

/* The log is another one: it knows nothing of them. */
void fl_forget_notes(void) {
    for (size_t row = 0; row < ROWS; row++)
        for (fl_seen *one = rows[row]; one; one = one->other)
            one->is_noted = false;
}

void fl_set_argument(fl_seen *kernel, uint32_t index, size_t size, const void *value, bool is_svm) {
    if (index >= kernel->count)
        return;
    fl_argument *one = &kernel->arguments[index];
    if (value) {
        if (!one->value || one->size < size || !one->has_value) {
            uint8_t *larger = fl_room(one->value, size);
            if (!larger)
                return;
            one->value = larger;
        }
        memcpy(one->value, value, size);
    }
    one->is_set = 1, one->has_value = value != NULL, one->is_svm = is_svm, one->size = size;
}

void fl_copy_arguments(fl_seen *to, const fl_seen *from) {
    for (uint32_t i = 0; i < from->count && i < to->count; i++)
        if (from->arguments[i].is_set)
            fl_set_argument(to, i, from->arguments[i].size,
                            from->arguments[i].has_value ? from->arguments[i].value : NULL,
                            from->arguments[i].is_svm);
}
