/* Finds or starts the Python that an adapter runs in (python.h). The order:
 *
 * 1. a Python of this process;
 * 2. the program that the environment variable FAIRLEAD_PYTHON names, by path or by a name on PATH;
 * 3. the program that the configuration names, if it exists;
 * 4. the Python of the environment that this file is installed in. */
#define _GNU_SOURCE
#include "python.h"

#include "../../../loader/base/native/unseen.h"

#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define PYTHON(X)                                           \
    X(int, Py_IsInitialized, (void))                        \
    X(void, Py_InitializeEx, (int))                         \
    X(wchar_t *, Py_DecodeLocale, (const char *, size_t *)) \
    X(void *, PyEval_SaveThread, (void))                    \
    X(void, PyEval_RestoreThread, (void *))                 \
    X(int, PyGILState_Check, (void))                        \
    X(void *, PyGILState_GetThisThreadState, (void))        \
    X(int, PyGILState_Ensure, (void))                       \
    X(void, PyGILState_Release, (int))                      \
    X(int, PyRun_SimpleStringFlags, (const char *, void *))

#define FIELD(type, name, parameters) type(*name) parameters;
#define NAME(type, name, parameters) #name,

struct python {
    PYTHON(FIELD)
};
static const char *const names[] = {PYTHON(NAME)};
static struct python py;   /* complete after fl_python_begin, and never changed again */
static _Atomic(bool) complete;

static bool bind_python(struct python *python, void *library) {
    void **into = (void **)python;
    for (unsigned i = 0; library && i < sizeof names / sizeof *names; i++)
        if (!(into[i] = dlsym(library, names[i])))
            return false;
    return library != NULL;
}

static void own_path(char *path) {
    Dl_info self;
    if (!dladdr((void *)own_path, &self) || !realpath(self.dli_fname, path))
        *path = 0;
}

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...) {
    char path[PATH_MAX];
    own_path(path);
    fprintf(stderr, "fairlead: %s cannot start: ", path);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* Returns the value of a line of the configuration, "" if there is none. */
static const char *setting(const char *config, const char *name, char *value, size_t size) {
    size_t length = strlen(name);
    for (const char *line = config; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == '=') {
            size_t all = strcspn(line + length + 1, "\n");
            if (all < size) {
                memcpy(value, line + length + 1, all);
                value[all] = 0;
                return value;
            }
        }
    }
    *value = 0;
    return value;
}

/* --- which Python --- */

static int is_python(struct dl_phdr_info *library, size_t size, void *path) {
    (void)size;
    const char *name = strrchr(library->dlpi_name, '/');
    if (!name || strncmp(name, "/libpython3.", 12) != 0 || !isdigit((unsigned char)name[12]))
        return 0;
    snprintf(path, PATH_MAX, "%s", library->dlpi_name);
    return 1;
}

/* Returns the library of a Python in this process, NULL if there is none. A library that was opened
 * with RTLD_LOCAL is made global, because extension modules need Python's symbols. */
static void *loaded_python(void) {
    void *all = dlopen(NULL, RTLD_LAZY);
    if (all && dlsym(all, names[0]))
        return all;
    char path[PATH_MAX] = "";
    dl_iterate_phdr(is_python, path);
    return *path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) : NULL;
}

/* Finds the Python of the environment that this file is in: PREFIX/lib/python3.12/site-packages/...
 * belongs to PREFIX/bin/python3.12. If there is none, a folder further up may have one. */
static bool find_above(char *program, size_t size) {
    char above[PATH_MAX], version[32] = "3";
    own_path(above);
    /* It stops before /bin, whose Python belongs to any environment. */
    for (char *slash; (slash = strrchr(above, '/')) && slash != above;) {
        if (strncmp(slash, "/python3.", 9) == 0)
            snprintf(version, sizeof version, "%s", slash + strlen("/python"));
        *slash = 0;
        if ((size_t)snprintf(program, size, "%s/bin/python%s", above, version) < size &&
            access(program, X_OK) == 0)
            return true;
    }
    return false;
}

static bool is_program(const char *path) {
    struct stat file;
    return stat(path, &file) == 0 && S_ISREG(file.st_mode) && access(path, X_OK) == 0;
}

/* Finds a program by a name without a slash, as a command shell does. */
static bool find_on_path(const char *name, char *program, size_t size) {
    const char *end, *folders = secure_getenv("PATH");
    for (const char *folder = folders ? folders : "/usr/local/bin:/usr/bin:/bin"; folder;
         folder = *end ? end + 1 : NULL) {
        end = strchrnul(folder, ':');
        const char *here = end == folder ? "." : "";   /* an empty one is the working directory */
        int length = snprintf(program, size, "%s%.*s/%s", here, (int)(end - folder), folder, name);
        if ((size_t)length < size && is_program(program))
            return true;
    }
    return false;
}

static bool find_program(const char *config, char *program, size_t size) {
    const char *named = secure_getenv("FAIRLEAD_PYTHON");
    if (named && *named) {
        bool bare = !strchr(named, '/');
        if (bare ? find_on_path(named, program, size)
                 : (size_t)snprintf(program, size, "%s", named) < size && is_program(program))
            return true;
        complain("FAIRLEAD_PYTHON is %s, which %s", named,
                 bare ? "is not a program on PATH" : "cannot be executed");
        return false;
    }
    if (access(setting(config, "program", program, size), X_OK) == 0 || find_above(program, size))
        return true;
    bool recorded = *setting(config, "program", program, size);
    complain("no Python was found%s%s; FAIRLEAD_PYTHON may name one in whose environment fairlead "
             "is installed",
             recorded ? ": there is no " : "", recorded ? program : "");
    return false;
}

/* Returns the seconds that a Python may take to answer, the same as for fairlead's probes. */
static double patience(void) {
    const char *text = secure_getenv("FAIRLEAD_PROBE_TIMEOUT");
    double seconds = text ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds < 1e6 ? seconds : 20;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Starts a program whose output is a pipe, without the libraries that are meant for this process.
 * The program that runs adapters sees no child of theirs (unseen.h). */
static void start(struct fl_unseen *it, int output) {
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    it->failed = ENOMEM;
    if (!(it->environment = malloc((count + 1) * sizeof *it->environment)))
        return;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "LD_LIBRARY_PATH=", 16) != 0 &&
            strncmp(environ[i], "LD_PRELOAD=", 11) != 0)
            it->environment[kept++] = environ[i];
    it->environment[kept] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
    it->files = &files;
    fl_start_unseen(it);
    posix_spawn_file_actions_destroy(&files);
    free(it->environment);
}

enum answer { SILENT, LATE, ANSWERED };

/* Reads the last line from a pipe. Other code of that Python's environment may print before it. */
static enum answer read_last_line(int pipe, double until, char *line, size_t size) {
    bool any = false, ended = false;
    size_t used = 0;
    char bytes[512];
    for (;;) {
        double left = until - now();
        struct pollfd reader = {.fd = pipe, .events = POLLIN};
        int ready = left > 0 ? poll(&reader, 1, (int)(1000 * left) + 1) : 0;
        ssize_t got = ready > 0 ? read(pipe, bytes, sizeof bytes) : ready;
        if (got < 0 && errno == EINTR)
            continue;
        if (ready == 0)
            return LATE;
        if (got <= 0)
            return any ? ANSWERED : SILENT;
        for (ssize_t i = 0; i < got; i++) {
            used = ended ? 0 : used;
            ended = bytes[i] == '\n';
            if (!ended && used + 1 < size)
                line[used++] = bytes[i];
            line[used] = 0;
        }
        any = true;
    }
}

/* Asks a Python where its library is. It takes about 20 ms, so it is done only if the configuration
 * does not say. */
static bool ask_for_library(const char *program, char *library, size_t size) {
    static const char question[] =
        "import os, sys, sysconfig; ask = sysconfig.get_config_var; name = ask('INSTSONAME') or '';"
        "paths = [os.path.join(d, name) for d in (ask('LIBDIR') or '', sys.base_prefix + '/lib')];"
        "print(next(filter(os.path.exists, paths), name))";
    const char *const arguments[] = {program, "-Ic", question, NULL};
    double limit = patience(), until = now() + limit;
    int ends[2];
    struct fl_unseen python = {.arguments = arguments};
    if (pipe2(ends, O_CLOEXEC)) {
        complain("no pipe could be opened to ask %s: %s", program, strerror(errno));
        return false;
    }
    start(&python, ends[1]);
    close(ends[1]);
    enum answer answer = python.failed ? SILENT : read_last_line(ends[0], until, library, size);
    close(ends[0]);
    if (python.failed) {
        complain("%s cannot be run: %s", program, strerror(python.failed));
        return false;
    }
    kill(-python.child, SIGKILL); /* what does not end after its answer */
    fl_reap_unseen(&python);
    if (answer == LATE)
        complain("%s did not say within %g s where its shared library is: is it a Python?", program,
                 limit);
    else if (answer == SILENT)
        complain("%s does not say where its shared library is: is it a Python?", program);
    return answer == ANSWERED;
}

/* Opens the library of a Python program globally, because extension modules need its symbols. */
static void *open_library(const char *config, const char *program) {
    char recorded[PATH_MAX], library[PATH_MAX];
    bool fits = strcmp(setting(config, "program", recorded, sizeof recorded), program) == 0 &&
                access(setting(config, "library", library, sizeof library), R_OK) == 0;
    if (!fits && !ask_for_library(program, library, sizeof library))
        return NULL;
    if (!strstr(library, ".so")) {
        complain("%s was built without a shared library (--enable-shared): it can serve only "
                 "programs that it runs",
                 program);
        return NULL;
    }
    void *opened = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
    if (!opened)
        complain("%s", dlerror());
    return opened;
}

static bool begin(const char *config) {
    void *library = loaded_python();
    if (bind_python(&py, library) && py.Py_IsInitialized())
        return true;
    char program[PATH_MAX];
    if (!find_program(config, program, sizeof program) ||
        (!library && !(library = open_library(config, program))))
        return false;
    void (*set_program)(const wchar_t *) = dlsym(library, "Py_SetProgramName"); /* until 3.14 */
    if (!bind_python(&py, library) || !set_program) {
        complain("the Python of %s is of an unknown version", program);
        return false;
    }
    int *ignore_environment = dlsym(library, "Py_IgnoreEnvironmentFlag");
    if (ignore_environment)
        *ignore_environment = 1; /* PYTHONHOME and PYTHONPATH are meant for the user's Python */
    set_program(py.Py_DecodeLocale(program, NULL)); /* Python finds its environment by it */
    struct sigaction interrupt; /* the host's; `import signal` takes SIGINT, so it is restored */
    sigaction(SIGINT, NULL, &interrupt);
    py.Py_InitializeEx(0);
    py.PyRun_SimpleStringFlags("import signal; begun_by_fairlead = True", NULL); /* for start.py */
    sigaction(SIGINT, &interrupt, NULL);
    py.PyEval_SaveThread();
    return true;
}

bool fl_python_begin(const char *config) {
    flockfile(stderr); /* a lock that all shells of a process share, because Python starts once */
    bool begun = begin(config);
    complete = begun;
    funlockfile(stderr);
    return begun;
}

/* --- the adapter --- */

/* Lists where fairlead may be if `import fairlead` does not find it: the configuration's folder,
 * and the folder whose package this file is in. */
static void sites(const char *config, char *list, size_t size) {
    static const char inside[] = "/fairlead/plugins/";
    setting(config, "site", list, size);
    char path[PATH_MAX];
    own_path(path);
    char *file = strrchr(path, '/');
    if (!file || (size_t)(file + 1 - path) < strlen(inside) ||
        strncmp(file + 1 - strlen(inside), inside, strlen(inside)) != 0)
        return;
    file[1 - (ptrdiff_t)strlen(inside)] = 0;
    size_t used = strlen(list);
    snprintf(list + used, size - used, "\n%s", path);
}

bool fl_python_start(const char *config, const char *module, void *address) {
    static const char format[] =
        "exec('''\n"
        "import sys\n"
        "try:\n"
        "    try:\n"
        "        import fairlead\n"
        "    except ImportError:\n"
        "        import ctypes, os, site\n"
        "        for place in os.fsdecode(ctypes.string_at(%ju)).split(chr(10)):\n"
        "            if os.path.isdir(place): site.addsitedir(place)\n"
        "    try:\n"
        "        from %s import start\n"
        "    except ImportError as error:\n"
        "        which = f'Python {sys.version.split()[0]} of {sys.prefix}'\n"
        "        why = f'fairlead cannot be used by {which}: install it there'\n"
        "        raise ImportError(why) from error\n"
        "    try:\n"
        "        start(%ju)\n"
        "    except SystemExit as error:\n" /* otherwise the host would end */
        "        raise ImportError(f'the module ends the process: {error!r}') from None\n"
        "except BaseException as error:\n"
        "    import ctypes, traceback\n"
        "    why = traceback.format_exception_only(error)[-1].split()\n"
        "    why = ' '.join(why).encode(errors='replace')[:%zu]\n"
        "    ctypes.memmove(%ju, why, len(why))\n"
        "    raise\n"
        "''', {'__name__': 'fairlead_shell'})\n";
    char places[2 * PATH_MAX + 1], code[sizeof format + 256];
    sites(config, places, sizeof places);
    char why[512] = ""; /* the last line of the traceback */
    snprintf(code, sizeof code, format, (uintmax_t)(uintptr_t)places, module,
             (uintmax_t)(uintptr_t)address, sizeof why - 1, (uintmax_t)(uintptr_t)why);
    int gil = py.PyGILState_Ensure();
    int failed = py.PyRun_SimpleStringFlags(code, NULL);
    py.PyGILState_Release(gil);
    if (failed)
        complain("%s", *why ? why : "see above");
    return !failed;
}

bool fl_python_lives(void) { return py.Py_IsInitialized && py.Py_IsInitialized(); }

/* Returns the functions of the process's Python, NULL if there is none. */
static const struct python *find_functions(struct python *room) {
    return complete ? &py : bind_python(room, loaded_python()) ? room : NULL;
}

void *fl_python_release(void) {
    struct python room;
    const struct python *python = find_functions(&room);
    /* With sub-interpreters PyGILState_Check says yes in every thread. */
    bool has = python && python->Py_IsInitialized() && python->PyGILState_GetThisThreadState() &&
               python->PyGILState_Check();
    return has ? python->PyEval_SaveThread() : NULL;
}

void fl_python_restore(void *thread) {
    struct python room;
    const struct python *python = thread ? find_functions(&room) : NULL;
    if (python)
        python->PyEval_RestoreThread(thread);
}
