/* Allocates on 3,000 stacks after it confined itself: to a list of system calls, which the second argument says how to enforce, or to the kernel's strict mode.
   Before, it allocates as often as the third argument says. `refused` asks for a filter that the kernel does not take. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PASS(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
static void left(unsigned path, int more);
static void right(unsigned path, int more);
static __attribute__((noinline)) void leaf(unsigned size) {
  volatile char *p = malloc(16 + size % 1000);
  p[0] = 1;
  free((void *)p);
}
#define SIDE(name) \
  static __attribute__((noinline)) void name(unsigned path, int more) { \
    if (more == 0) leaf(path); \
    else if ((path >> more % 16) & 1) left(path, more - 1); \
    else right(path, more - 1); \
    __asm__ volatile(""); \
  }
SIDE(left)
SIDE(right)

static void work(int times) {
  for (int i = 0; i < times; i++) left(i * 2654435761u >> 8, 60);
}

static int confine(const char *way, const char *how) {
  if (!strcmp(how, "strict")) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
  unsigned answer = !strcmp(how, "kill") ? SECCOMP_RET_KILL_PROCESS : !strcmp(how, "trap") ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | EPERM;
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      PASS(read), PASS(write), PASS(exit), PASS(exit_group), PASS(brk), PASS(mmap), PASS(munmap), PASS(futex),
      BPF_STMT(BPF_RET | BPF_K, answer)};
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (!strcmp(how, "refused")) {
    struct sock_fprog empty = {0, filter};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &empty) == -1 && errno == EINVAL ? 0 : -1;
  }
  return !strcmp(way, "syscall") ? (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                                 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  work(atoi(argv[3]));
  if (confine(argv[1], argv[2])) return 3;
  work(3000);
  /* Some time, for ticks. */
  for (volatile long i = 0; i < 30000000; i++) {}
  if (write(1, "done\n", 5) != 5) return 4;
  syscall(SYS_exit, 0);
}
