/* Allocations that fail, of every file of a program. */
#ifndef NO_MEMORY_H
#define NO_MEMORY_H

#include <stdbool.h>

/* Refuse the n-th allocation from now (0: the next), and all after it if `and_after`. */
void memory_fails(int n, bool and_after);
/* Whether it came to that. It ends the refusal. */
bool memory_has_failed(void);

#endif
