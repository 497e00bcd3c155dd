/* A process that forks again and again, each time with one more block of every small size kept: whatever its allocator has at hand without a lock for the next one, at some fork it has not. Says how many
 * children ended well. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  int ended = 0;
  for (int i = 0; i < 150; i++) {
    for (size_t size = 16; size <= 1024; size += 16) { volatile char *kept = calloc(1, size); kept[0] = 1; }
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    int status = -1;
    ended += waitpid(pid, &status, 0) == pid && status == 0;
  }
  printf("%d\n", ended);
  return 0;
}
