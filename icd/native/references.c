/* Who has references to the memory objects of commands (icd/command_buffer/rewrites/uses.py). That
 * is counted while a graph is made ready, before engines have any. So it must not take long. */
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* What was met, each once: memory objects, kernels, and lists of arguments that hold objects. */
typedef struct met {
    const void *what;
    int64_t others; /* of a memory object */
} met;

struct fl_references {
    met *found;
    uint32_t count, room; /* a power of two, at least twice the count */
    void **programs;
    uint32_t program_count;
    bool failed; /* there is no memory: nobody knows */
};

static met *look_up(const fl_references *r, const void *what) {
    uint32_t mask = r->room - 1, at = (uint32_t)(((uintptr_t)what >> 4) * 2654435761u) & mask;
    while (r->found[at].what && r->found[at].what != what)
        at = (at + 1) & mask;
    return &r->found[at];
}

static bool grow(fl_references *r) {
    fl_references grown = {.room = r->room ? 2 * r->room : 64};
    grown.found = calloc(grown.room, sizeof *grown.found);
    if (!grown.found)
        return false;
    for (uint32_t i = 0; i < r->room; i++)
        if (r->found[i].what)
            *look_up(&grown, r->found[i].what) = r->found[i];
    free(r->found);
    r->found = grown.found;
    r->room = grown.room;
    return true;
}

/* The row of something, which is new if it has no `what` yet; NULL without memory. */
static met *find(fl_references *r, const void *what) {
    if (2 * r->count >= r->room && !grow(r)) {
        r->failed = true;
        return NULL;
    }
    return look_up(r, what);
}

static bool is_new(fl_references *r, const void *what) {
    met *row = find(r, what);
    if (!row || row->what)
        return false;
    row->what = what;
    r->count++;
    return true;
}

static void meet_memory(fl_references *r, void *memory, bool has_own) {
    met *row = memory ? find(r, memory) : NULL;
    if (!row)
        return;
    if (!row->what) {
        cl_uint references = 0;
        CALL(fl_table_of(memory), clGetMemObjectInfo)
        (memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL);
        *row = (met){memory, (int64_t)references - 1}; /* the recording has one */
        r->count++;
    }
    row->others -= has_own;
}

static void meet_kernel(fl_references *r, void *kernel) {
    void *program = NULL;
    if (!kernel || !is_new(r, kernel))
        return;
    CALL(fl_table_of(kernel), clGetKernelInfo)
    (kernel, CL_KERNEL_PROGRAM, sizeof program, &program, NULL);
    if (!program || !is_new(r, program))
        return;
    void **more = realloc(r->programs, (r->program_count + 1) * sizeof *more);
    if (more) {
        r->programs = more;
        more[r->program_count++] = program;
    }
}

fl_references *fl_count_references(const fl_command *commands, uint32_t count) {
    fl_references *r = calloc(1, sizeof *r);
    for (uint32_t i = 0; r && i < count; i++) {
        const fl_command *command = &commands[i];
        const fl_arguments *list = command->arguments;
        if (command->op == FL_COPY || command->op == FL_FILL) {
            meet_memory(r, command->source, false);
            meet_memory(r, command->target, false);
        }
        if (command->op != FL_KERNEL)
            continue;
        meet_kernel(r, command->kernel);
        bool holds = list && list->holds && is_new(r, list);
        for (uint32_t k = 0; k < fl_argument_count(list); k++) {
            const fl_argument *a = &list->list[k];
            void *memory = NULL;
            if (a->kind == FL_ARG_MEM && a->value)
                memcpy(&memory, a->value, sizeof memory);
            meet_memory(r, memory, holds && !a->cell);
        }
    }
    return r;
}

int64_t fl_other_references(const fl_references *r, const void *memory) {
    met *row = r && !r->failed && r->room ? look_up(r, memory) : NULL;
    return row && row->what ? row->others : 1;
}

uint32_t fl_list_programs(const fl_references *r, void *const **programs) {
    *programs = r ? r->programs : NULL;
    return r ? r->program_count : 0;
}

void fl_free_references(fl_references *r) {
    if (r) {
        free(r->found);
        free(r->programs);
    }
    free(r);
}

int fl_find_root(void *memory, uint64_t told[4]) {
    const cl_uint asked[] = {CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_OFFSET, CL_MEM_SIZE, CL_MEM_FLAGS};
    size_t size = 0;
    for (int i = 0; i < 4; i++) {
        told[i] = 0;
        int code = CALL(fl_table_of(memory), clGetMemObjectInfo)(memory, asked[i], sizeof told[i],
                                                                 &told[i], &size);
        if (code || !size)
            return code ? code : CL_INVALID_VALUE;
        if (!told[0]) {   /* no parent */
            told[0] = (uintptr_t)memory;
            told[1] = 0;
            i = 1;
        }
    }
    told[3] = (told[3] & CL_MEM_USE_HOST_PTR) != 0;
    return CL_SUCCESS;
}
