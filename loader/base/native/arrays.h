/* Arrays that grow. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

static inline bool fl_make_room(void **array, uint32_t *room, uint32_t wanted, size_t size) {
    if (wanted <= *room)
        return true;
    uint32_t more = *room ? *room : 16;
    while (more < wanted)
        more *= 2;
    void *larger = realloc(*array, more * size);
    if (!larger)
        return false;
    *array = larger;
    *room = more;
    return true;
}

/* Have room for so many elements. False: there is no memory, and all is as it was. */
#define FL_RESERVE(array, room, wanted)                                                            \
    fl_make_room((void **)&(array), &(room), (wanted), sizeof *(array))
