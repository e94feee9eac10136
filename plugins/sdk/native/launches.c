/* The arguments of launches in command-buffers, read from the caller's memory.
 *
 * Launches are appended and updated by the thousand, and each has several arguments. So they are
 * read here and not in Python. Python knows what a driver takes, and how errors are explained.
 * The numbers of a handle (Object.describe_to_c) say which cl_mem or cl_sampler it is, or which
 * command of which command-buffer. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "operations.cdef.h"
#include "../../../icd/native/native.cdef.h"
#include "../../../icd/native/command_buffer.cdef.h"
#include "../../../icd/native/busy.h"
#include "../../../icd/native/waits.h"
#include "ur_types.h"
#include "counts.h"
#include "launches.cdef.h"
#include "launches.h"

typedef ur_exp_kernel_arg_properties_t row;
typedef ur_exp_command_buffer_update_kernel_launch_desc_t update;

enum { OBJECT, CONTEXT };                 /* the numbers of memory objects and samplers */
enum { COMMAND, COMMAND_BUFFER, KERNEL, IS_LAUNCH };   /* of a command */
enum { LAUNCHES };                        /* of a command-buffer */
/* MOST: more arguments than any kernel has, and more bytes of one than any device takes
 * (CL_DEVICE_MAX_PARAMETER_SIZE). */
enum { FEW = 16, MOST = 1 << 16 };

static const fl_functions *icd;
const fl_waits *fl_icd_waits;
const void *fl_icd;

void fl_use_icd(const void *functions) {
    icd = fl_icd = functions;
    fl_icd_waits = icd->waits;
}

/* Changes, and room for what they point to. A few are on the stack. */
typedef struct scratch {
    fl_change few[FEW], *changes;
    uintptr_t little[FEW], *room;
} scratch;

static bool begin(scratch *s, size_t count) {
    s->changes = count <= FEW ? s->few : malloc(count * sizeof *s->changes);
    s->room = count <= FEW ? s->little : malloc(count * sizeof *s->room);
    if (s->changes)
        memset(s->changes, 0, count * sizeof *s->changes);
    return s->changes && s->room;
}

static void end(scratch *s) {
    if (s->changes != s->few)
        free(s->changes);
    if (s->room != s->little)
        free(s->room);
}

/* --- the change for a value, an object or an address: 0, or a code --- */

static int32_t value(fl_change *change, size_t size, uintptr_t address) {
    if (size > MOST && address)
        return UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    *change = (fl_change){change->index, FL_ARG_VALUE, size, (const void *)address};
    return 0;
}

/* OpenCL takes the address of a handle. NULL is a value like any other. */
static int32_t object(fl_change *change, uint32_t kind, const uintptr_t *cl) {
    *change = (fl_change){change->index, *cl ? kind : FL_ARG_VALUE, sizeof *cl, cl};
    return 0;
}

static int32_t handle(const fl_launches *l, fl_change *change, uintptr_t handle, bool sampler) {
    static const uintptr_t null;
    if (!handle && !sampler)
        return object(change, FL_ARG_MEM, &null);
    const uintptr_t *words =
        fl_get_state(l->adapter, handle, sampler ? kind_ur_sampler_handle_t : kind_ur_mem_handle_t);
    if (!words)
        return sampler ? UR_RESULT_ERROR_INVALID_SAMPLER : UR_RESULT_ERROR_INVALID_MEM_OBJECT;
    if (words[CONTEXT] != l->cl_context)
        return UR_RESULT_ERROR_INVALID_CONTEXT;
    return object(change, sampler ? FL_ARG_SAMPLER : FL_ARG_MEM, &words[OBJECT]);
}

/* `room` is for the cl_mem of an address. */
static int32_t pointer(const fl_launches *l, fl_change *change, uintptr_t address,
                       uintptr_t *room) {
    if (l->no_pointers)
        return l->no_pointers;
    *room = 0;
    if (!address && !l->null_is_pointer)
        return object(change, FL_ARG_MEM, room);
    if (!l->part) {
        *change = (fl_change){change->index, FL_ARG_SVM, 0, (const void *)address};
        return 0;
    }
    *room = l->part(l->context, address);
    return *room ? object(change, FL_ARG_MEM, room) : UR_RESULT_ERROR_INVALID_VALUE;
}

/* --- appends --- */

static int32_t read_row(const fl_launches *l, const row *r, bool native, fl_change *change,
                        uintptr_t *room) {
    memcpy(room, &r->value, sizeof *room);
    switch (r->type) {
    case UR_EXP_KERNEL_ARG_TYPE_VALUE: return value(change, r->size, *room);
    case UR_EXP_KERNEL_ARG_TYPE_LOCAL: return value(change, r->size, 0);
    case UR_EXP_KERNEL_ARG_TYPE_POINTER: return pointer(l, change, *room, room);
    case UR_EXP_KERNEL_ARG_TYPE_MEM_OBJ:
        return native ? object(change, FL_ARG_MEM, room) : handle(l, change, *room, false);
    case UR_EXP_KERNEL_ARG_TYPE_SAMPLER:
        return native ? object(change, FL_ARG_SAMPLER, room) : handle(l, change, *room, true);
    }
    return UR_RESULT_ERROR_INVALID_ENUMERATION;
}

/* Reads each argument once. Changes are stored by index. */
static fl_appended read_rows(const fl_launches *l, const row *rows, uint32_t count, bool native,
                             fl_change *changes, uintptr_t *room, uint32_t arguments) {
    fl_appended found = {0};
    for (uint32_t i = 0; i < count && !found.code; i++) {
        uint32_t index = found.index = rows[i].index;
        if (index >= arguments || changes[index].kind) {
            found.code = UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
            break;
        }
        changes[index].index = index;
        found.code = read_row(l, &rows[i], native, &changes[index], &room[index]);
        if (rows[i].type == UR_EXP_KERNEL_ARG_TYPE_POINTER && changes[index].kind != FL_ARG_VALUE &&
            changes[index].value && index < 64)
            found.addresses |= (uint64_t)1 << index;
    }
    for (uint32_t i = 0; i < arguments && !found.code; i++)
        if (!changes[i].kind)
            found = (fl_appended){UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX, i, 0};
    return found;
}

uint32_t fl_count_commands(const fl_launches *l) { return ((fl_array *)l->commands)->count; }

static bool add(const fl_launches *l, uint32_t dim, const size_t *offset, const size_t *size,
                const size_t *local, const fl_change *changes, uint32_t arguments, void *kernel) {
    fl_arguments *list = icd->change_arguments(NULL, arguments, changes, arguments);
    fl_command *command = list ? icd->new_command(l->commands) : NULL;
    if (!command) {
        icd->release_arguments(list);
        return false;
    }
    *command = (fl_command){.op = FL_KERNEL,
                            .work_dim = dim,
                            .has_offset = offset != NULL,
                            .has_local = local != NULL,
                            .kernel = kernel,
                            .arguments = list};
    for (uint32_t i = 0; i < 3; i++) {
        command->n[i] = offset && i < dim ? offset[i] : 0;
        command->n[3 + i] = i < dim ? size[i] : 1;
        command->n[6 + i] = i < dim ? local ? local[i] : 0 : 1;
    }
    return true;
}

fl_appended fl_append_launch(const fl_launches *l, uint32_t dim, const size_t *offset,
                             const size_t *size, const size_t *local, const row *rows,
                             uint32_t count, uint32_t arguments, bool native, void *kernel) {
    scratch s;
    fl_appended found = {UR_RESULT_ERROR_OUT_OF_HOST_MEMORY, 0, 0};
    if (begin(&s, arguments)) {
        found = read_rows(l, rows, count, native, s.changes, s.room, arguments);
        if (!found.code && !add(l, dim, offset, size, local, s.changes, arguments, kernel))
            found.code = UR_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    end(&s);
    return found;
}

/* --- updates --- */

static int32_t check_list(uint32_t count, const void *list) {
    return count > MOST     ? UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX
           : count && !list ? UR_RESULT_ERROR_INVALID_NULL_POINTER
                            : 0;
}

static int32_t check_lists(const update *u) {
    int32_t code = check_list(u->numNewValueArgs, u->pNewValueArgList);
    code = code ? code : check_list(u->numNewPointerArgs, u->pNewPointerArgList);
    return code ? code : check_list(u->numNewMemObjArgs, u->pNewMemObjArgList);
}

static size_t rows_of(const update *u) {
    return (size_t)u->numNewValueArgs + u->numNewPointerArgs + u->numNewMemObjArgs;
}

static int32_t new_value(const fl_arguments *old, fl_change *change, size_t size,
                         uintptr_t address) {
    fl_change present;
    bool known = address && old && !icd->get_argument(old, change->index, &present);
    if (known && (present.size != size || present.kind != FL_ARG_VALUE))
        return UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    return value(change, size, address);
}

int32_t fl_read_update(const fl_launches *l, const update *u, const void *old, uint32_t arguments,
                       void *into, uintptr_t *room, uint32_t *index) {
    fl_change *change = into;
    int32_t code = check_lists(u);
#define READ(LIST, COUNT, CODE)                                                             \
    for (uint32_t i = 0; i < u->COUNT && !code; i++, change++, room++) {                    \
        change->index = *index = u->LIST[i].argIndex;                                       \
        code = *index < arguments ? (CODE) : UR_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX; \
    }
    READ(
        pNewValueArgList, numNewValueArgs,
        new_value(old, change, u->pNewValueArgList[i].argSize, u->pNewValueArgList[i].pNewValueArg))
    READ(pNewPointerArgList, numNewPointerArgs,   /* the address of the pointer */
         pointer(l, change,
                 u->pNewPointerArgList[i].pNewPointerArg
                     ? *(const uintptr_t *)u->pNewPointerArgList[i].pNewPointerArg
                     : 0,
                 room))
    READ(pNewMemObjArgList, numNewMemObjArgs,
         handle(l, change, u->pNewMemObjArgList[i].hNewMemObjArg, false))
#undef READ
    return code;
}

/* Returns the command of an update that only has arguments, NULL for any other update. */
static fl_command *plain(const fl_launches *l, const update *u) {
    const uintptr_t *words =
        fl_get_state(l->adapter, u->hCommand, kind_ur_exp_command_buffer_command_handle_t);
    if (!words || words[COMMAND_BUFFER] != l->handle || !words[IS_LAUNCH])
        return NULL;
    fl_command *command = &((fl_array *)l->commands)->commands[words[COMMAND]];
    bool is = (!u->hNewKernel || u->hNewKernel == words[KERNEL]) &&
              u->newWorkDim == command->work_dim && !u->pNewGlobalWorkOffset &&
              !u->pNewGlobalWorkSize && !u->pNewLocalWorkSize && !check_lists(u);
    return is ? command : NULL;
}

static bool read_all(const fl_launches *l, const update *updates, uint32_t count,
                     fl_change *changes, uintptr_t *room) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        const fl_arguments *old = plain(l, &updates[i])->arguments;
        if (fl_read_update(l, &updates[i], old, icd->argument_count(old), changes, room, &index))
            return false;
        changes += rows_of(&updates[i]);
        room += rows_of(&updates[i]);
    }
    return true;
}

static int32_t commit(const fl_launches *l, const update *updates, uint32_t count,
                      const fl_change *changes) {
    int32_t code = 0;
    for (uint32_t i = 0; i < count; i++) {
        fl_command *command = plain(l, &updates[i]);
        for (size_t left = rows_of(&updates[i]); left; left--, changes++) {
            int32_t failed = icd->set_argument(command, changes->index, changes->kind,
                                               changes->size, changes->value);
            code = code ? code : failed;
        }
        int32_t failed = icd->update_buffer(
            l->buffer, (uint32_t)(command - ((fl_array *)l->commands)->commands), false);
        code = code ? code : failed;
    }
    return code;
}

int32_t fl_update_plainly(const fl_launches *l, const update *updates, uint32_t count) {
    size_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!plain(l, &updates[i]))
            return FL_NOT_PLAIN;
        rows += rows_of(&updates[i]);
    }
    scratch s;
    int32_t code = FL_NOT_PLAIN;
    if (begin(&s, rows) && read_all(l, updates, count, s.changes, s.room))
        code = commit(l, updates, count, s.changes);
    end(&s);
    return code;
}

int32_t fl_entry_update(uint32_t adapter, uintptr_t buffer, uint32_t count, const update *updates,
                        fl_update_body *python, fl_counting_body *python_release) {
    int32_t code = FL_NOT_PLAIN;
    const uintptr_t *words = updates && count <= MOST
                                 ? fl_hold(adapter, buffer, kind_ur_exp_command_buffer_handle_t)
                                 : NULL;
    if (words) {
        const fl_launches *l = (const fl_launches *)words[LAUNCHES];
        fl_buffer *b =
            l && l->updatable && !l->part ? l->buffer : NULL; /* Python makes the parts */
        if (b && fl_try(b)) {
            code =
                b->python_updates || !count ? FL_NOT_PLAIN : fl_update_plainly(l, updates, count);
            fl_leave(b);
        }
        fl_entry_release(adapter, buffer, kind_ur_exp_command_buffer_handle_t, python_release);
    }
    return code ? python(adapter, buffer, count, updates) : 0;
}
