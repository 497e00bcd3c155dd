/* Eight threads that use the allocation functions as hard as they can and hand blocks to each other, with books of their own: calls and bytes of each function;
   of each site (a function that allocates) what it allocated, what of that is still live, and what was temporary.
   hammer SEED ROUNDS: with 0 rounds it does everything else alike. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define THREADS 8
#define HELD 48
#define MAIL 64
#define TOO_MUCH (1UL << 47)

enum { MALLOC, CALLOC, REALLOC, REALLOCARRAY, POSIX_MEMALIGN, ALIGNED_ALLOC, FREE, FUNCTIONS };
static const char *const function_names[] = {"malloc", "calloc", "realloc", "reallocarray", "posix_memalign", "aligned_alloc", "free"};

/* A block, and what is known of it. Descriptions without a block travel too. */
struct block {
  unsigned char *address;
  unsigned long size;
  int site, thread;
  unsigned long sequence;
};

struct site {
  const char *name;
  void *(*allocate)(void *old, unsigned long size);
};

struct books {
  unsigned long calls[FUNCTIONS], bytes[FUNCTIONS];
  unsigned long objects[32], space[32], freed_objects[32], freed_space[32], temporary[32];
  unsigned long made; /* Allocations of this thread so far. */
  uint64_t random;
} __attribute__((aligned(64)));

static struct books books[THREADS];
static struct block blocks[THREADS * HELD + MAIL];
static struct block *mail[MAIL];
static long rounds;
static pthread_barrier_t start, end;
static __thread struct books *own;

static void fail(const char *what) {
  (void)!write(2, what, strlen(what));
  (void)!write(2, "\n", 1);
  _exit(1);
}

static void count(int function, unsigned long bytes) {
  own->calls[function]++;
  own->bytes[function] += bytes;
}

/* The sites: each a function of its own that calls one function of the family. What follows the call keeps it from being a jump. */
#define SITE(name, function, asked, call) \
  NOINLINE static void *name(void *old, unsigned long size) { \
    (void)old; \
    void *new = 0; \
    call; \
    count(function, asked); \
    return new; \
  }
#define FOUR(name, function, asked, call) \
  SITE(name##_0, function, asked, call) SITE(name##_1, function, asked, call) \
  SITE(name##_2, function, asked, call) SITE(name##_3, function, asked, call)
FOUR(site_malloc, MALLOC, size, new = malloc(size))
FOUR(site_calloc, CALLOC, size / 4 * 4, new = calloc(4, size / 4))
FOUR(site_realloc, REALLOC, size, new = realloc(old, size))
FOUR(site_reallocarray, REALLOCARRAY, size / 8 * 8, new = reallocarray(old, size / 8, 8))
FOUR(site_posix_memalign, POSIX_MEMALIGN, size, if (posix_memalign(&new, 8UL << size % 10, size)) new = 0)
FOUR(site_aligned_alloc, ALIGNED_ALLOC, size, new = aligned_alloc(16UL << size % 7, size))

#define FOUR_OF(name) {#name "_0", name##_0}, {#name "_1", name##_1}, {#name "_2", name##_2}, {#name "_3", name##_3}
static const struct site sites[] = {FOUR_OF(site_malloc), FOUR_OF(site_calloc), FOUR_OF(site_posix_memalign),
                                    FOUR_OF(site_aligned_alloc), FOUR_OF(site_realloc), FOUR_OF(site_reallocarray)};
#define SITES 24
#define RESIZING 16 /* From here on the sites take an old block. */

static unsigned long asked(int site, unsigned long size) {
  if (site / 4 == 1) return size / 4 * 4;
  return site / 4 == 5 ? size / 8 * 8 : size;
}

static unsigned long random_number(unsigned long below) {
  own->random ^= own->random << 13;
  own->random ^= own->random >> 7;
  own->random ^= own->random << 17;
  return (own->random >> 20) % below;
}

/* The block is about to be released, or was by a reallocation; before the allocation that follows it. */
static void released(struct block *block) {
  own->freed_objects[block->site]++;
  own->freed_space[block->site] += block->size;
  if (block->thread == own - books && block->sequence == own->made) own->temporary[block->site]++;
  block->address = 0;
}

static void obtained(struct block *block, void *address, int site, unsigned long size) {
  if (!address) fail("no memory");
  own->made++;
  own->objects[site]++;
  own->space[site] += size;
  *block = (struct block){address, size, site, (int)(own - books), own->made};
  block->address[0] = block->address[size - 1] = (unsigned char)(size * 7);
}

static void check(const struct block *block) {
  unsigned char mark = (unsigned char)(block->size * 7);
  if (block->address[0] != mark || block->address[block->size - 1] != mark) fail("a block was overwritten");
}

static unsigned long random_size(void) {
  unsigned long most = random_number(50) ? 900 : 300000;
  return 8 + random_number(most);
}

/* Different stacks of a site. */
NOINLINE static void *deeper(int frames, int site, void *old, unsigned long size) {
  void *new = frames ? deeper(frames - 1, site, old, size) : sites[site].allocate(old, size);
  __asm__ volatile("" ::: "memory");
  return new;
}

NOINLINE static void allocate(struct block *block, int site) {
  unsigned long size = random_size();
  void *address = deeper((int)random_number(4), site, 0, size);
  obtained(block, address, site, asked(site, size));
}

NOINLINE static void resize(struct block *block) {
  int site = RESIZING + (int)random_number(SITES - RESIZING);
  unsigned long size = random_size();
  check(block);
  void *address = deeper((int)random_number(4), site, block->address, size);
  if (!address) fail("no memory");
  released(block);
  obtained(block, address, site, asked(site, size));
}

NOINLINE static void release(struct block *block) {
  check(block);
  void *address = block->address;
  released(block);
  count(FREE, 0);
  free(address);
}

/* Calls that do something else than their names say. */
NOINLINE static void odd(struct block *block) {
  static volatile unsigned long half = SIZE_MAX / 2;
  void *address;
  switch (random_number(7)) {
    case 0: /* Frees. */
      if (!(address = block->address)) return;
      released(block);
      count(REALLOC, 0);
      if (realloc(address, 0)) fail("realloc to nothing");
      return;
    case 1: /* Fails, and the block stays. */
      if (!block->address) return;
      count(REALLOC, TOO_MUCH);
      if (realloc(block->address, TOO_MUCH)) fail("too much");
      check(block);
      return;
    case 2: /* Does not fit into a number: asks for nothing that could be added up. */
      if (!block->address) return;
      count(REALLOCARRAY, 0);
      if (reallocarray(block->address, half, 4) || errno != ENOMEM) fail("an overflow");
      check(block);
      return;
    case 3:
      count(CALLOC, 0);
      if (calloc(half, 4) || errno != ENOMEM) fail("an overflow");
      return;
    case 4:
      count(MALLOC, TOO_MUCH);
      if (malloc(TOO_MUCH)) fail("too much");
      return;
    case 5:
      count(FREE, 0);
      free(0);
      return;
    case 6: /* Not a power of two. */
      count(POSIX_MEMALIGN, 10);
      if (posix_memalign(&address, 24, 10) != EINVAL) fail("an alignment");
      return;
  }
}

static void *hammer(void *argument) {
  own = argument;
  struct block *held[HELD];
  for (int i = 0; i < HELD; i++) held[i] = blocks + (own - books) * HELD + i;
  pthread_barrier_wait(&start);
  for (long round = 0; round < rounds; round++) {
    struct block **slot = held + random_number(HELD);
    if (random_number(3) == 0) *slot = __atomic_exchange_n(mail + random_number(MAIL), *slot, __ATOMIC_ACQ_REL);
    struct block *block = *slot;
    unsigned long what = random_number(20);
    if (what == 0) odd(block);
    else if (!block->address) allocate(block, (int)random_number(SITES));
    else if (what < 8) resize(block);
    else release(block);
    /* The shortest life that there is. */
    if (what == 19 && !block->address) {
      allocate(block, (int)random_number(4));
      release(block);
    }
  }
  pthread_barrier_wait(&end);
  return 0;
}

static void print(const char *what, const char *name, const unsigned long *values, int n) {
  char line[512];
  int length = snprintf(line, sizeof line, "%s %s", what, name);
  for (int i = 0; i < n; i++) length += snprintf(line + length, sizeof line - length, " %lu", values[i]);
  line[length++] = '\n';
  if (write(1, line, length) != length) fail("write");
}

int main(int argc, char **argv) {
  if (argc < 3) fail("hammer SEED ROUNDS");
  rounds = atol(argv[2]);
  pthread_barrier_init(&start, 0, THREADS + 1);
  pthread_barrier_init(&end, 0, THREADS + 1);
  for (int i = 0; i < MAIL; i++) mail[i] = blocks + THREADS * HELD + i;
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    books[i].random = (strtoull(argv[1], 0, 10) * THREADS + i + 1) * 0x9e3779b97f4a7c15;
    if (pthread_create(threads + i, 0, hammer, books + i)) fail("pthread_create");
  }
  pthread_barrier_wait(&start);
  pthread_barrier_wait(&end);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
  for (int f = 0; f < FUNCTIONS; f++) {
    unsigned long sums[2] = {0, 0};
    for (int i = 0; i < THREADS; i++) sums[0] += books[i].calls[f], sums[1] += books[i].bytes[f];
    print("function", function_names[f], sums, 2);
  }
  for (int s = 0; s < SITES; s++) {
    unsigned long sums[7] = {0};
    for (int i = 0; i < THREADS; i++) {
      const struct books *b = books + i;
      const unsigned long one[5] = {b->objects[s], b->space[s], b->freed_objects[s], b->freed_space[s], b->temporary[s]};
      for (int k = 0; k < 5; k++) sums[k] += one[k];
    }
    /* What is live, once more: from the blocks themselves. */
    for (unsigned long i = 0; i < sizeof blocks / sizeof *blocks; i++)
      if (blocks[i].address && blocks[i].site == s) sums[5]++, sums[6] += blocks[i].size;
    print("site", sites[s].name, sums, 7);
  }
  return 0;
}
