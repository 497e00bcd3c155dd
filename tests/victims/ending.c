/* Allocates 5000 blocks in `work`, then ends as the argument says. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) void work(void) {
  for (int i = 0; i < 5000; i++) { volatile char *p = malloc(100); p[0] = 1; }
}

int main(int argc, char **argv) {
  work();
  const char *how = argc > 1 ? argv[1] : "";
  if (!strcmp(how, "_exit")) _exit(7);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "kill")) raise(SIGKILL);
  if (!strcmp(how, "segv")) *(volatile int *)0 = 1;
  return 0;
}
