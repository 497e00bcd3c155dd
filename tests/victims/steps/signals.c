/* Handlers of signals. The kernel clears the trap flag when it starts a handler; these set it again. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))

volatile long sink;
static volatile long handled;
static sigjmp_buf back;
static volatile int leaves;

__asm__(
    ".text\n.globl on_signal\n.type on_signal, @function\non_signal:\n.cfi_startproc\n"
    "pushfq\n.cfi_adjust_cfa_offset 8\n"
    "orq $0x100, (%rsp)\n"
    "popfq\n.cfi_adjust_cfa_offset -8\n"
    "nop\n"
    "jmp handles\n"
    ".cfi_endproc\n.size on_signal, . - on_signal\n");
void on_signal(int, siginfo_t *, void *);

APART long works(long n) { return n < 2 ? n : works(n - 1) + works(n - 2); }

__attribute__((used, visibility("hidden"))) void handles(int signal, siginfo_t *info, void *context) {
  (void)info;
  handled++;
  sink = works(4);
  if (signal == SIGUSR1) raise(SIGUSR2);
  /* Beyond `ud2`. */
  if (signal == SIGILL) ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
  if (leaves) siglongjmp(back, 1);
}

/* The first instruction of a function: the byte before it belongs to another one. */
__asm__(
    ".text\n.globl ends_before\n.type ends_before, @function\nends_before:\n.cfi_startproc\n"
    "pushq %rbp\n.cfi_adjust_cfa_offset 8\npushq %rbp\n.cfi_adjust_cfa_offset 8\nud2\n"
    ".cfi_endproc\n.size ends_before, . - ends_before\n"
    ".globl faults_at_once\n.type faults_at_once, @function\nfaults_at_once:\n.cfi_startproc\n"
    "ud2\n"
    "pushq %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
    "ud2\n"
    "popq %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
    "ud2\n"
    "ret\n.cfi_endproc\n.size faults_at_once, . - faults_at_once\n");
void faults_at_once(void);

/* Locals in the red zone, below the stack pointer, must survive. */
APART long faults_in_a_leaf(long n) {
  volatile long local[8];
  for (int i = 0; i < 8; i++) local[i] = n + i;
  __asm__ volatile("ud2" ::: "memory");
  return local[0] + local[7];
}

APART long leaves_a_handler(void) {
  if (sigsetjmp(back, 1)) return 1;
  leaves = 1;
  raise(SIGUSR2);
  abort();
}

static void with_flags(int flags) {
  struct sigaction action, before[3];
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGUSR1, &action, &before[0]);
  sigaction(SIGUSR2, &action, &before[1]);
  sigaction(SIGILL, &action, &before[2]);
  handled = leaves = 0;
  raise(SIGUSR1);
  faults_at_once();
  if (faults_in_a_leaf(5) != 17 || handled != 6) abort();
  if (leaves_a_handler() != 1) abort();
  leaves = 0;
  sigaction(SIGUSR1, &before[0], 0);
  sigaction(SIGUSR2, &before[1], 0);
  sigaction(SIGILL, &before[2], 0);
}

void run(void) { with_flags(0); }
void run_on_their_own_stack(void) { with_flags(SA_ONSTACK); }
