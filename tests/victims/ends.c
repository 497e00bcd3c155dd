/* Threads that nobody joins, all of which end at one moment; the process ends so many microseconds after it: ends MICROSECONDS. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 64, TOGETHER_NS = 400000000 };

static pthread_barrier_t all_there;

static void sleep_on(struct timespec since, long ns) {
  since.tv_nsec += ns;
  since.tv_sec += since.tv_nsec / 1000000000;
  since.tv_nsec %= 1000000000;
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &since, NULL);
}

static struct timespec begun;

static void *sleeps(void *number) {
  char name[16];
  snprintf(name, sizeof name, "sleeps-%ld", (long)number);
  pthread_setname_np(pthread_self(), name);
  pthread_barrier_wait(&all_there);
  pthread_barrier_wait(&all_there);
  sleep_on(begun, TOGETHER_NS);
  return NULL;
}

int main(int count, char **arguments) {
  pthread_barrier_init(&all_there, NULL, THREADS + 1);
  for (long number = 0; number < THREADS; number++) {
    pthread_t thread;
    pthread_create(&thread, NULL, sleeps, (void *)number);
    pthread_detach(thread);
  }
  pthread_barrier_wait(&all_there);
  clock_gettime(CLOCK_MONOTONIC, &begun);
  pthread_barrier_wait(&all_there);
  sleep_on(begun, TOGETHER_NS + 1000 * atol(count > 1 ? arguments[1] : "0"));
  return 0;
}
