/* Other OpenCL loaders in this process. A platform of ICD 2 has one dispatch table, and the last
 * loader that binds it gives it that. If that loader is unloaded, it takes its table along, and the
 * next call through it is a crash. Its table may also end before the last slots. So whoever asks a
 * platform or a device something has us look first: the platform gets our table again, which serves
 * other loaders, too. A loader that is there stays, because objects may have its table. */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static struct guarded {
    cl_platform_id platform;
    void **table;
    fl_set_dispatch_data *set;
    struct guarded *next;
} *guarded;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; /* a driver may call OpenCL */

bool fl_guard_table(cl_platform_id platform, void **table, fl_set_dispatch_data *set) {
    struct guarded *one = malloc(sizeof *one);
    if (!one)
        return false;
    *one = (struct guarded){platform, table, set, guarded};
    __atomic_store_n(&guarded, one, __ATOMIC_RELEASE);
    return true;
}

bool fl_guards_tables(void) { return guarded != NULL; }

/* Whether a library has tables of its own: another loader, or fairlead's module of Python. */
static bool is_neighbour(const char *path) {
    return fl_is_named_like_a_loader(path) || strstr(path, "/icd/_native.");
}

enum { MOST = 16 };
struct found {
    const void *ours; /* where we lie */
    char *paths[MOST];
    int count;
};

static int find(struct dl_phdr_info *info, size_t size, void *into) {
    struct found *found = into;
    (void)size;
    if ((const void *)info->dlpi_addr != found->ours && found->count < MOST && info->dlpi_name &&
        is_neighbour(info->dlpi_name))
        found->paths[found->count++] = strdup(info->dlpi_name);
    return 0;
}

/* Have every neighbour stay where it is. */
static void keep_neighbours(void) {
    Dl_info ours;
    struct found found = {
        dladdr((void *)keep_neighbours, &ours) ? ours.dli_fbase : NULL, {NULL}, 0};
    dl_iterate_phdr(find, &found); /* it holds the linker's lock */
    for (int i = 0; i < found.count; i++) {
        if (found.paths[i])
            dlopen(found.paths[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        free(found.paths[i]);
    }
}

void fl_free_neighbours(void) { lock = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; }

void fl_keep_tables(void) {
    for (struct guarded *one = __atomic_load_n(&guarded, __ATOMIC_ACQUIRE); one; one = one->next) {
        void *now = __atomic_load_n(&one->platform->dispatch_data, __ATOMIC_RELAXED);
        if (now == one->table)
            continue;
        pthread_mutex_lock(&lock);
        keep_neighbours();
        one->set(one->platform, one->table);
        pthread_mutex_unlock(&lock);
    }
}
