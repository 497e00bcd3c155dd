/* A system call every few microseconds. Prints the CPU time of work with calls, and of the same work without, in nanoseconds. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 200000 };

static long long spent(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static __attribute__((noinline)) void work(void) {
  for (volatile long left = 25000; left != 0; left--) {
  }
}

static __attribute__((noinline)) void call(void) {
  syscall(SYS_getppid);
  __asm__ volatile("");
}

static __attribute__((noinline)) void with_calls(void) {
  for (int i = 0; i < TIMES; i++) {
    work();
    call();
  }
}

static __attribute__((noinline)) void without(void) {
  for (int i = 0; i < TIMES; i++) {
    work();
    __asm__ volatile("");
  }
}

int main(void) {
  long long begun = spent();
  with_calls();
  long long called = spent();
  without();
  printf("%lld %lld\n", called - begun, spent() - called);
  return 0;
}
