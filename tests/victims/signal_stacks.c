/* Signal stacks as programs have them for the handler of a crash: one for all threads, released by a thread before it ends, and one that a handler's frames stay on (coroutines). Each is, as far as the
 * program can tell, what it said. Takes a way, prints `done`. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void check(int ok, const char *what) { if (!ok) { fprintf(stderr, "failed: %s\n", what); _exit(1); } }

enum { SIZE = 24 << 10, THREADS = 12 };
#define NOINLINE __attribute__((noinline))

static char *new_stack(void) {
  char *at = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(at != MAP_FAILED, "mmap");
  return at;
}

static void is_told(char *at, int flags, const char *what) {
  stack_t told;
  check(!sigaltstack(0, &told), "sigaltstack asks");
  check(told.ss_sp == at && told.ss_size == (at ? SIZE : 0) && told.ss_flags == flags, what);
}

static long cpu_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Each number lies in a frame or a register of its own, and the thread knows itself again. */
static NOINLINE long deep(pthread_t self, long n) {
  check(pthread_equal(self, pthread_self()), "the thread is itself");
  volatile long mine = n;
  if (n) check(deep(self, n - 1) == n - 1, "its frames are its own");
  return mine;
}

static void work(long ms) {
  for (long begun = cpu_ms(); cpu_ms() - begun < ms;) deep(pthread_self(), 20);
}

static char *shared;
static __thread char *mine;
static volatile sig_atomic_t faults;

static void on_fault(int signal) {
  (void)signal;
  stack_t again = {.ss_sp = mine, .ss_size = SIZE};
  int before = errno;
  check(sigaltstack(&again, 0) == -1 && errno == EPERM, "not while it is run on");
  is_told(mine, SS_ONSTACK, "while it is run on");
  errno = before;
  faults++;
}

static void sets(char *at) {
  stack_t stack = {.ss_sp = mine = at, .ss_size = SIZE}, old;
  check(!sigaltstack(&stack, &old), "sigaltstack");
  is_told(at, 0, "its own");
}

/* One stack holds the frames of one handler at a time. */
static pthread_mutex_t on_shared = PTHREAD_MUTEX_INITIALIZER;

static void *shares(void *argument) {
  is_told(0, SS_DISABLE, "a new thread has none");
  sets(shared);
  work(argument ? 60 : 20);
  pthread_mutex_lock(&on_shared);
  raise(SIGFPE);
  pthread_mutex_unlock(&on_shared);
  is_told(shared, 0, "its own, as before");
  return 0;
}

static void *releases(void *argument) {
  char *own = new_stack();
  sets(own);
  work((long)argument);
  /* It ends here, and the thread soon; a handler would find nothing. */
  check(!munmap(own, SIZE), "munmap");
  work(1);
  return 0;
}

static void run(void *(*begin)(void *), int threads, long argument) {
  pthread_t thread[THREADS];
  for (int i = 0; i < threads; i++) check(!pthread_create(&thread[i], 0, begin, (void *)argument), "pthread_create");
  for (int i = 0; i < threads; i++) check(!pthread_join(thread[i], 0), "pthread_join");
}

static long address_space(void) {
  FILE *file = fopen("/proc/self/statm", "r");
  long pages = 0;
  check(file && fscanf(file, "%ld", &pages) == 1, "statm");
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

/* A coroutine, begun by a handler on its stack. */
static jmp_buf outside, inside;
static char *coroutine_stack;
static volatile long switches;

static NOINLINE void coroutine(void) {
  char here;
  check(&here >= coroutine_stack && &here < coroutine_stack + SIZE, "on the stack that was set aside");
  for (;;) {
    for (volatile int i = 0; i < 1000; i++) {}
    switches++;
    if (!_setjmp(inside)) _longjmp(outside, 1);
  }
}

static void on_user(int signal) {
  (void)signal;
  if (!_setjmp(inside)) return;
  coroutine();
}

static void *coroutines(void *argument) {
  char *own = new_stack(), *another = new_stack();
  coroutine_stack = own;
  sets(own);
  raise(SIGUSR1);
  sets(another);
  for (long begun = cpu_ms(); cpu_ms() - begun < (long)argument;)
    if (!_setjmp(outside)) _longjmp(inside, 1);
  check(switches > 100, "the coroutine ran");
  return 0;
}

static void refuses(void) {
  char *own = new_stack();
  is_told(0, SS_DISABLE, "none at first");
  stack_t small = {.ss_sp = own, .ss_size = 256}, strange = {.ss_sp = own, .ss_size = SIZE, .ss_flags = 64};
  check(sigaltstack(&small, 0) == -1 && errno == ENOMEM, "too small");
  check(sigaltstack(&strange, 0) == -1 && errno == EINVAL, "strange flags");
  check(sigaltstack((stack_t *)8, 0) == -1 && errno == EFAULT, "nothing to be read");
  check(sigaltstack(0, (stack_t *)8) == -1 && errno == EFAULT, "nothing to be written");
  is_told(0, SS_DISABLE, "none after that");
  stack_t stack = {.ss_sp = own, .ss_size = SIZE}, old;
  errno = 7;
  check(!syscall(SYS_sigaltstack, &stack, &old) && old.ss_flags == SS_DISABLE, "by its number");
  mine = own;
  is_told(own, 0, "by its number");
  raise(SIGFPE);
  stack_t none = {.ss_flags = SS_DISABLE};
  pid_t child = fork();
  if (!child) {
    is_told(own, 0, "in a child");
    raise(SIGFPE);
    check(!sigaltstack(&none, &old) && old.ss_sp == own && old.ss_size == SIZE, "the last one, in a child");
    is_told(0, SS_DISABLE, "none in a child");
    sets(own);
    raise(SIGFPE);
    run(shares, THREADS, 0);
    _exit(faults == 3 + THREADS ? 5 : 6);
  }
  int status;
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 5, "the child");
  check(!sigaltstack(&none, &old) && old.ss_sp == own && old.ss_size == SIZE && !old.ss_flags, "the last one");
  is_told(0, SS_DISABLE, "none any more");
  stack_t both = stack;
  check(!syscall(SYS_sigaltstack, &both, &both) && both.ss_flags == SS_DISABLE, "the same place for both");
  is_told(own, 0, "the same place for both");
  both = none;
  check(!syscall(SYS_sigaltstack, &both, &both) && both.ss_sp == own, "the same place for both");
  check(errno == 7, "errno is left alone");
}

int main(int count, char **arguments) {
  const char *way = count > 1 ? arguments[1] : "";
  struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK};
  check(!sigaction(SIGFPE, &action, 0), "sigaction");
  shared = new_stack();
  if (!strcmp(way, "shared")) {
    run(shares, THREADS, 1);
    check(faults == THREADS, "every handler ran");
  } else if (!strcmp(way, "released")) {
    run(releases, THREADS, 10);
    long before = address_space();
    for (int i = 0; i < 200; i++) run(releases, 4, 0);
    check(address_space() - before < 400 * SIZE, "what ended threads had is used again");
  } else if (!strcmp(way, "coroutines")) {
    action.sa_handler = on_user;
    check(!sigaction(SIGUSR1, &action, 0), "sigaction");
    run(coroutines, 1, 300);
  } else {
    refuses();
  }
  puts("done");
}
