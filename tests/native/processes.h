/* Scenarios that run in a process each, so that one that ends its process does not end the others.
 *
 * `RUN(scenarios, count, words)` runs all of them, or those whose names begin as the words on the
 * command line. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    ((condition) ? (void)0                                                                         \
                 : (fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition),  \
                    exit(1)))

typedef struct {
    const char *name;
    void (*run)(void);
} scenario;

static bool is_wanted(const char *name, int count, char **wanted) {
    for (int i = 1; i < count; i++)
        if (strncmp(name, wanted[i], strlen(wanted[i])) == 0)
            return true;
    return count == 1;
}

/* Whether a scenario failed. */
static bool fails(const scenario *one) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        one->run();
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    printf("%s: %s\n", one->name, status ? "FAILED" : "ok");
    return status != 0;
}

static int run_scenarios(const scenario *all, size_t count, int words, char **wanted) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        if (is_wanted(all[i].name, words, wanted))
            failed |= fails(&all[i]);
    return failed;
}

#define RUN(all, words, wanted) run_scenarios(all, sizeof(all) / sizeof *(all), words, wanted)
