/* Answers to queries that cannot change. Python gives an answer once, and C keeps it with the
 * object.
 *
 * Answers are only added while the object lives. So readers need no lock. */
#include "calls.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 32 };

typedef struct answer {
    struct answer *next;
    uint32_t query, name;
    uintptr_t second;   /* another handle that the question is about, or 0 */
    size_t size;
    char bytes[];
} answer;

struct fl_answers {
    _Atomic(answer *) first[PLACES];
};

static struct {
    const int64_t *names;
    uint32_t count;
} lasting[FL_QUERIES];

fl_answers *fl_new_answers(void) { return calloc(1, sizeof(fl_answers)); }

void fl_free_answers(fl_answers *answers) {
    for (unsigned i = 0; answers && i < PLACES; i++)
        for (answer *one = answers->first[i], *next; one; one = next) {
            next = one->next;
            free(one);
        }
    free(answers);
}

void fl_keep_answers(uint32_t query, const int64_t *names, uint32_t count) {
    lasting[query].names = names;
    lasting[query].count = count;
}

static const answer *find(const fl_answers *answers, uint32_t query, uintptr_t second,
                          uint32_t name) {
    const answer *one = answers->first[name % PLACES];
    while (one && !(one->name == name && one->second == second && one->query == query))
        one = one->next;
    return one;
}

/* A handle that is never released may be a part of what an answer is kept by. */
static bool lasts(uintptr_t handle, uint32_t adapter, unsigned kind) {
    return fl_get_state(adapter, handle, kind) && fl_is_fixed(handle);
}

static int32_t give(const answer *one, size_t size, uintptr_t value, size_t *size_ret) {
    if (value ? size < one->size : size || !size_ret)
        return FL_TO_PYTHON;
    if (value)
        memcpy((void *)value, one->bytes, one->size);
    if (size_ret)
        *size_ret = one->size;
    return 0;
}

int32_t fl_kept(uint32_t adapter, uint32_t query, unsigned kind, uintptr_t handle,
                uintptr_t second, uint32_t name, size_t size, uintptr_t value, size_t *size_ret) {
    const uintptr_t *words = fl_hold(adapter, handle, kind);
    if (!words)
        return FL_TO_PYTHON;
    const fl_answers *answers = (const fl_answers *)words[FOURTH];
    const answer *one = answers ? find(answers, query, second, name) : NULL;
    int32_t code = one ? give(one, size, value, size_ret) : FL_TO_PYTHON;
    fl_let_go(adapter, handle, kind);
    return code;
}

/* Handles in an answer may end, unless they are never released. */
static bool all_last(uint32_t adapter, uintptr_t value, size_t size) {
    for (size_t i = 0; i + sizeof(uintptr_t) <= size; i += sizeof(uintptr_t)) {
        uintptr_t handle;
        memcpy(&handle, (const char *)value + i, sizeof handle);
        if (handle && !lasts(handle, adapter, kind_ur_device_handle_t) &&
            !lasts(handle, adapter, kind_ur_platform_handle_t))
            return false;
    }
    return true;
}

static bool may_keep(uint32_t adapter, uint32_t query, uint32_t name, uintptr_t value,
                     size_t size) {
    for (uint32_t i = 0; i < lasting[query].count; i++) {
        int64_t known = lasting[query].names[i];
        if (known == (int64_t)name)
            return true;
        if (known == -(int64_t)name - 1)
            return all_last(adapter, value, size);
    }
    return false;
}

void fl_keep(uint32_t adapter, uint32_t query, unsigned kind, uintptr_t handle, uintptr_t second,
             uint32_t name, uintptr_t value, size_t size) {
    if (!may_keep(adapter, query, name, value, size) ||
        (second && !lasts(second, adapter, kind_ur_device_handle_t)))
        return;
    const uintptr_t *words = fl_hold(adapter, handle, kind);
    if (!words)
        return;
    fl_answers *answers = (fl_answers *)words[FOURTH];
    answer *one = answers ? malloc(sizeof *one + size) : NULL;
    if (one) {
        *one = (answer){answers->first[name % PLACES], query, name, second, size};
        memcpy(one->bytes, (const void *)value, size);
        while (!atomic_compare_exchange_weak(&answers->first[name % PLACES], &one->next, one))
            continue;
    }
    fl_let_go(adapter, handle, kind);
}
