/* What modules.c and launches.c share: modules, functions, and the OpenCL driver behind them. */
#pragma once
#include "fake.h"
#include "opencl_abi.h"

enum { MOST_PARAMETERS = 64 };
#ifdef FAKE_HIP
enum { SIZE_OF_LOCAL = 4 };   /* AMD's GPUs have addresses of 32 bits in local memory */
#else
enum { SIZE_OF_LOCAL = 8 };
#endif

struct fl_CUfunction {
    CUfunction next;
    CUmodule module;
    char *name;
    /* NULL: the kernel of the program with this name */
    void (*run)(void **parameters, uint32_t items);
    int shared, any_cluster;   /* what cuFuncSetAttribute has allowed */
    uint64_t loads;   /* a bit for each parameter that is the address of its value */
    uint32_t count;
    enum { VALUE, ADDRESS, LOCAL } kinds[MOST_PARAMETERS];
    size_t sizes[MOST_PARAMETERS], offsets[MOST_PARAMETERS];
};

typedef struct variable {
    struct variable *next;
    char name[64];
    size_t size;
    char bytes[];
} variable;

struct fl_CUmodule {
    char *text;
    int device;           /* whose context was current when it was loaded */
    cl_program program;   /* NULL: PTX */
    CUfunction functions;
    variable *variables;
    bool takes_offsets;   /* whether the global offset follows the arguments of its kernels: HIP */
};

/* Whether a text can be compiled, to be linked. If not, the log says why. */
bool fake_compiles(const char *text, char *log, size_t room);

/* The device and the context in which modules of OpenCL C run. */
extern cl_device_id fake_device;
extern cl_context fake_context;

#define CL(object, name) ((fn_##name *)((object)->dispatch[SLOT_##name]))
