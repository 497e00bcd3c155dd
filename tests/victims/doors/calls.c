/* A library that allocates: NAME is its one function. It is compiled without tail calls, so that a caller is known by its return address. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static void allocate(int i) {
  free(malloc(i + 1));
  free(calloc(i + 1, 2));
  free(realloc(malloc(1), i + 100));
  free(memalign(64, 64));
  free(reallocarray(malloc(1), 3, i + 1));
  free(strdup("in the C library, for this one"));
}

void NAME(int n) {
  for (int i = 0; i < n; i++) allocate(i);
}

__attribute__((constructor)) static void construct(void) { free(malloc(5)); }
