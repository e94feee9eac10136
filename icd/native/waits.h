/* The waits of wait.c, for C outside of this module (plugins/sdk/native/queues.c). native.cdef.h
 * says what each does. A positive result is FL_STILL_WAITING. */
#pragma once

#include <stdint.h>

struct fl_waiting;
typedef struct fl_waits {
    int32_t (*wait)(void *event, int at_once);
    int32_t (*finish)(void *queue, int at_once);
    int32_t (*begin_wait)(void *event, int in_turns, struct fl_waiting **waiting);
    int32_t (*begin_finish)(void *queue, int in_turns, struct fl_waiting **waiting);
    int32_t (*go_on_waiting)(struct fl_waiting *waiting, uint32_t milliseconds);
    void (*end_wait)(struct fl_waiting *waiting);
    int32_t (*take_turn)(void);
    void (*give_turn_back)(void);
    int32_t (*status)(void *event);
} fl_waits;
