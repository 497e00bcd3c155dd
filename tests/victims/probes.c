/* Asks the kernel what it can confine, as programs do that then go on without, and says what was answered. With `refused`, its filter is one that the kernel does not take.
   Then waits for a line, or with a second argument for so many milliseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void say(const char *what, long result) {
  printf("%s: %ld, %s; ", what, result, result ? strerrorname_np(errno) : "");
  errno = 0;
}

static __attribute__((noinline)) void goes_on(int milliseconds) {
  if (milliseconds) usleep(milliseconds * 1000);
  else while (getchar() != '\n' && !feof(stdin)) {}
  __asm__ volatile("");
}

int main(int argc, char **argv) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  struct sock_filter endless[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
  struct sock_fprog program = {1, endless}, none = {0, endless}, nowhere = {1, (void *)8};
  if (argc > 1 && !strcmp(argv[1], "refused")) {
    say("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    say("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
  } else {
    say("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    say("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &none));
    say("prctl", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &nowhere));
    say("strict", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    say("strict", syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, &program));
    for (int flag = 1; flag < 256; flag *= 2) say("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flag, NULL));
    say("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 1ul << 30, &program));
    say("seccomp", syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &(unsigned){SECCOMP_RET_KILL_PROCESS}));
  }
  puts("probed");
  fflush(stdout);
  goes_on(argc > 2 ? atoi(argv[2]) : 0);
}
