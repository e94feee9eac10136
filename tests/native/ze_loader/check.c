/* The C of libze_loader.so.1 (loader/ze/libze_loader/native) with fake drivers, which lie beside
 * this program: one.so, two.so, old.so, which knows version 1.4 alone, bad.so, whose start fails,
 * and self.so, which calls Level Zero while it starts.
 *
 * `check` runs all scenarios, each in a process of its own, `check NAME…` those whose names begin
 * so. */
#define _GNU_SOURCE
#include "ze_fake.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "no_memory.h"
#include "../processes.h"

#define OK(call) CHECK((call) == ZE_RESULT_SUCCESS)
enum { MOST = 8, THREADS = 8, ROUNDS = 300, ALL = 3 };

/* --- what a loader has besides the API --- */

typedef struct tracer tracer;
typedef void callback(void *params, ze_result_t result, void *data, void **own);
typedef struct { uint32_t stype; const void *pNext; void *pUserData; } tracer_desc;
typedef struct { char name[64]; uint32_t api; int major, minor, patch; } version;
ze_result_t zelTracerCreate(const tracer_desc *desc, tracer **made);
ze_result_t zelTracerDestroy(tracer *tracer);
ze_result_t zelTracerSetPrologues(tracer *tracer, callback *const *callbacks);
ze_result_t zelTracerSetEpilogues(tracer *tracer, callback *const *callbacks);
ze_result_t zelTracerSetEnabled(tracer *tracer, uint8_t enable);
ze_result_t zelTracerResetAllCallbacks(tracer *tracer);
ze_result_t zelTracerEventQueryStatusRegisterCallback(tracer *tracer, uint32_t place,
                                                      callback *function);
ze_result_t zelTracerContextCreateRegisterCallback(tracer *tracer, uint32_t place,
                                                   callback *function);
ze_result_t zelTracerInitDriversRegisterCallback(tracer *tracer, uint32_t place,
                                                 callback *function);
ze_result_t zelGetTracerApiProcAddrTable(uint32_t version, void **table);
ze_result_t zelEnableTracingLayer(void), zelDisableTracingLayer(void), zeLoaderInit(void),
    zelSetDriverTeardown(void);
ze_result_t zelGetTracingLayerState(bool *enabled);
ze_result_t zelLoaderGetVersions(size_t *count, version *into);
ze_result_t zelRegisterTeardownCallback(void (*function)(void), void (**done)(uint32_t),
                                        uint32_t *index);
ze_result_t zetGetDeviceProcAddrTable(uint32_t version, void *table);
bool zelCheckIsLoaderInTearDown(void);

/* --- drivers --- */

static char folder[PATH_MAX];

/* The drivers of a list, by their names and in their order. */
static void use_drivers(const char *list) {
    char *text = NULL, copy[256];
    size_t size;
    FILE *into = open_memstream(&text, &size);
    snprintf(copy, sizeof copy, "%s", list);
    for (char *rest = copy, *name; (name = strsep(&rest, " "));)
        fprintf(into, " %s/%s.so ,", folder, name);
    fclose(into);
    setenv("ZE_ENABLE_ALT_DRIVERS", text, 1);
    free(text);
}

static ze_driver_handle_t drivers[MOST];

static uint32_t start(const char *list) {
    ze_init_driver_type_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                       .flags = ALL};
    uint32_t count = MOST;
    use_drivers(list);
    OK(zeInitDrivers(&count, drivers, &desc));
    return count;
}

static ze_event_handle_t new_event(ze_driver_handle_t driver, ze_context_handle_t *context,
                                   ze_event_pool_handle_t *pool) {
    ze_context_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_event_pool_desc_t pool_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, .count = 1};
    ze_event_desc_t event_desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    ze_event_handle_t event = NULL;
    OK(zeContextCreate(driver, &desc, context));
    OK(zeEventPoolCreate(*context, &pool_desc, 0, NULL, pool));
    OK(zeEventCreate(*pool, &event_desc, &event));
    return event;
}

static void use(ze_driver_handle_t driver) {
    ze_context_handle_t context;
    ze_event_pool_handle_t pool;
    ze_event_handle_t event = new_event(driver, &context, &pool);
    CHECK(zeEventQueryStatus(event) == ZE_RESULT_NOT_READY);
    OK(zeEventHostSignal(event));
    OK(zeEventQueryStatus(event));
    OK(zeEventDestroy(event));
    OK(zeEventPoolDestroy(pool));
    OK(zeContextDestroy(context));
}

static void on_threads(void *work(void *)) {
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

/* --- scenarios --- */

static void before_the_start(void) {
    uint32_t count = 0;
    use_drivers("one");
    CHECK(zeDriverGet(&count, NULL) == ZE_RESULT_ERROR_UNINITIALIZED &&
          zeEventHostSignal(NULL) == ZE_RESULT_ERROR_UNINITIALIZED);
    CHECK(!zeDriverGetDefaultContext(NULL) &&
          zeInitDrivers(NULL, NULL, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    OK(zeLoaderInit());
    CHECK(zeEventHostSignal(NULL) == ZE_RESULT_ERROR_UNINITIALIZED);
    OK(zeInit(0));
    OK(zeDriverGet(&count, NULL));
    CHECK(count == 1 && zeDriverGet(NULL, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
}

static void no_driver(void) {
    use_drivers("none");
    CHECK(zeInit(0) == ZE_RESULT_ERROR_UNINITIALIZED &&
          zeLoaderInit() == ZE_RESULT_ERROR_UNINITIALIZED);
    CHECK(zeInit(0) == ZE_RESULT_ERROR_UNINITIALIZED);
}

static void one_driver(void) {
    CHECK(start("one") == 1 && start("one") == 1);
    use(drivers[0]);
    CHECK(zeFenceReset((void *)drivers[0]) == ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
}

static void several_drivers(void) {
    CHECK(start("one bad two none one old self") == 4);
    for (int i = 0; i < 4; i++)
        use(drivers[i]);
    uintptr_t garbage[4] = {0};
    CHECK(zeEventHostSignal((void *)garbage) == ZE_RESULT_ERROR_INVALID_ARGUMENT &&
          zeEventHostSignal((void *)8) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK(zeEventHostSignal(NULL) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    CHECK(zeDriverGetDefaultContext(drivers[0]) && !zeDriverGetDefaultContext(drivers[2]) &&
          !zeDriverGetDefaultContext(NULL));
}

/* More handles than the table has room for at first; all are found, and none that ended. */
static void many_handles(void) {
    enum { MANY = 3000 };
    static ze_event_handle_t events[MANY];
    ze_context_handle_t contexts[2];
    ze_event_pool_handle_t pools[2];
    ze_event_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_EVENT_DESC};
    CHECK(start("one two") == 2);
    for (int i = 0; i < 2; i++)
        OK(zeEventDestroy(new_event(drivers[i], &contexts[i], &pools[i])));
    for (int i = 0; i < MANY; i++)
        OK(zeEventCreate(pools[i % 2], &desc, &events[i]));
    for (int i = 0; i < MANY; i++)
        OK(zeEventHostSignal(events[i]));
    for (int i = 0; i < MANY; i++)
        OK(zeEventDestroy(events[i]));
    for (int i = 0; i < 2; i++) {
        OK(zeEventPoolDestroy(pools[i]));
        OK(zeContextDestroy(contexts[i]));
    }
}

static void checked_arguments(void) {
    setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1", 1);
    CHECK(start("one two") == 2);
    CHECK(zeContextCreate(NULL, NULL, NULL) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    CHECK(zeContextCreate(drivers[0], NULL, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    use(drivers[1]);
}

/* A client's table ends where its version does. */
static void tables(void) {
    static const uint32_t sizes[][2] = {{0, 5}, {1, 6}, {6, 7}, {13, 8}, {14, 9}, {17, 9}};
    use_drivers("one");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void **exact = calloc(sizes[i][1], sizeof *exact);
        OK(zeGetDriverProcAddrTable(1u << 16 | sizes[i][0], exact));
        CHECK(exact[sizes[i][1] - 1]);
        free(exact);
    }
    CHECK(zeGetDriverProcAddrTable(1u << 16 | 18, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    void *table[64] = {NULL};
    CHECK(zeGetDriverProcAddrTable(1u << 16 | 18, table) == ZE_RESULT_ERROR_UNSUPPORTED_VERSION &&
          !table[0]);
    OK(zetGetDeviceProcAddrTable(1u << 16, table));
    CHECK(!table[0]);
}

static void ends(void) { CHECK(zelCheckIsLoaderInTearDown()); }

static void the_end(void) {
    void (*done)(uint32_t);
    uint32_t index = 77;
    for (int i = 0; i < 100; i++) {
        OK(zelRegisterTeardownCallback(ends, &done, &index));
        done(index);
    }
    done(1000);
    OK(zelRegisterTeardownCallback(ends, &done, &index));
    CHECK(start("one") == 1 && !zelCheckIsLoaderInTearDown());
    OK(zelSetDriverTeardown());
    CHECK(zelCheckIsLoaderInTearDown() &&
          zeEventHostSignal((void *)drivers[0]) == ZE_RESULT_ERROR_UNINITIALIZED);
}

/* Wherever memory is missing at the first init, the init fails or a driver is left out; nothing is
 * lost. */
static void no_memory(void) {
    bool failed = true;
    for (int n = 0; failed; n++) {
        fflush(NULL);
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            ze_init_driver_type_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                               .flags = ALL};
            uint32_t count = MOST;
            use_drivers("one two");
            memory_fails(n, false);
            ze_result_t code = zeInitDrivers(&count, drivers, &desc);
            bool came = memory_has_failed();
            CHECK(came || (!code && count == 2));
            if (!code && count) {
                ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
                ze_context_handle_t made;
                /* a driver in one.so may lack memory itself */
                if (!zeContextCreate(drivers[0], &context, &made))
                    OK(zeContextDestroy(made));
            }
            exit(came ? 3 : 0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
              (WEXITSTATUS(status) == 3 || !WEXITSTATUS(status)));
        failed = WEXITSTATUS(status) == 3;
    }
}

/* --- tracing --- */

static atomic_int before, after, others;
static void count_before(void *params, ze_result_t result, void *data, void **own) {
    CHECK(params && !result && data && !*own);
    *own = data;
    before++;
    CHECK(zeEventQueryStatus(NULL)); /* not traced */
}
static void count_after(void *params, ze_result_t result, void *data, void **own) {
    (void)params, (void)result;
    CHECK(*own == data);
    after++;
}
static void count_others(void *params, ze_result_t result, void *data, void **own) {
    (void)params, (void)result, (void)data, (void)own;
    others++;
}
static ze_event_handle_t instead;
static void change_event(void *params, ze_result_t result, void *data, void **own) {
    (void)result, (void)data, (void)own;
    **(ze_event_handle_t **)params = instead;
}

static tracer *new_tracer(void) {
    static int data;
    tracer_desc desc = {.stype = 1, .pUserData = &data};
    tracer *made = NULL;
    OK(zelTracerCreate(&desc, &made));
    return made;
}

static void tracing(void) {
    ze_context_handle_t context;
    ze_event_pool_handle_t pool;
    bool enabled = true;
    tracer_desc desc = {.stype = 1, .pUserData = &enabled},
                wrong = {.stype = 2, .pUserData = &enabled}, empty = {.stype = 1};
    tracer *one = NULL;
    size_t count = 0;
    OK(zelGetTracingLayerState(&enabled));
    CHECK(!enabled && zelTracerCreate(&desc, &one) == ZE_RESULT_ERROR_UNINITIALIZED);
    OK(zelEnableTracingLayer());
    OK(zelGetTracingLayerState(&enabled));
    OK(zelLoaderGetVersions(&count, NULL));
    version versions[2];
    OK(zelLoaderGetVersions(&count, versions));
    CHECK(enabled && count == 2 && !strcmp(versions[1].name, "tracing layer"));
    CHECK(zelTracerCreate(NULL, &one) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    OK(zelTracerCreate(&empty, &one));   /* a tracer needs no data of the program's */
    OK(zelTracerDestroy(one));
    CHECK(zelTracerCreate(&wrong, &one) == ZE_RESULT_ERROR_INVALID_ARGUMENT &&
          zelTracerDestroy(NULL) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    one = new_tracer();
    tracer *two = new_tracer();
    OK(zelTracerInitDriversRegisterCallback(one, 0, count_before));
    OK(zelTracerInitDriversRegisterCallback(one, 1, count_after));
    OK(zelTracerSetEnabled(one, 1));
    CHECK(start("one two") == 2 && before == 1 && after == 1);
    /* it is enabled */
    CHECK(zelTracerEventQueryStatusRegisterCallback(one, 0, count_before) ==
          ZE_RESULT_ERROR_INVALID_ARGUMENT);
    CHECK(zelTracerSetPrologues(one, NULL) == ZE_RESULT_ERROR_INVALID_ARGUMENT &&
          zelTracerDestroy(one) == ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE);
    OK(zelTracerSetEnabled(one, 0));
    CHECK(zelTracerSetEpilogues(one, NULL) == ZE_RESULT_ERROR_INVALID_NULL_POINTER);
    CHECK(zelTracerContextCreateRegisterCallback(one, 2, count_before) ==
          ZE_RESULT_ERROR_INVALID_ENUMERATION);
    OK(zelTracerResetAllCallbacks(one));
    OK(zelTracerEventQueryStatusRegisterCallback(one, 0, count_before));
    OK(zelTracerEventQueryStatusRegisterCallback(one, 1, count_after));
    callback *table[200] = {count_others};   /* of zeInit */
    OK(zelTracerSetPrologues(two, table));
    OK(zelTracerEventQueryStatusRegisterCallback(two, 0, change_event));
    ze_event_handle_t event = new_event(drivers[1], &context, &pool);
    OK(zelTracerSetEnabled(one, 1));
    OK(zelTracerSetEnabled(one, 1));
    CHECK(zeEventQueryStatus(event) == ZE_RESULT_NOT_READY && before == 2 && after == 2);
    CHECK(zeEventQueryStatus(NULL) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE && before == 3 &&
          after == 3);
    OK(zelTracerSetEnabled(two, 1));
    instead = event;
    CHECK(zeEventQueryStatus(NULL) == ZE_RESULT_NOT_READY && after == 4);
    OK(zeInit(0));
    CHECK(others == 1);
    OK(zelDisableTracingLayer());
    CHECK(zeEventQueryStatus(NULL) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE && before == 4);
    OK(zelEnableTracingLayer());
    OK(zelTracerSetEnabled(two, 0));
    OK(zelTracerSetEnabled(one, 0));
    OK(zelTracerDestroy(one));
    CHECK(zelTracerDestroy(one) == ZE_RESULT_ERROR_INVALID_ARGUMENT &&
          zelTracerSetEnabled(one, 1) == ZE_RESULT_ERROR_INVALID_ARGUMENT);
    OK(zelTracerDestroy(two));
    tracer *many[33];
    for (int i = 0; i < 33; i++) {
        many[i] = new_tracer();
        CHECK(zelTracerSetEnabled(many[i], 1) ==
              (i == 32 ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_SUCCESS));
    }
    for (int i = 0; i < 33; i++) {
        OK(zelTracerSetEnabled(many[i], 0));
        OK(zelTracerDestroy(many[i]));
    }
    void *functions[5];
    OK(zelGetTracerApiProcAddrTable(1u << 16, functions));
    CHECK(functions[4] == (void *)zelTracerSetEnabled &&
          zelGetTracerApiProcAddrTable(2u << 16, functions));
    OK(zelDisableTracingLayer());
    OK(zelDisableTracingLayer());
    OK(zelGetTracingLayerState(&enabled));
    CHECK(!enabled);
    OK(zeEventDestroy(event));
    OK(zeEventPoolDestroy(pool));
    OK(zeContextDestroy(context));
}

/* --- threads --- */

static void *first(void *number) {
    ze_init_driver_type_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC,
                                       .flags = ALL};
    ze_driver_handle_t mine[MOST];
    uint32_t count = MOST;
    if ((size_t)number % 2) {
        OK(zeInit(0));
        OK(zeDriverGet(&count, mine));
    } else
        OK(zeInitDrivers(&count, mine, &desc));
    CHECK(count == 2);
    for (uint32_t i = 0; i < count; i++)
        use(mine[i]);
    return NULL;
}

/* All threads make the first init. Each sees the same drivers, and can use them at once. */
static void thread_first(void) {
    use_drivers("one bad two none");
    on_threads(first);
}

static void *use_all(void *number) {
    for (int i = 0; i < ROUNDS; i++)
        use(drivers[(i + (size_t)number) % 2]);
    return NULL;
}

static void thread_handles(void) {
    CHECK(start("one two") == 2);
    on_threads(use_all);
}

static atomic_int begun, ended;
static void note_begin(void *params, ze_result_t result, void *data, void **own) {
    (void)params, (void)result, (void)data;
    *own = &begun;
    begun++;
}
static void note_end(void *params, ze_result_t result, void *data, void **own) {
    (void)params, (void)result, (void)data;
    CHECK(*own == &begun);
    ended++;
}

static void *trace(void *number) {
    for (int i = 0; i < ROUNDS; i++) {
        if ((size_t)number % 2) {
            use(drivers[i % 2]);
            continue;
        }
        tracer *mine = new_tracer();
        OK(zelTracerEventQueryStatusRegisterCallback(mine, 0, note_begin));
        OK(zelTracerEventQueryStatusRegisterCallback(mine, 1, note_end));
        OK(zelTracerSetEnabled(mine, 1));
        use(drivers[i % 2]);
        OK(zelTracerSetEnabled(mine, 0));
        OK(zelTracerDestroy(mine));
    }
    return NULL;
}

static atomic_bool may_end;
static void stay(void *params, ze_result_t result, void *data, void **own) {
    (void)params, (void)result, (void)data, (void)own;
    begun++;
    while (!may_end)
        sched_yield();
}

static void *query_once(void *event) {
    CHECK(zeEventQueryStatus(event) == ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
    return NULL;
}

static void *destroy(void *tracer) {
    ze_result_t code = zelTracerDestroy(tracer);
    ended++;
    return (void *)(size_t)code;
}

/* Two threads destroy a tracer that is in use: one does it, the other is refused at once. */
static void thread_destroy(void) {
    pthread_t caller, destroyers[2];
    void *codes[2];
    OK(zelEnableTracingLayer());
    CHECK(start("one two") == 2);
    tracer *one = new_tracer();
    OK(zelTracerEventQueryStatusRegisterCallback(one, 0, stay));
    OK(zelTracerSetEnabled(one, 1));
    CHECK(!pthread_create(&caller, NULL, query_once, NULL));
    while (!begun)
        sched_yield();
    OK(zelTracerSetEnabled(one, 0));
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&destroyers[i], NULL, destroy, one));
    while (!ended)
        sched_yield();
    CHECK(ended == 1);
    may_end = true;
    for (int i = 0; i < 2; i++)
        pthread_join(destroyers[i], &codes[i]);
    pthread_join(caller, NULL);
    CHECK((size_t)codes[0] + (size_t)codes[1] == ZE_RESULT_ERROR_INVALID_ARGUMENT);
}

/* Tracers come and go while others are called: each call that began also ends, and nothing of a
 * tracer is used after its end. */
static void thread_tracers(void) {
    OK(zelEnableTracingLayer());
    CHECK(start("one two") == 2);
    on_threads(trace);
    CHECK(begun == ended && begun >= THREADS / 2 * ROUNDS);
}

/* --- */

#define S(name) {#name, name},
static const scenario scenarios[] = {
    S(before_the_start) S(no_driver) S(one_driver) S(several_drivers) S(many_handles)
        S(checked_arguments) S(tables) S(the_end) S(no_memory) S(tracing) S(thread_first)
            S(thread_handles) S(thread_tracers) S(thread_destroy)};

int main(int count, char **words) {
    CHECK(realpath(words[0], folder) && strrchr(folder, '/'));
    *strrchr(folder, '/') = '\0';
    return RUN(scenarios, count, words);
}
