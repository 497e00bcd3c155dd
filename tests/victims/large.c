/* Touches so many mebibytes, a page each, and forks ten times: by fork, and by a raw clone, which no fork handler announces. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  size_t bytes = (argc > 1 ? strtoul(argv[1], 0, 10) : 512) << 20;
  char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return perror("mmap"), 1;
  /* Small pages: as many as there can be. */
  madvise(memory, bytes, MADV_NOHUGEPAGE);
  for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
  int children = 0;
  for (int i = 0; i < 10; i++) {
    double begun = now();
    pid_t child = i % 2 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) _exit(memory[bytes - 4096] == 1 ? 0 : 1);
    if (child < 0) return perror("fork"), 1;
    printf("%s %.1f ms\n", i % 2 ? "clone" : "fork", (now() - begun) * 1000);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return perror("waitpid"), 1;
    children++;
  }
  printf("%d children\n", children);
  return 0;
}
