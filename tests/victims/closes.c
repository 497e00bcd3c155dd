/* closes SECONDS LIBRARY...: a thread for each library opens it, waits inside, and closes it, over and over; three threads work, so that whoever looks at them is often interrupted. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile int ended;

static void *closes(void *name) {
  while (!ended) {
    void *library = dlopen(name, RTLD_NOW);
    int (*calls)(int) = library ? (int (*)(int))dlsym(library, "calls") : 0;
    if (!calls || calls(3) != 4) abort();
    dlclose(library);
  }
  return 0;
}

static void *works(void *unused) {
  while (!ended) for (volatile int i = 0; i < 100000; i++);
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  for (int i = 2; i < argc; i++)
    if (pthread_create(&thread, 0, closes, argv[i])) return 1;
  for (int i = 0; i < 3; i++)
    if (pthread_create(&thread, 0, works, 0)) return 1;
  struct timespec wait = {atoi(argv[1]), 0};
  nanosleep(&wait, 0);
  ended = 1;
  struct timespec end = {0, 300000000};
  nanosleep(&end, 0);
  puts("closed");
  fflush(stdout);
  _Exit(0);
}
