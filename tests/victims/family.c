/* Calls every allocation function a known number of times. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  void *p = 0;
  for (int i = 0; i < 1000; i++) free(malloc(i));
  for (int i = 0; i < 900; i++) free(calloc(i, 3));
  for (int i = 1; i <= 800; i++) p = realloc(p, i * 10);
  free(p);
  p = 0;
  for (int i = 1; i <= 70; i++) p = reallocarray(p, i, 16);
  free(p);
  for (int i = 0; i < 60; i++) { void *q = 0; if (posix_memalign(&q, 64, 100 + i)) return 1; free(q); }
  for (int i = 0; i < 50; i++) free(aligned_alloc(32, 320));
  for (int i = 0; i < 40; i++) free(memalign(128, 77));
  for (int i = 0; i < 30; i++) free(valloc(10));
  for (int i = 0; i < 20; i++) free(pvalloc(10));
  char *copy = strdup("counted in libc");
  puts(copy);
  free(copy);
  return 0;
}
