/* Burns CPU time: three parts in `burn_most`, one part in `burn_some`, on as many threads as asked for, together for 4.8 seconds. Prints the process's CPU time in nanoseconds. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long thread_cpu(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static volatile long sink;

__attribute__((noinline)) void burn_most(long long until) { while (thread_cpu() < until) for (int i = 0; i < 1000; i++) sink += i; }
__attribute__((noinline)) void burn_some(long long until) { while (thread_cpu() < until) for (int i = 0; i < 1000; i++) sink -= i; }

static int rounds;

void *work(void *unused) {
  (void)unused;
  for (int i = 0; i < rounds; i++) {
    burn_most(thread_cpu() + 60000000);
    burn_some(thread_cpu() + 20000000);
  }
  return 0;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t threads[64];
  rounds = 60 / n;
  for (int i = 0; i < n; i++) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < n; i++) pthread_join(threads[i], 0);
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  printf("%lld\n", t.tv_sec * 1000000000LL + t.tv_nsec);
  return 0;
}
