/* Scenarios of loader/base/native/launches.c: what an adapter is given for many launches, and how
 * changes of them are described. Handles are numbers here. */
#include "harness.h"
#include "ur_launches.h"

#include "../../loader/base/native/launches.cdef.h"

#include <stdlib.h>
#include <string.h>

typedef ur_exp_kernel_arg_properties_t row;
typedef ur_exp_command_buffer_update_kernel_launch_desc_t update;

enum { BUFFER = 500, KERNEL = 600, COMMAND = 700, POINT = 40, MOST = 4 };
#define HANDLE(type, number) ((type)(uintptr_t)(number))

static row argument(uint32_t type, size_t size, uintptr_t word) {
    row made = {.type = type, .size = size};
    memcpy(&made.value, &word, sizeof word);
    return made;
}

#define VALUE(of) argument(UR_EXP_KERNEL_ARG_TYPE_VALUE, sizeof(of), (uintptr_t)&(of))
#define LOCAL(size) argument(UR_EXP_KERNEL_ARG_TYPE_LOCAL, size, 0)
#define POINTER(to) argument(UR_EXP_KERNEL_ARG_TYPE_POINTER, 8, to)
#define OBJECT(of) argument(UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ, 8, of)
#define SAMPLER(of) argument(UR_EXP_KERNEL_ARG_TYPE_SAMPLER, 8, of)

/* --- appends --- */

/* What the adapter was given. */
typedef struct call {
    uintptr_t kernel, alternatives[MOST];
    uint32_t dimensions, arguments, alternative_count, wait_count, waits[MOST];
    uint32_t last_index, last_type;
    size_t offset, size, local;
    bool has_offset, has_local, has_arguments, has_alternatives, has_waits, has_handle;
} call;

static call calls[MOST];
static uint32_t called, refused_call;
static fn_urCommandBufferAppendKernelLaunchWithArgsExp append;

static ur_result_t append(ur_exp_command_buffer_handle_t buffer, ur_kernel_handle_t kernel,
                          uint32_t dimensions, const size_t *offset, const size_t *size,
                          const size_t *local, uint32_t arguments, const row *rows,
                          uint32_t alternatives, ur_kernel_handle_t *others, uint32_t waits,
                          const uint32_t *points, uint32_t events, const ur_event_handle_t *list,
                          uint32_t *point, ur_event_handle_t *event,
                          ur_exp_command_buffer_command_handle_t *command) {
    EQUAL((uintptr_t)buffer, BUFFER);
    CHECK(!events && !list && !event && called < MOST);
    if (called == refused_call)
        return 7;
    call *c = &calls[called];
    *c = (call){.kernel = (uintptr_t)kernel,
                .dimensions = dimensions,
                .arguments = arguments,
                .alternative_count = alternatives,
                .wait_count = waits,
                .last_index = arguments ? rows[arguments - 1].index : 0,
                .last_type = arguments ? rows[arguments - 1].type : 0,
                .offset = offset ? offset[0] : 0,
                .size = size[dimensions - 1],
                .local = local ? local[0] : 0,
                .has_offset = offset,
                .has_local = local,
                .has_arguments = rows,
                .has_alternatives = others,
                .has_waits = points,
                .has_handle = command};
    for (uint32_t i = 0; i < alternatives; i++)
        c->alternatives[i] = (uintptr_t)others[i];
    for (uint32_t i = 0; i < waits; i++)
        c->waits[i] = points[i];
    *point = POINT + called;
    if (command)
        *command = HANDLE(ur_exp_command_buffer_command_handle_t, COMMAND + called);
    called++;
    return 0;
}

static void expect_calls(uint32_t refused) {
    memset(calls, 0, sizeof calls);
    called = 0;
    refused_call = refused;
}

/* Three launches behind one other command, whose sync-point is 9. The memory of each list ends
 * where the list does. */
typedef struct lists {
    uintptr_t kernels[3];
    fl_range ranges[3];
    uint32_t counts[3], points[4];
    uintptr_t handles[4];
    row arguments[3];
    uint32_t after[6];
    uintptr_t alternatives[5];
    fl_new_launches launches;
} lists;

static void begin_lists(lists *l) {
    static const uint64_t number = 5;
    *l = (lists){.kernels = {KERNEL, KERNEL + 1, KERNEL + 2},
                 .ranges = {{.dimensions = 1, .size = {64}},
                            {.dimensions = 2,
                             .has_offset = 1,
                             .has_local = 1,
                             .offset = {3, 1},
                             .size = {64, 8},
                             .local = {4, 2}},
                            {.dimensions = 3, .size = {64, 8, 2}}},
                 .counts = {2, 0, 1},
                 .points = {9},
                 .arguments = {POINTER(1), VALUE(number), OBJECT(2)},
                 .after = {0, 1, 0, 2, 0, 2},
                 .alternatives = {0, 2, KERNEL + 7, KERNEL + 8, 0}};
    l->launches = (fl_new_launches){.append = (uintptr_t)append,
                                    .buffer = BUFFER,
                                    .count = 3,
                                    .kernels = l->kernels,
                                    .ranges = l->ranges,
                                    .argument_counts = l->counts,
                                    .arguments = l->arguments,
                                    .after = l->after,
                                    .alternatives = l->alternatives,
                                    .points = l->points,
                                    .handles = l->handles,
                                    .number = 1};
}

/* Lists are divided among the launches; numbers of commands become sync-points. */
SCENARIO(ur_launches_appended) {
    lists l;
    begin_lists(&l);
    expect_calls(MOST);
    OK(fl_append_launches(&l.launches));
    EQUAL(called, 3);
    EQUAL(l.launches.number, 4);
    static const uint32_t arguments[] = {2, 0, 1}, waits[] = {0, 1, 2}, others[] = {0, 2, 0};
    static const size_t last_sizes[] = {64, 8, 2};
    for (uint32_t i = 0; i < 3; i++) {
        const call *c = &calls[i];
        EQUAL(c->kernel, KERNEL + i);
        EQUAL(c->dimensions, i + 1);
        EQUAL(c->size, last_sizes[i]);
        EQUAL(c->arguments, arguments[i]);
        EQUAL(c->wait_count, waits[i]);
        EQUAL(c->alternative_count, others[i]);
        CHECK(c->has_arguments == (arguments[i] > 0) && c->has_waits == (waits[i] > 0) &&
              c->has_alternatives == (others[i] > 0) && c->has_handle);
        CHECK(c->has_offset == (i == 1) && c->has_local == (i == 1));
        EQUAL(l.points[i + 1], POINT + i);
        EQUAL(l.handles[i + 1], COMMAND + i);
    }
    EQUAL(calls[0].last_index, 1);
    EQUAL(calls[0].last_type, UR_EXP_KERNEL_ARG_TYPE_VALUE);
    EQUAL(calls[2].last_type, UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ);
    EQUAL(calls[1].offset, 3);
    EQUAL(calls[1].local, 4);
    EQUAL(calls[1].waits[0], 9);
    EQUAL(calls[2].waits[0], 9);
    EQUAL(calls[2].waits[1], POINT + 1);   /* of a launch of the same call */
    EQUAL(calls[1].alternatives[0], KERNEL + 7);
    EQUAL(calls[1].alternatives[1], KERNEL + 8);
}

/* Lists that are left out, and no launches at all. */
SCENARIO(ur_launches_without_lists) {
    lists l;
    begin_lists(&l);
    expect_calls(MOST);
    l.launches.after = NULL;
    l.launches.alternatives = l.launches.handles = NULL;
    OK(fl_append_launches(&l.launches));
    EQUAL(called, 3);
    for (uint32_t i = 0; i < 3; i++)
        CHECK(!calls[i].has_waits && !calls[i].has_alternatives && !calls[i].has_handle);
    EQUAL(l.points[3], POINT + 2);
    l.launches.count = 0;
    OK(fl_append_launches(&l.launches));
    EQUAL(called, 3);
}

/* The code and the number of the launch that the adapter refuses; those behind it stay away. */
SCENARIO(ur_launches_refused) {
    lists l;
    begin_lists(&l);
    expect_calls(1);
    EQUAL(fl_append_launches(&l.launches), 7);
    EQUAL(called, 1);
    EQUAL(l.launches.number, 2);
    EQUAL(l.points[1], POINT);
    CHECK(!l.points[2] && !l.handles[2]);
}

/* --- updates --- */

/* Changes as Python writes them, and memory for what they become: as much as they take. */
typedef struct changes {
    uint32_t count;
    size_t size;
    char *written;
    update *updates;
} changes;

static void add(changes *c, uintptr_t kernel, const fl_range *old, const fl_range *new,
                uint32_t count, const row *before, const row *after) {
    fl_changed_launch head = {.command = COMMAND + c->count,
                              .kernel = kernel,
                              .argument_count = count,
                              .old_range = *old,
                              .range = *new};
    const struct {
        const void *data;
        size_t size;
    } parts[] = {{&head, sizeof head},
                 {before, kernel ? 0 : count * sizeof *before},
                 {after, count * sizeof *after}};
    for (uint32_t i = 0; i < 3; i++) {
        c->written = realloc(c->written, c->size + parts[i].size);
        CHECK(c->written);
        if (parts[i].size)
            memcpy(c->written + c->size, parts[i].data, parts[i].size);
        c->size += parts[i].size;
    }
    c->count++;
}

static int32_t describe(changes *c) {
    free(c->updates);
    c->updates = malloc(c->size);
    CHECK(c->updates);
    return fl_describe_changes(c->count, c->written, c->updates);
}

static void end_changes(changes *c) {
    free(c->written);
    free(c->updates);
}

static const fl_range FLAT = {.dimensions = 1, .size = {64}};

/* What differs is described, in lists of its kind, and nothing else. */
SCENARIO(ur_changes_of_arguments) {
    changes c = {0};
    uint64_t one = 1, same = 1, two = 2;
    const row before[] = {VALUE(one), OBJECT(10), POINTER(20), LOCAL(64), VALUE(one), SAMPLER(30)},
              equal[] = {VALUE(same), OBJECT(10), POINTER(20), LOCAL(64), VALUE(one), SAMPLER(30)},
              after[] = {VALUE(two), OBJECT(11), POINTER(0), LOCAL(128), VALUE(same), SAMPLER(30)};
    add(&c, 0, &FLAT, &FLAT, 6, before, equal);
    add(&c, 0, &FLAT, &FLAT, 6, before, after);
    add(&c, 0, &FLAT, &FLAT, 0, NULL, NULL);
    EQUAL(describe(&c), 1);
    const update *u = c.updates;
    EQUAL(u->stype, UR_STRUCTURE_TYPE_EXP_COMMAND_BUFFER_UPDATE_KERNEL_LAUNCH_DESC);
    EQUAL((uintptr_t)u->hCommand, COMMAND + 1);
    CHECK(!u->hNewKernel && !u->pNewGlobalWorkOffset && !u->pNewGlobalWorkSize &&
          !u->pNewLocalWorkSize);
    EQUAL(u->newWorkDim, 1);
    EQUAL(u->numNewValueArgs, 2);
    EQUAL(u->pNewValueArgList[0].argIndex, 0);
    EQUAL(u->pNewValueArgList[0].argSize, 8);
    CHECK(u->pNewValueArgList[0].pNewValueArg == &two);
    EQUAL(u->pNewValueArgList[1].argIndex, 3);   /* local memory */
    EQUAL(u->pNewValueArgList[1].argSize, 128);
    CHECK(!u->pNewValueArgList[1].pNewValueArg);
    EQUAL(u->numNewMemObjArgs, 1);
    EQUAL(u->pNewMemObjArgList[0].argIndex, 1);
    EQUAL((uintptr_t)u->pNewMemObjArgList[0].hNewMemObjArg, 11);
    EQUAL(u->numNewPointerArgs, 1);
    EQUAL(u->pNewPointerArgList[0].argIndex, 2);
    CHECK(!*(void *const *)u->pNewPointerArgList[0].pNewPointerArg);
    end_changes(&c);
}

/* A value of another size and an argument of another kind differ. */
SCENARIO(ur_changes_of_kinds) {
    changes c = {0};
    uint64_t number = 1;
    uint32_t half = 1;
    add(&c, 0, &FLAT, &FLAT, 1, (row[]){VALUE(number)}, (row[]){VALUE(half)});
    add(&c, 0, &FLAT, &FLAT, 1, (row[]){POINTER(10)}, (row[]){OBJECT(10)});
    EQUAL(describe(&c), 2);
    EQUAL(c.updates[0].pNewValueArgList[0].argSize, 4);
    EQUAL((uintptr_t)c.updates[1].pNewMemObjArgList[0].hNewMemObjArg, 10);
    CHECK(!c.updates[1].numNewPointerArgs && !c.updates[1].numNewValueArgs);
    end_changes(&c);
}

/* Another range is described as a whole, with an offset of 0 for one that is gone. Three
 * dimensions need the most memory. */
SCENARIO(ur_changes_of_ranges) {
    changes c = {0}, alone = {0};
    const fl_range full = {.dimensions = 3,
                           .has_offset = 1,
                           .has_local = 1,
                           .offset = {1, 2, 3},
                           .size = {8, 16, 32},
                           .local = {2, 4, 8}},
                   plain = {.dimensions = 3, .size = {8, 16, 32}};
    add(&c, 0, &plain, &full, 0, NULL, NULL);
    add(&c, 0, &full, &full, 0, NULL, NULL);
    add(&c, 0, &full, &plain, 0, NULL, NULL);
    EQUAL(describe(&c), 2);
    const update *u = c.updates;
    EQUAL(u[0].newWorkDim, 3);
    CHECK(!memcmp(u[0].pNewGlobalWorkOffset, full.offset, sizeof full.offset) &&
          !memcmp(u[0].pNewGlobalWorkSize, full.size, sizeof full.size) &&
          !memcmp(u[0].pNewLocalWorkSize, full.local, sizeof full.local));
    EQUAL((uintptr_t)u[1].hCommand, COMMAND + 2);
    CHECK(!memcmp(u[1].pNewGlobalWorkOffset, plain.offset, sizeof plain.offset) &&
          !u[1].pNewLocalWorkSize);
    CHECK(!u[1].numNewValueArgs && !u[1].pNewValueArgList);
    add(&alone, KERNEL, &full, &full, 0, NULL, NULL);
    EQUAL(describe(&alone), 1);
    end_changes(&c);
    end_changes(&alone);
}

/* For another kernel everything is given, what is the same as before, too. */
SCENARIO(ur_changes_of_kernels) {
    changes c = {0};
    uint64_t number = 1;
    add(&c, KERNEL, &FLAT, &FLAT, 3, NULL, (row[]){VALUE(number), POINTER(20), OBJECT(10)});
    add(&c, 0, &FLAT, &FLAT, 1, (row[]){OBJECT(10)}, (row[]){OBJECT(11)});
    EQUAL(describe(&c), 2);
    const update *u = c.updates;
    EQUAL((uintptr_t)u->hNewKernel, KERNEL);
    CHECK(u->numNewValueArgs == 1 && u->numNewPointerArgs == 1 && u->numNewMemObjArgs == 1);
    EQUAL(u->pNewGlobalWorkSize[0], 64);
    CHECK(!u->pNewGlobalWorkOffset && !u->pNewLocalWorkSize);
    EQUAL((uintptr_t)u[1].pNewMemObjArgList[0].hNewMemObjArg, 11);
    end_changes(&c);
}

/* An update cannot say another sampler, nor which one another kernel has. */
SCENARIO(ur_changes_of_samplers) {
    changes c = {0}, other = {0};
    add(&c, 0, &FLAT, &FLAT, 1, (row[]){SAMPLER(30)}, (row[]){SAMPLER(30)});
    EQUAL(describe(&c), 0);
    add(&c, 0, &FLAT, &FLAT, 1, (row[]){SAMPLER(30)}, (row[]){SAMPLER(31)});
    EQUAL(describe(&c), FL_NEW_SAMPLER);
    add(&other, KERNEL, &FLAT, &FLAT, 1, NULL, (row[]){SAMPLER(30)});
    EQUAL(describe(&other), FL_NEW_SAMPLER);
    end_changes(&c);
    end_changes(&other);
}
