/* Which drivers Python found sound, and what it repairs: read from a file that Python wrote, so
 * that most processes start no Python.
 *
 * The file begins with a key: this machine's name, the Python, and the variables that the search
 * depends on. Its name is a hash of the key. A `file` line for each file and folder that the search
 * looked at says when it was changed last. If one has changed, or there is no such file, a child
 * process starts Python, which writes it anew. icd/libopencl/verdict_file.py describes the lines.
 */
#define _GNU_SOURCE
#include "../../../loader/base/native/unseen.h"
#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum {
    MOST_BYTES = 1 << 22,
    PATIENCE = 300 /* seconds for Python, which has time limits of its own for every driver */
};

#define HEAD "fairlead drivers 1\n"
/* Set by fairlead: in the Python that this file starts, and in the programs that `fairlead run`
 * starts. */
#define IN_CHILD "FAIRLEAD_LIBOPENCL_CHILD"
#define OUR_PYTHON "FAIRLEAD_LIBOPENCL_PYTHON"

extern char **environ;

/* What the search depends on, and whether relative paths can be in it. */
static const struct {
    const char *name;
    bool has_paths;
} variables[] = {{"OCL_ICD_FILENAMES", true},      {"OCL_ICD_VENDORS", true},
                 {"OPENCL_VENDOR_PATH", true},     {"PYOPENCL_HOME", true},
                 {"LD_LIBRARY_PATH", true},        {"OCL_ICD_PLATFORM_SORT", false},
                 {"FAIRLEAD_EXCLUDE", false},      {"FAIRLEAD_QUIRKS", false},
                 {"FAIRLEAD_PROBE", false},        {"OCL_ICD_ASSUME_ICD_EXTENSION", false}};

/* What the child does not get: it would load layers, us or the program's own libraries into Python.
 */
static const char *const withheld[] = {
    "LD_PRELOAD=", "OPENCL_LAYERS=", "OPENCL_LAYER_PATH=", "LD_AUDIT=", "FAIRLEAD_TRACE="};

/* An empty part of LD_LIBRARY_PATH is the current directory, and ';' separates, too. */
static bool has_relative_path(const char *list) {
    for (const char *part = list; part; part = strpbrk(part, ":;"))
        if (part += part != list, *part != '/')
            return true;
    return false;
}

/* HEAD and the key, to be freed: what the answer of this Python depends on. */
static char *make_key(const char *python) {
    struct utsname machine;
    char *text = NULL, here[PATH_MAX];
    size_t size;
    FILE *out = uname(&machine) ? NULL : open_memstream(&text, &size);
    if (!out)
        return NULL;
    const char *path = strchr(python, '/') ? NULL : secure_getenv("PATH");
    bool relative = *python != '/';
    fprintf(out, HEAD "host %s\npython %s\n", machine.nodename, python);
    if (path)
        fprintf(out, "variable PATH=%s\n", path);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = secure_getenv(variables[i].name);
        if (!value || !*value)
            continue;
        fprintf(out, "variable %s=%s\n", variables[i].name, value);
        relative |= variables[i].has_paths && has_relative_path(value);
    }
    if (relative && getcwd(here, sizeof here))
        fprintf(out, "here %s\n", here);
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

/* The name of the verdict file: a hash of its key (FNV-1a). */
static void name_file(const char *key, char name[32]) {
    uint64_t hash = 14695981039346656037u;
    for (const char *at = key; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 1099511628211u;
    sprintf(name, "%016llx", (unsigned long long)hash);
}

/* --- the folder of verdicts: the rules of loader/base/own_files.py --- */

/* Whether root may keep something in a directory: it, or what it would be made in, is root's. */
static bool is_root_s(const char *path) {
    char place[PATH_MAX];
    struct stat status;
    if (snprintf(place, sizeof place, "%s", path) >= (int)sizeof place)
        return false;
    while (stat(place, &status)) {
        char *slash = strrchr(place, '/');
        if (!slash || !place[1])
            return false;
        slash[slash == place] = '\0';
    }
    return status.st_uid == 0;
}

/* A folder of this user that no other may enter, in an open one, which is closed. */
static int open_own(int inside, const char *name, bool make) {
    struct stat status;
    if (make && inside >= 0)
        mkdirat(inside, name, 0700);
    int folder = inside < 0
                     ? -1
                     : openat(inside, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inside >= 0)
        close(inside);
    if (folder >= 0 && (fstat(folder, &status) || status.st_uid != geteuid() ||
                        ((status.st_mode & 077) && fchmod(folder, 0700)))) {
        close(folder);
        folder = -1;
    }
    return folder;
}

/* The folder, opened. -1 if there is none, or if this user has no cache. */
static int open_folder(bool make) {
    const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME"),
               *named = cache && *cache ? cache : home;
    char base[PATH_MAX];
    if (!named || *named != '/' || (geteuid() == 0 && !is_root_s(named)) ||
        snprintf(base, sizeof base, "%s%s", named, named == home ? "/.cache" : "") >=
            (int)sizeof base)
        return -1;
    for (char *slash = base; make && slash; slash = strchr(slash + 1, '/')) {
        if (slash == base)
            continue;
        *slash = '\0';
        mkdir(base, 0700);
        *slash = '/';
    }
    if (make)
        mkdir(base, 0700);
    int folder = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return open_own(open_own(folder, "fairlead", make), "drivers", make);
}

/* The text of a descriptor, `most` bytes at most, to be freed. It is closed. */
static char *read_all(int file, size_t most, const struct timespec *deadline) {
    char *text = malloc(most + 1);
    size_t size = 0;
    ssize_t got = 0;
    for (struct timespec now; text && size < most; size += got > 0 ? (size_t)got : 0) {
        struct pollfd ready = {file, POLLIN, 0};
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (deadline && now.tv_sec > deadline->tv_sec) {
            got = -1;
            break;
        }
        if (deadline && poll(&ready, 1, 1000) <= 0) {
            got = 0;
            continue;
        }
        got = read(file, text + size, most - size);
        if (got == 0 || (got < 0 && errno != EINTR))
            break;
    }
    close(file);
    if (text && got < 0) {
        free(text);
        return NULL;
    }
    if (text)
        text[size] = '\0';
    return text;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* Whether a verdict is whole, and about this key. */
static bool is_whole(const char *text, const char *key) {
    size_t size = text ? strlen(text) : 0;
    return text && begins(text, key) && size >= 5 && strcmp(text + size - 5, "\nend\n") == 0;
}

/* "MTIME INODE SIZE PATH" of a file line, 0 0 0 for what does not exist. */
static bool is_unchanged(const char *facts) {
    char *at, name[PATH_MAX];
    struct stat status;
    long long when = strtoll(facts, &at, 10), number = strtoll(at, &at, 10),
              bytes = strtoll(at, &at, 10);
    size_t length = *at == ' ' ? strcspn(++at, "\n") : 0;
    if (!length || length >= sizeof name)
        return false;
    *(char *)mempcpy(name, at, length) = '\0';
    if (stat(name, &status))
        return !when && !number;
    return when == status.st_mtim.tv_sec * 1000000000ll + status.st_mtim.tv_nsec &&
           number == (long long)status.st_ino && bytes == (long long)status.st_size;
}

static bool is_fresh(const char *facts) {
    for (const char *line = facts; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (begins(line, "file ") && !is_unchanged(line + strlen("file ")))
            return false;
        if (begins(line, "until ")) {
            long long until = atoll(line + strlen("until "));
            if (time(NULL) >= until || time(NULL) < until - 3600)
                return false;
        }
    }
    return true;
}

/* The verdict in a file that only this user could write, to be freed; NULL if there is none that
 * holds. */
static char *read_verdict(int folder, const char *name, const char *key) {
    struct stat status;
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    int file = folder < 0 ? -1 : openat(folder, name, flags);
    if (file < 0)
        return NULL;
    if (fstat(file, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & 022) || status.st_size > MOST_BYTES) {
        close(file);
        return NULL;
    }
    char *text = read_all(file, (size_t)status.st_size, NULL);
    if (is_whole(text, key) && is_fresh(text + strlen(key)))
        return text;
    free(text);
    return NULL;
}

/* --- Python --- */

/* What Python runs, which lies beside us, and where it finds fairlead: our path up to there is
 * `…/fairlead/icd/libopencl/libOpenCL.so.1`, in the tree without `fairlead`. */
static void find_root(char root[PATH_MAX], char script[PATH_MAX + 16]) {
    Dl_info info;
    *root = *script = '\0';
    if (!dladdr((void *)find_root, &info) || !realpath(info.dli_fname, root))
        return;
    for (int i = 0; i < 3; i++) {
        if (strrchr(root, '/'))
            *strrchr(root, '/') = '\0';
        if (i == 0)
            snprintf(script, PATH_MAX + 16, "%s/start.py", root);
    }
    char *last = strrchr(root, '/');
    if (last && strcmp(last, "/fairlead") == 0)
        *last = '\0';
}

/* Python's path, or a name on PATH; "" if there is none. */
static void find_python(const char *root, char *python, size_t size) {
    const char *asked = secure_getenv("FAIRLEAD_PYTHON"),
               *named = asked && *asked ? asked : secure_getenv(OUR_PYTHON),
               *lib = strstr(root, "/lib/python");
    if (!lib)
        lib = strstr(root, "/lib64/python");
    snprintf(python, size, "%s", named ? named : "");
    if (named)
        return;
#ifdef FL_PYTHON
    snprintf(python, size, "%s", FL_PYTHON);
    if (access(python, X_OK) == 0)
        return;
#endif
    const char *name = lib ? strstr(lib, "python") : "";
    int version = (int)strcspn(name, "/");
    const char *const places[] = {"", "/usr/local", "/usr"};
    for (size_t i = 0; lib && i < sizeof places / sizeof *places; i++) {
        int prefix = i ? (int)strlen(places[i]) : (int)(lib - root);
        snprintf(python, size, "%.*s/bin/%.*s", prefix, i ? places[i] : root, version, name);
        if (access(python, X_OK) == 0)
            return;
    }
    *python = '\0';
}

static char **child_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **made = malloc((count + 2) * sizeof *made);
    for (size_t i = 0; made && i < count; i++) {
        bool keep = true;
        for (size_t j = 0; j < sizeof withheld / sizeof *withheld; j++)
            keep &= !begins(environ[i], withheld[j]);
        if (keep)
            made[kept++] = environ[i];
    }
    if (made)
        made[kept++] = IN_CHILD "=1", made[kept] = NULL;
    return made;
}

/* The part of a text that a verdict is: what is installed in Python may print something before it.
 */
static char *behind_noise(char *text, const char *key) {
    char *start = text ? strstr(text, key) : NULL;
    if (start)
        memmove(text, start, strlen(start) + 1);
    return text;
}

/* Held while a descriptor is opened or closed that a fork must not have: the end of the pipe that
 * Python writes to, and the file of the guard. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static int guard = -1; /* the file whose lock says that this process asks Python */

void fl_before_fork(void) { pthread_mutex_lock(&opening); }

void fl_after_fork(bool is_child) {
    if (is_child && guard >= 0) {
        close(guard);
        guard = -1;
    }
    pthread_mutex_unlock(&opening);
}

/* What Python prints, to be freed; NULL and errno if it could not be started. Its signals and
 * descriptors are its own. */
static char *run_python(const char *python, const char *script, const char *root, const char *name,
                        const char *key) {
    const char *const arguments[] = {python, "-ISu", script, root, name, key, NULL};
    int ends[2];
    struct timespec deadline;
    posix_spawn_file_actions_t files;
    struct fl_unseen it = {
        .arguments = arguments, .environment = child_environment(), .files = &files};
    pthread_mutex_lock(&opening);
    if (!it.environment || pipe2(ends, O_CLOEXEC)) {
        pthread_mutex_unlock(&opening);
        free(it.environment);
        return NULL;
    }
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += PATIENCE;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    fl_start_unseen(&it);
    posix_spawn_file_actions_destroy(&files);
    free(it.environment);
    close(ends[1]);
    pthread_mutex_unlock(&opening);
    if (it.failed) {
        close(ends[0]);
        errno = it.failed;
        return NULL;
    }
    char *text = read_all(ends[0], MOST_BYTES, &deadline);
    if (!text && it.child > 0)
        kill(-it.child, SIGKILL);
    fl_reap_unseen(&it);
    errno = 0;
    return text;
}

static void drop_guard(void) {
    FL_HOLD(opening);
    if (guard >= 0)
        close(guard);
    guard = -1;
}

/* Wait until no other process asks Python; a process that stands still is waited for no longer than
 * a Python. Where files cannot be locked, as on some network's, nobody is waited for. */
static void take_guard(int folder, const char *file) {
    char name[48];
    const struct timespec pause = {0, 5000000};
    if (folder < 0)
        return;
    snprintf(name, sizeof name, "%s.lock", file);
    pthread_mutex_lock(&opening);
    guard = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    pthread_mutex_unlock(&opening);
    for (long tries = 0; guard >= 0 && flock(guard, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK &&
                         tries < PATIENCE * 200;
         tries++)
        nanosleep(&pause, NULL);
}

/* A new verdict, to be freed. Of several processes at once, one asks Python. */
static char *ask_python(const char *python, const char *script, const char *root, const char *name,
                        const char *key) {
    int folder = open_folder(true), error = 0;
    take_guard(folder, name);
    char *text = read_verdict(folder, name, key);
    if (!text && *python &&
        !is_whole(text = behind_noise(run_python(python, script, root, folder < 0 ? "" : name, key),
                                      key),
                  key)) {
        error = text ? 0 : errno;
        free(text);
        text = NULL;
    }
    if (folder >= 0)
        close(folder);
    drop_guard();
    static const char rest[] =
        "OpenCL drivers are looked for by the plain rules, and none is tried first or repaired";
    if (!text && !*python)
        fl_say("no Python was found: %s", rest);
    else if (!text && error)
        fl_say("%s cannot be started (%s): %s", python, strerror(error), rest);
    else if (!text)
        fl_say("%s does not run fairlead (`%s -m fairlead doctor` may say why): %s", python, python,
               rest);
    return text;
}

/* --- what a verdict says --- */

/* Python had all functions of the drivers found, so here they may be found when they are called. */
static void obey(char *facts) {
    cl_uint first = 0;
    unsigned triple, cpu;
    char level[32];
    for (char *line, *rest = facts; (line = strsep(&rest, "\n"));) {
        if (begins(line, "file "))
            continue;
        if (begins(line, "driver "))
            first = fl_platform_count, fl_open_driver(line + strlen("driver "), false, RTLD_LAZY);
        else if (begins(line, "siblings "))
            first = fl_platform_count, fl_open_driver(line + strlen("siblings "), true, RTLD_NOW);
        else if (begins(line, "cpu ") && sscanf(line, "cpu %u %u %31s", &triple, &cpu, level) == 3)
            fl_name_cpus(first, triple, cpu, level);
        else if (begins(line, "refused "))
            fl_note("%s", line + strlen("refused "));
    }
}

bool fl_use_verdict(void) {
    if (getauxval(AT_SECURE) ||
        getenv(IN_CHILD)) /* the user's files say nothing about such a program */
        return false;
    char root[PATH_MAX], script[PATH_MAX + 16], python[PATH_MAX], name[32];
    find_root(root, script);
    find_python(root, python, sizeof python);
    if (strcmp(python, "0") == 0) /* nobody wants one */
        return false;
    char *key = make_key(python), *text = NULL;
    if (key) {
        name_file(key, name);
        int folder = open_folder(false);
        text = read_verdict(folder, name, key);
        if (folder >= 0)
            close(folder);
        if (!text)
            text = ask_python(python, script, root, name, key);
    }
    if (text)
        obey(text + strlen(key));
    free(key);
    bool found = text != NULL;
    free(text);
    return found;
}
