/* Writes the sources of OpenCL programs, and the logs of their builds, to files.
 *
 * PID-0001.cl is the source of the first program of a process, PID-0001.log what the compiler said
 * about it. A program that was not made from a source has a log only. */
#define _GNU_SOURCE
#include "native.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICES = 0x1163, BUILD_LOG = 0x1183, MOST_DEVICES = 64 };

typedef int32_t info(void *program, uint32_t what, size_t size, void *value, size_t *size_ret);
typedef int32_t build_info(void *program, void *device, uint32_t what, size_t size, void *value,
                           size_t *size_ret);

typedef struct program {
    struct program *older;
    const void *handle;
    unsigned number;
} program;

static char *folder;
static const fl_thunks *api;
static fl_dump slots;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* around the list */
static program *newest;
static unsigned numbers;
FL_FREE_IN_CHILD(lock)

/* The number of a program; a new one if it is not known, or if its handle is used again. */
static unsigned find_number(const void *handle, bool is_new) {
    FL_HOLD(lock);
    program *one = newest;
    while (one && one->handle != handle)
        one = one->older;
    if (!one || is_new) {
        program *made = malloc(sizeof *made);
        if (made) {
            *made = (program){newest, handle, ++numbers};
            newest = made;
        }
        one = made;
    }
    return one ? one->number : 0;
}

static FILE *open_file(unsigned number, const char *ending, const char *mode) {
    char *name = NULL;
    FILE *file = NULL;
    if (number && asprintf(&name, "%s/%d-%04u.%s", folder, (int)getpid(), number, ending) >= 0)
        file = fopen(name, mode);
    free(name);
    return file;
}

static void write_source(const fl_call *call) {
    uint32_t count = (uint32_t)call->arguments[1];
    const char *const *strings = (const char *const *)(uintptr_t)call->arguments[2];
    const size_t *lengths = (const size_t *)(uintptr_t)call->arguments[3];
    FILE *file = open_file(find_number((void *)(uintptr_t)call->result, true), "cl", "we");
    for (uint32_t i = 0; file && i < count; i++)
        fwrite(strings[i], 1, lengths && lengths[i] ? lengths[i] : strlen(strings[i]), file);
    if (file)
        fclose(file);
}

static void write_logs(const fl_call *call, void *handle) {
    info *ask = (info *)call->layer->next[slots.get_program_info];
    build_info *ask_build = (build_info *)call->layer->next[slots.get_build_info];
    void *devices[MOST_DEVICES];
    size_t size = 0;
    if (ask(handle, DEVICES, sizeof devices, devices, &size))
        return;
    FILE *file = open_file(find_number(handle, false), "log", "ae");
    for (size_t i = 0; file && i < size / sizeof *devices; i++) {
        size_t length = 0;
        ask_build(handle, devices[i], BUILD_LOG, 0, NULL, &length);
        char *text = length ? calloc(1, length + 1) : NULL;
        if (text && !ask_build(handle, devices[i], BUILD_LOG, length, text, NULL))
            fprintf(file, "%s\n", text);
        free(text);
    }
    if (file)
        fclose(file);
}

void fl_dump_call(const fl_call *call) {
    if (!folder || call->layer->thunks != api)
        return;
    int error = errno;
    if (call->function == slots.create_with_source && call->result)
        write_source(call);
    else if (call->function == slots.build || call->function == slots.compile)
        write_logs(call, (void *)(uintptr_t)call->arguments[0]);
    else if (call->function == slots.link && call->result)
        write_logs(call, (void *)(uintptr_t)call->result);
    errno = error;
}

void fl_dump_programs(const char *into, const fl_thunks *of, const fl_dump *functions) {
    slots = *functions, api = of;
    folder = strdup(into);
}
