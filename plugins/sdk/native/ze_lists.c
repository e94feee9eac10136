/* Launches that are appended to command lists, and changes of their arguments.
 *
 * Python has the list's commands as objects, which it makes when it needs them (ListRecording).
 * Until then an append is a row in the array. An update stores into the array at once: nobody reads
 * that before the list is closed again. The close tells what was built of it. */
#include "ze_calls.h"
#include "ze_entries_in_c.h"

static fl_ze_list *list_of(uint32_t driver, uintptr_t handle) {
    return fl_ze_struct(driver, handle, kind_ze_command_list_handle_t);
}

static bool is_intel(const fl_kernel *kernel) { return kernel->context->usm == FL_USM_INTEL; }

/* An address as OpenCL's drivers take it. NULL is a buffer where NVIDIA's would refuse it. */
static fl_change pointer(const fl_kernel *kernel, uint32_t index, const uintptr_t *address) {
    static const uintptr_t null;
    if (!*address && !is_intel(kernel))
        return (fl_change){index, FL_ARG_VALUE, sizeof null, &null};
    return (fl_change){index, FL_ARG_SVM, 0, (const void *)*address};
}

/* --- appends --- */

/* Reads what is set on a kernel. False: something is missing, or only Python knows it. */
static bool read_arguments(const fl_kernel *kernel, fl_change *changes, uint64_t *addresses) {
    *addresses = 0;
    for (uint32_t i = 0; i < kernel->count; i++) {
        const fl_kept_argument *kept = &kernel->arguments[i];
        switch (kept->kind) {
        case FL_KEPT_VALUE:
            changes[i] = (fl_change){i, FL_ARG_VALUE, kept->size, kept->bytes};
            break;
        case FL_KEPT_LOCAL:
            changes[i] = (fl_change){i, FL_ARG_VALUE, kept->size, NULL};
            break;
        case FL_KEPT_POINTER:
            changes[i] = pointer(kernel, i, &kept->value);
            *addresses |= UINT64_C(1) << i;
            break;
        default: return false;
        }
    }
    return true;
}

static void *find_copy(fl_ze_list *list, const fl_ze_kernel *kernel, uint64_t addresses) {
    for (fl_ze_copy **at = &list->copies; *at; at = &(*at)->next) {
        fl_ze_copy *one = *at;
        if (one->kernel != kernel || one->settings != kernel->settings ||
            ((one->addresses ^ addresses) & one->mask))
            continue;
        *at = one->next;
        one->next = list->copies;
        list->copies = one;
        return one->copy;
    }
    return NULL;
}

static void set_shape(fl_command *command, const fl_ze_kernel *k, const ze_group_count_t *groups) {
    const uint64_t counts[3] = {groups->groupCountX, groups->groupCountY, groups->groupCountZ};
    command->work_dim = command->has_local = 1;
    for (unsigned i = 0; i < 3; i++) {
        command->n[i] = k->offsets[i];
        command->n[3 + i] = counts[i] * k->sizes[i];
        command->n[6 + i] = k->sizes[i];
        if (command->n[3 + i] > 1 || k->offsets[i])
            command->work_dim = i + 1;
        command->has_offset |= k->offsets[i] != 0;
    }
}

static int32_t append(fl_ze_list *list, const fl_ze_kernel *k, const ze_group_count_t *groups) {
    fl_change changes[FL_ARGUMENTS];
    uint64_t addresses;
    fl_kernel *kernel = k->kernel;
    if (!read_arguments(kernel, changes, &addresses))
        return FL_TO_PYTHON;
    void *copy = find_copy(list, k, addresses);
    fl_arguments *arguments =
        copy ? fl_ze_icd->change_arguments(NULL, kernel->count, changes, kernel->count) : NULL;
    if (!copy || (!arguments && kernel->count))
        return FL_TO_PYTHON;
    fl_command *command = fl_ze_icd->new_command(list->array);
    if (!command) {
        fl_ze_icd->release_arguments(arguments);
        return FL_TO_PYTHON;
    }
    command->op = FL_KERNEL;
    command->kernel = copy;
    command->arguments = arguments;
    set_shape(command, k, groups);
    return 0;
}

int32_t fl_zeCommandListAppendLaunchKernel(PARAMETERS_zeCommandListAppendLaunchKernel) {
    fl_ze_list *list = list_of(driver, hCommandList);
    const fl_ze_kernel *k = fl_ze_struct(driver, hKernel, kind_ze_kernel_handle_t);
    if (!list || !k || !k->kernel || !pLaunchFuncArgs || hSignalEvent || numWaitEvents ||
        list->in_python || list->state != FL_ZE_OPEN || list->context != k->context ||
        list->device != k->device || !pLaunchFuncArgs->groupCountX ||
        !pLaunchFuncArgs->groupCountY || !pLaunchFuncArgs->groupCountZ)
        return FL_TO_PYTHON;
    if (!fl_sdk->try_kernel(k->kernel))
        return FL_TO_PYTHON;
    int32_t code = append(list, k, pLaunchFuncArgs);
    fl_sdk->leave_kernel(k->kernel);
    return code;
}

/* --- updates --- */

typedef const ze_mutable_kernel_argument_exp_desc_t row;

static fl_command *launch_of(const fl_ze_list *list, const fl_ze_command *command) {
    return &list->array->commands[command->index];
}

static fl_ze_command *command_of(const fl_ze_list *list, uint64_t id) {
    return id - 1 < list->count ? &list->commands[id - 1] : NULL;   /* 0 is none */
}

/* The change that a struct of the chain asks for. False: Python looks at it. */
static bool read_row(const fl_ze_list *list, row *r, fl_change *change, uintptr_t *room) {
    fl_change present;
    if (r->stype != ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC)
        return false;   /* it may be shorter */
    const fl_ze_command *command = command_of(list, r->commandId);
    if (!command || command->in_python ||
        !(command->flags & ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS) ||
        command->buffer->python_updates || r->argIndex >= command->kernel->count)
        return false;
    const void *value = (const void *)r->pArgValue;
    uint8_t kind = fl_ze_kind(command->kernel, r->argIndex, r->argSize, r->pArgValue);
    if (kind == FL_ZE_POINTER) {
        *room = 0;
        if (value)
            memcpy(room, value, sizeof *room);
        *change = pointer(command->kernel->kernel, r->argIndex, room);
        return r->argSize == sizeof *room;
    }
    *change = (fl_change){r->argIndex, FL_ARG_VALUE, r->argSize, value};
    return kind == FL_ZE_VALUE && value &&
           !fl_ze_icd->get_argument(launch_of(list, command)->arguments, r->argIndex, &present) &&
           present.kind == FL_ARG_VALUE && present.value && present.size == r->argSize;
}

static bool store_row(fl_ze_list *list, row *r) {
    fl_change change;
    uintptr_t room;
    if (!read_row(list, r, &change, &room))
        return false;
    fl_ze_command *command = command_of(list, r->commandId);
    if (!fl_try(command->buffer))
        return false;
    int code = fl_ze_icd->set_argument(launch_of(list, command), change.index, change.kind,
                                    change.size, change.value);
    fl_leave(command->buffer);
    if (code)
        return false;
    command->changed |= UINT64_C(1) << change.index;
    if (!command->dirty) {
        command->dirty = 1;
        command->next = list->dirty;
        list->dirty = command;
    }
    list->state = FL_ZE_CHANGED;
    return true;
}

enum { MOST = 1 << 16 };   /* structs of a chain; more means that it is a ring */

int32_t fl_zeCommandListUpdateMutableCommandsExp(PARAMETERS_zeCommandListUpdateMutableCommandsExp) {
    fl_ze_list *list = list_of(driver, hCommandList);
    fl_change change;
    uintptr_t room;
    uint32_t left = MOST;
    if (!list || !desc || desc->stype != ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC ||
        desc->flags || !list->commands || list->state == FL_ZE_OPEN)
        return FL_TO_PYTHON;
    row *first = (row *)desc->pNext;
    for (row *r = first; r; r = (row *)r->pNext)
        if (!left-- || !read_row(list, r, &change, &room))
            return FL_TO_PYTHON;
    for (row *r = first; r; r = (row *)r->pNext)
        if (!store_row(list, r))
            return FL_TO_PYTHON;   /* Python stores all of them */
    list->state = FL_ZE_CHANGED;
    return 0;
}

static bool tell(const fl_ze_command *command) {
    fl_buffer *buffer = command->buffer;
    if (buffer->python_updates || !fl_try(buffer))
        return false;
    int code = fl_ze_icd->update_buffer(buffer, command->number, false);
    fl_leave(buffer);
    return !code;
}

int32_t fl_zeCommandListClose(uint32_t driver, uintptr_t hCommandList) {
    fl_ze_list *list = list_of(driver, hCommandList);
    if (!list || list->state != FL_ZE_CHANGED || list->drafts || !list->commands)
        return FL_TO_PYTHON;
    for (; list->dirty; list->dirty = list->dirty->next) {
        if (!tell(list->dirty))
            return FL_TO_PYTHON;
        list->dirty->dirty = 0;
    }
    list->state = FL_ZE_CLOSED;
    return 0;
}
