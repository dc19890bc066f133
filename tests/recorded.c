/* What a process tells the disk, in order: an LD_PRELOAD library that appends a line for each call to $RECORD_FILE.

   D inode path            data of a file changed          S inode path     fsync or fdatasync returned
   N inode path            this name is new in the directory of that inode
   U inode path            this name was removed from it
   R inode old<TAB>new     renamed, the inode is what has the name now */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define PATH 4096
#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static void note(char kind, unsigned long inode, const char *text) {
    char line[3 * PATH];
    const char *file = getenv("RECORD_FILE");
    int before = errno, size = snprintf(line, sizeof line, "%c %lu %s\n", kind, inode, text), fd;
    if (file && size > 0 && (fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) >= 0) {
        syscall(SYS_write, fd, line, (size_t)size);
        syscall(SYS_close, fd);
    }
    errno = before;
}

/* The path of a descriptor; empty for what is no file. */
static void path_of(int fd, char *path) {
    char link[64];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, PATH - 1);
    path[size > 0 && path[0] == '/' ? size : 0] = 0;
}

static void of_fd(char kind, int fd) {
    char path[PATH];
    struct stat found;
    int before = errno;
    path_of(fd, path);
    if (path[0] && fstat(fd, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) note(kind, found.st_ino, path);
    errno = before;
}

static void absolute(int dirfd, const char *name, char *path) {
    char base[PATH];
    if (name[0] == '/') { snprintf(path, PATH, "%s", name); return; }
    if (dirfd == AT_FDCWD) { if (!getcwd(base, sizeof base)) base[0] = 0; } else path_of(dirfd, base);
    snprintf(path, PATH, "%.2000s/%.2000s", base, name);
}

static void changed(char kind, int dirfd, const char *name) {
    char path[PATH], *last;
    struct stat found;
    int before = errno, is;
    absolute(dirfd, name, path);
    if ((last = strrchr(path, '/'))) {
        *last = 0;
        is = stat(path, &found) == 0;
        *last = '/';
        if (is) note(kind, found.st_ino, path);
    }
    errno = before;
}

static void named(int dirfd, const char *name) { changed('N', dirfd, name); }

static int renamed(int result, int olddir, const char *old, int newdir, const char *new) {
    char both[2 * PATH + 1], to[PATH];
    struct stat found;
    int before = errno;
    if (result != 0) return result;
    absolute(olddir, old, both);
    absolute(newdir, new, to);
    strcat(strcat(both, "\t"), to);
    if (lstat(to, &found) == 0) note('R', found.st_ino, both);
    named(newdir, new);
    errno = before;
    return result;
}

static int opened(int fd, int dirfd, const char *name, int flags, int was_there) {
    if (fd >= 0 && (flags & O_CREAT) && !was_there) named(dirfd, name);
    if (fd >= 0 && ((flags & O_TRUNC) || ((flags & O_CREAT) && !was_there))) of_fd('D', fd);
    return fd;
}

static int there(int dirfd, const char *name) {
    struct stat found;
    int before = errno, is = fstatat(dirfd, name, &found, AT_SYMLINK_NOFOLLOW) == 0;
    errno = before;
    return is;
}

#define MODE mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
#define OPENED(dirfd, call) { MODE int was = there(dirfd, name); return opened(call, dirfd, name, flags, was); }
int open(const char *name, int flags, ...) OPENED(AT_FDCWD, (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode))
int open64(const char *name, int flags, ...) OPENED(AT_FDCWD, (int)syscall(SYS_openat, AT_FDCWD, name, flags, mode))
int openat(int dirfd, const char *name, int flags, ...) OPENED(dirfd, (int)syscall(SYS_openat, dirfd, name, flags, mode))
int openat64(int dirfd, const char *name, int flags, ...) OPENED(dirfd, (int)syscall(SYS_openat, dirfd, name, flags, mode))

ssize_t write(int fd, const void *data, size_t size) { REAL(write); ssize_t n = real(fd, data, size); if (n > 0) of_fd('D', fd); return n; }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { REAL(pwrite); ssize_t n = real(fd, data, size, at); if (n > 0) of_fd('D', fd); return n; }
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { REAL(pwrite64); ssize_t n = real(fd, data, size, at); if (n > 0) of_fd('D', fd); return n; }
int ftruncate(int fd, off_t size) { REAL(ftruncate); int n = real(fd, size); if (n == 0) of_fd('D', fd); return n; }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); int n = real(fd, size); if (n == 0) of_fd('D', fd); return n; }
ssize_t sendfile(int out, int in, off_t *at, size_t size) { REAL(sendfile); ssize_t n = real(out, in, at, size); if (n > 0) of_fd('D', out); return n; }
ssize_t sendfile64(int out, int in, off64_t *at, size_t size) { REAL(sendfile64); ssize_t n = real(out, in, at, size); if (n > 0) of_fd('D', out); return n; }

int fsync(int fd) { REAL(fsync); int n = real(fd); if (n == 0) of_fd('S', fd); return n; }
int fdatasync(int fd) { REAL(fdatasync); int n = real(fd); if (n == 0) of_fd('S', fd); return n; }

int rename(const char *old, const char *new) { REAL(rename); return renamed(real(old, new), AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int od, const char *old, int nd, const char *new) { REAL(renameat); return renamed(real(od, old, nd, new), od, old, nd, new); }
int link(const char *old, const char *new) { REAL(link); int n = real(old, new); if (n == 0) named(AT_FDCWD, new); return n; }
int linkat(int od, const char *old, int nd, const char *new, int how) { REAL(linkat); int n = real(od, old, nd, new, how); if (n == 0) named(nd, new); return n; }
int unlink(const char *name) { REAL(unlink); int n = real(name); if (n == 0) changed('U', AT_FDCWD, name); return n; }
int unlinkat(int dirfd, const char *name, int how) { REAL(unlinkat); int n = real(dirfd, name, how); if (n == 0) changed('U', dirfd, name); return n; }
int mkdir(const char *name, mode_t mode) { REAL(mkdir); int n = real(name, mode); if (n == 0) named(AT_FDCWD, name); return n; }
int mkdirat(int dirfd, const char *name, mode_t mode) { REAL(mkdirat); int n = real(dirfd, name, mode); if (n == 0) named(dirfd, name); return n; }
