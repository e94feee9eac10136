#ifndef FL_LOADER_NATIVE_H
#define FL_LOADER_NATIVE_H

#include "layer.h"
#include "memory.h"
#include "native.cdef.h"

#endif
