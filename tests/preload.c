/* The world as a daemon may meet it, at its true boundary: an LD_PRELOAD library that obeys the files in $FAULTS_DIR.

   clock: CLOCK_REALTIME is off by so many seconds.      fork: while the file is there, no process and no thread can be
   begun (EAGAIN), as with RLIMIT_NPROC, from which root is exempt. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The first bytes of a file as a number; -1: there is no such file. */
static int number(const char *name, long *value) {
    char path[4096], text[32] = {0};
    const char *directory = getenv("FAULTS_DIR");
    int before = errno, fd, found = -1;
    if (directory && snprintf(path, sizeof path, "%s/%s", directory, name) > 0 && (fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
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

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*what)(void *), void *with) {
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (!real) real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    return refused() ? EAGAIN : real(thread, how, what, with);
}
