/* An allocator for programs of a single thread, in a library (-shared): another thread in it ends the program. And a program that is linked with it (-DPROGRAM). */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef PROGRAM
enum { ROOM = 64 << 20 };
static char *next, *end;
static void *freed[64];

static void only_the_first(const char *name) {
  if (syscall(SYS_gettid) == syscall(SYS_getpid)) return;
  if (write(2, name, strlen(name)) < 0 || write(2, " on another thread\n", 19) < 0) syscall(SYS_exit_group, 8);
  syscall(SYS_exit_group, 9);
}

/* In front of each block its class, of powers of two. */
static void *take(const char *name, size_t size, size_t alignment) {
  only_the_first(name);
  int class = 5;
  while (((size_t)1 << class) < size) class++;
  if (alignment <= 16 && freed[class]) {
    void *block = freed[class];
    freed[class] = *(void **)block;
    return block;
  }
  if (!next) end = (next = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + ROOM;
  if (alignment < 16) alignment = 16;
  char *block = (char *)(((uintptr_t)next + 16 + alignment - 1) & -alignment);
  if (block + ((size_t)1 << class) > end) return errno = ENOMEM, (void *)0;
  next = block + ((size_t)1 << class);
  ((size_t *)block)[-1] = (size_t)class;
  return block;
}
void *malloc(size_t size) { return take("malloc", size, 16); }
void free(void *block) {
  only_the_first("free");
  if (!block) return;
  size_t class = ((size_t *)block)[-1];
  *(void **)block = freed[class];
  freed[class] = block;
}
void *calloc(size_t count, size_t size) {
  void *block = take("calloc", count * size, 16);
  return block ? memset(block, 0, count * size) : block;
}
void *realloc(void *old, size_t size) {
  void *block = take("realloc", size, 16);
  if (block && old) {
    size_t had = (size_t)1 << ((size_t *)old)[-1];
    memcpy(block, old, had < size ? had : size);
    free(old);
  }
  return block;
}
void *memalign(size_t alignment, size_t size) { return take("memalign", size, alignment); }
void *aligned_alloc(size_t alignment, size_t size) { return take("aligned_alloc", size, alignment); }
int posix_memalign(void **to, size_t alignment, size_t size) {
  return (*to = take("posix_memalign", size, alignment)) ? 0 : ENOMEM;
}
size_t malloc_usable_size(void *block) { return block ? (size_t)1 << ((size_t *)block)[-1] : 0; }
#else
#include <stdlib.h>

__attribute__((noinline)) static void work(void) {
  for (volatile int i = 0; i < 20000; i++) {}
}

static long cpu_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int count, char **arguments) {
  long ms = count > 1 ? atol(arguments[1]) : 500;
  char *kept[64] = {0};
  for (long i = 0, begun = cpu_ms(); cpu_ms() - begun < ms; i++) {
    char **place = &kept[i % 64];
    if (*place && **place != (char)(i - 64)) return 1;
    *place = realloc(*place, (size_t)(1 + i * 37 % 5000));
    **place = (char)i;
    work();
  }
  puts("done");
  return 3;
}
#endif
