/* The Python of this process, which is started if there is none. Nothing is linked with it, so a
 * shell works with every version. */
#pragma once

#include <stdbool.h>

/* Starts a Python if there is none. `config` has lines `name=value`: `program`, `library`. After a
 * failure it returns false and prints a line to stderr. */
bool fl_python_begin(const char *config);

/* Calls `start` of a module of fairlead with an address. `config` has `site`, where fairlead is
 * if it cannot be imported otherwise. If that raises anything, it returns false and prints a
 * traceback. */
bool fl_python_start(const char *config, const char *module, void *address);

/* Returns whether the Python that was started can be called. */
bool fl_python_lives(void);

/* Releases the GIL if this thread has it. fl_python_restore takes it again with what this
 * returns. */
void *fl_python_release(void);
void fl_python_restore(void *thread);

/* From now on a thread that waits inside a runtime does not hold the GIL (runtime_waits.c). It is
 * for the runtimes that are open now. */
void fl_wait_without_gil(void);
