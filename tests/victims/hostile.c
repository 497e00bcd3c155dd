/* Programs that are hard on whoever lives inside them. The argument names the case; each prints its name when all went well. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long sink;
static void burn(long n) { for (long i = 0; i < n; i++) sink += i; }
static void check(int ok, const char *what) { if (!ok) { fprintf(stderr, "failed: %s\n", what); exit(1); } }

/* Ten thousand threads that live for a moment. */
static void *short_lived(void *argument) {
  void *block = malloc(100);
  burn(20000);
  free(block);
  return malloc((long)argument % 50 + 1);
}
static void churn(void) {
  for (int round = 0; round < 1250; round++) {
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) check(!pthread_create(&threads[i], 0, short_lived, (void *)i), "pthread_create");
    for (int i = 0; i < 8; i++) {
      void *block;
      pthread_join(threads[i], &block);
      free(block);
    }
  }
}

/* Libraries that come and go. */
static void libraries(void) {
  for (int i = 0; i < 2000; i++) {
    void *library = dlopen(i & 1 ? "libgcc_s.so.1" : "libm.so.6", RTLD_NOW);
    check(library != 0, "dlopen");
    void *other = dlopen(i & 1 ? "libz.so.1" : "libbz2.so.1.0", RTLD_NOW);
    free(malloc(10));
    if (other) dlclose(other);
    dlclose(library);
  }
}

/* Allocations in a signal handler, ten thousand times a second. */
static void on_alarm(int signal) { (void)signal; free(malloc(64)); }
static void signals(void) {
  struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, 0);
  struct itimerval timer = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &timer, 0);
  for (int i = 0; i < 300; i++) burn(1000000);
  memset(&timer, 0, sizeof timer);
  setitimer(ITIMER_REAL, &timer, 0);
}

/* Forks while other threads allocate; the children allocate and start threads. */
static volatile int stop;
static void *hammer(void *argument) {
  void *blocks[64] = {0};
  unsigned random = (long)argument;
  while (!stop) {
    random = random * 1103515245 + 12345;
    int i = (random >> 16) % 64;
    free(blocks[i]);
    blocks[i] = malloc(random % 5000);
  }
  for (int i = 0; i < 64; i++) free(blocks[i]);
  return 0;
}
static void forks(void) {
  pthread_t threads[4];
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, hammer, (void *)i);
  for (int i = 0; i < 200; i++) {
    pid_t pid = fork();
    if (!pid) {
      for (int k = 0; k < 100; k++) free(malloc(k));
      pthread_t child;
      pthread_create(&child, 0, short_lived, 0);
      pthread_join(child, 0);
      _exit(i % 100);
    }
    int status;
    waitpid(pid, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == i % 100, "the child's end");
  }
  stop = 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}

/* Children that no fork handler announces. */
static void clones(void) {
  for (int i = 0; i < 50; i++) {
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (!pid) {
      for (int k = 0; k < 10; k++) free(malloc(20));
      _exit(i);
    }
    int status;
    waitpid(pid, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == i, "the child's end");
  }
}

/* Threads with their creator's thread-local storage, on small stacks, half of which leave without returning, beside others. */
static int guest_works(int rounds) {
  volatile int sum = 0;
  for (int i = 0; i < rounds; i++) sum += i;
  return sum;
}
static int guest(void *leaves) {
  guest_works(1000000);
  if (leaves) __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(0));
  return 0;
}
static void guests(void) {
  enum { TOGETHER = 4, STACK = 8192 };
  static _Alignas(4096) char stacks[TOGETHER][STACK];
  static volatile int alive[TOGETHER];
  int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
  for (int round = 0; round < 500; round++) {
    for (int i = 0; i < TOGETHER; i++) {
      alive[i] = 1;
      check(clone(guest, stacks[i] + STACK, flags, i & 1 ? guests : 0, 0, 0, &alive[i]) > 0, "clone");
    }
    pthread_t thread;
    void *block;
    check(!pthread_create(&thread, 0, short_lived, (void *)1), "pthread_create");
    free(malloc(round));
    for (int i = 0; i < TOGETHER; i++)
      while (alive[i]) syscall(SYS_futex, &alive[i], 0 /* FUTEX_WAIT */, 1, 0);
    pthread_join(thread, &block);
    free(block);
  }
}

/* posix_spawn and vfork. */
static void spawns(void) {
  extern char **environ;
  char *arguments[] = {"true", 0};
  for (int i = 0; i < 50; i++) {
    pid_t pid;
    int status;
    check(!posix_spawn(&pid, "/bin/true", 0, 0, arguments, environ), "posix_spawn");
    waitpid(pid, &status, 0);
    check(status == 0, "true");
    pid = vfork();
    if (!pid) {
      execl("/bin/true", "true", (char *)0);
      _exit(9);
    }
    waitpid(pid, &status, 0);
    check(status == 0, "true");
  }
}

/* A hundred thousand frames. */
__attribute__((noinline)) static long descend(int n) {
  if (!n) {
    for (int i = 0; i < 10; i++) free(malloc(33));
    burn(30000000);
    return 1;
  }
  volatile char here[16];
  here[0] = n;
  return descend(n - 1) + here[0];
}
static void *deep_thread(void *unused) { descend(100000); return unused; }
static void deep(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 << 20);
  pthread_t thread;
  pthread_create(&thread, &attributes, deep_thread, 0);
  pthread_join(thread, 0);
}

/* Stacks of 16 KiB. */
static void *small_thread(void *unused) {
  for (int i = 0; i < 1000; i++) free(malloc(10));
  burn(50000000);
  return unused;
}
static void small(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 16384);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) check(!pthread_create(&threads[i], &attributes, small_thread, 0), "pthread_create");
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}

/* Coroutines on stacks of their own. */
static ucontext_t scheduler, coroutines[8];
static int running;
static void coroutine(void) {
  for (;;) {
    void *block = malloc(77);
    burn(10000);
    free(block);
    swapcontext(&coroutines[running], &scheduler);
  }
}
static void fibers(void) {
  for (int i = 0; i < 8; i++) {
    getcontext(&coroutines[i]);
    coroutines[i].uc_stack.ss_sp = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    coroutines[i].uc_stack.ss_size = 16384;
    coroutines[i].uc_link = &scheduler;
    makecontext(&coroutines[i], coroutine, 0);
  }
  for (int i = 0; i < 20000; i++) {
    running = i % 8;
    swapcontext(&scheduler, &coroutines[running]);
  }
}

/* Handlers on an alternate stack, and handlers that are left by longjmp. */
static sigjmp_buf target;
static void on_user1(int signal) { (void)signal; free(malloc(5)); siglongjmp(target, 1); }
static void on_user2(int signal) { (void)signal; free(malloc(5)); burn(3000000); }
static void handlers(void) {
  stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ};
  sigaltstack(&stack, 0);
  struct sigaction on_stack = {.sa_handler = on_user2, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR2, &on_stack, 0);
  for (int i = 0; i < 100; i++) raise(SIGUSR2);
  struct sigaction jumps = {.sa_handler = on_user1, .sa_flags = SA_NODEFER};
  sigaction(SIGUSR1, &jumps, 0);
  for (volatile int i = 0; i < 2000; i++) {
    if (!sigsetjmp(target, 1)) { burn(100); raise(SIGUSR1); }
    free(malloc(9));
  }
}

/* Threads that end by pthread_exit and by cancellation: both unwind through whoever started them. */
static void *cancelled(void *unused) { for (;;) { free(malloc(3)); usleep(1000); } return unused; }
static void *exits(void *unused) { (void)unused; free(malloc(3)); pthread_exit((void *)7); }
static void cancels(void) {
  for (int i = 0; i < 50; i++) {
    pthread_t first, second;
    void *result;
    pthread_create(&first, 0, cancelled, 0);
    pthread_create(&second, 0, exits, 0);
    pthread_join(second, &result);
    check(result == (void *)7, "pthread_exit");
    pthread_cancel(first);
    pthread_join(first, &result);
    check(result == PTHREAD_CANCELED, "pthread_cancel");
  }
}

/* A SIGPROF that nobody expects, and those that the program handles itself: each of them, from the thread itself and from another, and no others. */
static volatile int own_signals;
static volatile int ended;
static void on_prof(int signal) { (void)signal; own_signals++; }
static void *burns(void *unused) {
  (void)unused;
  while (!ended) burn(1000);
  return 0;
}
static void *kills(void *thread) {
  while (!ended) {
    usleep(5000);
    pthread_kill(*(pthread_t *)thread, SIGPROF);
  }
  return 0;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}
static void stray(void) {
  struct sigaction action = {.sa_handler = on_prof, .sa_flags = SA_RESTART};
  sigaction(SIGPROF, &action, 0);
  int raised = 0;
  for (double begun = now(); now() - begun < 1;) {
    raise(SIGPROF);
    check(own_signals == ++raised, "its own signals, and no others");
    free(malloc(8));
    burn(50000);
  }
  pthread_t thread;
  pthread_create(&thread, 0, burns, 0);
  for (double begun = now(); now() - begun < 1;) {
    pthread_kill(thread, SIGPROF);
    raised++;
    for (double sent = now(); own_signals != raised;) check(now() - sent < 5, "a signal of another thread");
    burn(50000);
  }
  ended = 1;
  pthread_join(thread, 0);
  /* What its own handler is to break off. */
  ended = 0;
  action.sa_flags = 0;
  sigaction(SIGPROF, &action, 0);
  int ends[2];
  char byte;
  check(!pipe(ends), "pipe");
  pthread_t self = pthread_self();
  pthread_create(&thread, 0, kills, &self);
  check(read(ends[0], &byte, 1) == -1 && errno == EINTR, "a call that its own signal breaks off");
  ended = 1;
  pthread_join(thread, 0);
  raised = own_signals;
  struct sigaction old;
  sigaction(SIGPROF, 0, &old);
  check(old.sa_handler == on_prof, "its own handler");
  check(signal(SIGPROF, SIG_IGN) == on_prof, "its own handler");
  raise(SIGPROF);
  check(own_signals == raised, "an ignored signal");
  for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++) {
    check(!sigaction(signal, 0, &old) && old.sa_handler == SIG_DFL, "nobody's signal");
    check(!sigaction(signal, &action, &old) && old.sa_handler == SIG_DFL, "nobody's signal");
    raise(signal);
    check(own_signals == ++raised, "any other signal");
  }
}

int main(int argc, char **argv) {
  static const struct { const char *name; void (*run)(void); } cases[] = {
    {"churn", churn}, {"libraries", libraries}, {"signals", signals}, {"forks", forks}, {"clones", clones}, {"spawns", spawns},
    {"deep", deep}, {"small", small}, {"fibers", fibers}, {"handlers", handlers}, {"cancels", cancels}, {"stray", stray}, {"guests", guests},
  };
  for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
    if (argc > 1 && !strcmp(argv[1], cases[i].name)) {
      cases[i].run();
      puts(cases[i].name);
      return 0;
    }
  return 2;
}
