/* A process that forks, whose child allocates, forks again and execs this program; every process says so. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void allocate(int n) {
  for (int i = 0; i < n; i++) { volatile char *p = malloc(32); p[0] = 1; free((void *)p); }
}

int main(int argc, char **argv) {
  if (argc > 1) { allocate(300); printf("exec\n"); return 5; }
  setvbuf(stdout, 0, _IOLBF, 1024);
  allocate(100);
  pid_t pid = fork();
  if (pid == 0) {
    allocate(200);
    printf("child\n");
    fflush(stdout);
    pid_t grandchild = fork();
    if (grandchild == 0) { execl(argv[0], argv[0], "again", (char *)0); _exit(1); }
    int status;
    waitpid(grandchild, &status, 0);
    _exit(WEXITSTATUS(status));
  }
  int status;
  waitpid(pid, &status, 0);
  printf("parent %d\n", WEXITSTATUS(status));
  return WEXITSTATUS(status);
}
