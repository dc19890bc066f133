/* The world as a daemon may meet it, at its true boundary: an LD_PRELOAD library that obeys the files in $FAULTS_DIR.

   clock: CLOCK_REALTIME is off by so many seconds.      fork: while the file is there, no process and no thread can be
   begun (EAGAIN), as with RLIMIT_NPROC, from which root is exempt.      thread: the thread of this number in a process cannot be
   begun; then the file holds the next number, for the next image of this process.      open: no new descriptor is given, with this errno, as
   with a machine-wide fs.file-max (ENFILE), from which root is exempt, or a kernel without memory (ENOMEM). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The first bytes of a file as a number; -1: there is no such file. */
static int number(const char *name, long *value) {
    char path[4096], text[32] = {0};
    const char *directory = getenv("FAULTS_DIR");
    int before = errno, fd, found = -1;
    if (directory && snprintf(path, sizeof path, "%s/%s", directory, name) > 0 &&
        (fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC)) >= 0) {
        if (read(fd, text, sizeof text - 1) >= 0) found = 0;
        *value = atol(text);
        close(fd);
    }
    errno = before;
    return found;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    long off = 0;
    int result = (int)syscall(SYS_clock_gettime, clock, at);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && number("clock", &off) == 0)
        at->tv_sec += off;
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}

static int refused(void) {
    long ignored;
    return number("fork", &ignored) == 0;
}

pid_t fork(void) {
    static pid_t (*real)(void);
    if (!real) real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    if (refused()) { errno = EAGAIN; return -1; }
    return real();
}

pid_t vfork(void) { return fork(); } /* a wrapper cannot return twice from the real one */

static int numbered(void) {
    static atomic_long begun;
    static atomic_int once;
    char path[4096], text[32];
    long wanted = 0, at = atomic_fetch_add(&begun, 1) + 1;
    int fd;
    if (number("thread", &wanted) != 0 || at != wanted || atomic_exchange(&once, 1)) return 0;
    snprintf(path, sizeof path, "%s/thread", getenv("FAULTS_DIR"));
    if ((fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_TRUNC | O_CLOEXEC)) >= 0) {
        if (write(fd, text, (size_t)snprintf(text, sizeof text, "%ld", wanted + 1)) < 0) abort();
        close(fd);
    }
    return 1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*what)(void *), void *with) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    return refused() || numbered() ? EAGAIN : real(thread, how, what, with);
}

/* Calls that give a descriptor. `found` is what a refused one returns. */
static int lacking(void) {
    long why = 0;
    if (number("open", &why) != 0) return 0;
    errno = why ? (int)why : ENFILE;
    return 1;
}

#define REAL(result, name, types) \
    static result(*real) types; \
    if (!real) real = (result(*) types)dlsym(RTLD_NEXT, name)
#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, (const char *, int, ...)); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        return lacking() ? -1 : real(path, flags, mode); \
    }
#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        REAL(int, #name, (int, const char *, int, ...)); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); \
        va_end(more); \
        return lacking() ? -1 : real(at, path, flags, mode); \
    }
#define GIVES(result, none, name, types, names) \
    result name types { \
        REAL(result, #name, types); \
        return lacking() ? (none) : real names; \
    }
OPENS(open)
OPENS(open64)
OPENS_AT(openat)
OPENS_AT(openat64)
GIVES(FILE *, NULL, fopen, (const char *path, const char *how), (path, how))
GIVES(FILE *, NULL, fopen64, (const char *path, const char *how), (path, how))
GIVES(DIR *, NULL, opendir, (const char *path), (path))
GIVES(int, -1, dup, (int fd), (fd))
GIVES(int, -1, socket, (int family, int kind, int protocol), (family, kind, protocol))
GIVES(int, -1, socketpair, (int family, int kind, int protocol, int pair[2]), (family, kind, protocol, pair))
GIVES(int, -1, accept, (int fd, struct sockaddr *from, socklen_t *size), (fd, from, size))
GIVES(int, -1, accept4, (int fd, struct sockaddr *from, socklen_t *size, int flags), (fd, from, size, flags))
GIVES(int, -1, pipe, (int pair[2]), (pair))
GIVES(int, -1, pipe2, (int pair[2], int flags), (pair, flags))
GIVES(int, -1, epoll_create1, (int flags), (flags))

long syscall(long what, ...) { /* Python has no other way to a pidfd */
    REAL(long, "syscall", (long, ...));
    long with[6];
    va_list more;
    va_start(more, what);
    for (int each = 0; each < 6; each++) with[each] = va_arg(more, long);
    va_end(more);
    if (what == SYS_pidfd_open && lacking()) return -1;
    return real(what, with[0], with[1], with[2], with[3], with[4], with[5]);
}
