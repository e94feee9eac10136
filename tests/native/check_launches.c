/* Scenarios of plugins/sdk/native/launches.c: what appends and updates of launches make of a
 * caller's rows. Handles are numbers here, whose words `fl_get_state` knows. */
#include "harness.h"
#include "ur_types.h"

#include "launches.cdef.h"
#include "launches.h"

#include <string.h>

enum {
    ADAPTER = 3,
    BUFFER = 500,
    KERNEL = 600,
    COMMANDS = 700,
    MEMORY = 800,
    OTHERS = 801,
    SAMPLER = 900,
    PART = 0x5000
};

/* of the memory object, of another context's, of the sampler; and of a command */
static uintptr_t words[4][4];

const uintptr_t *fl_get_state(uint32_t adapter, uintptr_t handle, unsigned kind) {
    EQUAL(adapter, ADAPTER);
    if (kind == kind_ur_mem_handle_t && (handle == MEMORY || handle == OTHERS))
        return words[handle - MEMORY];
    if (kind == kind_ur_sampler_handle_t && handle == SAMPLER)
        return words[2];
    if (kind != kind_ur_exp_command_buffer_command_handle_t || handle < COMMANDS ||
        handle >= COMMANDS + 8)
        return NULL;
    const uintptr_t now[] = {handle - COMMANDS, handle == COMMANDS + 7 ? 0 : BUFFER, KERNEL,
                             handle != COMMANDS + 6};
    memcpy(words[3], now, sizeof now);
    return words[3];
}

static int held;   /* references that C has taken to the command-buffer */
static uintptr_t of_buffer[4];

const uintptr_t *fl_hold(uint32_t adapter, uintptr_t handle, unsigned kind) {
    EQUAL(adapter, ADAPTER);
    if (kind != kind_ur_exp_command_buffer_handle_t || handle != BUFFER)
        return NULL;
    held++;
    return of_buffer;
}

int32_t fl_entry_release(uint32_t adapter, uintptr_t handle, unsigned kind,
                         fl_counting_body *python) {
    held--;
    return 0;
}

static uintptr_t part_of(void *context, uintptr_t address) {
    return address == PART ? *(uintptr_t *)context : 0;
}

typedef struct buffer {
    fl_array commands;
    fl_buffer buffer;
    fl_launches launches;
    cl_sampler sampler;
} buffer;

static void begin_buffer(world *w, buffer *b) {
    fl_use_icd(fl_exported());
    *b = (buffer){.sampler = mock_sampler(w->context)};
    b->launches = (fl_launches){.adapter = ADAPTER,
                                .cl_context = (uintptr_t)w->context,
                                .commands = &b->commands,
                                .handle = BUFFER,
                                .buffer = &b->buffer};
    memcpy(words,
           (uintptr_t[3][4]){{(uintptr_t)w->a, (uintptr_t)w->context},
                             {(uintptr_t)w->b, 77},
                             {(uintptr_t)b->sampler, (uintptr_t)w->context}},
           3 * sizeof *words);
}

static void end_buffer(buffer *b) {
    fl_release_array(&b->commands);
    CL(b->sampler, clReleaseSampler)(b->sampler);
}

static ur_exp_kernel_arg_properties_t row(uint32_t type, uint32_t index, size_t size,
                                          uintptr_t word) {
    ur_exp_kernel_arg_properties_t made = {.type = type, .index = index, .size = size};
    memcpy(&made.value, &word, sizeof word);
    return made;
}

#define VALUE(index, of) row(UR_EXP_KERNEL_ARG_TYPE_VALUE, index, sizeof(of), (uintptr_t)&(of))
#define POINTER(index, to) row(UR_EXP_KERNEL_ARG_TYPE_POINTER, index, 8, to)
#define OBJECT(index, of) row(UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ, index, 8, of)
#define ROWS(...) (ur_exp_kernel_arg_properties_t[]){__VA_ARGS__}
static const size_t SIZE[] = {8, 2};

static fl_appended append(buffer *b, const ur_exp_kernel_arg_properties_t *rows, uint32_t count,
                          uint32_t arguments) {
    return fl_append_launch(&b->launches, 2, NULL, SIZE, NULL, rows, count, arguments, false, NULL);
}

static fl_change argument(const buffer *b, uint32_t command, uint32_t index) {
    fl_change found;
    OK(fl_get_argument(b->commands.commands[command].arguments, index, &found));
    return found;
}

/* Arguments of every kind, in any order; objects are held for as long as the launch is there. */
SCENARIO(launches_appended) {
    buffer b;
    begin_buffer(w, &b);
    uint64_t number = 42;
    int memory_before = mock_references(w->a), sampler_before = mock_references(b.sampler);
    fl_appended done = append(&b,
                              ROWS(OBJECT(4, MEMORY), VALUE(1, number),
                                   row(UR_EXP_KERNEL_ARG_TYPE_LOCAL, 2, 64, 0), POINTER(0, 0x1234),
                                   row(UR_EXP_KERNEL_ARG_TYPE_SAMPLER, 3, 8, SAMPLER), OBJECT(5, 0),
                                   POINTER(6, 0)),
                              7, 7);
    EQUAL(done.code, 0);
    EQUAL(done.addresses, 1);
    EQUAL(b.commands.count, 1);
    const fl_command *c = b.commands.commands;
    CHECK(c->op == FL_KERNEL && c->work_dim == 2 && !c->has_offset && !c->has_local);
    CHECK(memcmp(c->n, (size_t[]){0, 0, 0, 8, 2, 1, 0, 0, 1}, 9 * sizeof(size_t)) == 0);
    static const struct {
        uint32_t kind;
        size_t size;
    } kinds[] = {{4, 0}, {1, 8}, {1, 64}, {3, 8}, {2, 8}, {1, 8}, {1, 8}};
    for (uint32_t i = 0; i < 7; i++) {
        EQUAL(argument(&b, 0, i).kind, kinds[i].kind);
        EQUAL(argument(&b, 0, i).size, kinds[i].size);
    }
    CHECK(argument(&b, 0, 0).value == (void *)0x1234 && argument(&b, 0, 2).value == NULL);
    EQUAL(*(const uint64_t *)argument(&b, 0, 1).value, 42);
    CHECK(*(void *const *)argument(&b, 0, 4).value == w->a &&
          *(void *const *)argument(&b, 0, 5).value == NULL);
    EQUAL(mock_references(w->a), memory_before + 1);
    EQUAL(mock_references(b.sampler), sampler_before + 1);
    fl_drop_command(&b.commands);
    EQUAL(mock_references(w->a), memory_before);
    EQUAL(mock_references(b.sampler), sampler_before);
    const size_t some[] = {3, 1};
    /* OpenCL's own object */
    done = fl_append_launch(&b.launches, 1, some, SIZE, some, ROWS(OBJECT(0, (uintptr_t)w->a)), 1,
                            1, true, NULL);
    EQUAL(done.code, 0);
    CHECK(b.commands.commands->has_offset && b.commands.commands->has_local &&
          b.commands.commands->n[6] == 3 && b.commands.commands->n[7] == 1);
    end_buffer(&b);
    EQUAL(mock_references(w->a), memory_before);
}

/* What is wrong is named, and nothing is appended. */
SCENARIO(launches_refused) {
    buffer b;
    begin_buffer(w, &b);
    uint64_t number = 1;
    const struct {
        ur_exp_kernel_arg_properties_t rows[2];
        int32_t code;
        uint32_t index;
    } wrong[] = {
        {{VALUE(0, number), VALUE(2, number)}, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, 2},
        {{VALUE(0, number), VALUE(0, number)}, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, 0},
        {{VALUE(0, number), row(UR_EXP_KERNEL_ARG_TYPE_VALUE, 1, 1 << 20, (uintptr_t)&number)},
         UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE,
         1},
        {{VALUE(0, number), row(77, 1, 8, 0)}, UR_RESULT_ERROR_INVALID_ENUMERATION, 1},
        {{OBJECT(1, 5), VALUE(0, number)}, UR_RESULT_ERROR_INVALID_MEM_OBJECT, 1},
        {{OBJECT(1, OTHERS), VALUE(0, number)}, UR_RESULT_ERROR_INVALID_CONTEXT, 1},
        {{row(UR_EXP_KERNEL_ARG_TYPE_SAMPLER, 1, 8, 0), VALUE(0, number)},
         UR_RESULT_ERROR_INVALID_SAMPLER,
         1},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fl_appended done = append(&b, wrong[i].rows, 2, 2);
        EQUAL(done.code, wrong[i].code);
        EQUAL(done.index, wrong[i].index);
    }
    fl_appended done = append(&b, ROWS(VALUE(0, number)), 1, 2);
    EQUAL(done.code, UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
    EQUAL(done.index, 1);
    b.launches.no_pointers = 9;
    EQUAL(append(&b, ROWS(POINTER(0, 1)), 1, 1).code, 9);
    EQUAL(b.commands.count, 0);
    end_buffer(&b);
}

/* An address is an argument, or, where drivers take none, a part of a buffer; NULL is what the
 * driver takes for it. */
SCENARIO(launches_pointers) {
    buffer b;
    begin_buffer(w, &b);
    b.launches.null_is_pointer = 1;
    EQUAL(append(&b, ROWS(POINTER(0, 0)), 1, 1).addresses, 0);
    EQUAL(argument(&b, 0, 0).kind, 4);
    uintptr_t part = (uintptr_t)w->b;
    b.launches.part = part_of;
    b.launches.context = &part;
    b.launches.null_is_pointer = 0;
    EQUAL(append(&b, ROWS(POINTER(0, PART)), 1, 1).addresses, 1);
    CHECK(argument(&b, 1, 0).kind == 2 && *(void *const *)argument(&b, 1, 0).value == w->b);
    EQUAL(append(&b, ROWS(POINTER(0, 0)), 1, 1).code, 0);
    EQUAL(argument(&b, 2, 0).kind, 1);
    EQUAL(append(&b, ROWS(POINTER(0, 0x99)), 1, 1).code, UR_RESULT_ERROR_INVALID_VALUE);
    end_buffer(&b);
}

/* More arguments than fit on the stack, more commands than there is room for at first, and no
 * memory for any of it. */
SCENARIO(launches_many) {
    buffer b;
    begin_buffer(w, &b);
    ur_exp_kernel_arg_properties_t rows[80];
    uint64_t numbers[80];
    for (uint32_t i = 0; i < 80; i++) {
        numbers[i] = i;
        rows[i] = i % 2 ? POINTER(i, 0x1000 + i) : VALUE(i, numbers[i]);
    }
    for (uint32_t i = 0; i < 40; i++)
        EQUAL(append(&b, rows, 80, 80).addresses, 0xaaaaaaaaaaaaaaaa);
    EQUAL(*(const uint64_t *)argument(&b, 39, 78).value, 78);
    uint32_t failures = 0;
    for (int n = 0; n < 20; n++) {
        buffer empty;
        begin_buffer(w, &empty);
        memory_fails(n, false);
        int32_t code = append(&empty, rows, 80, 80).code;
        if (memory_has_failed()) {
            EQUAL(code, UR_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            EQUAL(empty.commands.count, 0);
            failures++;
        } else
            EQUAL(code, 0);
        end_buffer(&empty);
    }
    EQUAL(failures, 5);   /* changes, what they lead to, the list twice, the command */
    end_buffer(&b);
}

static ur_exp_command_buffer_update_kernel_launch_desc_t update_of(uint32_t command) {
    return (ur_exp_command_buffer_update_kernel_launch_desc_t){.hCommand = COMMANDS + command,
                                                               .newWorkDim = 2};
}

/* New arguments reach the program that replays them; what is not plain changes nothing. */
SCENARIO(launches_updated) {
    buffer b;
    begin_buffer(w, &b);
    cl_kernel kernel = make_kernel(w, "three:mvv");
    uint64_t numbers[] = {10, 20, 30};
    int before = mock_references(w->a);
    for (uint32_t i = 0; i < 3; i++) {
        EQUAL(append(&b, ROWS(OBJECT(0, MEMORY), VALUE(1, numbers[i]), VALUE(2, numbers[i])), 3, 3)
                  .code,
              0);
        b.commands.commands[i].kernel = kernel;
    }
    {
        fl_step steps[] = {{.command = 2}, {.command = 0}, {.command = 1}};
        const uint32_t step_of[] = {1, 2, 0};
        PROGRAM program = {.commands = b.commands.commands,
                           .steps = steps,
                           .step_count = 3,
                           .updatable = 1,
                           .step_of = step_of};
        const fl_built built = {.update = fl_update_sequence, .self = &program, .count = 3};
        b.buffer = (fl_buffer){.built = (const fl_built *[]){&built}, .built_count = 1};
        uint32_t failed;
        OK(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
        uint64_t other = 50;
        ur_exp_command_buffer_update_value_arg_desc_t values[] = {
            {.argIndex = 1, .argSize = 8, .pNewValueArg = (uintptr_t)&other}};
        ur_exp_command_buffer_update_memobj_arg_desc_t memory[] = {
            {.argIndex = 0, .hNewMemObjArg = 0}};
        ur_exp_command_buffer_update_kernel_launch_desc_t updates[] = {update_of(1), update_of(2)};
        updates[0].numNewValueArgs = updates[1].numNewMemObjArgs = 1;
        updates[0].pNewValueArgList = values;
        updates[1].pNewMemObjArgList = memory;
        OK(fl_update_plainly(&b.launches, updates, 2));
        mock_clear();
        OK(fl_replay(&program, (void *const *)&w->queue, 1, 1, 0, NULL, NULL, &failed));
        static const uint64_t expected[] = {30, 10, 50};
        for (int i = 0; i < 3; i++) {
            EQUAL(mock_log(i)->arguments[0], i ? (uintptr_t)w->a : 0);
            EQUAL(mock_log(i)->arguments[1], expected[i]);
        }
        EQUAL(mock_references(w->a), before + 2);
        ur_exp_command_buffer_update_kernel_launch_desc_t others[] = {
            updates[0], updates[0], updates[0], updates[0], updates[0],
            updates[0], updates[0], updates[0], updates[0]};
        uint64_t wider[2] = {60, 60};
        ur_exp_command_buffer_update_value_arg_desc_t wrong[] = {
            {.argIndex = 1, .argSize = 16, .pNewValueArg = (uintptr_t)wider},
            {.argIndex = 3, .argSize = 8, .pNewValueArg = (uintptr_t)wider}};
        others[0].hNewKernel = KERNEL + 1;
        others[1].newWorkDim = 1;
        others[2].pNewGlobalWorkSize = (size_t *)SIZE;
        others[3].hCommand = COMMANDS + 6;   /* no launch */
        others[4].hCommand = COMMANDS + 7;   /* of another command-buffer */
        others[5].pNewValueArgList = NULL;
        others[6].pNewValueArgList = wrong;
        others[7].pNewValueArgList = wrong + 1;
        others[8].numNewValueArgs = UINT32_MAX;
        other = 70;
        for (uint32_t i = 0; i < sizeof others / sizeof *others; i++) {
            ur_exp_command_buffer_update_kernel_launch_desc_t both[] = {updates[0], others[i]};
            EQUAL(fl_update_plainly(&b.launches, both, 2), FL_NOT_PLAIN);
        }
        EQUAL(*(const uint64_t *)argument(&b, 1, 1).value, 50);
        others[0] = updates[0];
        others[0].hNewKernel = KERNEL;   /* the one that it is */
        OK(fl_update_plainly(&b.launches, others, 1));
        EQUAL(*(const uint64_t *)argument(&b, 1, 1).value, 70);
        fl_change changes[2];
        uintptr_t room[2];
        uint32_t index = 9;
        EQUAL(fl_read_update(&b.launches, &others[6], b.commands.commands[1].arguments, 3, changes,
                             room, &index),
              UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
        EQUAL(index, 1);
        /* for another kernel any size may be right */
        OK(fl_read_update(&b.launches, &others[6], NULL, 3, changes, room, &index));
        EQUAL(changes[0].size, 16);
    }
    end_buffer(&b);
    EQUAL(mock_references(w->a), before);
    OK(CL(kernel, clReleaseKernel)(kernel));
}

static uint32_t left_to_python;

static int32_t python_update(uint32_t adapter, uintptr_t buffer, uint32_t count,
                             const ur_exp_command_buffer_update_kernel_launch_desc_t *updates) {
    left_to_python++;
    return 99;
}

static int32_t python_release(uint32_t adapter, uintptr_t handle) { return 0; }

/* The entry point does what is plain, and leaves the rest to Python: also what nobody else may
 * touch at the moment. */
SCENARIO(launches_entry) {
    buffer b;
    begin_buffer(w, &b);
    left_to_python = 0;
    cl_kernel kernel = make_kernel(w, "two:mv");
    uint64_t number = 10, other = 20;
    EQUAL(append(&b, ROWS(OBJECT(0, MEMORY), VALUE(1, number)), 2, 2).code, 0);
    b.commands.commands[0].kernel = kernel;
    ur_exp_command_buffer_update_value_arg_desc_t values[] = {
        {.argIndex = 1, .argSize = 8, .pNewValueArg = (uintptr_t)&other}};
    ur_exp_command_buffer_update_kernel_launch_desc_t wanted = update_of(0);
    wanted.numNewValueArgs = 1;
    wanted.pNewValueArgList = values;
#define UPDATE(handle, count, list)                                                                \
    fl_entry_update(ADAPTER, handle, count, list, python_update, python_release)
    fl_change now;
    of_buffer[0] = (uintptr_t)&b.launches;
    b.launches.updatable = true;
    EQUAL(UPDATE(BUFFER, 1, &wanted), 0);
    OK(fl_get_argument(b.commands.commands[0].arguments, 1, &now));
    EQUAL(*(const uint64_t *)now.value, 20);
    EQUAL(left_to_python, 0);
    other = 30;
    EQUAL(UPDATE(BUFFER + 1, 1, &wanted), 99);   /* a stranger */
    EQUAL(UPDATE(BUFFER, 1, NULL), 99);
    EQUAL(UPDATE(BUFFER, 0, &wanted), 99);
    EQUAL(UPDATE(BUFFER, UINT32_MAX, &wanted), 99);
    wanted.newWorkDim = 1;
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
    wanted.newWorkDim = 2;
    b.buffer.busy = 1;                             /* another thread enqueues it */
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
    EQUAL(b.buffer.busy, 1);
    b.buffer.busy = 0;
    b.buffer.python_updates = 1;
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
    b.buffer.python_updates = 0;
    b.launches.part = part_of;
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
    b.launches.part = NULL;
    b.launches.updatable = false;
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
    b.launches.updatable = true;
    b.launches.buffer = NULL;                      /* it is not finalized */
    EQUAL(UPDATE(BUFFER, 1, &wanted), 99);
#undef UPDATE
    EQUAL(left_to_python, 10);
    EQUAL(held, 0);
    EQUAL(b.buffer.busy, 0);
    OK(fl_get_argument(b.commands.commands[0].arguments, 1, &now));
    EQUAL(*(const uint64_t *)now.value, 20);
    CL(kernel, clReleaseKernel)(kernel);
    end_buffer(&b);
}
