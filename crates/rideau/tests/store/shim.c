/* Lets one system call on the files of a folder fail, or end the process.
 *
 * FAULT_PATH: part of the path. FAULT_CALL: the name of the call, or "any".
 * FAULT_AT: which one it is, from 1; 0 for every one. FAULT_HOW: the number of
 * the error; "kill" to end before the call; "tear" to end after half a write.
 * SYNCED: a folder for a copy of each file as it was when it was last synced,
 * under the number of its inode. A power cut may leave just that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static __thread long seen;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value ? value : "";
}

/* 0: go on; 1: fail with errno; 2: write half, then end. */
static int strikes(const char *call, const char *path, int writes) {
    const char *wanted = setting("FAULT_CALL"), *how = setting("FAULT_HOW");
    if (!*how || !strstr(path, setting("FAULT_PATH"))) return 0;
    if (strcmp(wanted, "any") && strcmp(wanted, call)) return 0;
    long at = atol(setting("FAULT_AT"));
    seen += 1;
    if (at && seen != at) return 0;
    if (!strcmp(how, "tear") && writes) return 2;
    if (!strcmp(how, "tear") || !strcmp(how, "kill")) kill(getpid(), SIGKILL);
    errno = atoi(how);
    return 1;
}

static int strikes_open_file(const char *call, int file, int writes) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return strikes(call, path, writes);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t write(int file, const void *bytes, size_t len) {
    int struck = strikes_open_file("write", file, 1);
    if (struck == 1) return -1;
    ssize_t done = REAL(ssize_t, "write", int, const void *, size_t)(
        file, bytes, struck ? len / 2 : len);
    if (struck) kill(getpid(), SIGKILL);
    return done;
}

ssize_t pwrite64(int file, const void *bytes, size_t len, off64_t at) {
    int struck = strikes_open_file("write", file, 1);
    if (struck == 1) return -1;
    ssize_t done = REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t)(
        file, bytes, struck ? len / 2 : len, at);
    if (struck) kill(getpid(), SIGKILL);
    return done;
}

/* A file that is written need not be readable, so it is opened once more. */
static int synced(int file, int done) {
    static char bytes[1 << 16];
    char path[4200];
    struct stat about;
    const char *folder = setting("SYNCED");
    if (done || !*folder || fstat(file, &about) || !S_ISREG(about.st_mode)) return done;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int from = open(path, O_RDONLY);
    snprintf(path, sizeof path, "%s/%llu.new", folder, (unsigned long long)about.st_ino);
    int to = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t len;
    while ((len = read(from, bytes, sizeof bytes)) > 0)
        REAL(ssize_t, "write", int, const void *, size_t)(to, bytes, len);
    close(from);
    close(to);
    char named[4200];
    snprintf(named, sizeof named, "%s/%llu", folder, (unsigned long long)about.st_ino);
    REAL(int, "rename", const char *, const char *)(path, named);
    return done;
}

int fsync(int file) {
    if (strikes_open_file("sync", file, 0)) return -1;
    return synced(file, REAL(int, "fsync", int)(file));
}

int fdatasync(int file) {
    if (strikes_open_file("sync", file, 0)) return -1;
    return synced(file, REAL(int, "fdatasync", int)(file));
}

int ftruncate64(int file, off64_t len) {
    if (strikes_open_file("truncate", file, 0)) return -1;
    return REAL(int, "ftruncate64", int, off64_t)(file, len);
}

int rename(const char *from, const char *to) {
    if (strikes("rename", to, 0)) return -1;
    return REAL(int, "rename", const char *, const char *)(from, to);
}

int unlink(const char *path) {
    if (strikes("unlink", path, 0)) return -1;
    return REAL(int, "unlink", const char *)(path);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int mode = va_arg(rest, int);
    va_end(rest);
    if (flags & (O_WRONLY | O_RDWR | O_CREAT) && strikes("open", path, 0)) return -1;
    return REAL(int, "open64", const char *, int, int)(path, flags, mode);
}
