/* Writes down what a process does to files, so that a loss of power can be played: what was not synced may be gone then.
 *
 * Preloaded into a server (LD_PRELOAD). POWER_JOURNAL names the journal, to which each operation is appended once it is done:
 *
 *   char kind; u64 a, b, c; u32 length; char bytes[length]
 *
 *   'W' inode, offset, -          bytes: what was written        'T' inode, length, -                       a length was set
 *   'S' inode, before, -          file or directory was synced: all operations with a smaller number are safe
 *   'C' inode, is_directory, -    bytes: the path that was made
 *   'R' -, -, -                   bytes: path, 0, new path       'U' -, -, -                       bytes: the path that went
 *
 * An operation's number is its place in the journal. Writes and changes of names are done under a lock, so that the journal has
 * them in their order; a sync has the number of operations that there were when it began. power.rs reads the journal. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int journal = -1;
static uint64_t number = 0;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("POWER_JOURNAL");
    if (path) journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Called with the lock held. */
static void note(char kind, uint64_t a, uint64_t b, const void *bytes, uint32_t length) {
    if (journal < 0) return;
    char head[1 + 3 * 8 + 4];
    uint64_t c = 0;
    head[0] = kind;
    memcpy(head + 1, &a, 8);
    memcpy(head + 9, &b, 8);
    memcpy(head + 17, &c, 8);
    memcpy(head + 25, &length, 4);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)bytes, length}};
    syscall(SYS_writev, journal, parts, length ? 2 : 1);
    number++;
}

static int is_file(int fd, struct stat *found) {
    return journal >= 0 && fstat(fd, found) == 0 && S_ISREG(found->st_mode);
}

static void full_path(int directory, const char *path, char *out) {
    char link[64];
    out[0] = 0;
    if (path[0] != '/') {
        if (directory == AT_FDCWD) {
            if (!getcwd(out, PATH_MAX)) out[0] = 0;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
            ssize_t length = readlink(link, out, PATH_MAX - 1);
            out[length < 0 ? 0 : length] = 0;
        }
        strncat(out, "/", PATH_MAX - strlen(out) - 1);
    }
    strncat(out, path, PATH_MAX - strlen(out) - 1);
}

static void note_path(char kind, uint64_t a, uint64_t b, int directory, const char *path) {
    char whole[PATH_MAX];
    full_path(directory, path, whole);
    note(kind, a, b, whole, strlen(whole));
}

static int opened(int directory, const char *path, int flags, mode_t mode) {
    int (*real)(int, const char *, int, ...) = REAL(openat);
    if (journal < 0 || !(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE) return real(directory, path, flags, mode);
    pthread_mutex_lock(&lock);
    struct stat found;
    int was_there = fstatat(directory, path, &found, 0) == 0;
    int fd = real(directory, path, flags, mode);
    int error = errno;
    if (fd >= 0 && is_file(fd, &found)) {
        if (!was_there) note_path('C', found.st_ino, 0, directory, path);
        else if (flags & O_TRUNC) note('T', found.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

static mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

#define OPEN(name, directory, ...)                          \
    int name(__VA_ARGS__, const char *path, int flags, ...) { \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = mode_of(flags, rest);                 \
        va_end(rest);                                       \
        return opened(directory, path, flags, mode);        \
    }
OPEN(openat, directory, int directory)
OPEN(openat64, directory, int directory)
#define OPEN_HERE(name)                                     \
    int name(const char *path, int flags, ...) {            \
        va_list rest;                                       \
        va_start(rest, flags);                              \
        mode_t mode = mode_of(flags, rest);                 \
        va_end(rest);                                       \
        return opened(AT_FDCWD, path, flags, mode);         \
    }
OPEN_HERE(open)
OPEN_HERE(open64)

static void note_parts(uint64_t inode, uint64_t offset, const struct iovec *parts, int count, size_t done) {
    for (int i = 0; i < count && done > 0; i++) {
        size_t length = parts[i].iov_len < done ? parts[i].iov_len : done;
        note('W', inode, offset, parts[i].iov_base, length);
        offset += length;
        done -= length;
    }
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct stat found;
    if (!is_file(fd, &found)) return REAL(writev)(fd, parts, count);
    pthread_mutex_lock(&lock);
    ssize_t done = REAL(writev)(fd, parts, count);
    int error = errno;
    if (done > 0) note_parts(found.st_ino, lseek(fd, 0, SEEK_CUR) - done, parts, count, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    struct stat found;
    if (!is_file(fd, &found)) return syscall(SYS_write, fd, bytes, length);
    struct iovec part = {(void *)bytes, length};
    return writev(fd, &part, 1);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
    struct stat found;
    if (!is_file(fd, &found)) return syscall(SYS_pwrite64, fd, bytes, length, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = syscall(SYS_pwrite64, fd, bytes, length, offset);
    int error = errno;
    if (done > 0) note('W', found.st_ino, offset, bytes, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) { return pwrite64(fd, bytes, length, offset); }

/* What was copied within the kernel is read back. */
static void note_copied(int fd, off64_t offset, ssize_t done) {
    struct stat found;
    char bytes[65536];
    if (!is_file(fd, &found)) return;
    while (done > 0) {
        ssize_t part = pread(fd, bytes, done < (ssize_t)sizeof bytes ? done : (ssize_t)sizeof bytes, offset);
        if (part <= 0) {
            /* Opened for writing only. */
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            int again = syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
            if (again < 0) return;
            part = pread(again, bytes, done < (ssize_t)sizeof bytes ? done : (ssize_t)sizeof bytes, offset);
            syscall(SYS_close, again);
            if (part <= 0) return;
        }
        note('W', found.st_ino, offset, bytes, part);
        offset += part;
        done -= part;
    }
}

ssize_t copy_file_range(int in, off64_t *in_at, int out, off64_t *out_at, size_t length, unsigned flags) {
    pthread_mutex_lock(&lock);
    off64_t at = out_at ? *out_at : lseek(out, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_copy_file_range, in, in_at, out, out_at, length, flags);
    int error = errno;
    note_copied(out, at, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t sendfile64(int out, int in, off64_t *in_at, size_t length) {
    struct stat found;
    if (!is_file(out, &found)) return syscall(SYS_sendfile, out, in, in_at, length);
    pthread_mutex_lock(&lock);
    off64_t at = lseek(out, 0, SEEK_CUR);
    ssize_t done = syscall(SYS_sendfile, out, in, in_at, length);
    int error = errno;
    note_copied(out, at, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
ssize_t sendfile(int out, int in, off_t *in_at, size_t length) { return sendfile64(out, in, in_at, length); }

static int resized(int fd, int outcome) {
    struct stat found;
    int error = errno;
    if (outcome == 0 && is_file(fd, &found)) note('T', found.st_ino, found.st_size, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return outcome;
}

int ftruncate64(int fd, off64_t length) {
    pthread_mutex_lock(&lock);
    return resized(fd, syscall(SYS_ftruncate, fd, length));
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    pthread_mutex_lock(&lock);
    return resized(fd, syscall(SYS_fallocate, fd, mode, offset, length));
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }

static int synced(int fd, long call) {
    struct stat found;
    if (journal < 0 || fstat(fd, &found) != 0) return syscall(call, fd);
    pthread_mutex_lock(&lock);
    uint64_t before = number;
    pthread_mutex_unlock(&lock);
    int outcome = syscall(call, fd);
    int error = errno;
    if (outcome == 0) {
        pthread_mutex_lock(&lock);
        note('S', found.st_ino, before, NULL, 0);
        pthread_mutex_unlock(&lock);
    }
    errno = error;
    return outcome;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int mkdirat(int directory, const char *path, mode_t mode) {
    pthread_mutex_lock(&lock);
    int outcome = syscall(SYS_mkdirat, directory, path, mode);
    int error = errno;
    struct stat found;
    if (outcome == 0 && fstatat(directory, path, &found, 0) == 0) note_path('C', found.st_ino, 1, directory, path);
    pthread_mutex_unlock(&lock);
    errno = error;
    return outcome;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

int renameat2(int from, const char *path, int to, const char *target, unsigned flags) {
    char both[2 * PATH_MAX];
    pthread_mutex_lock(&lock);
    full_path(from, path, both);
    size_t first = strlen(both);
    full_path(to, target, both + first + 1);
    int outcome = syscall(SYS_renameat2, from, path, to, target, flags);
    int error = errno;
    if (outcome == 0) note('R', 0, 0, both, first + 1 + strlen(both + first + 1));
    pthread_mutex_unlock(&lock);
    errno = error;
    return outcome;
}
int renameat(int from, const char *path, int to, const char *target) { return renameat2(from, path, to, target, 0); }
int rename(const char *path, const char *target) { return renameat2(AT_FDCWD, path, AT_FDCWD, target, 0); }

int linkat(int from, const char *path, int to, const char *target, int flags) {
    pthread_mutex_lock(&lock);
    int outcome = syscall(SYS_linkat, from, path, to, target, flags);
    int error = errno;
    struct stat found;
    if (outcome == 0 && fstatat(to, target, &found, 0) == 0) note_path('C', found.st_ino, 0, to, target);
    pthread_mutex_unlock(&lock);
    errno = error;
    return outcome;
}
int link(const char *path, const char *target) { return linkat(AT_FDCWD, path, AT_FDCWD, target, 0); }

int unlinkat(int directory, const char *path, int flags) {
    char whole[PATH_MAX];
    pthread_mutex_lock(&lock);
    full_path(directory, path, whole);
    int outcome = syscall(SYS_unlinkat, directory, path, flags);
    int error = errno;
    if (outcome == 0) note('U', 0, 0, whole, strlen(whole));
    pthread_mutex_unlock(&lock);
    errno = error;
    return outcome;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
