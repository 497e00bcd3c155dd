/* main -> a -> b -> c -> malloc, or c -> burn: a chain that is known, whatever its frames look like. Compiled whole or in PARTs (1: main, 2: a and c, 3: b), as an executable
   or as a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PART
#define PART 0
#endif
#define NOINLINE __attribute__((noinline, noclone))
#define ALLOCATIONS 4000

void a(long i), b(long i), c(long i);

#if PART != 1
static volatile long sink;
#endif

#if PART == 0 || PART == 2
/* So small that ticks meet each of its instructions. */
NOINLINE static long step(long i) { volatile long kept[2] = {i, sink}; return kept[0] ^ kept[1]; }
/* A few milliseconds. It does not ask how long it worked: where threads wait for a processor, that is when the kernel takes it away, before the tick. */
NOINLINE static void burn(void) {
  for (int k = 0; k < 1000000; k++) sink += step(k);
}
/* Keeps values in every register that calls preserve. */
NOINLINE void c(long i) {
  long p = i, q = i * 3, r = i ^ 5, s = i + 7, t = i - 1, u = sink;
  if (i < 0) burn();
  for (int k = 0; k < 2; k++) {
    free(malloc(i < 0 ? 9 : i % 100 + 1));
    p += q; q ^= r; r += s; s ^= t; t += u; u ^= p;
  }
  sink += p + q + r + s + t + u;
}
/* A frame whose size is known at run time alone. */
NOINLINE void a(long i) {
  volatile char room[(i & 63) + 16];
  room[i & 15] = 1;
  b(i);
  sink += room[i & 15];
}
#endif

#if PART == 0 || PART == 3
NOINLINE void b(long i) {
  volatile char room[3000];
  room[(i & 511) + 1] = 1;
  c(i);
  sink += room[(i & 511) + 1];
}
#endif

/* Enough functions that their description is worth compressing. */
#define F(n) NOINLINE long PASTE(f, n)(long i) { volatile char room[n]; room[i % n] = 1; return room[0] + step(i); }
#define PASTE(x, y) PASTE_(x, y)
#define PASTE_(x, y) x##y
#define TEN(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#if PART == 0 || PART == 2
TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9)
#endif

#ifndef LIBRARY
#if PART == 0 || PART == 1
/* allocs or cpu, then what happens before: `rename FILE` to the program's own path, or `dlopen FILE`. */
int main(int argc, char **argv) {
  void (*first)(long) = 0;
  /* The clock of files ticks every few milliseconds. */
  if (argc > 4 && !strcmp(argv[2], "rename") && (usleep(50000) || rename(argv[3], argv[4]))) return 3;
  if (argc > 3 && !strcmp(argv[2], "dlopen")) {
    void *library = dlopen(argv[3], RTLD_NOW);
    if (!library) { puts(dlerror()); return 4; }
    first = (void (*)(long))dlsym(library, "a");
  }
#ifndef OPENS
  if (!first) first = a;
#endif
  int burns = !strcmp(argv[1], "cpu");
  for (long i = 0; i < (burns ? 500 : ALLOCATIONS / 2); i++) first(burns ? -1 - i : i);
  return 0;
}
#endif
#endif
