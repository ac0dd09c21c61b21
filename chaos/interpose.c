/*
 * Stands between a process and its clock and disk (LD_PRELOAD). What it does to them is read, at each call, from a block
 * of memory that it shares with the fault driver; what it did is counted there. `interposer.py` knows the same layout.
 *
 * The wall clock is shifted, and CLOCK_MONOTONIC left alone: that is what setting a clock does. Files are interfered
 * with only below CHAOS_STORE. Without a block to read it ends the process: a fault that silently does nothing would
 * prove what it should test.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct control {
    /* Set by the driver. */
    _Atomic int64_t clock_offset_ns;
    _Atomic int64_t fsync_delay_us;
    _Atomic int64_t fsync_fails_every; /* each n-th fsync fails with EIO; 0: none */
    _Atomic int64_t disk_is_full;      /* what would make a file grow fails with ENOSPC */
    /* Counted here. */
    _Atomic int64_t clock_reads;
    _Atomic int64_t fsyncs_delayed;
    _Atomic int64_t fsyncs_failed;
    _Atomic int64_t writes_refused; /* for want of room, be it by us or by the kernel */
    _Atomic int64_t fsyncs;
};

static struct control *control;
static char store[PATH_MAX];
static size_t store_length;

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);

static void fail(const char *what)
{
    fprintf(stderr, "chaos: %s\n", what);
    _exit(70);
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        fail(name);
    return found;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CHAOS_CONTROL"), *below = getenv("CHAOS_STORE"), *parent = getenv("CHAOS_PARENT");
    real_clock_gettime = next("clock_gettime");
    real_fsync = next("fsync");
    real_fdatasync = next("fdatasync");
    real_ftruncate = next("ftruncate");
    real_write = next("write");
    real_pwrite = next("pwrite");
    if (path == NULL || below == NULL || parent == NULL)
        fail("CHAOS_CONTROL, CHAOS_STORE and CHAOS_PARENT are needed");
    store_length = strlen(below);
    if (store_length >= sizeof store)
        fail("CHAOS_STORE is too long");
    memcpy(store, below, store_length);
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *block = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (block == MAP_FAILED)
        fail("CHAOS_CONTROL can't be mapped");
    close(file);
    control = block;
    /* Whoever started this process may itself be killed, and nobody else would stop it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != atoi(parent))
        fail("an orphan already");
}

/* -- the clock ------------------------------------------------------------------------------------------------------ */

static void shift(struct timespec *now)
{
    int64_t offset = atomic_load_explicit(&control->clock_offset_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&control->clock_reads, 1, memory_order_relaxed);
    int64_t nanoseconds = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + offset;
    now->tv_sec = nanoseconds / 1000000000;
    now->tv_nsec = nanoseconds % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (control == NULL) /* somebody else's constructor, before ours */
        return ((int (*)(clockid_t, struct timespec *))next("clock_gettime"))(clock, now);
    int status = real_clock_gettime(clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        shift(now);
    return status;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    if (now != NULL)
        *now = found.tv_sec;
    return found.tv_sec;
}

/* -- the disk ------------------------------------------------------------------------------------------------------- */

static int in_store(int file)
{
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path);
    return length > (ssize_t)store_length && memcmp(path, store, store_length) == 0 && path[store_length] == '/';
}

/* Whether the file may not become this long. A full disk takes what it has room for: blocks that are written already. */
static int refused(int file, off_t length)
{
    struct stat found;
    if (control == NULL || !atomic_load_explicit(&control->disk_is_full, memory_order_relaxed) || !in_store(file))
        return 0;
    if (fstat(file, &found) != 0 || length <= found.st_size)
        return 0;
    atomic_fetch_add_explicit(&control->writes_refused, 1, memory_order_relaxed);
    errno = ENOSPC;
    return 1;
}

static ssize_t counted(int file, ssize_t written)
{
    if (written < 0 && errno == ENOSPC && control != NULL && in_store(file)) {
        atomic_fetch_add_explicit(&control->writes_refused, 1, memory_order_relaxed);
        errno = ENOSPC;
    }
    return written;
}

ssize_t write(int file, const void *bytes, size_t count)
{
    if (real_write == NULL)
        real_write = next("write");
    if (control != NULL && atomic_load_explicit(&control->disk_is_full, memory_order_relaxed)) {
        off_t position = lseek(file, 0, SEEK_CUR);
        if (position >= 0 && refused(file, position + (off_t)count))
            return -1;
    }
    return counted(file, real_write(file, bytes, count));
}

ssize_t pwrite(int file, const void *bytes, size_t count, off_t position)
{
    if (real_pwrite == NULL)
        real_pwrite = next("pwrite");
    if (refused(file, position + (off_t)count))
        return -1;
    return counted(file, real_pwrite(file, bytes, count, position));
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t position)
{
    return pwrite(file, bytes, count, position);
}

int ftruncate(int file, off_t length)
{
    if (real_ftruncate == NULL)
        real_ftruncate = next("ftruncate");
    if (refused(file, length))
        return -1;
    return (int)counted(file, real_ftruncate(file, length));
}

int ftruncate64(int file, off64_t length)
{
    return ftruncate(file, length);
}

static int sync_by(int (*real)(int), int file)
{
    if (control == NULL)
        return real(file);
    int64_t delay = atomic_load_explicit(&control->fsync_delay_us, memory_order_relaxed);
    int64_t every = atomic_load_explicit(&control->fsync_fails_every, memory_order_relaxed);
    if ((delay == 0 && every == 0) || !in_store(file))
        return real(file);
    if (delay > 0) {
        struct timespec pause = {.tv_sec = delay / 1000000, .tv_nsec = delay % 1000000 * 1000};
        atomic_fetch_add_explicit(&control->fsyncs_delayed, 1, memory_order_relaxed);
        while (clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, &pause) == EINTR)
            ;
    }
    if (every > 0 && atomic_fetch_add_explicit(&control->fsyncs, 1, memory_order_relaxed) % every == 0) {
        atomic_fetch_add_explicit(&control->fsyncs_failed, 1, memory_order_relaxed);
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fsync(int file)
{
    return sync_by(real_fsync != NULL ? real_fsync : next("fsync"), file);
}

int fdatasync(int file)
{
    return sync_by(real_fdatasync != NULL ? real_fdatasync : next("fdatasync"), file);
}
