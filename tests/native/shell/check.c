/* Shells without Python: this program is linked with what a shell would find in one, and plays the
 * part of plugins/sdk/start.py.
 *
 * `check` runs all scenarios, each in a process of its own, `check NAME…` those whose names begin
 * so. With FL_PI it is the shell of a plugin, with FL_ZE that of a Level Zero driver. */
#include "python.c"
#include "runtime_waits.c"
#include "shell.c"
#include "counts.c"
#include "interrupts.c"

#include "../processes.h"

#include <semaphore.h>

/* --- what a Python has that a shell uses --- */

static struct {
    int initialized, fails, calls_back, runs, full;
    _Atomic(int) pending;
    int (*pending_call)(void *);
    const wchar_t *program;
} fake;

static sem_t *begun, may_end; /* the start takes as long as the test wants, if there is one */
static _Thread_local int has_gil;
int Py_IgnoreEnvironmentFlag;

int Py_IsInitialized(void) { return fake.initialized; }
void Py_InitializeEx(int signals) {
    CHECK(!signals && Py_IgnoreEnvironmentFlag && fake.program && !fake.initialized);
    fake.initialized = 1;
    has_gil = 1;
}
void Py_SetProgramName(const wchar_t *name) { fake.program = name; }
wchar_t *Py_DecodeLocale(const char *text, size_t *size) {
    static wchar_t program[PATH_MAX];
    (void)size;
    mbstowcs(program, text, PATH_MAX);
    return program;
}
void *PyEval_SaveThread(void) {
    CHECK(has_gil);
    has_gil = 0;
    return &fake;
}
void PyEval_RestoreThread(void *thread) {
    CHECK(thread == &fake && !has_gil);
    has_gil = 1;
}
int PyGILState_Check(void) { return has_gil; }
void *PyGILState_GetThisThreadState(void) { return &fake; }
void PyErr_SetInterrupt(void) {}
int PyGILState_Ensure(void) {
    int had = has_gil;
    has_gil = 1;
    return had;
}
void PyGILState_Release(int had) { has_gil = had; }
int Py_AddPendingCall(int (*function)(void *), void *data) {
    CHECK(!data);
    if (fake.full)
        return -1;
    fake.pending_call = function;
    fake.pending++;
    return 0;
}

/* --- what plugins/sdk/start.py and an adapter do --- */

static int32_t body(uint32_t number) { return 1000 + (int32_t)number; }
static int32_t ask(void);

static void end(uint32_t number) {
    CHECK(number == 5);
    fl_shell_state.close();
}

int PyRun_SimpleStringFlags(const char *code, void *flags) {
    if (strncmp(code, "import signal;", 14) == 0)   /* before SIGINT is given back to the host */
        return 0;
    const char *call = strstr(code, "    start(");
    CHECK(!flags && has_gil && call && strstr(code, "from " FL_MODULE " import start"));
    fake.runs++;
    if (begun) {
        sem_post(begun);
        sem_wait(&may_end);
    }
    if (fake.fails)
        return -1;
    fl_shell *shell = (fl_shell *)(uintptr_t)strtoull(call + strlen("    start("), NULL, 10);
    CHECK(shell == &fl_shell_state && shell->version == FL_SHELL_VERSION &&
          shell->entry_count == FL_ENTRIES);
    if (fake.calls_back)
        CHECK(ask() == UNINITIALIZED);
    shell->number = 5;
    shell->bodies[0] = (void *)body;
    shell->at_exit(end);
    return 0;
}

/* --- the tables --- */

typedef int32_t entry(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static int32_t call(unsigned index) {
    return ((entry *)fl_tables[chosen][index])(0, 0, 0, 0, 0, 0);
}

#ifdef FL_PI
static int32_t ur_function(uintptr_t handle) { return handle == 8 ? 0 : handle == 16 ? 1 : 99; }
static int32_t pi_body(void *handle) { return handle ? -1 : -2; }

/* Functions that count references go straight to those of Unified Runtime, but for NULL. */
static int32_t ask(void);
static void straight_to_the_adapter(void) {
    static const int32_t codes[] = {0, -30, -1000};
    fake.initialized = 1;
    CHECK(ask() == SUCCESS);
    fl_shell *shell = &fl_shell_state;
    unsigned entry = 0;
    while (strcmp(fl_names[entry], "piEventRelease") != 0)
        entry++;
    shell->bodies[entry] = (void *)pi_body;
    CHECK(piEventRelease((void *)8) == -1);
    shell->codes = codes;
    shell->code_count = 2;
    shell->direct[entry] = (void *)ur_function;
    CHECK(piEventRelease((void *)8) == 0 && piEventRelease((void *)16) == -30 &&
          piEventRelease((void *)24) == -1000 && piEventRelease(NULL) == -2);
    shell->close();
    CHECK(piEventRelease((void *)24) == SUCCESS && piEventRelease(NULL) == SUCCESS &&
          piEventRetain((void *)24) == UNINITIALIZED);
}

static int32_t ask(void) {
    struct _pi_plugin plugin = {.host_version = "15.47"};
    int32_t code = piPluginInit(&plugin);
    CHECK(code != SUCCESS || (strcmp(plugin.version, "15.47.1") == 0 &&
                              memcmp(plugin.table, table_0, sizeof plugin.table) == 0));
    return code;
}
#elif defined FL_ZE
static int32_t ask(void) {
    void *table[100];
    return zeGetGlobalProcAddrTable(1u << 16, table);
}
#else
#include "getters.h"
static int32_t ask(void) {
    void *table[100];
    return urGetAdapterProcAddrTable(API_VERSION, table);
}
#endif

/* What every entry answers that has no body: a release, and anything else. */
static void all_answer(int32_t releases, int32_t others) {
    for (unsigned i = 0; i < FL_ENTRIES; i++)
        if (!fl_body(i))
            CHECK(fl_no_body(i) == (fl_releases[i] ? releases : others));
    for (unsigned i = 1; i < sizeof table_0 / sizeof *table_0; i++) {
        int32_t code = call(i);
        /* which returns a handle */
        bool is_code = strcmp(fl_names[i], "zeDriverGetDefaultContext") != 0;
        CHECK(is_code ? code == releases || code == others || code == 1005 : !code);
    }
}

/* --- scenarios --- */

static void nothing_is_there(void) {
    all_answer(UNINITIALIZED, UNINITIALIZED);
    /* a Python that is here but not begun, and no program to begin it with */
    CHECK(ask() == UNINITIALIZED && ask() == UNINITIALIZED);
    CHECK(fake.runs == 0);
    all_answer(UNINITIALIZED, UNINITIALIZED);
}

static void python_is_there(void) {
    fake.initialized = has_gil = 1;
    CHECK(ask() == SUCCESS && has_gil && fake.runs == 1 && !fake.program);
    CHECK(ask() == SUCCESS && fake.runs == 1);
}

static void python_is_begun(void) {
    setenv("FAIRLEAD_PYTHON", "/bin/sh", 1);
    CHECK(ask() == SUCCESS && !has_gil && fake.runs == 1 && wcscmp(fake.program, L"/bin/sh") == 0);
}

static void entries_and_bodies(void) {
    fake.initialized = 1;
    CHECK(ask() == SUCCESS);
    all_answer(UNSUPPORTED_FEATURE, UNSUPPORTED_FEATURE);
    CHECK(((int32_t (*)(uint32_t))fl_body(0))(7) == 1007);
#ifdef FL_ZE
    CHECK(call(0) == 1005);
#elif !defined FL_PI
    CHECK(urAdapterGet(0, NULL, NULL) == 1005);
#endif
    fl_shell_state.close();
    all_answer(SUCCESS, UNINITIALIZED);
    CHECK(ask() == UNINITIALIZED && fake.runs == 1);
    fl_shell_state.reset();
#ifndef FL_ZE   /* of which some functions start it again */
    all_answer(SUCCESS, UNINITIALIZED);
#endif
    CHECK(ask() == SUCCESS && fake.runs == 2);
}

static void the_start_fails(void) {
    fake.initialized = fake.fails = 1;
    CHECK(ask() == UNINITIALIZED && ask() == UNINITIALIZED && fake.runs == 1);
}

static void the_start_asks_for_itself(void) {
    fake.initialized = fake.calls_back = 1;
    CHECK(ask() == SUCCESS && fake.runs == 1);
}

static void *starts(void *unused) {
    (void)unused;
    CHECK(ask() == SUCCESS);
    return NULL;
}

/* The child has no thread that starts it, and does not wait for one. */
static void a_fork_while_it_starts(void) {
    sem_t semaphore;
    pthread_t thread;
    int status = 1;
    fake.initialized = 1;
    CHECK(sem_init(&semaphore, 0, 0) == 0 && sem_init(&may_end, 0, 0) == 0);
    begun = &semaphore;
    CHECK(pthread_create(&thread, NULL, starts, NULL) == 0 && sem_wait(begun) == 0);
    pid_t child = fork();
    if (!child) {
        alarm(60);
        _exit(ask() != UNINITIALIZED);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    sem_post(&may_end);
    CHECK(pthread_join(thread, NULL) == 0 && ask() == SUCCESS);
}

static void calls_at_the_end(void) {
    all_answer(SUCCESS, UNINITIALIZED);
}

static void the_end(void) {
    CHECK(atexit(calls_at_the_end) == 0);   /* after the shell's own */
    fake.initialized = 1;
    CHECK(ask() == SUCCESS);
}

static void wrong_calls(void) {
#ifdef FL_PI
    CHECK(piPluginInit(NULL) == NULL_POINTER);
    struct _pi_plugin plugin = {.host_version = "14.30"};
    CHECK(piPluginInit(&plugin) == UNSUPPORTED_VERSION && !*plugin.version && !plugin.table[0]);
    strcpy(plugin.host_version, "15.48");
    /* hosts call by the table all the same */
    CHECK(piPluginInit(&plugin) == UNINITIALIZED && plugin.table[FL_ENTRIES - 1]);
#elif defined FL_ZE
    void *table[100];
    CHECK(zeGetGlobalProcAddrTable(1u << 16, NULL) == NULL_POINTER);
    CHECK(zeGetGlobalProcAddrTable(2u << 16, table) == UNSUPPORTED_VERSION);
#else
    void *table[100];
    CHECK(urGetAdapterProcAddrTable(API_VERSION, NULL) == NULL_POINTER);
    CHECK(urGetAdapterProcAddrTable(API_VERSION - 1, table) == UNSUPPORTED_VERSION);
#endif
    CHECK(fake.runs == 0);
}

#ifdef FL_ZE
/* A caller's table is as long as its version has it: the allocation ends there. A program may call
 * zeInit without any table. */
static void versions(void) {
    static const uint32_t sizes[][2] = {{0, 5}, {1, 6}, {6, 7}, {13, 8}, {14, 9}, {17, 9}, {99, 9}};
    fake.initialized = 1;
    CHECK(zeInit(0) == UNSUPPORTED_FEATURE);
    CHECK(fake.runs == 1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t count = sizes[i][1];
        void **exact = calloc(count, sizeof *exact);
        CHECK(zeGetDriverProcAddrTable(1u << 16 | sizes[i][0], exact) == SUCCESS &&
              exact[0] == (void *)zeDriverGet && exact[count - 1]);
        free(exact);
    }
    /* it fills nothing, but some loaders want it */
    CHECK(zetGetDeviceProcAddrTable(1u << 16, &(void *){NULL}) == SUCCESS);
}
#elif !defined FL_PI
/* How many entries a getter writes: those that it leaves alone are told by writing over two
 * different values. */
static unsigned written(int32_t (*get)(uint32_t, void **)) {
    void *table[2][100];
    unsigned count = 0;
    for (int i = 0; i < 2; i++) {
        memset(table[i], i ? 0xff : 0, sizeof table[i]);
        CHECK(get(API_VERSION, table[i]) == SUCCESS);
    }
    while (count < 100 && table[0][count] == table[1][count])
        count++;
    return count;
}

/* Every table of every layout is complete, and written to its last entry and no further. */
static void layouts(void) {
    static int32_t (*const getters[])(uint32_t, void **) = {GETTERS};
    fake.initialized = 1;
    for (unsigned number = 0; fl_layouts[number]; number++) {
        setenv("FAIRLEAD_UR_LAYOUT", fl_layouts[number], 1);
        if (number)
            fl_shell_state.reset();
        CHECK(ask() == SUCCESS && chosen == number);
        unsigned all = 0;
        for (unsigned i = 0; i < sizeof getters / sizeof *getters; i++) {
            unsigned count = written(getters[i]);
            void **exact = malloc((count ? count : 1) * sizeof *exact);
            CHECK(getters[i](API_VERSION, exact) == SUCCESS);
            for (unsigned entry = 0; entry < count; entry++)
                CHECK(exact[entry]);
            free(exact);
            all += count;
        }
        CHECK(all > 200);
    }
    setenv("FAIRLEAD_UR_LAYOUT", "no such", 1);
    fl_shell_state.reset();
    CHECK(ask() == SUCCESS && chosen == 0);
}

static struct {
    bool is_null;
    uint32_t flags, cluster[3];
    size_t memory;
} launched;

static int32_t launch(uint32_t number, uintptr_t queue, uintptr_t kernel, uint32_t dimensions,
                      const size_t *offset, const size_t *size, const size_t *local,
                      const ur_kernel_launch_ext_properties_t *all, uint32_t wait_count,
                      const uintptr_t *waits, uintptr_t *event) {
    CHECK(number == 5 && queue == 1 && kernel == 2 && dimensions == 3 && !offset && size[0] == 4);
    CHECK(!local && wait_count == 1 && waits[0] == 6 && *event == 7);
    memset(&launched, 0, sizeof launched);
    launched.is_null = !all;
    if (!all)
        return SUCCESS;
    CHECK(all->stype == STYPE_LAUNCH);
    launched.flags = all->flags;
    for (uintptr_t next = all->pNext; next;) {
        const ur_kernel_launch_cluster_property_t *cluster = (void *)next;
        const ur_kernel_launch_workgroup_property_t *memory = (void *)next;
        CHECK(cluster->stype == STYPE_CLUSTER || memory->stype == STYPE_MEMORY);
        if (cluster->stype == STYPE_CLUSTER)
            memcpy(launched.cluster, cluster->clusterDim, sizeof launched.cluster);
        else
            launched.memory = memory->workgroup_mem_size;
        next = cluster->pNext;
    }
    return SUCCESS;
}

/* A launch of 2025.3 becomes one of today, with all its properties. */
static void launches_of_2025_3(void) {
    fake.initialized = 1;
    setenv("FAIRLEAD_UR_LAYOUT", "2025.3", 1);
    CHECK(ask() == SUCCESS);
    unsigned index = 0;
    while (strcmp(fl_names[index], "urEnqueueKernelLaunch") != 0)
        index++;
    size_t size[] = {4, 1, 1};
    uintptr_t waits[] = {6}, event = 7;
#define LAUNCH(count, list) \
    urEnqueueKernelLaunch_2025_3(1, 2, 3, NULL, size, NULL, count, list, 1, waits, &event)
    CHECK(LAUNCH(0, NULL) == UNSUPPORTED_FEATURE);
    bodies[index] = (void *)launch;
    CHECK(LAUNCH(0, NULL) == SUCCESS && launched.is_null);
    CHECK(LAUNCH(1, NULL) == NULL_POINTER);
    ur_kernel_launch_property_t all[] = {
        {.id = IGNORED},
        {.id = COOPERATIVE, .value.is_on = 1},
        {.id = CLUSTER, .value.cluster = {2, 3, 1}},
        {.id = MEMORY, .value.memory = 64},
        {.id = SERIALIZED, .value.is_on = 1},
        {.id = 9},
    };
    CHECK(LAUNCH(6, all) == INVALID_ENUMERATION);
    CHECK(LAUNCH(5, all) == SUCCESS && launched.memory == 64);
    CHECK(launched.flags == (FLAG_COOPERATIVE | FLAG_SERIALIZED));
    CHECK(launched.cluster[0] == 2 && launched.cluster[1] == 3 && launched.cluster[2] == 1);
    all[1].value.is_on = all[4].value.is_on = 0;
    CHECK(LAUNCH(2, all) == SUCCESS && !launched.is_null && !launched.flags);
    CHECK(!launched.memory && !launched.cluster[0]);
    CHECK(fl_absent() == UNSUPPORTED_FEATURE);
    fl_shell_state.close();
    CHECK(LAUNCH(0, NULL) == UNINITIALIZED && fl_absent() == UNINITIALIZED);
}
#endif

static void settings_are_read(void) {
    char value[8];
    const char *config = "FAIRLEAD\nname=x\nlonger=12345678\nempty=\n=none\nlast=1234567";
    CHECK(strcmp(setting(config, "name", value, sizeof value), "x") == 0);
    CHECK(strcmp(setting(config, "last", value, sizeof value), "1234567") == 0);
    CHECK(strcmp(setting(config, "longer", value, sizeof value), "") == 0);
    CHECK(strcmp(setting(config, "empty", value, sizeof value), "") == 0);
    CHECK(strcmp(setting(config, "nam", value, sizeof value), "") == 0);
    CHECK(strcmp(setting("", "name", value, sizeof value), "") == 0);
    CHECK(strcmp(setting("name=y", "name", value, sizeof value), "y") == 0);
}

static void programs_are_found(void) {
    char path[PATH_MAX];
    unsetenv("FAIRLEAD_PYTHON");
    CHECK(find_program("program=/bin/sh\n", path, sizeof path) && strcmp(path, "/bin/sh") == 0);
    CHECK(!find_program("program=/nowhere\n", path, sizeof path));
    CHECK(!find_program("", path, sizeof path));
    setenv("FAIRLEAD_PYTHON", "/nowhere", 1);
    CHECK(!find_program("program=/bin/sh\n", path, sizeof path));
    setenv("FAIRLEAD_PYTHON", "/bin/cat", 1);
    CHECK(find_program("program=/bin/sh\n", path, sizeof path) && strcmp(path, "/bin/cat") == 0);
    setenv("FAIRLEAD_PYTHON", "cat", 1);
    setenv("PATH", "/nowhere::/bin", 1);
    CHECK(find_program("", path, sizeof path) && strcmp(path, "/bin/cat") == 0);
    setenv("FAIRLEAD_PYTHON", "no such program", 1);
    CHECK(!find_program("program=/bin/sh\n", path, sizeof path));
    setenv("FAIRLEAD_PYTHON", "/bin", 1);   /* a folder can be executed, too */
    CHECK(!find_program("program=/bin/sh\n", path, sizeof path));
    CHECK(!ask_for_library("/no'where", path, sizeof path) &&
          !ask_for_library("/bin/true", path, sizeof path));
    CHECK(open_library("program=/bin/true\nlibrary=/nowhere.so", "/bin/true") == NULL);
    /* its name has no .so in it */
    CHECK(open_library("program=/bin/sh\nlibrary=/bin/sh", "/bin/sh") == NULL);
    sites("site=/somewhere", path, sizeof path);
    CHECK(strcmp(path, "/somewhere") == 0);
    /* Under valgrind a helper shares no memory, so it cannot tell which program it started. */
    if (strstr(getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "", "/vgpreload_"))
        return;
    CHECK(ask_for_library("/bin/echo", path, sizeof path) && strstr(path, "-Ic import") == path);
}

static void *first(void *unused) {
    (void)unused;
    CHECK(ask() == SUCCESS);
    for (int i = 0; i < 1000; i++)
        call(0), call(1);
    return NULL;
}

static void *closes(void *unused) {
    (void)unused;
    fl_shell_state.close();
    return NULL;
}

static void thread_many_first(void) {
    pthread_t threads[8], last;
    fake.initialized = 1;
    for (unsigned i = 0; i < 8; i++)
        CHECK(pthread_create(&threads[i], NULL, first, NULL) == 0);
    for (unsigned i = 0; i < 8; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(fake.runs == 1);
    CHECK(pthread_create(&last, NULL, closes, NULL) == 0);
    for (int i = 0; i < 1000; i++) {
        int32_t code = call(1);
        CHECK(code == UNSUPPORTED_FEATURE || code == UNINITIALIZED || code == SUCCESS);
    }
    CHECK(pthread_join(last, NULL) == 0);
}

/* --- counts --- */

enum { KIND = 3, NOT_HERE = -7, THREADS = 4, TIMES = 1000 };
static uintptr_t block;   /* kept, so that it is no leak */
static unsigned reaped, in_python;

static uintptr_t handle_at(unsigned index) { return block + index * sizeof(fl_handle); }

static int32_t python_body(uint32_t adapter, uintptr_t handle) {
    CHECK(adapter == 5);
    (void)handle;
    in_python++;
    return NOT_HERE;
}

static int32_t retain_it(uintptr_t handle) { return fl_entry_retain(5, handle, KIND, python_body); }
static int32_t release_it(uintptr_t handle) {
    return fl_entry_release(5, handle, KIND, python_body);
}

static void reap_all(void) {
    uint64_t last = 0;
    for (fl_handle *one = fl_take(); one; one = one->next, reaped++) {
        CHECK(fl_references((uintptr_t)one) == FL_GONE && !fl_end((uintptr_t)one) &&
              one->number > last);
        last = one->number;
    }
    CHECK(!*fl_gone());
}

static void begin_handles(unsigned count, int32_t references) {
    block = block ? block : fl_block(77);
    CHECK(block && ((fl_handle *)block)->table == 77 &&
          ((fl_handle *)handle_at(FL_BLOCK - 1))->table == 77);
    for (unsigned i = 0; i < count; i++)
        fl_begin(handle_at(i), i + 1, 5, KIND, references);
}

static void counts_by_python(void) {
    begin_handles(1, 0);
    uintptr_t handle = handle_at(0);
    CHECK(!fl_retain(handle) && fl_release(handle) == 0 && fl_own(handle) && !fl_own(handle) &&
          fl_references(handle) == 1);
    CHECK(fl_retain(handle) && fl_references(handle) == 2 && fl_release(handle) == 2 &&
          fl_release(handle) == 1 && fl_references(handle) == 0);
    CHECK(fl_end(handle) && !fl_end(0) && !fl_references(0) && !fl_own(0) && !fl_retain(0) &&
          !fl_release(0));
    fl_begin(handle, 1, 5, KIND, FL_FIXED);
    CHECK(fl_retain(handle) && fl_release(handle) == FL_FIXED && fl_references(handle) == 1 &&
          !fl_own(handle) && fl_end(handle));
}

/* What is not a handle of that kind and adapter goes to Python, and is not looked at. */
static void counts_of_what_is_no_handle(void) {
    begin_handles(3, 1);
    fl_end(handle_at(1));
    fl_begin(handle_at(2), 3, 5, KIND, 0);   /* lent */
    uintptr_t stack = (uintptr_t)&stack;
    const uintptr_t wrong[] = {0,
                               1,
                               0xdead0,
                               stack,
                               UINTPTR_MAX,
                               (uintptr_t)1 << 48,
                               handle_at(0) + 8,
                               handle_at(0) + 1,
                               handle_at(1),
                               handle_at(2),
                               block - sizeof(fl_handle),
                               handle_at(FL_BLOCK),
                               handle_at(FL_BLOCK - 1)};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(retain_it(wrong[i]) == NOT_HERE && release_it(wrong[i]) == NOT_HERE);
    CHECK(fl_entry_retain(5, handle_at(0), KIND + 1, python_body) == NOT_HERE &&
          fl_references(handle_at(0)) == 1);
    fl_begin(handle_at(1), 2, 6, KIND, 1);
    CHECK(retain_it(handle_at(1)) == NOT_HERE && retain_it(handle_at(0)) == 0 &&
          fl_references(handle_at(0)) == 2);
    fl_begin(handle_at(1), 2, 5, KIND, FL_FIXED);
    CHECK(retain_it(handle_at(1)) == 0 && release_it(handle_at(1)) == 0 &&
          release_it(handle_at(1)) == 0 && fl_references(handle_at(1)) == 1);
}

/* Who has the GIL, or may wait for it, has Python release the last reference; anybody else leaves
 * it to the main thread. */
static void the_last_reference(void) {
    begin_handles(4, 1);
    fl_counting(true, reap_all);
    CHECK(release_it(handle_at(0)) == NOT_HERE && fl_references(handle_at(0)) == 1);
    fl_counting(false, reap_all);
    has_gil = 1;
    CHECK(release_it(handle_at(0)) == NOT_HERE && fl_references(handle_at(0)) == 1 &&
          in_python == 2 && !fake.pending);
    has_gil = 0;
    fake.full = 1;
    CHECK(release_it(handle_at(0)) == 0 && *fl_gone() && fl_references(handle_at(0)) == FL_GONE &&
          in_python == 2 && !fake.pending);
    CHECK(retain_it(handle_at(0)) == NOT_HERE && release_it(handle_at(0)) == NOT_HERE);
    fake.full = 0;
    CHECK(release_it(handle_at(1)) == 0 && release_it(handle_at(2)) == 0 && fake.pending == 1);
    CHECK(fake.pending_call(NULL) == 0 && reaped == 3 && fl_references(handle_at(0)) == 0);
    CHECK(release_it(handle_at(3)) == 0 && fake.pending == 2 && fake.pending_call(NULL) == 0 &&
          reaped == 4);
}

static void *counts(void *unused) {
    (void)unused;
    for (unsigned i = 0; i < TIMES; i++)
        CHECK(retain_it(handle_at(i)) == 0);
    for (unsigned i = 0; i < 2 * TIMES; i++)
        CHECK(release_it(handle_at(i / 2)) == 0);
    return NULL;
}

static void thread_counts(void) {
    begin_handles(TIMES, THREADS);
    fl_counting(false, reap_all);
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, counts, NULL) == 0);
    unsigned taken = 0;
    while (taken < TIMES)
        for (fl_handle *one = fl_take(); one; one = one->next, taken++)
            CHECK(!fl_end((uintptr_t)one));
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(!*fl_gone() && !in_python && fake.pending == 1);
}

static const scenario scenarios[] = {
#define S(name) {#name, name},
    S(nothing_is_there) S(python_is_there) S(python_is_begun) S(entries_and_bodies)
        S(the_start_fails) S(the_start_asks_for_itself) S(the_end) S(wrong_calls)
        S(a_fork_while_it_starts)
            S(settings_are_read) S(programs_are_found) S(thread_many_first) S(counts_by_python)
                S(counts_of_what_is_no_handle) S(the_last_reference) S(thread_counts)
#ifdef FL_PI
                    S(straight_to_the_adapter)
#elif defined FL_ZE
                    S(versions)
#else
                    S(layouts) S(launches_of_2025_3)
#endif
};

int main(int count, char **words) {
    return RUN(scenarios, count, words);
}
