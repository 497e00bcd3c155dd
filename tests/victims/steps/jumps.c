/* Leaving functions without returning from them. */
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>

#define APART __attribute__((noinline, noclone))

volatile long sink;
static jmp_buf plain;
static sigjmp_buf with_mask;
static void *builtin[5];

APART void descends(int depth, void (*leave)(void)) {
  volatile long local[8];
  local[depth % 8] = depth;
  if (depth == 0) leave();
  if (depth >= 0) descends(depth - 1, leave);
  sink = local[depth % 8];
}

APART void by_longjmp(void) { longjmp(plain, 3); }
APART void by_siglongjmp(void) { siglongjmp(with_mask, 4); }
/* The compiler puts three loads and a jump here, and does not describe what they do to the stack. */
APART void by_builtin(void) { __builtin_longjmp(builtin, 1); }

APART long jumps(int depth) {
  long result = setjmp(plain);
  if (result == 0) descends(depth, by_longjmp);
  return result;
}

APART long underscored(int depth) {
  long result = _setjmp(plain);
  if (result == 0) descends(depth, by_longjmp);
  return result;
}

APART long jumps_with_mask(int depth, int save) {
  long result = sigsetjmp(with_mask, save);
  if (result == 0) descends(depth, by_siglongjmp);
  return result;
}

APART long jumps_builtin(int depth) {
  if (__builtin_setjmp(builtin)) return 1;
  descends(depth, by_builtin);
  return 0;
}

void run(void) {
  if (jumps(0) + jumps(5) + underscored(3) != 9) abort();
  if (jumps_with_mask(4, 1) + jumps_with_mask(2, 0) != 8) abort();
}

void run_builtin(void) {
  if (jumps_builtin(3) != 1) abort();
}

/* A coroutine, on a stack that lies elsewhere. */
static ucontext_t outside, inside;
char coroutine_stack[1 << 16] __attribute__((aligned(16)));

APART void yields(int depth) {
  volatile int kept = depth;
  if (depth > 0) yields(depth - 1);
  swapcontext(&inside, &outside);
  sink += kept;
}

APART void coroutine(void) {
  sink++;
  yields(2);
}

void run_coroutine(void) {
  getcontext(&inside);
  inside.uc_stack.ss_sp = coroutine_stack;
  inside.uc_stack.ss_size = sizeof coroutine_stack;
  inside.uc_link = &outside;
  makecontext(&inside, coroutine, 0);
  for (int i = 0; i < 4; i++) swapcontext(&outside, &inside);
}
