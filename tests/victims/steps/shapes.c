/* Functions whose prologues and epilogues differ, for compilers to do what they can with. Nothing is static, so that each has a name. */
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

typedef double vector __attribute__((vector_size(32)));
#ifdef __clang__
#define APART __attribute__((noinline))
#else
#define APART __attribute__((noinline, noclone))
#endif

volatile long sink;

/* A leaf, with its locals in the red zone if it has one. */
APART long leaf(long n) {
  volatile long local[6];
  for (int i = 0; i < 6; i++) local[i] = n + i;
  return local[1] + local[4];
}

/* Lives across calls, in every register that a callee saves, and on the stack. */
APART long many_registers(long a, long b, long c, long d, long e, long f) {
  long g = leaf(a), h = leaf(b), i = leaf(c), j = leaf(d), k = leaf(e), l = leaf(f), m = leaf(g), n = leaf(h);
  sink = leaf(i);
  return a + b + c + d + e + f + g * h + i * j + k * l + m * n;
}

/* Arguments on the stack. */
APART long many_arguments(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
  return leaf(a + b + c) + leaf(d + e + f) + leaf(g + h + i);
}

/* The prologue belongs to the rare path alone. */
APART long shrink_wrapped(long n) {
  if (__builtin_expect(n < 10, 1)) return n + 1;
  long a = leaf(n), b = leaf(a), c = leaf(b);
  return many_registers(a, b, c, a, b, c) + a + b + c;
}

/* Aligned to more than the stack is: gcc keeps the caller's stack pointer in r10. */
APART long over_aligned(long n) {
  long values[8] __attribute__((aligned(64)));
  for (int i = 0; i < 8; i++) values[i] = leaf(n + i);
  sink = (long)values;
  return values[3] + many_registers(n, values[0], values[1], values[2], values[3], values[4]);
}

APART long over_aligned_with_arguments(long a, long b, long c, long d, long e, long f, long g, long h) {
  long values[8] __attribute__((aligned(128)));
  for (int i = 0; i < 8; i++) values[i] = leaf(a + i) + g;
  sink = (long)values;
  return values[a & 7] + b + c + d + e + f + h;
}

APART long over_aligned_dynamic(long n, ...) {
  va_list list;
  long values[8] __attribute__((aligned(64)));
  long *more = alloca(n * sizeof(long));
  va_start(list, n);
  for (int i = 0; i < n; i++) more[i] = va_arg(list, long);
  for (int i = 0; i < 8; i++) values[i] = leaf(more[i % n]);
  va_end(list);
  sink = (long)values + (long)more;
  return values[2] + more[1];
}

__attribute__((target("avx"))) APART vector vectors(vector a, vector b, long n) {
  volatile vector kept = a * b;
  for (long i = 0; i < n; i++) kept += a;
  sink = leaf(n);
  return kept + b;
}

__attribute__((target("avx"))) APART long with_vectors(long n) {
  vector a = {n, 2, 3, 4}, b = {5, 6, 7, n};
  vector c = vectors(a, b, n);
  vector d = vectors(c, a, n);
  return (long)(d[0] + c[1] + d[2] + c[3]);
}

APART long with_alloca(long n) {
  char *bytes = alloca(n);
  for (long i = 0; i < n; i++) bytes[i] = (char)i;
  sink = (long)bytes;
  return leaf(bytes[n / 2]);
}

APART long with_array(long n) {
  long sum = 0;
  for (long size = 1; size < n; size++) {
    long array[size];
    array[size - 1] = leaf(size);
    sink = (long)array;
    sum += array[size - 1];
  }
  return sum;
}

/* More than a page: with probes, if the compiler is told so. */
APART long large_frame(long n) {
  volatile char bytes[3 * 4096 + 100];
  bytes[0] = (char)n;
  bytes[sizeof bytes - 1] = (char)n;
  return leaf(bytes[0] + bytes[sizeof bytes - 1]);
}

APART long larger_frame(long n) {
  volatile char bytes[20 * 4096];
  bytes[n] = (char)n;
  return large_frame(bytes[n]);
}

APART long variadic(int n, ...) {
  va_list list;
  double sum = 0;
  va_start(list, n);
  for (int i = 0; i < n; i++) sum += i & 1 ? va_arg(list, double) : (double)va_arg(list, long);
  va_end(list);
  return leaf((long)sum);
}

/* Ends with a call that does not return, whose return address is that of the next function. */
jmp_buf back;
__attribute__((noreturn)) APART void does_not_return(long n) {
  sink = n;
  longjmp(back, 1);
}
APART long ends_with_a_call(long n) {
  if (n > 3) return leaf(n);
  does_not_return(leaf(n));
}
APART long after_it(long n) { return n + sink; }
APART long catches(long n) {
  if (setjmp(back)) return after_it(n);
  return ends_with_a_call(n);
}

APART long tail_called(long n) { return leaf(n) + 1; }
APART long tail_calls(long n) {
  if (n & 1) return tail_called(n);
  sink = leaf(n);
  return shrink_wrapped(n);
}
long (*volatile pointer)(long) = tail_calls;
APART long tail_calls_a_pointer(long n) {
  sink = leaf(n);
  return pointer(n);
}

APART long recursive(long n) { return n < 2 ? n : recursive(n - 1) + recursive(n - 2) + leaf(n); }

#ifndef __clang__
/* The inner one finds its parent's frame in r10. */
APART long with_nested(long n) {
  long inner(long m) { return leaf(m) + n; }
  return inner(n) + inner(n + 1);
}
#else
APART long with_nested(long n) { return leaf(n); }
#endif

typedef struct { long values[20]; } large;
APART large makes_a_structure(long n) {
  large made = {{0}};
  made.values[n % 20] = leaf(n);
  return made;
}
APART long takes_a_structure(large taken) { return leaf(taken.values[4]); }

APART long switches(long n) {
  switch (n) {
    case 0: return leaf(1);
    case 1: return many_registers(n, 2, 3, 4, 5, 6);
    case 2: return tail_calls(n);
    case 3: return n * 7;
    case 4: return with_alloca(n);
    case 5: return variadic(2, 1L, 2.0);
    default: return 9;
  }
}

void run(void) {
  sink = many_registers(1, 2, 3, 4, 5, 6) + many_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9);
  sink = shrink_wrapped(1) + shrink_wrapped(100);
  sink = over_aligned(5) + over_aligned_with_arguments(1, 2, 3, 4, 5, 6, 7, 8) + over_aligned_dynamic(3, 4L, 5L, 6L);
  if (__builtin_cpu_supports("avx")) sink = with_vectors(3);
  sink = with_alloca(40) + with_array(6) + larger_frame(9);
  sink = variadic(4, 1L, 2.0, 3L, 4.0) + catches(1) + catches(5);
  sink = tail_calls(1) + tail_calls(2) + tail_calls_a_pointer(3) + tail_calls_a_pointer(40) + recursive(5);
  sink = with_nested(3) + takes_a_structure(makes_a_structure(4));
  for (long i = 0; i < 7; i++) sink = switches(i);
}
