/* Allocates on 6,000 different stacks of up to 120 frames, in two threads; says how often, and ends with exit code 3.
   `drop` gives up before what a daemon gives up: its descriptors, and if it is root also its user and its root directory. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define STACKS 3000
#define FRAMES 120

static void left(unsigned path, int more);
static void right(unsigned path, int more);

static __attribute__((noinline)) void leaf(unsigned size) {
  volatile char *p = malloc(16 + size % 1000);
  p[0] = 1;
  free((void *)p);
}
#define SIDE(name) \
  static __attribute__((noinline)) void name(unsigned path, int more) { \
    if (more == 0) leaf(path); \
    else if ((path >> more % 16) & 1) left(path, more - 1); \
    else right(path, more - 1); \
    __asm__ volatile(""); \
  }
SIDE(left)
SIDE(right)

static void *work(void *unused) {
  (void)unused;
  for (unsigned i = 0; i < STACKS; i++) left(i * 2654435761u >> 8, FRAMES - i % 90);
  return NULL;
}

static int give_up(const char *empty_directory) {
  if (geteuid() == 0 && (chroot(empty_directory) || chdir("/") || setgid(65534) || setuid(65534))) return 1;
  struct rlimit none = {0, 0};
  if (setrlimit(RLIMIT_NOFILE, &none)) return 1;
  return closefrom(3), 0;
}

int main(int argc, char **argv) {
  char *buffer = malloc(1 << 12);
  setvbuf(stdout, buffer, _IOFBF, 1 << 12);
  if (argc > 2 && !strcmp(argv[1], "drop") && give_up(argv[2])) return perror("drop"), 1;
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  work(NULL);
  pthread_join(thread, NULL);
  printf("%d\n", 2 * STACKS);
  return 3;
}
