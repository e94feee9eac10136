/* The plain rules of ICDs, for a program that no Python helps: loader/base/manifests.py and
 * icd/discovery.py in C, without the steps that need a Python. No manifest is waited for, and none
 * opens the program itself. */
#define _GNU_SOURCE
#include "loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_BYTES = 1 << 16 };

static bool is_file(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool is_directory(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static bool ends_in(const char *name, const char *suffix) {
    size_t length = strlen(name), end = strlen(suffix);
    return length >= end && strcmp(name + length - end, suffix) == 0;
}

/* The text of a manifest, to be freed; NULL if it is none. */
static char *read_manifest(const char *path) {
    struct stat status;
    int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC |
                              O_NOCTTY); /* nobody may ever write to a named pipe */
    char *text = NULL;
    ssize_t size = -1;
    if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_size <= MOST_BYTES && (text = malloc(MOST_BYTES + 1)))
        size = read(file, text, MOST_BYTES);
    if (file >= 0)
        close(file);
    for (ssize_t i = 0; i < size; i++)
        if ((unsigned char)text[i] < 9 ||
            ((unsigned char)text[i] > 13 && (unsigned char)text[i] < 32) || text[i] == 127)
            size = -1;
    if (size < 0) {
        fl_note("%s: it cannot be read, or it is not a manifest", path);
        free(text);
        return NULL;
    }
    text[size] = '\0';
    return text;
}

/* A path is relative to the manifest, never to the program's directory. */
static void take_from(const char *name, const char *manifest, fl_take *take) {
    char beside[PATH_MAX];
    int folder = (int)(strrchr(manifest, '/') - manifest);
    if (*name != '/' &&
        snprintf(beside, sizeof beside, "%.*s/%s", folder, manifest, name) < (int)sizeof beside &&
        is_file(beside))
        take(beside);
    else if (*name != '/' && strchr(name, '/'))
        fl_note("%s: it names %s, and there is no such file", manifest, name);
    else if (*name != '/' || is_file(name))
        take(name);
    else
        fl_note("%s: %s is not a file", manifest, name);
}

static void each_of_manifest(const char *manifest, fl_take *take) {
    char *text = read_manifest(manifest), *rest = text;
    if (text && strncmp(text, "\xEF\xBB\xBF", 3) == 0) /* a UTF-8 byte-order mark */
        rest += 3;
    for (char *line; text && (line = strsep(&rest, "\n\r\v\f"));) {
        line += strspn(line, " \t");
        for (size_t end = strlen(line); end && strchr(" \t", line[end - 1]); end--)
            line[end - 1] = '\0';
        if (*line && *line != '#')
            take_from(line, manifest, take);
    }
    free(text);
}

static int by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

bool fl_each_of_directory(const char *directory, const char *suffix, fl_take *take) {
    struct dirent **entries;
    char path[PATH_MAX];
    int count = scandir(directory, &entries, NULL, by_bytes);
    for (int i = 0; i < count; i++) {
        if (ends_in(entries[i]->d_name, suffix) &&
            snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) < (int)sizeof path)
            each_of_manifest(path, take);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    return count >= 0;
}

void fl_each_of_list(const char *list, fl_take *take) {
    char *copy = strdup(list), *rest = copy;
    for (char *name; copy && (name = strsep(&rest, ":"));)
        if (*name) /* dlopen("") would open the program */
            take(name);
    free(copy);
}

static void open_one(const char *library) {
    if (fl_is_named_like_a_loader(library))
        fl_note("%s: it is an OpenCL loader, not a driver", library);
    else
        fl_open_driver(library, false, RTLD_NOW);
}

static void open_named(const char *library) {
    if (!strchr(library, '/') || is_file(library))
        open_one(library);
    else
        fl_note("%s: it is not a file", library);
}

/* OCL_ICD_VENDORS in the meaning of every loader: directories, manifests and libraries. */
static void take_vendor(const char *name) {
    char path[PATH_MAX];
    if (is_directory(name)) {
        fl_each_of_directory(name, ".icd", open_one);
    } else if (!ends_in(name, ".icd")) {
        open_named(name);
    } else {
        const char *vendors = secure_getenv("OPENCL_VENDOR_PATH");
        int length = snprintf(path, sizeof path, "%s/%s",
                              vendors && *vendors ? vendors : "/etc/OpenCL/vendors", name);
        if (strchr(name, '/') || length >= (int)sizeof path || !is_file(path))
            snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "./", name);
        each_of_manifest(path, open_one);
    }
}

void fl_search(void) {
    const char *names = secure_getenv("OCL_ICD_FILENAMES"),
               *vendors = secure_getenv("OCL_ICD_VENDORS");
    const char *directory = secure_getenv("OPENCL_VENDOR_PATH");
    if (names)
        fl_each_of_list(names, open_named);
    if (vendors && *vendors)
        fl_each_of_list(vendors, take_vendor);
    else if (!fl_each_of_directory(directory && *directory ? directory : "/etc/OpenCL/vendors",
                                   ".icd", open_one))
        fl_note("%s: there is no such directory",
                directory && *directory ? directory : "/etc/OpenCL/vendors");
}
