/* Calls between objects: each function is called through its entry of the procedure linkage table, the first time to bind it. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

volatile long sink;

/* Exported, so that calls from within this object are bound by the dynamic linker, too. */
long first(long n) { return n + 1; }
long second(long a, long b, long c, long d, long e, long f, long g, long h) { return a + b + c + d + e + f + g + h; }
double third(double a, long n) { return a * n; }

/* Both called and pointed to: linkers make an entry without binding for it. */
long pointed_to(long n) { return n - 1; }
long (*volatile pointer)(long) = pointed_to;

static long implementation(long n) { return n * 2; }
static long (*choose(void))(long) { return implementation; }
long chosen(long n) __attribute__((ifunc("choose")));

/* Found by a call of the dynamic linker, or by a descriptor. */
__thread long of_thread[100];
extern __thread int errno_of_mine;
__thread int errno_of_mine;

static void calls(long n) {
  sink = first(n) + second(1, 2, 3, 4, 5, 6, 7, n) + (long)third(2.5, n) + pointed_to(n) + pointer(n) + chosen(n);
  of_thread[n] += n;
  errno_of_mine += (int)of_thread[n];
  sink = abs((int)sink) + atol("12345") + strtol("0x17", 0, 0) + (getenv("HOME") != 0) + getpid();
}

void run(void) {
  calls(1);
  calls(2);
  calls(3);
}
