/* An OpenCL program that knows nothing of fairlead, and prints what it sees. The first argument
 * says what it does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "opencl_abi.h"

fn_clGetPlatformIDs clGetPlatformIDs;
fn_clGetPlatformInfo clGetPlatformInfo;
fn_clGetDeviceIDs clGetDeviceIDs;
fn_clGetDeviceInfo clGetDeviceInfo;
fn_clCreateContext clCreateContext;
fn_clCreateContextFromType clCreateContextFromType;
fn_clReleaseContext clReleaseContext;
fn_clCreateCommandQueue clCreateCommandQueue;
fn_clFinish clFinish;
fn_clReleaseCommandQueue clReleaseCommandQueue;
fn_clGetKernelSuggestedLocalWorkSize clGetKernelSuggestedLocalWorkSize;
fn_clSetCommandQueueProperty clSetCommandQueueProperty;
fn_clCreateSampler clCreateSampler;
fn_clSVMAlloc clSVMAlloc;
fn_clGetExtensionFunctionAddress clGetExtensionFunctionAddress;
fn_clGetExtensionFunctionAddressForPlatform clGetExtensionFunctionAddressForPlatform;
fn_clUnloadPlatformCompiler clUnloadPlatformCompiler;

static cl_platform_id platforms[1024];
static cl_context context;
static cl_command_queue queue;

static cl_uint list(void) {
    cl_uint count = 0;
    cl_int code = clGetPlatformIDs(1024, platforms, &count);
    if (code)
        printf("clGetPlatformIDs %d, %u platforms\n", code, count);
    return count;
}

static void name_platforms(void) {
    char name[100] = "";
    cl_uint count = list();
    for (cl_uint i = 0; i < count; i++) {
        cl_int code = clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof name, name, NULL);
        printf("%s%s", i ? ", " : "", code ? "?" : name);
    }
    printf("\n");
    fflush(stdout);
}

static void make_queue(cl_platform_id platform) {
    cl_device_id device;
    cl_int code = clGetDeviceIDs(platform, 0xFFFFFFFF, 1, &device, NULL);
    if (!code)
        context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (!code)
        queue = clCreateCommandQueue(context, device, 0, &code);
    if (code)
        printf("no queue: %d\n", code);
}

static void use(void) {
    cl_uint count = list();
    size_t size = 1;
    for (cl_uint i = 0; i < count; i++) {
        make_queue(platforms[i]);
        printf("%d %d %d ", clFinish(queue),
               clGetKernelSuggestedLocalWorkSize(queue, NULL, 1, NULL, &size, &size),
               clSetCommandQueueProperty(queue, 0, 0, NULL));
        cl_int code = 1;
        void *sampler = clCreateSampler(context, 0, 0, 0, &code);
        printf("%d %d ", sampler == NULL, code);
        printf("%d ", clReleaseCommandQueue(queue));
        printf("%d\n", clReleaseContext(context));
        queue = NULL;
    }
}

static void *in_thread(void *start) {
    pthread_barrier_wait(start);
    cl_uint count = 0;
    return (void *)(intptr_t)(clGetPlatformIDs(0, NULL, &count) ? -1 : (int)count);
}

static void threads(int number) {
    pthread_t thread[64];
    pthread_barrier_t start;
    void *count;
    pthread_barrier_init(&start, NULL, (unsigned)number);
    for (int i = 0; i < number; i++)
        pthread_create(&thread[i], NULL, in_thread, &start);
    for (int i = 0; i < number; i++) {
        pthread_join(thread[i], &count);
        printf("%d ", (int)(intptr_t)count);
    }
    printf("\n");
}

/* A child, and what became of it. */
static void fork_and_name(void) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        name_platforms();
        exit(0);
    }
    waitpid(child, &status, 0);
    printf("child %d\n", status);
    fflush(stdout);
}

static void still_works(void) {
    printf("%d ", clFinish(queue));
    printf("%d\n", clReleaseCommandQueue(queue));
}

__attribute__((destructor)) static void end(void) {
    if (queue)
        printf("%d\n", clReleaseContext(context));
}

static void reopen(const char *library) {
    for (int i = 0; i < 10; i++) {
        void *opencl = dlopen(library, RTLD_NOW);
        cl_uint count = 0;
        fn_clGetPlatformIDs *get = (fn_clGetPlatformIDs *)dlsym(opencl, "clGetPlatformIDs");
        printf("%d", get(0, NULL, &count));
        printf("%u ", count);
        dlclose(opencl);
    }
    printf("\n");
}

/* Another loader in this process, before or after ours was started, and unloaded while objects
 * live. */
static void two_loaders(const char *library, int other_first) {
    if (!other_first)
        name_platforms();
    void *other = dlopen(library, RTLD_NOW | RTLD_LOCAL), *theirs[1024];
    cl_uint count = 0;
    fn_clGetPlatformIDs *ids = (fn_clGetPlatformIDs *)dlsym(other, "clGetPlatformIDs");
    fn_clGetDeviceIDs *devices = (fn_clGetDeviceIDs *)dlsym(other, "clGetDeviceIDs");
    printf("%d ", ids(1024, (cl_platform_id *)theirs, &count));
    printf("%u ", count);
    if (other_first)
        list();
    for (cl_uint i = 0; i < count; i++) {
        cl_device_id device = NULL;
        printf("%d ", devices(theirs[i], 0xFFFFFFFF, 1, &device, NULL));
        make_queue(theirs[i]);
        printf("%d ", clFinish(queue));
    }
    dlclose(other);
    printf("%d ", clFinish(queue));
    printf("%d ", clReleaseCommandQueue(queue));
    printf("%d\n", clReleaseContext(context));
    queue = NULL;
    use();
}

/* Another loader comes and goes while ours looks away. */
static void passing_loader(const char *library) {
    name_platforms();
    void *other = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    cl_uint count = 0;
    printf("%d ", ((fn_clGetPlatformIDs *)dlsym(other, "clGetPlatformIDs"))(0, NULL, &count));
    printf("%d\n", dlclose(other));
    name_platforms();
    use();
}

/* A thread starts while this one forks; the child starts, too. */
static void *start_in_thread(void *nothing) {
    list();
    return nothing;
}

static void fork_while_starting(void) {
    pthread_t thread;
    int status = 0;
    pthread_create(&thread, NULL, start_in_thread, NULL);
    struct timespec moment = {0, 1000000};
    nanosleep(&moment, NULL);
    pid_t child = fork();
    if (!child) {
        name_platforms();
        exit(0);
    }
    waitpid(child, &status, 0);
    pthread_join(thread, NULL);
    printf("%d ", status);
    name_platforms();
}

static void null_platform(void) {
    char name[100] = "";
    cl_int code = clGetPlatformInfo(NULL, CL_PLATFORM_NAME, sizeof name, name, NULL), made = 0;
    cl_uint count = 0;
    cl_context_properties nothing[] = {0}, none[] = {0x1084, 0, 0};
    printf("%d %s, %d, ", code, name, clGetDeviceIDs(NULL, 0xFFFFFFFF, 0, NULL, &count));
    clCreateContextFromType(NULL, 0xFFFFFFFF, NULL, NULL, &made);
    printf("%d ", made);
    clCreateContextFromType(nothing, 0xFFFFFFFF, NULL, NULL, &made);
    printf("%d ", made);
    clCreateContextFromType(none, 0xFFFFFFFF, NULL, NULL, &made);
    printf("%d, %d %d\n", made, clUnloadPlatformCompiler(NULL),
           clGetExtensionFunctionAddressForPlatform(NULL, "clFakeFunctionFAKE") != NULL);
}

static void extension(const char *name) {
    printf("%d ", clGetExtensionFunctionAddress(name) != NULL);
    list();
    printf("%d\n", clGetExtensionFunctionAddressForPlatform(platforms[0], name) != NULL);
}

static void loader_info(void) {
    typedef cl_int function(cl_uint, size_t, void *, size_t *);
    function *ask = (function *)clGetExtensionFunctionAddress("clGetICDLoaderInfoOCLICD");
    char text[100];
    size_t size = 0;
    for (cl_uint name = 1; name < 5; name++) {
        printf("%d ", ask(name, sizeof text, text, &size));
        printf("%s %zu, ", text, size);
    }
    printf("%d %d\n", ask(5, sizeof text, text, NULL), ask(1, 1, text, NULL));
}

static void counts(void) {
    cl_uint count = 77;
    platforms[0] = platforms[1] = (cl_platform_id)&count;
    printf("%d %d ", clGetPlatformIDs(0, platforms, NULL), clGetPlatformIDs(0, NULL, NULL));
    cl_int code = clGetPlatformIDs(2, platforms, &count);
    printf("%d %u %d %d\n", code, count, platforms[0] == NULL,
           platforms[1] == (cl_platform_id)&count);
}

static int ended, reaped;

static void reap(int signal) {
    ended += signal == SIGCHLD;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        reaped++;
}

static void watch_children(void) {
    signal(SIGCHLD, reap);
    name_platforms();
    while (wait(NULL) > 0)
        reaped++;
    printf("%d signals, %d children\n", ended, reaped);
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    if (strcmp(what, "names") == 0)
        name_platforms();
    else if (strcmp(what, "ignore-children") == 0)
        signal(SIGCHLD, SIG_IGN), name_platforms();
    else if (strcmp(what, "watch-children") == 0)
        watch_children();
    else if (strcmp(what, "use") == 0)
        use();
    else if (strcmp(what, "threads") == 0)
        threads(atoi(argv[2]));
    else if (strcmp(what, "fork-first") == 0)
        fork_and_name(), name_platforms();
    else if (strcmp(what, "fork-later") == 0)
        name_platforms(), fork_and_name();
    else if (strcmp(what, "live") == 0)
        list(), make_queue(platforms[0]), atexit(still_works);
    else if (strcmp(what, "null") == 0)
        null_platform();
    else if (strcmp(what, "extension") == 0)
        extension(argv[2]);
    else if (strcmp(what, "info") == 0)
        loader_info();
    else if (strcmp(what, "counts") == 0)
        counts();
    else if (strcmp(what, "other-first") == 0 || strcmp(what, "other-second") == 0)
        two_loaders(argv[2], strcmp(what, "other-first") == 0);
    else if (strcmp(what, "passing") == 0)
        passing_loader(argv[2]);
    else if (strcmp(what, "fork-while-starting") == 0)
        fork_while_starting();
    else if (strcmp(what, "reopen") == 0)
        reopen(argv[argc - 1]);
    return 0;
}
