/* Gives the entry points the waits of world.c as icd's. Its names are apart, since calls.h has some
 * of them for other things. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "native.cdef.h"
#include "command_buffer.cdef.h"
#include "ur_types.h"
#include "waits.h"

#include "launches.cdef.h"

extern const fl_waits world_waits;

__attribute__((constructor)) static void use_icd(void) {
    static const fl_functions functions = {.waits = &world_waits};
    fl_use_icd(&functions);
}
