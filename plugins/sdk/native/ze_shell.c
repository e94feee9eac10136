/* The shell of a Level Zero driver. */
#define FL_ZE
#include "shell.c"
