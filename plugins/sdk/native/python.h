/* The Python of this process: found if there is one, else begun. Nothing is linked with it, so that a shell serves every version. */
#pragma once

#include <stdbool.h>

/* Sees to it that there is a Python. `config` are lines `name=value`: `program`, `library`. False, and a line on stderr, if there can be none. */
bool fl_python_begin(const char *config);

/* Has Python call `start` of a module of fairlead with an address. `config` has `site`, where fairlead is if it cannot be imported as it is.
 * False, and a traceback on stderr, if that raises anything. */
bool fl_python_start(const char *config, const char *module, void *address);

/* Whether a Python that was begun can be called. */
bool fl_python_lives(void);

/* Gives up the GIL if this thread has it: what is to be given back by fl_python_restore, NULL if there is nothing. */
void *fl_python_release(void);
void fl_python_restore(void *thread);
