/* The C of libOpenCL.so.1 and of the layers that trace and record, without Python: this program has
 * the loader in it. Drivers are tests/fake/driver.c, beside the program.
 *
 * `check` runs all scenarios, each in a process of its own, `check NAME…` those whose names begin
 * so. */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>

#include "opencl_abi.h"

#include "no_memory.h"
#include "../processes.h"

#define OK(call) CHECK((call) == CL_SUCCESS)
enum { MOST = 16, THREADS = 8, ROUNDS = 100, NO_PLATFORM = -1001 };

fn_clGetPlatformIDs clGetPlatformIDs;
fn_clGetPlatformInfo clGetPlatformInfo;
fn_clGetDeviceIDs clGetDeviceIDs;
fn_clCreateContext clCreateContext;
fn_clReleaseContext clReleaseContext;
fn_clCreateCommandQueue clCreateCommandQueue;
fn_clFinish clFinish;
fn_clGetHostTimer clGetHostTimer;
fn_clReleaseCommandQueue clReleaseCommandQueue;
fn_clGetExtensionFunctionAddress clGetExtensionFunctionAddress;

static char folder[PATH_MAX]; /* of this program, its drivers and layers */
static cl_platform_id platforms[MOST];

/* The drivers or layers of a list are those that `variable` names. */
static void name_files(const char *variable, const char *list) {
    char *text = NULL, copy[256];
    size_t size;
    FILE *into = open_memstream(&text, &size);
    snprintf(copy, sizeof copy, "%s", list);
    for (char *rest = copy, *name; (name = strsep(&rest, " "));)
        fprintf(into, "%s%s/%s.so", name == copy ? "" : ":", folder, name);
    fclose(into);
    setenv(variable, text, 1);
    free(text);
}

static cl_uint count_platforms(void) {
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(MOST, platforms, &count);
    CHECK(code == (count ? CL_SUCCESS : NO_PLATFORM));
    return count;
}

static void use(cl_platform_id platform) {
    char name[64];
    cl_device_id device;
    cl_ulong time;
    cl_int code;
    OK(clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    CHECK(clGetHostTimer(device, &time) == CL_INVALID_OPERATION); /* a short table has no slot */
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    OK(code);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    OK(code);
    OK(clFinish(queue));
    OK(clReleaseCommandQueue(queue));
    OK(clReleaseContext(context));
}

static void use_all(cl_uint expected) {
    CHECK(count_platforms() == expected);
    for (cl_uint i = 0; i < expected; i++)
        use(platforms[i]);
}

static void in_child(void work(void)) {
    int status = 1;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        work();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && !status);
}

static void on_threads(void *work(void *)) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, work, NULL));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_join(threads[i], NULL));
}

/* --- scenarios --- */

static void no_driver(void) {
    name_files("OCL_ICD_VENDORS", "none");
    CHECK(count_platforms() == 0 && count_platforms() == 0);
}

static void use_each(void) { use_all(2); }

static void several_drivers(void) {
    name_files("OCL_ICD_VENDORS", "one two");
    use_each();
    CHECK(clGetExtensionFunctionAddress("clIcdGetPlatformIDsKHR") == NULL);
}

static void broken_drivers(void) {
    name_files("OCL_ICD_VENDORS", "none old refuses empty short two old");
    use_each();
}

static void forked_children(void) {
    name_files("OCL_ICD_VENDORS", "one two");
    in_child(use_each);
    use_each();
    in_child(use_each);
}

/* --- layers --- */

static char written[PATH_MAX + 32]; /* the folder of what the layers write */

static void use_layers(const char *drivers) {
    char path[sizeof written + 16];
    name_files("OCL_ICD_VENDORS", drivers);
    name_files("OPENCL_LAYERS", "trace record");
    snprintf(written, sizeof written, "%s/written.%d", folder, (int)getpid());
    CHECK(!mkdir(written, 0700));
    setenv("FAIRLEAD_RECORD", written, 1);
    snprintf(path, sizeof path, "%s/%%p.trace", written);
    setenv("FAIRLEAD_TRACE_LOG", path, 1);
}

/* How many files the layers have written. Nothing of them stays. */
static int take_files(void) {
    int count = 0;
    DIR *listed = opendir(written);
    CHECK(listed);
    for (struct dirent *entry; (entry = readdir(listed));)
        if (*entry->d_name != '.')
            count += !unlinkat(dirfd(listed), entry->d_name, 0);
    closedir(listed);
    CHECK(!rmdir(written));
    return count;
}

static void layers(void) {
    use_layers("one two");
    use_each();
    in_child(use_each);
    CHECK(take_files() >= 2);
}

/* Each allocation of the loader and of the layers fails once. They work without it, or are left
 * out. */
static int allocation;
static void use_without_memory(void) {
    memory_fails(allocation, false);
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(MOST, platforms, &count);
    for (cl_uint i = 0; !code && i < count; i++)
        use(platforms[i]);
    if (!memory_has_failed()) {
        CHECK(!code && count == 2);
        exit(3);
    }
}

static void no_memory(void) {
    int status = 0;
    use_layers("old two");
    for (; !status; allocation++) {
        fflush(NULL);
        pid_t child = fork();
        if (!child) {
            use_without_memory();
            exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
    }
    take_files();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3 && allocation > 15);
}

/* --- threads --- */

static void *first(void *nothing) {
    cl_platform_id mine[MOST];
    cl_uint count = 0;
    OK(clGetPlatformIDs(MOST, mine, &count));
    CHECK(count == 2);
    for (int i = 0; i < ROUNDS; i++)
        use(mine[i % 2]);
    return nothing;
}

/* All threads make the first call. */
static void thread_first(void) {
    name_files("OCL_ICD_VENDORS", "one two");
    on_threads(first);
}

static void thread_layers(void) {
    use_layers("one two");
    on_threads(first);
    take_files();
}

/* --- */

#define S(name) {#name, name},
static const scenario scenarios[] = {S(no_driver) S(several_drivers) S(broken_drivers)
                                         S(forked_children) S(layers) S(no_memory) S(thread_first)
                                             S(thread_layers)};

int main(int count, char **words) {
    CHECK(realpath(words[0], folder) && strrchr(folder, '/'));
    *strrchr(folder, '/') = '\0';
    setenv("FAIRLEAD_PYTHON", "0", 1); /* no verdicts of a Python */
    setenv("XDG_CACHE_HOME", folder, 1);
    unsetenv("OCL_ICD_FILENAMES"), unsetenv("OPENCL_LAYERS"), unsetenv("OPENCL_LAYER_PATH");
    return RUN(scenarios, count, words);
}
