/* Ends with its last thread, by `exit(0)`, which the C library calls then. Arguments: how, and how many threads end at about the same time.
   main: `main` leaves by pthread_exit. child: a thread forks, and is all that its child has. stays: as `main`, but one thread stays for a while longer.
   call: that many children, each with one thread, which ends by the system call alone, made by `syscall`, or (instruction) by the instruction itself. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t barrier;

static void say(const char *what) {
  puts(what);
  fflush(stdout);
}
static void ends(void) { say("ends"); }
static void *work(void *unused) {
  free(malloc(100));
  pthread_barrier_wait(&barrier);
  return unused;
}
static void *stay(void *unused) {
  usleep(300000);
  say("stayed");
  return unused;
}
static void *forks(void *unused) {
  pid_t child = fork();
  if (!child) {
    say("child");
    return unused;
  }
  int status;
  waitpid(child, &status, 0);
  printf("status %d\n", status);
  return unused;
}

static void ends_by_call(int by_instruction, int code) {
  pid_t child = fork();
  if (!child) {
    /* An agent of the recorder's is there by then. */
    usleep(200000);
    if (!by_instruction) syscall(SYS_exit, code);
    __asm__ volatile("syscall" : : "a"(SYS_exit), "D"(code) : "rcx", "r11", "memory");
  }
  int status;
  waitpid(child, &status, 0);
  printf("status %d\n", status);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int count = atoi(argv[2]);
  pthread_t thread;
  atexit(ends);
  if (!strcmp(argv[1], "child")) {
    for (int i = 0; i < count; i++) {
      if (pthread_create(&thread, 0, forks, 0)) return 1;
      pthread_join(thread, 0);
    }
    return 3;
  }
  if (!strcmp(argv[1], "call") || !strcmp(argv[1], "instruction")) {
    for (int i = 0; i < count; i++) ends_by_call(argv[1][0] == 'i', 7 + i);
    return 3;
  }
  if (!strcmp(argv[1], "stays") && pthread_create(&thread, 0, stay, 0)) return 1;
  pthread_barrier_init(&barrier, 0, count);
  for (int i = 0; i < count; i++)
    if (pthread_create(&thread, 0, work, 0)) return 1;
  pthread_exit(0);
}
