/* A program that loads adapters as a Unified Runtime loader does, and is told what to do by its
 * arguments: `host open PATH table adapter platform`. Each command prints a line. `pick N` goes
 * back to the Nth library that was opened. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

typedef int getter(uint32_t, void **);

static struct library {
    void *opened;
    void *adapter;
    void *platform;
} libraries[4], *now = libraries - 1;

static void *function(const char *name) {
    void *found = dlsym(now->opened, name);
    if (!found) {
        printf("there is no %s\n", name);
        exit(2);
    }
    return found;
}

static void open_library(const char *path) {
    (++now)->opened = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    printf("open: %s\n", now->opened ? "ok" : dlerror());
}

static void table(const char *version) {
    void *table[300] = {NULL};
    printf("table: %d\n", ((getter *)function("urGetAdapterProcAddrTable"))(
                              (uint32_t)atoi(version), *version == '-' ? NULL : table));
}

/* Whether an entry of a table is a certain function: `slot Enqueue 0 urEnqueueEventsWait`. */
static void slot(const char *name, const char *index, const char *expected) {
    char symbol[100];
    void *table[300] = {NULL};
    snprintf(symbol, sizeof symbol, "urGet%sProcAddrTable", name);
    int code = ((getter *)function(symbol))(12, table);
    printf("slot: %d %s\n", code, table[atoi(index)] == function(expected) ? "yes" : "no");
}

static void adapter(void) {
    uint32_t count = 0;
    int code = ((int (*)(uint32_t, void **, uint32_t *))function("urAdapterGet"))(1, &now->adapter,
                                                                                  &count);
    int first = now->adapter && **(void ***)now->adapter == function("urAdapterGet");
    printf("adapter: %d count %u first word %s\n", code, count, first ? "ok" : "wrong");
}

static void platform(void) {
    char name[100] = "";
    int got = ((int (*)(void *, uint32_t, void **, uint32_t *))function("urPlatformGet"))(
        now->adapter, 1, &now->platform, NULL);
    int code = ((int (*)(void *, int, size_t, void *, size_t *))function("urPlatformGetInfo"))(
        now->platform, 1, sizeof name, name, NULL);
    printf("platform: %d %d %s\n", got, code, name);
}

/* Gets devices, retains each, and releases it as often as needed: `devices 4` of the platform. */
static void devices(int count) {
    void *found[16];
    int code = ((int (*)(void *, int, uint32_t, void **, uint32_t *))function("urDeviceGet"))(
        now->platform, 1, (uint32_t)count, found, NULL);
    for (int i = 0; i < count && !code; i++) {
        code |= ((int (*)(void *))function("urDeviceRetain"))(found[i]);
        code |= ((int (*)(void *))function("urDeviceRelease"))(found[i]) |
                ((int (*)(void *))function("urDeviceRelease"))(found[i]);
    }
    printf("devices: %d\n", code);
}

static void on_adapter(const char *name) {
    printf("%s: %d\n", name, ((int (*)(void *))function(name))(now->adapter));
}

static void last_error(void) {
    const char *message = "";
    int32_t error = 0;
    int code = ((int (*)(void *, const char **, int32_t *))function("urAdapterGetLastError"))(
        now->adapter, &message, &error);
    printf("last: %d %d %s\n", code, error, message);
}

/* What a thread does: it asks for the table, like everybody, and then counts. The answer is how
 * many calls failed. */
static void *work(void *unused) {
    (void)unused;
    void *table[300] = {NULL};
    uintptr_t failed = ((getter *)function("urGetAdapterProcAddrTable"))(12, table) != 0;
    void *mine = NULL;
    failed += !failed && ((int (*)(uint32_t, void **, uint32_t *))table[0])(1, &mine, NULL);
    for (int i = 0; i < 1000 && !failed; i++)
        failed += ((int (*)(void *))function("urAdapterRetain"))(mine) ||
                  ((int (*)(void *))function("urAdapterRelease"))(mine);
    return (void *)failed;
}

static void threads(const char *count) {
    pthread_t ids[64];
    uintptr_t failed = 0, one;
    int number = atoi(count);
    for (int i = 0; i < number; i++)
        pthread_create(&ids[i], NULL, work, NULL);
    for (int i = 0; i < number; i++) {
        pthread_join(ids[i], (void **)&one);
        failed += one;
    }
    printf("threads: %d failed\n", (int)failed);
}

/* Calls at the very end, from a handler that was registered before anything was opened and so runs
 * last. */
static void late(void) {
    for (struct library *end = now; end >= libraries; end--) {
        now = end;
        printf("late: ");
        on_adapter("urAdapterRelease");
        printf("late: ");
        on_adapter("urAdapterRetain");
        table("12");
    }
    fflush(stdout);
}

static int ended, reaped;

static void reap(int signal) {
    ended += signal == SIGCHLD;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        reaped++;
}

int main(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const char *command = arguments[i];
        if (!strcmp(command, "late"))
            atexit(late);
        else if (!strcmp(command, "watch"))
            signal(SIGCHLD, reap);
        else if (!strcmp(command, "children")) {
            while (wait(NULL) > 0)
                reaped++;
            printf("%d signals, %d children\n", ended, reaped);
        } else if (!strcmp(command, "open"))
            open_library(arguments[++i]);
        else if (!strcmp(command, "pick"))
            now = libraries + atoi(arguments[++i]);
        else if (!strcmp(command, "table"))
            table("12");
        else if (!strcmp(command, "table-of"))
            table(arguments[++i]);
        else if (!strcmp(command, "slot"))
            slot(arguments[i + 1], arguments[i + 2], arguments[i + 3]), i += 3;
        else if (!strcmp(command, "adapter"))
            adapter();
        else if (!strcmp(command, "platform"))
            platform();
        else if (!strcmp(command, "devices"))
            devices(atoi(arguments[++i]));
        else if (!strcmp(command, "last"))
            last_error();
        else if (!strcmp(command, "threads"))
            threads(arguments[++i]);
        else if (!strcmp(command, "unload"))
            printf("unload: %d\n", dlclose(now->opened));
        else
            on_adapter(command);
        fflush(stdout);
    }
    return 0;
}
