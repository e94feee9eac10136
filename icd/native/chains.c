/* The order of all commands of a graph on chains, for the engine `cuda`. */
#include "native.h"

#include "chains.h"

uint32_t fl_chain(uint32_t count, const uint32_t *first, const uint32_t *before,
                  const uint8_t *only_orders, const uint32_t *places, uint32_t place_count,
                  uint32_t most, uint32_t *first_after, uint32_t *after) {
    fl_chains c = {.most = most && most < FL_CHAINS ? most : FL_CHAINS};
    c.devices = place_count < c.most ? place_count : c.most;
    uint32_t end = 0, found = 0;
    first_after[0] = 0;
    for (uint32_t i = 0; i < count && found != FL_NO_CHAINS; i++) {
        uint32_t own = first[i + 1] - first[i];
        found = fl_plan_chain(&c, &before[first[i]], own, only_orders[i], places[i], &after[end]);
        if (found == FL_NO_CHAINS)
            break;
        end += found;
        first_after[i + 1] = end;
        fl_add_to_chain(&c);
    }
    free(c.commands);
    return found == FL_NO_CHAINS ? found : fl_used_chains(&c);
}
