/* Stacks in unusual places and of unusual sizes. The argument names the case. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long sink;
static long burns;

static void fail(const char *what) { perror(what); exit(1); }
static long cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* What every case does in the end: a hundred allocations, or so many ns of CPU time. */
NOINLINE static void work(void) {
  long end = cpu_ns() + burns;
  for (int i = 0; i < 100; i++) free(malloc(40));
  /* Seldom asked: where threads wait for a processor, that is when the kernel takes one away, before the tick. */
  while (burns && cpu_ns() < end)
    for (int k = 0; k < 10000000; k++) sink += k;
}

/* Three functions in turn, so that each level is known. The arguments: levels to go, and where the stack may not be used any more. */
void zero(long n, char *end), one(long n, char *end), two(long n, char *end);
#define LEVEL(name, next) \
  NOINLINE void name(long n, char *end) { \
    if (!n || (char *)__builtin_frame_address(0) < end) work(); \
    else next(n - 1, end); \
    sink++; \
  }
LEVEL(zero, two)
LEVEL(one, zero)
LEVEL(two, one)

static long levels;
static void *deep(void *unused) {
  (levels % 3 == 0 ? zero : levels % 3 == 1 ? one : two)(levels, 0);
  return unused;
}

/* Down to 8 KiB, or so many bytes, above the guard page of the smallest stack there is; a signal takes more. */
static void *guarded(void *unused) {
  pthread_attr_t attributes;
  void *low;
  size_t size;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &low, &size);
  pthread_attr_destroy(&attributes);
  zero(3000, (char *)low + (levels ? levels : 8192) + (burns ? sysconf(_SC_MINSIGSTKSZ) : 0));
  return unused;
}

static void on_thread(void *(*run)(void *), size_t stack) {
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  if (pthread_create(&thread, &attributes, run, 0)) fail("pthread_create");
  pthread_join(thread, 0);
}

/* Fibers: their stacks come and go, of changing size at one place. */
static ucontext_t scheduler, fiber;
NOINLINE static void in_fiber(int n) { zero(n, 0); sink++; }
static void run_fiber(int n) {
  for (;;) {
    in_fiber(n);
    swapcontext(&fiber, &scheduler);
  }
}
static void fibers(void) {
  for (int i = 0; i < 30; i++) {
    size_t size = (i % 3 + 1) * 65536;
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fiber.uc_stack.ss_size = size;
    fiber.uc_link = &scheduler;
    makecontext(&fiber, (void (*)(void))run_fiber, 1, 30);
    swapcontext(&scheduler, &fiber);
    swapcontext(&scheduler, &fiber);
    munmap(fiber.uc_stack.ss_sp, size);
  }
}

/* A coroutine of a thread that allocates nowhere else, down to `levels` bytes above memory that is not its own and looks no different. */
static char *arena;
static void run_unguarded(void) { zero(3000, arena + 65536 + levels); sink++; }
static void *unguarded(void *unused) {
  getcontext(&fiber);
  fiber.uc_stack.ss_sp = arena + 65536;
  fiber.uc_stack.ss_size = 16384;
  fiber.uc_link = &scheduler;
  makecontext(&fiber, run_unguarded, 0);
  swapcontext(&scheduler, &fiber);
  return unused;
}

/* Handlers on an alternate stack, one of which interrupts another. */
NOINLINE static void inner_handler(int signal) { sink += signal; work(); sink++; }
NOINLINE static void outer_handler(int signal) { sink += signal; raise(SIGUSR2); sink++; }
NOINLINE static void alternate(void) {
  stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, 0);
  struct sigaction first = {.sa_handler = outer_handler, .sa_flags = SA_ONSTACK}, second = {.sa_handler = inner_handler};
  sigaction(SIGUSR1, &first, 0);
  sigaction(SIGUSR2, &second, 0);
  for (int i = 0; i < 50; i++) raise(SIGUSR1);
}

/* A signal stack with room for what the kernel puts there and `levels` bytes more, right above memory that may not be touched. */
static void *cramped(void *unused) {
  size_t page = sysconf(_SC_PAGESIZE), size = sysconf(_SC_MINSIGSTKSZ) + levels, whole = (size + page - 1) / page * page;
  char *low = mmap(0, page + whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  stack_t stack = {.ss_sp = low + page, .ss_size = size};
  if (mprotect(low, page, PROT_NONE) || sigaltstack(&stack, 0)) fail("sigaltstack");
  zero(99, 0);
  return unused;
}

static void deep_case(void) { on_thread(deep, 64 << 20); }
static void guarded_case(void) { on_thread(guarded, 16384 + (burns ? sysconf(_SC_MINSIGSTKSZ) : 0)); }
static void unguarded_case(void) {
  arena = malloc(65536 + 16384);
  memset(arena, 0x5a, 65536);
  on_thread(unguarded, 1 << 20);
  for (int i = 0; i < 65536; i++)
    if (arena[i] != 0x5a) fail("damaged");
}
static void cramped_case(void) { on_thread(cramped, 1 << 20); }

/* The milliseconds of `work` in `cpu`. Where it is done once, many: a hundred thousand frames take ticks, too, and few of all are to be in them. */
static const struct {
  const char *name;
  void (*run)(void);
  long burns_ms;
} cases[] = {{"deep", deep_case, 400}, {"guarded", guarded_case, 400}, {"cramped", cramped_case, 400}, {"fibers", fibers, 100}, {"unguarded", unguarded_case, 100}, {"alternate", alternate, 100}};

/* edges CASE (allocs|cpu) [NUMBER] */
int main(int argc, char **argv) {
  if (argc < 3) return 2;
  levels = argc > 3 ? atol(argv[3]) : 0;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    if (strcmp(argv[1], cases[i].name)) continue;
    if (!strcmp(argv[2], "cpu")) burns = cases[i].burns_ms * 1000000;
    cases[i].run();
    return 0;
  }
  return 2;
}
