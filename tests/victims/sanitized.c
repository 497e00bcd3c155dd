/* Obtains a thousand blocks, of which it keeps one to its end, works for a fifth of a second of CPU time, and ends with 5. Built with sanitizers, which would print what they find and end it otherwise. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;
char *volatile kept;

__attribute__((noinline)) static char *obtain(int i) {
  char *block = malloc(64);
  block[0] = (char)i;
  return block;
}

__attribute__((noinline)) static void work(void) {
  struct timespec now;
  do {
    for (unsigned long i = 0; i < 100000; i++) sink += i;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (now.tv_sec == 0 && now.tv_nsec < 300000000);
}

int main(void) {
  for (int i = 0; i < 1000; i++) {
    char *block = obtain(i);
    if (i == 0)
      kept = block;
    else
      free(block);
  }
  work();
  puts("ok");
  return 5;
}
