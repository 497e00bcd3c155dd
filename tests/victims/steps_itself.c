/* Takes SIGTRAP after each instruction of its own, as a debugger inside a process does, or (argument `calls`) SIGSYS for each of its system calls, as a sandbox does that answers them. Meanwhile it
   allocates, so that the recorder's code is stepped through as well. Prints `done`; any other end is that of a signal that was blocked when it came. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define NOINLINE __attribute__((noinline, noclone))

static volatile long traps, calls;
static volatile char answers;
static char *kept[4000];

/* Makes a system call itself. */
static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return number;
}

static void on_trap(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info, (void)context;
  traps++;
}

static void on_call(int signal, siginfo_t *info, void *context) {
  (void)signal, (void)info;
  answers = 0;
  calls++;
  ucontext_t *at = context;
  greg_t *r = at->uc_mcontext.gregs;
  if (r[REG_RAX] == SYS_rt_sigprocmask && r[REG_RDI] <= SIG_SETMASK && r[REG_R10] == 8) {
    /* The thread's mask is that of the context, which the kernel sets again. */
    unsigned long *mask = (unsigned long *)&at->uc_sigmask, before = *mask, *set = (unsigned long *)r[REG_RSI];
    if (set) *mask = r[REG_RDI] == SIG_BLOCK ? before | *set : r[REG_RDI] == SIG_UNBLOCK ? before & ~*set : *set;
    if (r[REG_RDX]) *(unsigned long *)r[REG_RDX] = before;
    r[REG_RAX] = 0;
  } else {
    r[REG_RAX] = call(r[REG_RAX], r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10], r[REG_R8], r[REG_R9]);
  }
  answers = 1;
}

NOINLINE static void allocate(long rounds) {
  for (long i = 0; i < rounds; i++) {
    char **at = &kept[i % 4000];
    free(*at);
    *at = i % 7 ? malloc(i % 900 + 1) : calloc(1, i % 60000 + 1);
    if (i % 11 == 0) *at = realloc(*at, i % 3000 + 1);
  }
}

static void act(int signal, void (*handler)(int, siginfo_t *, void *)) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
  if (sigaction(signal, &action, 0)) exit(2);
}

static void step(long set) {
  if (set) __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
  else __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

/* The instruction behind which a handler's frame is given back lies in the C library. */
static int answer(void) {
  struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } kernels;
  if (syscall(SYS_rt_sigaction, SIGSYS, 0, &kernels, 8)) return -1;
  return prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, (unsigned long)kernels.restorer, 64, &answers);
}

int main(int count, char **arguments) {
  if (count > 1 && !strcmp(arguments[1], "calls")) {
    act(SIGSYS, on_call);
    if (answer()) {
      puts("not supported");
      return 0;
    }
    answers = 1;
    allocate(400000);
    answers = 0;
    puts(calls ? "done" : "no calls");
    return 0;
  }
  act(SIGTRAP, on_trap);
  step(1);
  allocate(700);
  step(0);
  puts(traps > 50000 ? "done" : "no traps");
}
