/* Allocates on every occasion that there is, and keeps book of it in a file that all its processes share. Only functions that the C library does not call itself.
   Arguments: the file; `again` in a process that this program started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static struct book { long aligned, arrays; } before, *book = &before;

static void fail(const char *what) { perror(what); _exit(1); }
static void allocate(int times) {
  for (int i = 0; i < times; i++) {
    char *block = aligned_alloc(32, 320);
    /* tcmalloc knows the size of a block once its own constructor has run. */
    if (!block || (book != &before && malloc_usable_size(block) < 320)) fail("aligned_alloc");
    memset(block, 1, 320);
    free(block);
    __atomic_fetch_add(&book->aligned, 1, __ATOMIC_RELAXED);
  }
}
static volatile size_t most = ~0ul;
static void arrays(void) {
  char *array = 0;
  for (int i = 1; i <= 20; i++) {
    if (!(array = reallocarray(array, i, 100)) || malloc_usable_size(array) < i * 100ul) fail("reallocarray");
    __atomic_fetch_add(&book->arrays, 1, __ATOMIC_RELAXED);
  }
  errno = 0;
  if (reallocarray(array, most / 2, 3) || errno != ENOMEM) fail("an array too large");
  __atomic_fetch_add(&book->arrays, 1, __ATOMIC_RELAXED);
  free(array);
}

/* Before every constructor, and after every destructor that was told of. */
static void first(void) { allocate(3); }
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = first;
__attribute__((constructor)) static void construct(void) { allocate(5); }
__attribute__((destructor)) static void destroy(void) { allocate(7); }
static void at_exit(void) { allocate(11); }

static sigjmp_buf out;
static void handler(int signal) {
  allocate(2);
  if (signal == SIGUSR2) siglongjmp(out, 1);
}
__attribute__((noinline)) static void jump(int depth) {
  allocate(1);
  if (depth) jump(depth - 1);
  else siglongjmp(out, 1);
}

static pthread_key_t key;
static void destroy_value(void *rounds) {
  allocate(4);
  if ((long)rounds > 1) pthread_setspecific(key, (void *)((long)rounds - 1));
}
static void clean(void *unused) { allocate(unused ? 6 : 0); }
static void *thread(void *rounds) {
  pthread_setspecific(key, rounds);
  allocate(10);
  pthread_cleanup_push(clean, rounds);
  if ((long)rounds == 1) pthread_exit(0);
  if ((long)rounds == 2) for (;;) pause();
  pthread_cleanup_pop(0);
  return 0;
}

static void prepare(void) { allocate(1); }
static void in_parent(void) { allocate(2); }
static void in_child(void) { allocate(3); }

static void wait_for(pid_t child) {
  int status;
  if (child < 0 || waitpid(child, &status, 0) != child || status) fail("a child");
}

int main(int argc, char **argv) {
  int file = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (argc < 2 || file < 0 || ftruncate(file, 4096)) fail("the book");
  book = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (book == MAP_FAILED) fail("the book");
  __atomic_fetch_add(&book->aligned, before.aligned, __ATOMIC_RELAXED);
  atexit(at_exit);
  allocate(100);
  if (argc > 2) return 0;
  arrays();

  struct sigaction action = {.sa_handler = handler};
  sigaction(SIGUSR1, &action, 0);
  sigaction(SIGUSR2, &action, 0);
  for (int i = 0; i < 20; i++) raise(SIGUSR1);
  for (volatile int i = 0; i < 20; i++)
    if (!sigsetjmp(out, 1)) raise(SIGUSR2);
  for (volatile int i = 0; i < 20; i++)
    if (!sigsetjmp(out, 1)) jump(i);

  pthread_key_create(&key, destroy_value);
  for (long rounds = 1; rounds <= 3; rounds++) {
    pthread_t id;
    if (pthread_create(&id, 0, thread, (void *)rounds)) fail("pthread_create");
    if (rounds == 2) pthread_cancel(id);
    pthread_join(id, 0);
  }

  char *again[] = {argv[0], argv[1], "again", 0};
  pid_t child = vfork();
  if (!child) {
    allocate(8);
    execv(argv[0], again);
    _exit(1);
  }
  wait_for(child);
  if (posix_spawn(&child, argv[0], 0, 0, again, environ)) fail("posix_spawn");
  wait_for(child);

  pthread_atfork(prepare, in_parent, in_child);
  for (int i = 0; i < 10; i++) {
    child = fork();
    if (!child) {
      allocate(9);
      if (i % 2) _exit(0);
      exit(0);
    }
    wait_for(child);
  }
  return 0;
}
