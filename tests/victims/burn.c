/* Burns CPU time: three parts in `burn_most`, one part in `burn_some`, on as many threads as asked for, together for some five seconds. Prints, in nanoseconds, the process's CPU time and, by
   the clocks of the threads, that in each of the two. It works by counting, and looks at the clock before and after a piece: where threads wait for a processor, that is when the kernel takes it
   away, before the tick. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static volatile unsigned long sink;

/* A chain of multiplications takes about the same time everywhere. */
__attribute__((noinline)) void burn_most(long count) {
  unsigned long x = 1;
  for (long i = 0; i < count; i++) x = x * 6364136223846793005UL + i;
  sink = x;
}

__attribute__((noinline)) void burn_some(long count) {
  unsigned long x = 1;
  for (long i = 0; i < count; i++) x = x * 6364136223846793005UL - i;
  sink = x;
}

static int rounds;
static atomic_llong in_most, in_some;

void *work(void *unused) {
  (void)unused;
  for (int i = 0; i < rounds; i++) {
    long long start = now(CLOCK_THREAD_CPUTIME_ID);
    burn_most(45000000);
    long long between = now(CLOCK_THREAD_CPUTIME_ID);
    burn_some(15000000);
    in_most += between - start;
    in_some += now(CLOCK_THREAD_CPUTIME_ID) - between;
  }
  return 0;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t threads[64];
  rounds = 60 / n;
  for (int i = 0; i < n; i++) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < n; i++) pthread_join(threads[i], 0);
  printf("%lld %lld %lld\n", now(CLOCK_PROCESS_CPUTIME_ID), in_most, in_some);
  return 0;
}
