/* libfairlead_trace.so: an OpenCL layer that writes down the calls of any program. There is no
 * Python in it.
 *
 * An OpenCL loader that finds this library in OPENCL_LAYERS asks it for a table to put in front of
 * its own (CL/cl_layer.h). It gets a table of thunks (loader/base/native/layer.h), whose calls go
 * into a log (loader/base/native/log.c). The log's memory is the file that FAIRLEAD_TRACE_LOG
 * names, `%p` in it being the process id. So no call is lost when the process is killed, crashes or
 * ends by _exit. The file begins with a head of a page, which `write_head` explains; the chunks of
 * the log follow. icd/trace_layer.py reads it. Without the variable nothing is in the program's
 * way.
 *
 * A forked child has a log, and a file, of its own. */
#define _GNU_SOURCE
#include "../../loader/base/native/native.h"

#include "opencl_abi.h"
#include "opencl_layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT = 4, NAME = 32, HEAD = 4096 /* bytes */, LIMIT = 1 << 30 };

const fl_thunks *fl_cl_thunks(void); /* generated: thunks_cl.c */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *pattern;       /* of the file's name */
static char path[PATH_MAX]; /* of the file, from the first call on */
static off_t size;          /* of the file; -1: it cannot be written */
static struct stat own;     /* the file that has the name */
static fl_log *calls;       /* NULL: nobody asked for it */
static uint64_t started[2]; /* ns of CLOCK_MONOTONIC, as in the records, and of CLOCK_REALTIME */
static bool of_devices;     /* FAIRLEAD_TRACE_DEVICE is set: what devices do, too */

/* --- the file --- */

/* Write the name of this process's file into `path`. A process that went on by exec has another
 * file for each program. */
static bool name_file(int program) {
    size_t length = 0;
    const char *from = pattern;
    for (; *from && length + 26 < sizeof path; from++) /* two characters become 26 at most */
        if (from[0] == '%' && from[1] == 'p')
            length += (size_t)sprintf(path + length, program ? "%d.%d" : "%d", (int)getpid(),
                                      program),
                from++;
        else
            path[length++] = *from;
    path[length] = '\0';
    errno = ENAMETOOLONG;
    return !*from;
}

/* Some process may have mapped a file of this name, so it is never truncated. Without %p the last
 * program has the name. */
static int create_file(void) {
    int file = -1;
    for (int program = 0; file < 0 && program < 1000 && name_file(program); program++) {
        if (!strstr(pattern, "%p"))
            unlink(path);
        file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST)
            break;
    }
    return file;
}

/* The file again. Without %p a later program may have the name by now, and its file is its own. */
static int open_again(void) {
    struct stat found;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 ||
        (fstat(file, &found) == 0 && found.st_dev == own.st_dev && found.st_ino == own.st_ino))
        return file;
    close(file);
    errno = ESTALE;
    return -1;
}

/* More of the file in memory, of zeros. What is not reserved on the disk could not be written when
 * it is too late to say so. */
static uint64_t *map_more(int file, off_t bytes) {
    do
        errno = posix_fallocate(file, size, bytes);
    while (errno == EINTR); /* a signal of the program's, such as a profiler's timer */
    if (errno)
        return NULL;
    void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, size);
    size += bytes;
    return at == MAP_FAILED ? NULL : at;
}

static void write_head(uint64_t *head) {
    memcpy(&head[0], "FLCLLOG\n", 8);
    head[1] = FORMAT | (uint64_t)fl_cl_thunks()->slots << 32;
    head[2] = (uint32_t)getpid() | (uint64_t)getppid() << 32;
    head[3] = started[0], head[4] = started[1];
    head[6] = FL_LOG_CHUNK;
    strncpy((char *)&head[7], program_invocation_short_name, NAME - 1);
    fl_count_lost_at(calls, &head[5]);
}

/* The file is opened each time: a descriptor that is kept may become another file's, in a program
 * that closes all of them. */
static uint64_t *more(void) {
    if (size < 0)
        return NULL;
    bool is_new = !size;
    int file = is_new ? create_file() : open_again();
    uint64_t *head = file >= 0 && is_new && fstat(file, &own) == 0 ? map_more(file, HEAD) : NULL;
    uint64_t *chunk = file >= 0 && (head || !is_new) ? map_more(file, FL_LOG_CHUNK) : NULL;
    if (head)
        write_head(head);
    if (!chunk) {
        dprintf(STDERR_FILENO,
                "fairlead: the OpenCL calls of process %d are lost from now on, %s cannot be "
                "written: %s\n",
                (int)getpid(), *path ? path : pattern, strerror(errno));
        size = -1;
    }
    if (file >= 0)
        close(file);
    return chunk;
}

static void new_log(void) {
    struct timespec real;
    clock_gettime(CLOCK_REALTIME, &real);
    started[0] = (uint64_t)fl_now();
    started[1] = (uint64_t)real.tv_sec * 1000000000u + (uint64_t)real.tv_nsec;
    *path = '\0', size = 0;
    calls = fl_new_log(LIMIT);
    if (calls) {
        fl_name_threads(calls);
        fl_log_into(calls, more);
    }
}

void fl_begin_layer(fl_layer *layer) {
    static const fl_device device = {
        SLOT_clGetEventInfo,        SLOT_clGetEventProfilingInfo,
        SLOT_clRetainEvent,         SLOT_clReleaseEvent,
        SLOT_clCreateCommandQueue,  SLOT_clCreateCommandQueueWithProperties,
        SLOT_clEnqueueNDRangeKernel, SLOT_clEnqueueMapBuffer,
        SLOT_clEnqueueMapImage,     SLOT_clGetDeviceInfo};
    if (of_devices)
        fl_log_device(layer, calls, &device);
    else
        fl_log_calls(layer, calls);
}

/* A forked child begins anew. What it has of its parent's log stays where it is: some other thread
 * may have been about to change it. */
static void begin_again(void) {
    new_log();
    for (fl_layer *layer = *fl_cl_thunks()->layers; layer; layer = layer->other)
        if (layer->taken)
            fl_begin_layer(layer);
}

/* A file is named where the program began, wherever it goes later. */
static char *absolute(const char *name) {
    char *folder = *name == '/' ? NULL : get_current_dir_name(), *path = NULL;
    if (asprintf(&path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name) < 0)
        path = NULL;
    free(folder);
    return path;
}

static void begin(void) {
    const char *name = secure_getenv("FAIRLEAD_TRACE_LOG");
    if (!name || !*name || !(pattern = absolute(name)))
        return;
    of_devices = secure_getenv("FAIRLEAD_TRACE_DEVICE") != NULL;
    static const fl_dump dump = {SLOT_clCreateProgramWithSource, SLOT_clBuildProgram,
                                 SLOT_clCompileProgram,          SLOT_clLinkProgram,
                                 SLOT_clGetProgramInfo,          SLOT_clGetProgramBuildInfo};
    const char *folder = secure_getenv("FAIRLEAD_TRACE_DUMP");
    if (folder && *folder)
        fl_dump_programs(folder, fl_cl_thunks(), &dump);
    new_log();
    pthread_atfork(NULL, NULL, begin_again);
}

const char fl_layer_name[] = "fairlead trace";

bool fl_layer_is_wanted(void) {
    pthread_once(&once, begin);
    return calls != NULL;
}
