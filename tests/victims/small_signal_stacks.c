/* A handler of SIGPROF that takes more of a stack than the thread's signal stack has: it runs there only if it asks for it. Prints `done`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void check(int ok, const char *what) { if (!ok) { fprintf(stderr, "failed: %s\n", what); exit(1); } }

enum { SMALL = 16 << 10 };
static char *small;
static volatile int calls, is_on_signal_stack, needs;
static void on_prof(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info, (void)context;
  char here[64 << 10];
  char *at = __builtin_frame_address(0);
  is_on_signal_stack = at >= small && at < small + SMALL;
  if (needs)
    for (volatile char *p = here + sizeof here; p > here; p -= 4096) p[-1] = 1;
  calls++;
}

static void handles(int number, int flags) {
  struct sigaction action = {.sa_sigaction = on_prof, .sa_flags = SA_SIGINFO | SA_RESTART | flags}, old;
  check(!sigaction(number, &action, 0), "sigaction");
  check(!sigaction(number, 0, &old) && old.sa_sigaction == on_prof, "its own handler");
  check((old.sa_flags & (SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_RESETHAND)) == action.sa_flags, "its own flags");
  int before = calls;
  needs = !(flags & SA_ONSTACK);
  raise(number);
  check(calls == before + 1, "its own signal");
  check(is_on_signal_stack == !!(flags & SA_ONSTACK), "the stack that it asked for");
}

static void *works(void *argument) {
  (void)argument;
  small = mmap(0, 4096 + SMALL, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  small += 4096;
  mprotect(small, SMALL, PROT_READ | PROT_WRITE);
  stack_t stack = {.ss_sp = small, .ss_size = SMALL};
  check(!sigaltstack(&stack, 0), "sigaltstack");
  int numbers[] = {SIGPROF, SIGRTMAX - 1, SIGRTMAX - 2};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    handles(numbers[i], 0);
    handles(numbers[i], SA_ONSTACK);
    handles(numbers[i], SA_ONSTACK | SA_RESETHAND);
    handles(numbers[i], SA_ONSTACK);
    handles(numbers[i], 0);
  }
  return 0;
}

int main(void) {
  pthread_t thread;
  check(!pthread_create(&thread, 0, works, 0) && !pthread_join(thread, 0), "the thread");
  puts("done");
}
