/* The edges of a graph: the order of commands on a few chains. For the engine `cuda` (chains.c) and
 * for command-buffers of CUDA and HIP (plugins/sdk/native/gpu_appends.c).
 *
 * The driver launches a chain of nodes fastest, and several chains at the same time. So every
 * command becomes a part of a chain. It needs an edge from another chain only where nothing before
 * it implies that order. A device has chains of its own, because an edge to another one costs as
 * much as five launches. */
#pragma once

#include "../../loader/base/native/arrays.h"

enum { FL_CHAINS = 8 };        /* the most: more of them make the launch of a graph slower */
static const uint32_t FL_NO_CHAINS = UINT32_MAX;

/* A command: its chain, -1 if it only orders others, and the last command of each chain that it
 * comes after or is, -1 for none. */
typedef struct fl_chained {
    int32_t chain, last[FL_CHAINS];
} fl_chained;

typedef struct fl_chains {
    uint32_t most;             /* chains, FL_CHAINS at most */
    uint32_t devices;          /* `most` at most: chain i is of device i % devices */
    fl_chained *commands;
    uint32_t count, room;
    int32_t end[FL_CHAINS];    /* the last command of each chain, if its `length` is not 0 */
    uint32_t length[FL_CHAINS];
    fl_chained planned;        /* the next command */
} fl_chains;

static inline int32_t fl_end_of_chain(const fl_chains *c, uint32_t chain) {
    return c->length[chain] ? c->end[chain] : -1;
}

static inline uint32_t fl_used_chains(const fl_chains *c) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < c->most; i++)
        used += c->length[i] > 0;
    return used;
}

/* The chain of a device whose end the command comes after, the longest of them, or else the
 * shortest one. */
static inline uint32_t fl_choose_chain(const fl_chains *c, const fl_chained *n, uint32_t device) {
    uint32_t found = FL_NO_CHAINS, shortest = device % c->devices;
    for (uint32_t i = shortest; i < c->most; i += c->devices) {
        bool follows = n->last[i] >= 0 && n->last[i] == fl_end_of_chain(c, i);
        if (follows && (found == FL_NO_CHAINS || c->length[i] > c->length[found]))
            found = i;
        if (c->length[i] < c->length[shortest])
            shortest = i;
    }
    return found == FL_NO_CHAINS ? shortest : found;
}

/* Plans the next command, on a device, which comes after those in `before`. Writes to `after` the
 * commands that it comes after directly, FL_CHAINS at most, and returns how many they are;
 * FL_NO_CHAINS: there is no memory. */
static inline uint32_t fl_plan_chain(fl_chains *c, const uint32_t *before, uint32_t count,
                                     bool only_orders, uint32_t device, uint32_t *after) {
    fl_chained *n = &c->planned;
    uint32_t found = 0, left = 0;
    if (!FL_RESERVE(c->commands, c->room, c->count + 1))
        return FL_NO_CHAINS;
    n->chain = -1;
    for (uint32_t i = 0; i < FL_CHAINS; i++)
        n->last[i] = -1;
    for (uint32_t b = 0; b < count; b++)
        for (uint32_t i = 0; i < c->most; i++) {
            int32_t other = c->commands[before[b]].last[i];
            n->last[i] = other > n->last[i] ? other : n->last[i];
        }
    if (only_orders)
        return 0;
    uint32_t own = fl_choose_chain(c, n, device), wanted[FL_CHAINS];
    int32_t end = fl_end_of_chain(c, own);
    if (end >= 0)
        wanted[found++] = (uint32_t)end;
    for (uint32_t i = 0; i < c->most; i++)
        if (i != own && n->last[i] >= 0)
            wanted[found++] = (uint32_t)n->last[i];
    for (uint32_t k = 0; k < found; k++) {   /* what another one implies is left out */
        bool implied = false;
        int32_t chain = c->commands[wanted[k]].chain, own_number = (int32_t)wanted[k];
        for (uint32_t j = 0; j < found && !implied; j++)
            implied = j != k && c->commands[wanted[j]].last[chain] >= own_number;
        if (!implied)
            after[left++] = wanted[k];
    }
    for (uint32_t i = 0; end >= 0 && i < c->most; i++) {
        int32_t other = c->commands[end].last[i];
        n->last[i] = other > n->last[i] ? other : n->last[i];
    }
    n->chain = (int32_t)own;
    n->last[own] = (int32_t)c->count;
    return left;
}

/* Adds the command that was planned last. */
static inline void fl_add_to_chain(fl_chains *c) {
    int32_t chain = c->planned.chain;
    if (chain >= 0) {
        c->end[chain] = (int32_t)c->count;
        c->length[chain]++;
    }
    c->commands[c->count++] = c->planned;
}
