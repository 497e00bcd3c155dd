/* Waits for each of its children as shells do: with all signals blocked, also in the handler, until the handler has said that one ended. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t ended;
static void note(int signal) { ended = signal; }

int main(int argc, char **argv) {
  struct sigaction action = {.sa_handler = note}, before;
  sigset_t all, none;
  int reaped = 0;
  sigfillset(&action.sa_mask);
  sigfillset(&all);
  sigemptyset(&none);
  sigaction(SIGCHLD, &action, 0);
  sigaction(SIGCHLD, 0, &before);
  printf("%d %d\n", sigismember(&before.sa_mask, SIGPROF), sigismember(&before.sa_mask, SIGTERM));
  /* A wait that is begun anew after its signal came never ends. */
  alarm(60);
  for (int i = 0; i < atoi(argv[argc - 1]); i++) {
    ended = 0;
    sigprocmask(SIG_SETMASK, &all, 0);
    if (!fork()) {
      struct timespec pause = {0, i % 7 * 300000};
      nanosleep(&pause, 0);
      _exit(0);
    }
    while (!ended) sigsuspend(&none);
    sigprocmask(SIG_SETMASK, &none, 0);
    reaped += waitpid(-1, 0, WNOHANG) > 0;
  }
  printf("%d\n", reaped);
  return 0;
}
