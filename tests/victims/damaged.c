/* Half a program, half a library (with LIBRARY defined). Each allocates and computes on its own, in a thread of its own, and both in turns. The arguments say what becomes of a
   file while it is in use, before which of four rounds of work: `0 delete FILE`, `1 replace FILE OTHER`, `0 truncate FILE SIZE`. With BRIEF in the
   environment it computes next to nothing: nobody looks at its CPU time. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, visibility("default")))

int library_turn(int depth, int (*back)(int));
int library_compare(const void *a, const void *b);
void library_works_alone(void);

#ifdef LIBRARY
#define ALONE library_alone
#define ALONE_DEEPER library_alone_deeper
#else
#define ALONE program_alone
#define ALONE_DEEPER program_alone_deeper
#endif

static volatile long sink;
/* No constant: the segment with the frame information is to begin with that. */
static char brief[] = "BRIEF";

/* The registers that a call keeps are in use, so that there is something to restore. */
KEEP int ALONE_DEEPER(int depth, int a, int b, int c) {
  char *block = malloc(16 + depth);
  memset(block, depth, 16);
  int below = depth ? ALONE_DEEPER(depth - 1, b, c, a + 1) : 0;
  for (int i = getenv(brief) ? 29970 : 0; i < 30000; i++) sink += i ^ a;
  int result = below + block[3] + a * 3 + b * 5 + c * 7;
  free(block);
  return result;
}

KEEP void *ALONE(void *unused) {
  (void)unused;
  long sum = 0;
  for (int i = 0; i < 60; i++) sum += ALONE_DEEPER(i % 12, i, i + 1, i + 2);
  return (void *)sum;
}

#ifdef LIBRARY

static long alone;

KEEP void library_works_alone(void) {
  pthread_t thread;
  void *sum;
  if (pthread_create(&thread, 0, library_alone, 0) || pthread_join(thread, &sum)) abort();
  alone += (long)sum;
}

KEEP int library_turn(int depth, int (*back)(int)) {
  int *block = calloc(4, sizeof *block);
  block[1] = depth;
  int result = depth ? back(depth - 1) : (int)alone;
  result += block[1];
  for (int i = 0; i < 10000; i++) sink += i;
  free(block);
  return result;
}

KEEP int library_compare(const void *a, const void *b) {
  free(malloc(8));
  return *(const int *)a - *(const int *)b;
}

#else

KEEP int program_turn(int depth) {
  char *block = realloc(malloc(10), 100);
  block[50] = 1;
  int result = depth ? library_turn(depth - 1, program_turn) : 0;
  result += block[50];
  free(block);
  return result;
}

KEEP long work(void) {
  pthread_t thread;
  void *sum;
  if (pthread_create(&thread, 0, program_alone, 0) || pthread_join(thread, &sum)) abort();
  library_works_alone();
  long all = (long)sum;
  for (int i = 0; i < 40; i++) all += program_turn(i % 20);
  int numbers[64];
  for (int i = 0; i < 64; i++) numbers[i] = i * 37 % 64;
  qsort(numbers, 64, sizeof *numbers, library_compare);
  return all + numbers[5];
}

int change(int count, char **arguments) {
  if (count == 2 && !strcmp(arguments[0], "delete")) return unlink(arguments[1]);
  if (count == 3 && !strcmp(arguments[0], "replace")) return rename(arguments[2], arguments[1]);
  if (count == 3 && !strcmp(arguments[0], "truncate")) return truncate(arguments[1], atol(arguments[2]));
  return -1;
}

int main(int count, char **arguments) {
  long sum = 0;
  for (int round = 0; round < 4; round++) {
    if (count > 2 && round == atoi(arguments[1]) && change(count - 2, arguments + 2)) abort();
    sum += work();
  }
  printf("%ld\n", sum);
  return 0;
}

#endif
