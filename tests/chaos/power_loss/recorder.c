/* Records what a process does to the names below a directory, and what it syncs: for LD_PRELOAD.

   POWER_LOSS_RECORD is the log, one line an operation, with tabs between its words; POWER_LOSS_RECORD_ROOT the directory. Each
   operation is carried out and logged under one lock. The content of a synced file is copied beside the log. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int copies = 0;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int raw_open(const char *path, int flags) { return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0644); }

static const char *root(void) { return getenv("POWER_LOSS_RECORD_ROOT"); }

/* The full path of *name* from the directory *at*, if it is below the root; else 0. */
static int below(int at, const char *name, char *path) {
    if (root() == NULL || name == NULL) return 0;
    if (name[0] == '/') {
        snprintf(path, PATH_MAX, "%s", name);
    } else {
        char held[64], directory[PATH_MAX];
        if (at == AT_FDCWD) {
            if (getcwd(directory, sizeof directory) == NULL) return 0;
        } else {
            snprintf(held, sizeof held, "/proc/self/fd/%d", at);
            ssize_t n = readlink(held, directory, sizeof directory - 1);
            if (n < 0) return 0;
            directory[n] = 0;
        }
        if ((size_t)snprintf(path, PATH_MAX, "%s/%s", directory, name) >= PATH_MAX) return 0;
    }
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') path[--n] = 0;
    n = strlen(root());
    return strncmp(path, root(), n) == 0 && path[n] == '/';
}

static void put(const char *word, const char *first, const char *second) {
    int saved = errno;
    char line[2 * PATH_MAX + 64];
    int n = snprintf(line, sizeof line, "%s\t%s\t%s\n", word, first, second);
    int out = raw_open(getenv("POWER_LOSS_RECORD"), O_WRONLY | O_APPEND | O_CREAT);
    if (out < 0 || write(out, line, (size_t)n) != n) abort();
    close(out);
    errno = saved;
}

static int exists(const char *path) {
    struct stat found;
    return fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- names that come */

static int opened(int at, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    if (!(flags & (O_CREAT | O_TRUNC)) || !below(at, name, path))
        return (int)syscall(SYS_openat, at, name, flags, mode);
    pthread_mutex_lock(&lock);
    int there = exists(path);
    int fd = (int)syscall(SYS_openat, at, name, flags, mode);
    if (fd >= 0 && !there) put("create", path, "");
    if (fd >= 0 && there && (flags & O_TRUNC)) put("truncate", path, "");
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(at, path, flags | O_LARGEFILE, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

#define OPENS_A_STREAM(name) \
    FILE *name(const char *restrict file, const char *restrict how) { \
        char path[PATH_MAX]; \
        if (how[0] == 'r' || !below(AT_FDCWD, file, path)) return NEXT(name)(file, how); \
        pthread_mutex_lock(&lock); \
        int there = exists(path); \
        FILE *stream = NEXT(name)(file, how); \
        if (stream != NULL && !there) put("create", path, ""); \
        if (stream != NULL && there && how[0] == 'w') put("truncate", path, ""); \
        pthread_mutex_unlock(&lock); \
        return stream; \
    }
OPENS_A_STREAM(fopen)
OPENS_A_STREAM(fopen64)

/* ---- names that come, go and move */

#define CHANGES(word, at, name, call) \
    char path[PATH_MAX]; \
    if (!below(at, name, path)) return call; \
    pthread_mutex_lock(&lock); \
    int failed = call; \
    if (!failed) put(word, path, ""); \
    pthread_mutex_unlock(&lock); \
    return failed;

int mkdir(const char *name, mode_t mode) { CHANGES("mkdir", AT_FDCWD, name, NEXT(mkdir)(name, mode)) }
int mkdirat(int at, const char *name, mode_t mode) { CHANGES("mkdir", at, name, NEXT(mkdirat)(at, name, mode)) }
int rmdir(const char *name) { CHANGES("remove", AT_FDCWD, name, NEXT(rmdir)(name)) }
int unlink(const char *name) { CHANGES("remove", AT_FDCWD, name, NEXT(unlink)(name)) }
int unlinkat(int at, const char *name, int flags) { CHANGES("remove", at, name, NEXT(unlinkat)(at, name, flags)) }
int remove(const char *name) { CHANGES("remove", AT_FDCWD, name, NEXT(remove)(name)) }
int symlink(const char *to, const char *name) { CHANGES("create", AT_FDCWD, name, NEXT(symlink)(to, name)) }

static int moved(int from_at, const char *from, int to_at, const char *to, unsigned flags) {
    char source[PATH_MAX], target[PATH_MAX];
    int is_from = below(from_at, from, source), is_to = below(to_at, to, target);
    if (!is_from && !is_to) return (int)syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    pthread_mutex_lock(&lock);
    int failed = (int)syscall(SYS_renameat2, from_at, from, to_at, to, flags);
    if (!failed) put(is_from && is_to && !flags ? "rename" : "unknown", source, target);
    pthread_mutex_unlock(&lock);
    return failed;
}

int rename(const char *from, const char *to) { return moved(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int at, const char *from, int into, const char *to) { return moved(at, from, into, to, 0); }
int renameat2(int at, const char *from, int into, const char *to, unsigned flags) { return moved(at, from, into, to, flags); }

static int linked(int at, const char *from, int into, const char *to, int flags) {
    char source[PATH_MAX], target[PATH_MAX];
    if (!below(into, to, target)) return (int)syscall(SYS_linkat, at, from, into, to, flags);
    pthread_mutex_lock(&lock);
    int failed = (int)syscall(SYS_linkat, at, from, into, to, flags);
    if (!failed) put(below(at, from, source) ? "link" : "unknown", source, target);
    pthread_mutex_unlock(&lock);
    return failed;
}

int link(const char *from, const char *to) { return linked(AT_FDCWD, from, AT_FDCWD, to, 0); }
int linkat(int at, const char *from, int into, const char *to, int flags) { return linked(at, from, into, to, flags); }

/* ---- what is synced */

static void copy(const char *path, char *name) {
    char to[PATH_MAX], buffer[65536];
    snprintf(name, 64, "%d-%d", (int)getpid(), copies++);
    snprintf(to, sizeof to, "%s.%s", getenv("POWER_LOSS_RECORD"), name);
    int in = raw_open(path, O_RDONLY), out = raw_open(to, O_WRONLY | O_CREAT | O_TRUNC);
    if (in < 0 || out < 0) abort();
    for (ssize_t n; (n = read(in, buffer, sizeof buffer)) > 0;)
        if (write(out, buffer, (size_t)n) != n) abort();
    close(in);
    close(out);
}

static int synced(int fd, long call) {
    char held[64], path[PATH_MAX], known[PATH_MAX], name[64] = "";
    struct stat found;
    snprintf(held, sizeof held, "/proc/self/fd/%d", fd);
    ssize_t n = root() == NULL ? -1 : readlink(held, path, sizeof path - 1);
    if (n > 0) path[n] = 0;
    int is_root = n > 0 && strcmp(path, root()) == 0;
    if (n <= 0 || (!is_root && !below(AT_FDCWD, path, known))) return (int)syscall(call, fd);
    pthread_mutex_lock(&lock);
    int failed = (int)syscall(call, fd);
    if (!failed && fstat(fd, &found) == 0 && found.st_nlink > 0) {
        if (S_ISREG(found.st_mode)) copy(path, name);
        put("sync", path, name);
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }
