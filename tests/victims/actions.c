/* Changes the actions for SIGPROF and for the last real-time signals by every function that there is, says what each returned and did, and works for a while. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void (*handler)(int);
handler __sysv_signal(int, handler), bsd_signal(int, handler), sysv_signal(int, handler);
int __sigaction(int, const struct sigaction *, struct sigaction *);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static volatile int calls;
static void on_signal(int number) { (void)number, calls++; }

static const char *named(handler action) {
  return action == SIG_ERR ? "error" : action == SIG_DFL ? "default" : action == SIG_IGN ? "ignored" : action == SIG_HOLD ? "held" : action == on_signal ? "its own" : "another";
}
static void say(const char *what, int number, const char *returned) {
  struct sigaction now;
  sigset_t blocked;
  int error = errno;
  sigaction(number, 0, &now);
  sigprocmask(SIG_BLOCK, 0, &blocked);
  unsigned long mask;
  memcpy(&mask, &now.sa_mask, sizeof mask);
  printf("%s %d: %s, errno %d; %s, flags %x, mask %lx, %s, %d calls\n", what, number, returned, error, named(now.sa_handler), now.sa_flags, mask,
         sigismember(&blocked, number) ? "blocked" : "not blocked", calls);
  errno = 0;
}

#define SETS(function) \
  say(#function, number, named(function(number, on_signal))); \
  raise(number); \
  say("raise", number, "once"); \
  say(#function, number, named(function(number, SIG_IGN))); \
  raise(number); \
  say(#function, number, named(function(number, SIG_ERR))); \
  say(#function, number, named(function(number, SIG_DFL)))

/* The kernel's own structure. */
struct raw { handler handler; unsigned long flags; void *restorer; unsigned long mask; };

static void change(int number) {
  SETS(signal);
  SETS(ssignal);
  SETS(bsd_signal);
  SETS(sysv_signal);
  SETS(__sysv_signal);
  SETS(sigset);
  say("sigset", number, named(sigset(number, SIG_HOLD)));
  say("sigset", number, named(sigset(number, SIG_HOLD)));
  say("sigset", number, named(sigset(number, on_signal)));
  raise(number);
  say("sigset", number, named(sigset(number, on_signal)));
  for (int interrupts = 2; interrupts-- > 0;) {
    say("siginterrupt", number, siginterrupt(number, interrupts) ? "-1" : "0");
    say("signal", number, named(signal(number, on_signal)));
  }
  say("sigignore", number, sigignore(number) ? "-1" : "0");
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER}, old;
  sigfillset(&action.sa_mask);
  int result = __sigaction(number, &action, &old);
  say("__sigaction", number, result ? "-1" : named(old.sa_handler));
  raise(number);
  struct raw raw = {.handler = SIG_IGN, .flags = SA_RESTART, .mask = 1ul << 20}, before;
  result = syscall(SYS_rt_sigaction, number, &raw, &before, 8);
  say("rt_sigaction", number, result ? "-1" : named(before.handler));
  printf("flags %lx, mask %lx, %s\n", before.flags, before.mask, before.restorer ? "a restorer" : "no restorer");
  raise(number);
  say("rt_sigaction", number, syscall(SYS_rt_sigaction, number, &raw, 0, 4) ? "-1" : "0");
  say("rt_sigaction", number, syscall(SYS_rt_sigaction, number, (void *)8, 0, 8) ? "-1" : "0");
  say("rt_sigaction", number, syscall(SYS_rt_sigaction, number, 0, (void *)8, 8) ? "-1" : "0");
  raw.handler = SIG_DFL;
  say("rt_sigaction", number, syscall(SYS_rt_sigaction, number, &raw, 0, 8) ? "-1" : "0");
}

static void work(void) {
  for (volatile long i = 0; i < 100000000; i++) {}
}

int main(void) {
  setvbuf(stdout, 0, _IOFBF, 1 << 16);
  int numbers[] = {SIGUSR1, SIGPROF, SIGRTMAX - 1, SIGRTMAX - 2};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) change(numbers[i]);
  for (int number = -1; number < NSIG + 2; number++) {
    if (number == SIGKILL || number == SIGSTOP || number == 32 || number == 33) continue;
    __sysv_signal(number, SIG_DFL);
  }
  work();
  for (int number = 1; number < NSIG; number++) syscall(SYS_rt_sigaction, number, &(struct raw){.handler = SIG_DFL}, 0, 8);
  work();
  puts("done");
}
