/* A library that is copied many times: its functions lie elsewhere in each VARIANT, and a copy has a number in its name. */
#include <stdlib.h>
#include <time.h>

__asm__(".text\n.skip " VARIANT " * 48, 0x90\n");
static volatile long sink;

static long cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* One allocation, or as much time as asked for. */
static __attribute__((noinline, noclone)) void inner_0000(long nanoseconds) {
  volatile char room[(VARIANT)[0] * 16];
  room[nanoseconds & 15] = 1;
  long end = cpu_ns() + nanoseconds;
  do {
    free(malloc(10));
    for (int k = 0; nanoseconds && k < 100000; k++) sink += k;
  } while (nanoseconds && cpu_ns() < end);
  sink += room[nanoseconds & 15];
}
__asm__("end_of_inner:");
void enter(long nanoseconds) { inner_0000(nanoseconds); sink++; }
__asm__("end_of_enter:");

/* Where the two begin and end. Compiled with -fno-toplevel-reorder. */
extern char end_of_inner[], end_of_enter[];
void *const places[] = {enter, end_of_enter, inner_0000, end_of_inner};
