/* Eight threads allocate all the time while eight others make processes, 125 each: by fork (the child leaves by _exit, by exit or by exec), by vfork or by posix_spawn.
   Prints how many of the allocations of `allocate` the parent made, and how many its children; fails if one of them did not end well. */
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define EACH 125
#define IN_CHILD 20
extern char **environ;
static atomic_long made, failed;
static atomic_int over;
static const char *how;
static char *truth[] = {"/bin/true", NULL};

__attribute__((noinline)) void allocate(unsigned seed) {
  size_t size = 16 + seed % 500;
  char *p = malloc(size);
  memset(p, seed, size);
  p = realloc(p, size + 100);
  if (p[size - 1] != (char)seed) _exit(9);
  free(p);
}

static void *allocates(void *unused) {
  (void)unused;
  long mine = 0;
  while (!over) {
    allocate(mine++);
    if (mine % 64 == 0) usleep(50);
  }
  made += mine;
  return NULL;
}

static void child(int i) {
  for (int k = 0; k < IN_CHILD; k++) allocate(i + k);
  if (i % 3 == 0) _exit(0);
  if (i % 3 == 1) exit(0);
  execv(truth[0], truth);
  _exit(8);
}

static void *multiplies(void *unused) {
  (void)unused;
  for (int i = 0; i < EACH; i++) {
    pid_t pid = -1;
    allocate(i);
    if (!strcmp(how, "fork")) {
      pid = fork();
      if (pid == 0) child(i);
    } else if (!strcmp(how, "vfork")) {
      pid = vfork();
      if (pid == 0) {
        execv(truth[0], truth);
        _exit(8);
      }
    } else if (posix_spawn(&pid, truth[0], NULL, NULL, truth, environ)) {
      pid = -1;
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) failed++;
  }
  made += EACH;
  return NULL;
}

int main(int argc, char **argv) {
  how = argc > 1 ? argv[1] : "fork";
  pthread_t threads[2 * THREADS];
  for (int i = 0; i < 2 * THREADS; i++) pthread_create(&threads[i], NULL, i < THREADS ? allocates : multiplies, NULL);
  for (int i = THREADS; i < 2 * THREADS; i++) pthread_join(threads[i], NULL);
  over = 1;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  /* A realloc is an allocation too. */
  printf("%s: parent %ld children %d failed %ld\n", how, made * 2, strcmp(how, "fork") ? 0 : THREADS * EACH * IN_CHILD * 2, failed);
  return failed != 0;
}
