/* Memory for dispatch tables, and the stubs that stand where a driver has nothing. */
#define FL_DEFINE_STUBS
#include "native.h"

#include <stdlib.h>
#include <string.h>

/* A complete table in which every slot answers CL_INVALID_OPERATION; NULL if there is no memory. It
 * is never freed: whoever was handed a table may keep it for as long as the process lives. */
void **fl_new_table(void) {
    void **table = malloc(sizeof fl_stubs);
    if (table)
        memcpy(table, fl_stubs, sizeof fl_stubs);
    return table;
}
