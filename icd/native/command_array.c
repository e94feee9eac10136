/* Arrays of commands that grow: what a command-buffer is made of. */
#include "native.h"

#include <stdlib.h>

fl_command *fl_new_command(fl_array *array) {
    if (array->count == array->room) {
        uint32_t room = array->room ? array->room * 2 : 16;
        fl_command *larger = realloc(array->commands, room * sizeof *larger);
        if (!larger)
            return NULL;
        array->commands = larger;
        array->room = room;
    }
    array->commands[array->count] = (fl_command){0};
    return &array->commands[array->count++];
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
