/* What an OpenCL loader costs: `loader LIBRARY first` prints the ns of the first clGetPlatformIDs,
 * `loader LIBRARY calls N` the least ns of a clRetainContext among several rounds of N calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 11 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW), *platform = NULL, *device = NULL;
    if (argc < 3 || !library)
        return 2;
    int (*ids)(uint32_t, void **, uint32_t *) =
        (int (*)(uint32_t, void **, uint32_t *))dlsym(library, "clGetPlatformIDs");
    int (*devices)(void *, uint64_t, uint32_t, void **, uint32_t *) =
        (int (*)(void *, uint64_t, uint32_t, void **, uint32_t *))dlsym(library, "clGetDeviceIDs");
    void *(*create)(void *, uint32_t, void **, void *, void *, int *) =
        (void *(*)(void *, uint32_t, void **, void *, void *, int *))dlsym(library,
                                                                           "clCreateContext");
    int (*retain)(void *) = (int (*)(void *))dlsym(library, "clRetainContext");
    double begin = now(), best = 1e18;
    int code = ids(1, &platform, NULL);
    if (strcmp(argv[2], "first") == 0) {
        printf("%.0f\n", now() - begin);
        return code != 0;
    }
    if (code || devices(platform, 0xFFFFFFFF, 1, &device, NULL))
        return 1;
    void *context = create(NULL, 1, &device, NULL, NULL, &code);
    long count = atol(argv[3]);
    for (int round = 0; round < ROUNDS; round++) {
        begin = now();
        for (long i = 0; i < count; i++)
            retain(context);
        double took = (now() - begin) / (double)count;
        best = took < best ? took : best;
    }
    printf("%.3f\n", best);
    return 0;
}
