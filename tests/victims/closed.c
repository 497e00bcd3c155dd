/* A library whose function waits for a moment, below another one. */
#include <time.h>
__attribute__((noinline)) static int waits(int n) {
  volatile char room[200];
  room[n & 63] = 1;
  struct timespec moment = {0, 30000};
  nanosleep(&moment, 0);
  return room[n & 63];
}
int calls(int n) { return waits(n) + n; }
