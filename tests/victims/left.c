/* Leaves what it does by jumps out of a signal handler, as programs do that bound a computation by a timer: argument 1 says how often. Between them it allocates at thirty depths, keeps and replaces
   blocks; another thread allocates all the while; and afterwards it goes on without a signal. Tells in its own book what it got and what it gave back.
   Its allocator (left_allocator.c) can be left anywhere. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum { DEPTHS = 30, KEPT = 3000 };
static struct { volatile long got, given; } by_depth[DEPTHS], kept_ones, worker;
static volatile long jumps, rounds;
static volatile int ends;
static sigjmp_buf back;
static void *volatile kept[KEPT];

static void handler(int signal) {
  (void)signal;
  jumps++;
  siglongjmp(back, 1);
}

__attribute__((noipa)) static void deep(int depth, int most) {
  void *volatile block = malloc(20 + depth);
  by_depth[depth].got++;
  if (depth + 1 < most) deep(depth + 1, most);
  by_depth[depth].given++;
  free(block);
}

__attribute__((noipa)) static void replace(unsigned number) {
  unsigned at = number * 2654435761u % KEPT;
  void *before = kept[at];
  if (before) {
    kept[at] = 0;
    kept_ones.given++;
    free(before);
  }
  void *block = malloc(16 + number % 500);
  kept_ones.got++;
  kept[at] = block;
}

__attribute__((noipa)) static void give_back(void) {
  for (int i = 0; i < KEPT; i++)
    if (kept[i]) kept_ones.given++, free(kept[i]);
}

__attribute__((noipa)) static void later(void) {
  for (int i = 0; i < 100000; i++) {
    void *volatile block = malloc(777);
    free(block);
  }
}

__attribute__((noipa)) static void work(void) {
  static void *volatile blocks[100];
  for (int i = 0; !ends || i % 100; i++) {
    free(blocks[i % 100]);
    blocks[i % 100] = malloc(300 + i % 100);
    worker.got++;
  }
  for (int i = 0; i < 100; i++) free(blocks[i]);
}
static void *thread(void *unused) {
  work();
  return unused;
}

int main(int argc, char **argv) {
  long most = argc > 1 ? atol(argv[1]) : 0;
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  pthread_t id;
  pthread_sigmask(SIG_BLOCK, &alarms, 0);
  if (pthread_create(&id, 0, thread, 0)) return 1;
  pthread_sigmask(SIG_UNBLOCK, &alarms, 0);

  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGALRM, &action, 0);
  struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
  if (!sigsetjmp(back, 1)) setitimer(ITIMER_REAL, &often, 0);
  while (jumps < most) {
    deep(0, 1 + rounds % DEPTHS);
    replace(rounds++);
  }
  setitimer(ITIMER_REAL, &never, 0);
  /* What the last jump left locked is waited for until this thread is here again. */
  replace(rounds);
  ends = 1;
  pthread_join(id, 0);
  give_back();
  later();
  printf("jumps %ld\nworker %ld\nkept %ld %ld\n", jumps, worker.got, kept_ones.got, kept_ones.given);
  for (int i = 0; i < DEPTHS; i++) printf("deep %ld %ld\n", by_depth[i].got, by_depth[i].given);
  return 0;
}
