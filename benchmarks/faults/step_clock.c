/* Preloaded into a run: its wall clock is off by as many seconds as stand in the file FAULTS_CLOCK.
   Only CLOCK_REALTIME is touched, as by an administrator or an NTP daemon that steps the clock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;

static long off(void) {
    if (!offset) {
        static long none = 0;
        const char *path = getenv("FAULTS_CLOCK");
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *map = fd < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
        if (fd >= 0) close(fd);
        offset = map == MAP_FAILED ? &none : map;
    }
    return *offset;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME) now->tv_sec += off();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed && now) now->tv_sec += off();
    return failed;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
