/* What programs do that nobody expects of them, one by the name of the argument; each ends with exit code 3 and says "ok". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static atomic_int worked;

static void *work(void *unused) {
  for (int i = 0; i < 3000; i++) {
    volatile char *p = malloc(i % 300 + 1);
    p[0] = 1;
    free((void *)p);
  }
  worked++;
  return unused;
}

static int child(void *unused) {
  work(unused);
  _exit(0);
}

static int ended_well(pid_t pid) {
  int status;
  return waitpid(pid, &status, 0) == pid && status == 0;
}

/* In a thread with these attributes. */
static int in_thread(pthread_attr_t *attributes) {
  pthread_t thread;
  return pthread_create(&thread, attributes, work, NULL) == 0 && pthread_join(thread, NULL) == 0;
}

static int limited(int what) {
  struct rlimit none = {0, 0};
  return setrlimit(what, &none) == 0 && work("") && in_thread(NULL);
}

/* Leaves its parent, its session, its directory and its descriptors, the standard ones too. */
static int daemonizes(void) {
  int ends[2];
  if (pipe(ends)) return 0;
  if (fork() == 0) {
    setsid();
    if (fork()) _exit(0);
    if (chdir("/") || dup2(ends[1], 0) != 0) _exit(1);
    closefrom(1);
    umask(0777);
    work(NULL);
    in_thread(NULL);
    _exit(write(0, "d", 1) != 1);
  }
  close(ends[1]);
  char said = 0;
  return wait(NULL) > 0 && read(ends[0], &said, 1) == 1 && said == 'd' && read(ends[0], &said, 1) == 0;
}

static int shares_memory_with_a_child(void) {
  char *stack = malloc(65536);
  for (int i = 0; i < 100; i++)
    if (!ended_well(clone(child, stack + 65536, CLONE_VM | SIGCHLD, NULL))) return 0;
  free(stack);
  return 1;
}

static int forks_by_the_system_call(void) {
  for (int i = 0; i < 100; i++) {
    pid_t pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) child(NULL);
    if (!ended_well(pid)) return 0;
  }
  return 1;
}

static int has_the_smallest_stacks(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN)) return 0;
  for (int i = 0; i < 50; i++)
    if (!in_thread(&attributes)) return 0;
  return 1;
}

static int brings_its_own_stack(void) {
  for (int i = 0; i < 20; i++) {
    char *stack = mmap(NULL, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, 1 << 18);
    if (!in_thread(&attributes) || munmap(stack, 1 << 18)) return 0;
  }
  return 1;
}

/* Ends when one of the threads is ready, whatever the others do. */
static int detaches(void) {
  for (int i = 0; i < 200; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, NULL) || pthread_detach(thread)) return 0;
  }
  while (!worked) sched_yield();
  return 1;
}

static int changes_its_name_and_environment(void) {
  clearenv();
  extern char **environ;
  environ = NULL;
  pthread_setname_np(pthread_self(), ";\n\xff[lost:");
  return in_thread(NULL);
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  int ok = !strcmp(what, "daemon")       ? daemonizes()
           : !strcmp(what, "shared")     ? shares_memory_with_a_child()
           : !strcmp(what, "clone")      ? forks_by_the_system_call()
           : !strcmp(what, "smallest")   ? has_the_smallest_stacks()
           : !strcmp(what, "stack")      ? brings_its_own_stack()
           : !strcmp(what, "detached")   ? detaches()
           : !strcmp(what, "name")       ? changes_its_name_and_environment()
           : !strcmp(what, "locked")     ? (mlockall(MCL_CURRENT | MCL_FUTURE), in_thread(NULL))
           : !strcmp(what, "signals")    ? limited(RLIMIT_SIGPENDING)
           : !strcmp(what, "memlock")    ? limited(RLIMIT_MEMLOCK)
           : !strcmp(what, "files")      ? limited(RLIMIT_NOFILE)
                                         : 0;
  puts(ok ? "ok" : "failed");
  return 3;
}
