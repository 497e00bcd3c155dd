/* Threads that allocate, reallocate and free at random, now more of the one, now of the other, and keep books of the bytes of their blocks.
   peaks SEED ROUNDS THREADS: prints what is live at the end and the most that was at any time, since `main` began. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD 96

static atomic_long live, most;
static unsigned long seed;
static long rounds;

static void change(long bytes) {
  long now = atomic_fetch_add(&live, bytes) + bytes, known = atomic_load(&most);
  while (now > known && !atomic_compare_exchange_weak(&most, &known, now))
    ;
}

static unsigned long draw(uint64_t *state, unsigned long below) {
  *state = *state * 6364136223846793005UL + 1442695040888963407UL;
  return (*state >> 33) % below;
}

/* Most are small, a few more than a thread may have before its process hears of it, some so large that they are mapped. */
static unsigned long size(uint64_t *state) {
  switch (draw(state, 64)) {
  case 0: return 1 + draw(state, 600000);
  case 1: case 2: return 1 + draw(state, 60000);
  default: return 1 + draw(state, 1500);
  }
}

static void *work(void *number) {
  uint64_t state = seed * 1000 + (uintptr_t)number;
  void *held[HELD] = {0};
  draw(&state, 2);
  for (long i = 0; i < rounds; i++) {
    void **slot = &held[draw(&state, HELD)];
    long before = *slot ? (long)malloc_usable_size(*slot) : 0;
    /* Waves, of which no two are alike. */
    unsigned long frees = 1 + (i / 700 + seed) % 5;
    if (draw(&state, 6) < frees) {
      free(*slot);
      *slot = NULL;
    } else if (*slot || draw(&state, 4) == 0) {
      *slot = realloc(*slot, size(&state));
    } else if (draw(&state, 16) == 0) {
      if (posix_memalign(slot, 256, size(&state)) != 0)
        _exit(2);
    } else {
      *slot = draw(&state, 2) ? malloc(size(&state)) : calloc(1, size(&state));
    }
    change((*slot ? (long)malloc_usable_size(*slot) : 0) - before);
  }
  return NULL;
}

int main(int count, char **arguments) {
  char line[64];
  pthread_t threads[16];
  if (count != 4)
    return 2;
  seed = strtoul(arguments[1], NULL, 10);
  rounds = strtol(arguments[2], NULL, 10);
  long others = strtol(arguments[3], NULL, 10) - 1;
  for (long i = 0; i < others; i++)
    if (pthread_create(&threads[i], NULL, work, (void *)(i + 1)) != 0)
      return 2;
  work(NULL);
  for (long i = 0; i < others; i++)
    pthread_join(threads[i], NULL);
  int length = snprintf(line, sizeof line, "%ld %ld\n", atomic_load(&live), atomic_load(&most));
  return write(1, line, length) == length ? 0 : 2;
}
