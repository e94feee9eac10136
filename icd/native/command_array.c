/* Arrays of commands that grow: what a command-buffer is made of. */
#include "native.h"

#include <stdlib.h>

fl_command *fl_new_command(fl_array *array) {
    if (!FL_RESERVE(array->commands, array->room, array->count + 1))
        return NULL;
    array->commands[array->count] = (fl_command){0};
    return &array->commands[array->count++];
}

int fl_add_copy(fl_array *array, const fl_command *command, uint32_t queue) {
    const fl_arguments *list = command->arguments;
    fl_arguments *copy =
        list ? fl_change_arguments(list, fl_argument_count(list), NULL, 0) : NULL;
    fl_command *made = !list || copy ? fl_new_command(array) : NULL;
    if (!made) {
        fl_release_arguments(copy);
        return CL_OUT_OF_HOST_MEMORY;
    }
    *made = *command;
    made->arguments = copy;
    made->queue = queue;
    return CL_SUCCESS;
}

void fl_drop_command(fl_array *array) {
    fl_release_arguments(array->commands[--array->count].arguments);
}

void fl_release_array(fl_array *array) {
    while (array->count)
        fl_drop_command(array);
    free(array->commands);
    *array = (fl_array){0};
}
