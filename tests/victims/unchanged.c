/* What allocation functions leave unchanged. The first argument names the case, the others are libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void *(*Allocate)(unsigned long);
static volatile long sink;

static void *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) { puts(dlerror()); exit(1); }
  return library;
}

/* errno: says what changes it. */
#define MARK 4711
#define TELL(call) do { errno = MARK; call; if (errno != MARK) printf("%s sets errno to %d\n", #call, errno); } while (0)

static void all_functions(int size) {
  void *p = 0, *q = 0;
  TELL(p = malloc(size));
  TELL(p = realloc(p, size * 3 + 1));
  TELL(p = reallocarray(p, size + 1, 7));
  TELL(malloc_usable_size(p));
  TELL(free(p));
  TELL(p = calloc(size, 3));
  TELL(free(p));
  TELL(posix_memalign(&q, 64, size));
  TELL(free(q));
  TELL(p = aligned_alloc(32, 320));
  TELL(free(p));
  TELL(p = memalign(128, size));
  TELL(free(p));
  TELL(p = valloc(size));
  TELL(free(p));
  TELL(p = pvalloc(size));
  TELL(free(p));
  TELL(free(0));
}

/* Every depth is a stack of its own, so the store grows. */
__attribute__((noinline)) static int descend(int depth) {
  all_functions(depth + 1);
  return depth ? descend(depth - 1) + 1 : 0;
}

static void *thread(void *argument) {
  TELL(free(malloc(100)));
  descend(20);
  return argument;
}
static void on_signal(int number) { (void)number; }

static void errno_is_kept(char **libraries) {
  descend(200);
  /* The first calls from a new library read the list of mappings, and the library's file. */
  void *library;
  for (int i = 0; i < 3; i++) {
    TELL(library = load(libraries[0]));
    Allocate allocate = (Allocate)dlsym(library, "bare_allocate");
    void *block;
    TELL(block = allocate(100));
    TELL(block = realloc(block, 1000));
    TELL(free(block));
    for (int k = 0; k < 100; k++) TELL(free(allocate(k)));
    TELL(dlclose(library));
    descend(10);
  }
  pthread_t other;
  for (int i = 0; i < 5; i++) {
    TELL(pthread_create(&other, 0, thread, 0));
    pthread_join(other, 0);
  }
  struct sigaction action = {.sa_handler = on_signal};
  TELL(sigaction(SIGPROF, &action, 0));
  TELL(signal(SIGPROF, SIG_DFL));
  TELL(signal(SIGUSR1, on_signal));
  /* Failures set it as they do. */
  void *volatile p = 0;
  volatile size_t huge = PTRDIFF_MAX;
  TELL(p = malloc(huge + 1));
  TELL(p = calloc(huge, 16));
  TELL(p = reallocarray(0, huge, 16));
  TELL(p = memalign(32, huge));
  TELL(posix_memalign((void **)&p, 3, 8));
  TELL(posix_memalign((void **)&p, 64, huge));
  TELL(signal(4711, on_signal));
  /* Ticks interrupt this. */
  for (int i = 0; i < 300; i++) TELL(for (int k = 0; k < 1000000; k++) sink += k);
  pid_t pid = fork();
  if (!pid) {
    descend(20);
    fflush(stdout);
    _exit(0);
  }
  waitpid(pid, 0, 0);
}

/* A pending cancellation waits for a cancellation point; malloc is none. */
static Allocate from_library;
static volatile int allocated;
static void *cancelled(void *argument) {
  pthread_cancel(pthread_self());
  free(from_library(100));
  allocated = 1;
  pthread_testcancel();
  return argument;
}
static void malloc_is_no_cancellation_point(char **libraries) {
  from_library = (Allocate)dlsym(load(libraries[0]), "bare_allocate");
  pthread_t other;
  void *result;
  pthread_create(&other, 0, cancelled, 0);
  pthread_join(other, &result);
  printf("%s, %s\n", allocated ? "allocated" : "not allocated", result == PTHREAD_CANCELED ? "then cancelled" : "not cancelled");
}

/* The dynamic linker allocates when a thread-local is reached by its function for the first time since many libraries were opened. */
static void the_heap_has_the_same_blocks(char **libraries) {
  for (int i = 1; libraries[i]; i++) load(libraries[i]);
  Allocate allocate = (Allocate)dlsym(load(libraries[0]), "bare_allocate");
  for (int i = 0; i < 3; i++) free(allocate(100));
}

int main(int argc, char **argv) {
  setvbuf(stdout, 0, _IOLBF, 4096);
  const char *what = argc > 1 ? argv[1] : "";
  if (!strcmp(what, "errno")) errno_is_kept(argv + 2);
  if (!strcmp(what, "cancel")) malloc_is_no_cancellation_point(argv + 2);
  if (!strcmp(what, "heap")) the_heap_has_the_same_blocks(argv + 2);
  puts(what);
  return 0;
}
