/* More threads than the processors that it keeps to, of which most never block. Prints, in nanoseconds, how long those that spin were there, on a processor and waiting for one, as the kernel tells. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static long long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

enum { MS = 1000000 };
static atomic_llong elapsed, ran, waited;

static void *spins(void *begun) {
  while (now() - *(long long *)begun < 2000LL * MS) {}
  char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", gettid());
  FILE *file = fopen(path, "r");
  long long mine[2] = {0, 0};
  if (file && fscanf(file, "%lld %lld", &mine[0], &mine[1]) == 2) {
    ran += mine[0];
    waited += mine[1];
  }
  elapsed += now() - *(long long *)begun;
  return 0;
}

static void *naps(void *begun) {
  while (now() - *(long long *)begun < 2000LL * MS) nanosleep(&(struct timespec){0, 3 * MS}, 0);
  return 0;
}

enum { COUNT = 5 };

int main(void) {
  cpu_set_t may, two;
  CPU_ZERO(&two);
  if (sched_getaffinity(0, sizeof may, &may)) return 2;
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
    if (CPU_ISSET(i, &may)) CPU_SET(i, &two);
  if (sched_setaffinity(0, sizeof two, &two)) return 2;
  pthread_t threads[COUNT + 1];
  long long begun[COUNT + 1];
  for (int i = 0; i <= COUNT; i++) {
    begun[i] = now();
    pthread_create(&threads[i], 0, i ? spins : naps, &begun[i]);
    pthread_setname_np(threads[i], i ? "spins" : "naps");
  }
  for (int i = 0; i <= COUNT; i++) pthread_join(threads[i], 0);
  printf("%lld %lld %lld\n", (long long)elapsed, (long long)ran, (long long)waited);
}
