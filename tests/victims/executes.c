// Executes a program by one of the functions that do: executes FUNCTION PROGRAM [vfork | lost]. Says how that ended. "lost": when the recorder's library is gone.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *function, *program;
static char *volatile nowhere = (char *)8;

static int is(const char *name) { return strcmp(function, name) == 0; }

// Removes the library that is preloaded first, as another root directory or another user's rights would.
static void lose(void) {
  const char *preloaded = getenv("LD_PRELOAD");
  if (!preloaded)
    return;
  char path[4096];
  snprintf(path, sizeof path, "%.*s", (int)strcspn(preloaded, ": "), preloaded);
  if (strstr(path, "profrec"))
    unlink(path);
}

static void execute(char **arguments, char **environment, char **bad) {
#define LIST "0", "1", "2", "3", "4", "5", "6", "7", "8", NULL
  if (is("execve"))
    execve(program, arguments, environment);
  else if (is("execveat"))
    execveat(AT_FDCWD, program, arguments, environment, 0);
  else if (is("execveat-fd"))
    execveat(open(program, O_PATH | O_CLOEXEC), "", arguments, environment, AT_EMPTY_PATH);
  else if (is("execveat-folder"))
    execveat(open("/", O_PATH | O_CLOEXEC), program + 1, arguments, environment, 0);
  else if (is("fexecve"))
    fexecve(open(program, O_RDONLY | O_NONBLOCK | O_CLOEXEC), arguments, environment);
  else if (is("execv"))
    execv(program, arguments);
  else if (is("execvp"))
    execvp(program, arguments);
  else if (is("execvpe"))
    execvpe(program, arguments, environment);
  else if (is("execl"))
    execl(program, LIST);
  else if (is("execlp"))
    execlp(program, LIST);
  else if (is("execle"))
    execle(program, LIST, environment);
  else if (is("syscall"))
    syscall(SYS_execve, program, arguments, environment);
  else if (is("syscall-at"))
    syscall(SYS_execveat, AT_FDCWD, program, arguments, environment, 0);
  else if (is("bad-path"))
    execve(nowhere, arguments, environment);
  else if (is("bad-environment"))
    execve(program, arguments, (char **)nowhere);
  else if (is("bad-string"))
    execve(program, arguments, bad);
  else if (is("no-environment"))
    execve(program, arguments, NULL);
  int error = errno;
  dprintf(1, "error %d\n", error);
  _exit(9);
}

static void ended(int status) { printf("%s %d\n", WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)); }

int main(int count, char **values) {
  function = values[1];
  program = values[2];
  int shared = count > 3 && strcmp(values[3], "vfork") == 0;
  if (count > 3 && strcmp(values[3], "lost") == 0)
    lose();
  // What is executed has another environment than this program.
  int length = 0;
  while (environ[length])
    length++;
  char **environment = calloc(length + 3, sizeof *environment), **bad = calloc(length + 3, sizeof *bad);
  environment[0] = "MARK=1";
  memcpy(environment + 1, environ, length * sizeof *environment);
  environment[length + 1] = "MARK=2";
  memcpy(bad, environment, (length + 2) * sizeof *bad);
  bad[length + 1] = nowhere;
  char *arguments[] = {"zero", "one", "two", NULL};
  setvbuf(stdout, NULL, _IONBF, 0);
  int status = 0;
  if (is("system")) {
    status = system(program);
  } else if (is("popen")) {
    FILE *pipe = popen(program, "r");
    for (int byte; (byte = getc(pipe)) != EOF;)
      putchar(byte);
    status = pclose(pipe);
  } else if (is("posix_spawn") || is("posix_spawnp")) {
    pid_t child;
    int error = (is("posix_spawn") ? posix_spawn : posix_spawnp)(&child, program, NULL, NULL, arguments, environment);
    if (error)
      printf("error %d\n", error);
    else
      waitpid(child, &status, 0);
  } else {
    pid_t child = shared ? vfork() : fork();
    if (child == 0)
      execute(arguments, environment, bad);
    waitpid(child, &status, 0);
  }
  ended(status);
  // The recorder's library goes on where it is.
  free(strdup(program));
  return 3;
}
