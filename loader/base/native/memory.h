/* memory.c is compiled into every extension module that reads foreign memory. */
#ifndef FL_MEMORY_H
#define FL_MEMORY_H

#include <stddef.h>

size_t fl_safe_read(const void *address, void *into, size_t size);

#endif
