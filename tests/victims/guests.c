/* Threads that `clone` makes and the C library does not know: some have their creator's thread-local storage, some have storage in front of which nothing can be read, and some are made without the
   C library's function. Each works for a while, and so does the first thread. Prints what the kernel's clocks say of each. With an argument, it waits for a line before anybody works; the second of each
   kind is made after that. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 400, KINDS = 3, EACH = 2, STACK = 1 << 16, PAGE = 4096 };

struct thread {
  char name[16];
  long cpu_ns;
  int (*runs)(void *);
  volatile int alive;
} threads[KINDS * EACH];

static volatile int begun;

/* Nothing here may touch thread-local storage. */
static long call(long number, long a, long b, long c, long d) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = 0;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
  return result;
}

static long cpu_ns(clockid_t clock) {
  struct timespec time;
  call(SYS_clock_gettime, clock, (long)&time, 0, 0);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void wait_while(volatile int *word, int value) {
  while (*word == value) call(SYS_futex, (long)word, FUTEX_WAIT, value, 0);
}

#define BURNS(kind) \
  __attribute__((noinline)) void kind##_burns(void) { for (volatile long i = 0; i < 1000000; i++) {} } \
  __attribute__((noinline)) int kind##_runs(void *argument) { \
    struct thread *self = argument; \
    call(SYS_prctl, PR_SET_NAME, (long)self->name, 0, 0); \
    wait_while(&begun, 0); \
    for (int i = 0; i < ROUNDS; i++) kind##_burns(); \
    self->cpu_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID); \
    return 0; \
  }
BURNS(shared)
BURNS(own)
BURNS(bare)
__attribute__((noinline)) void main_burns(void) { for (volatile long i = 0; i < 1000000; i++) {} }

static void *pages(int count) {
  return mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* What a program does that has no C library: the child returns to nobody. */
static __attribute__((noinline)) void made_bare(long flags, char *stack, struct thread *thread) {
  void **top = (void **)stack;
  *--top = thread;
  *--top = (void *)thread->runs;
  register long r10 __asm__("r10") = (long)&thread->alive;
  register long r8 __asm__("r8") = 0;
  long result;
  __asm__ volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "pop %%rax\n\t"
      "pop %%rdi\n\t"
      "call *%%rax\n\t"
      "mov $60, %%eax\n\t"
      "xor %%edi, %%edi\n\t"
      "syscall\n\t"
      "1:"
      : "=a"(result)
      : "a"(SYS_clone), "D"(flags), "S"(top), "d"(0), "r"(r10), "r"(r8)
      : "rcx", "r11", "memory");
}

static void make(struct thread *thread, int kind, int number) {
  static const char *const NAMES[KINDS] = {"shared", "own", "bare"};
  static int (*const RUN[KINDS])(void *) = {shared_runs, own_runs, bare_runs};
  snprintf(thread->name, sizeof thread->name, "%s-%d", NAMES[kind], number);
  thread->runs = RUN[kind];
  thread->alive = 1;
  char *stack = (char *)pages(STACK / PAGE) + STACK;
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
  char *storage = pages(2);
  munmap(storage, PAGE);
  if (kind == 0) clone(thread->runs, stack, flags, thread, NULL, NULL, &thread->alive);
  /* Of its storage, the thread pointer points to the first byte that there is. */
  if (kind == 1) clone(thread->runs, stack, flags | CLONE_SETTLS, thread, NULL, storage + PAGE, &thread->alive);
  if (kind == 2) made_bare(flags, stack, thread);
}

int main(int argc, char **argv) {
  (void)argv;
  for (int kind = 0; kind < KINDS; kind++) make(&threads[kind], kind, 0);
  if (argc > 1 && getchar() == EOF) return 1;
  begun = 1;
  call(SYS_futex, (long)&begun, FUTEX_WAKE, KINDS, 0);
  for (int kind = 0; kind < KINDS; kind++) make(&threads[KINDS + kind], kind, 1);
  for (int i = 0; i < ROUNDS; i++) main_burns();
  long main_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < KINDS * EACH; i++) wait_while(&threads[i].alive, 1);
  printf("thread guests %ld\n", main_ns);
  for (int i = 0; i < KINDS * EACH; i++) printf("thread %s %ld\n", threads[i].name, threads[i].cpu_ns);
  printf("process - %ld\n", cpu_ns(CLOCK_PROCESS_CPUTIME_ID));
  fflush(stdout);
  return argc > 1 && getchar() == EOF;
}
