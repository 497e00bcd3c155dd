/* Parts of the C library that are written in assembly, or call back. */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

volatile long sink;
volatile double number = 1.2345;
volatile long double long_number = 1.2345L;

/* The kernel's own object, where it can tell without a call. */
void clocks(void) {
  struct timespec now;
  struct timeval day;
  time_t seconds;
  unsigned cpu, node;
  for (int clock = 0; clock < 12; clock++) sink += clock_gettime(clock, &now) + clock_getres(clock, &now);
  gettimeofday(&day, 0);
  getcpu(&cpu, &node);
  sink += time(&seconds) + time(0) + sched_getcpu();
}

static int compares(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

void texts(void) {
  char text[400];
  int numbers[] = {3, 1, 2, 9, 5, 4, 8};
  qsort(numbers, sizeof numbers / sizeof *numbers, sizeof *numbers, compares);
  int key = 5;
  sink += bsearch(&key, numbers, sizeof numbers / sizeof *numbers, sizeof *numbers, compares) != 0;
  /* Digits of large numbers are made by multiplication in assembly. */
  sink += snprintf(text, sizeof text, "%s %d %.30f %lx %Lg %a", "x", 5, number * 1e30, 7L, long_number, number);
  sink += strtod("123456789012345678901234567890.5e-20", 0) + strtold("1e300", 0) > 0;
  free(realloc(malloc(100), 100000));
  sink += getenv("PATH") != 0;
}

void numbers(void) {
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    double x = number * (i + 1);
    sum += sin(x) + cos(x) + tan(x) + exp(x) + log(x) + pow(x, 2.5) + atan2(x, 2) + fmod(x * 1e5, 3) + floor(x) + rint(x) + cbrt(x);
    sum += (double)(expl(long_number) + powl(long_number, 1.5L) + sinl(long_number) + logl(long_number) + fmodl(long_number * 7, 2));
  }
  sink = (long)sum;
}
