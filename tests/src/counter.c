/* An independent counter of allocation calls: nothing of Profile Recorder is in here.
   Counts into a file that all processes of a run share, so that it is complete however they end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long *counts;
static char early[65536];
static unsigned long used;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Where bytes asked are summed, after the calls of each function. */
enum { BYTES = 6 };

static void count(int which, unsigned long bytes) {
  static unsigned long waiting[16];
  if (!counts) {
    waiting[which]++;
    waiting[BYTES] += bytes;
    const char *path = getenv("COUNTER_FILE");
    /* Not in the recorder itself, whose environment this is too. */
    if (!path || !getenv("PROFILE_RECORDER_STORE")) return;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096)) return;
    unsigned long *shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) return;
    for (int i = 0; i < 16; i++) __atomic_fetch_add(shared + i, waiting[i], __ATOMIC_RELAXED);
    counts = shared;
    return;
  }
  __atomic_fetch_add(counts + which, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(counts + BYTES, bytes, __ATOMIC_RELAXED);
}

#define NEXT(name) \
  static __typeof__(&name) real; \
  static int busy; \
  if (!real) { if (busy) goto bootstrap; busy = 1; real = (__typeof__(&name))next(#name); busy = 0; }

void *malloc(size_t size) {
  NEXT(malloc)
  int e = errno; count(0, size); errno = e;
  return real(size);
bootstrap:
  used += (size + 15) & ~15UL;
  return early + used - ((size + 15) & ~15UL);
}
void *calloc(size_t n, size_t size) {
  NEXT(calloc)
  int e = errno; count(1, n * size); errno = e;
  return real(n, size);
bootstrap:
  used += (n * size + 15) & ~15UL;
  return early + used - ((n * size + 15) & ~15UL);
}
void *realloc(void *p, size_t size) {
  NEXT(realloc)
  int e = errno; count(2, size); errno = e;
  return real(p, size);
bootstrap:
  abort();
}
int posix_memalign(void **p, size_t a, size_t size) {
  NEXT(posix_memalign)
  int e = errno; count(3, size); errno = e;
  return real(p, a, size);
bootstrap:
  abort();
}
void *aligned_alloc(size_t a, size_t size) {
  NEXT(aligned_alloc)
  int e = errno; count(4, size); errno = e;
  return real(a, size);
bootstrap:
  abort();
}
void free(void *p) {
  if ((char *)p >= early && (char *)p < early + sizeof early) return;
  NEXT(free)
  int e = errno; count(5, 0); errno = e;
  real(p);
  return;
bootstrap:
  return;
}
