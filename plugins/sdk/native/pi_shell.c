/* The shell of a PI plugin. */
#define FL_PI
#include "shell.c"
