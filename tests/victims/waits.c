/* Blocks all signals in all threads, as servers do, works for a moment in each thread, and waits for signals in one place, in the way that the argument names.
   Prints which signals came. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

__attribute__((noinline)) void spin(void) {
  for (volatile long i = 0; i < 40000000; i++) {}
}

static void *works(void *unused) {
  (void)unused;
  spin();
  kill(getpid(), SIGTERM);
  return NULL;
}

static void *waits_for_ever(void *set) {
  int signal;
  spin();
  for (;;) sigwait(set, &signal);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  sigset_t all, old, pending;
  sigfillset(&all);
  sigemptyset(&old);
  if (!strcmp(argv[1], "cancel")) {
    sigset_t but_term = all;
    sigdelset(&but_term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &but_term, &old);
    pthread_t waiting;
    pthread_create(&waiting, NULL, waits_for_ever, &but_term);
    usleep(20000);
    void *result;
    pthread_cancel(waiting);
    pthread_join(waiting, &result);
    printf("cancelled %d\n", result == PTHREAD_CANCELED);
    return 0;
  }
  if (strcmp(argv[1], "few") ? sigprocmask(SIG_SETMASK, &all, &old) : pthread_sigmask(SIG_BLOCK, &all, &old)) return 3;
  printf("before %d %d\n", sigismember(&old, SIGTERM), sigismember(&old, SIGPROF));
  spin();
  pthread_t thread;
  pthread_create(&thread, NULL, works, NULL);
  siginfo_t info = {0};
  int signal = 0;
  struct timespec minute = {60, 0};
  if (!strcmp(argv[1], "sigwait")) sigwait(&all, &signal);
  if (!strcmp(argv[1], "sigwaitinfo")) signal = sigwaitinfo(&all, &info);
  if (!strcmp(argv[1], "sigtimedwait")) signal = sigtimedwait(&all, &info, &minute);
  if (!strcmp(argv[1], "few")) {
    sigset_t few;
    sigemptyset(&few);
    sigaddset(&few, SIGTERM);
    sigwait(&few, &signal);
  }
  if (!strcmp(argv[1], "signalfd")) {
    struct signalfd_siginfo read_info;
    int fd = signalfd(-1, &all, SFD_CLOEXEC);
    if (read(fd, &read_info, sizeof read_info) != sizeof read_info) return 4;
    signal = read_info.ssi_signo;
  }
  pthread_join(thread, NULL);
  errno = 0;
  int wrong = pthread_sigmask(12345, &all, NULL);
  printf("signal %d, wrong %d %d", signal, wrong == EINVAL, errno);
  wrong = sigprocmask(12345, &all, NULL);
  printf(" %d %d", wrong, errno == EINVAL);
  sigpending(&pending);
  printf(", pending %d\n", sigismember(&pending, SIGPROF));
  return 5;
}
