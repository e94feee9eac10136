/* Lets the GIL go while a thread waits inside a runtime.
 *
 * A thread of a Python program may call a runtime, such as libsycl, with the GIL, and wait for a
 * lock there. If the thread with the lock calls an entry point that is in Python, each waits for
 * the other. So the functions by which runtimes wait are called without the GIL: the slots of
 * their imports lead here. A thread without the GIL waits as before. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "python.h"

#if defined __x86_64__
enum { SLOT = R_X86_64_JUMP_SLOT, DATA = R_X86_64_GLOB_DAT };
#elif defined __aarch64__
enum { SLOT = R_AARCH64_JUMP_SLOT, DATA = R_AARCH64_GLOB_DAT };
#else
enum { SLOT = -1, DATA = -1 };
#endif

/* What is looked into: the beginnings of names of files. */
static const char *const runtimes[] = {"libsycl.so", "libur_", "libpi_", "libze_"};
enum { MOST = 32 };

/* By how a runtime waits, and what tries first whether it has to. Each takes two addresses at
 * most. */
#define WAITS(X)                                                           \
    X(0, "pthread_mutex_lock", "pthread_mutex_trylock")                    \
    X(1, "pthread_rwlock_rdlock", "pthread_rwlock_tryrdlock")              \
    X(2, "pthread_rwlock_wrlock", "pthread_rwlock_trywrlock")              \
    X(3, "pthread_once", "")                                               \
    X(4, "sched_yield", "") /* of spin locks */                            \
    X(5, "__cxa_guard_acquire", "")                                        \
    X(6, "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "")  \
    X(7, "_ZNSt6thread4joinEv", "")

typedef int wait_function(void *, void *);
typedef struct {
    const char *name, *trial_name;
    wait_function *here;
    _Atomic(wait_function *) trial, wait;
} runtime_wait;
static runtime_wait waits[];

static void take_gil(void **thread) { fl_python_restore(*thread); }

static int wait_without_gil(runtime_wait *how, void *first, void *second) {
    wait_function *trial = how->trial;
    if (trial && trial(first, second) == 0)
        return 0;
    /* A function of C++ may throw. */
    __attribute__((cleanup(take_gil), unused)) void *thread = fl_python_release();
    return how->wait(first, second);
}

#define DEFINE(i, name, trial) \
    static int wait_##i(void *a, void *b) { return wait_without_gil(&waits[i], a, b); }
#define ROW(i, name, trial) {name, trial, wait_##i, NULL, NULL},
WAITS(DEFINE)
static runtime_wait waits[] = {WAITS(ROW)};

static void set_slot(const struct dl_phdr_info *library, void **slot, void *function) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)slot & -page;
    bool read_only = false;
    for (unsigned i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        uintptr_t begin = library->dlpi_addr + part->p_vaddr;
        read_only |= part->p_type == PT_GNU_RELRO && from >= (begin & -page) &&
                     from < ((begin + part->p_memsz) & -page);
    }
    if (read_only && mprotect((void *)from, page, PROT_READ | PROT_WRITE))
        return;
    __atomic_store_n(slot, function, __ATOMIC_RELEASE);
    if (read_only)
        mprotect((void *)from, page, PROT_READ);
}

static void lead_here(const struct dl_phdr_info *library, void *opened, const char *name,
                      void **slot) {
    for (unsigned i = 0; i < sizeof waits / sizeof *waits; i++) {
        runtime_wait *how = &waits[i];
        if (strcmp(how->name, name) != 0)
            continue;
        if (!how->wait) {
            how->trial = *how->trial_name ? (wait_function *)dlsym(opened, how->trial_name) : NULL;
            how->wait = (wait_function *)dlsym(opened, name);
        }
        if (how->wait)
            set_slot(library, slot, (void *)how->here);
    }
}

/* The addresses of a dynamic section are those in memory. */
static void look_into(const struct dl_phdr_info *library, const ElfW(Dyn) *section, void *opened) {
    const char *names = NULL;
    const ElfW(Sym) *symbols = NULL;
    struct {
        uintptr_t at;
        size_t size;
    } tables[2] = {{0, 0}, {0, 0}};
    for (; section->d_tag != DT_NULL; section++) {
        uintptr_t value = section->d_un.d_ptr;
        switch (section->d_tag) {
        case DT_STRTAB: names = (const char *)value; break;
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)value; break;
        case DT_RELA: tables[0].at = value; break;
        case DT_RELASZ: tables[0].size = value; break;
        case DT_JMPREL: tables[1].at = value; break;
        case DT_PLTRELSZ: tables[1].size = value; break;
        default: break;
        }
    }
    for (unsigned t = 0; names && symbols && t < 2; t++) {
        const ElfW(Rela) *row = (const ElfW(Rela) *)tables[t].at;
        for (size_t i = 0; row && i < tables[t].size / sizeof *row; i++) {
            int type = (int)ELF64_R_TYPE(row[i].r_info);
            const char *name = names + symbols[ELF64_R_SYM(row[i].r_info)].st_name;
            if (type == SLOT || type == DATA)
                lead_here(library, opened, name, (void **)(library->dlpi_addr + row[i].r_offset));
        }
    }
}

/* Libraries that are open now. */
typedef struct {
    struct dl_phdr_info libraries[MOST];
    unsigned count;
} found;

static int add_runtime(struct dl_phdr_info *library, size_t size, void *to) {
    (void)size;
    found *all = to;
    const char *slash = strrchr(library->dlpi_name, '/'), *file = slash ? slash + 1 : "";
    for (unsigned i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
        if (all->count < MOST && strncmp(file, runtimes[i], strlen(runtimes[i])) == 0) {
            all->libraries[all->count++] = *library;
            break;
        }
    return 0;
}

void fl_wait_without_gil(void) {
    found all = {.count = 0};
    flockfile(stderr); /* all shells of a process share it */
    dl_iterate_phdr(add_runtime, &all); /* it opens nothing, because it holds the linker's lock */
    for (unsigned l = 0; l < all.count; l++) {
        const struct dl_phdr_info *library = &all.libraries[l];
        void *opened = dlopen(library->dlpi_name, RTLD_LAZY | RTLD_NOLOAD);
        for (unsigned i = 0; opened && i < library->dlpi_phnum; i++)
            if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
                look_into(library, (void *)(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr),
                          opened);
        /* It stays open, because its waits lead here. */
    }
    funlockfile(stderr);
}
