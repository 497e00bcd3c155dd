/* Calls what jemalloc has besides the malloc family, mixed with that, and keeps book. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ZERO 0x40
#define ALIGNED_TO_64 6

void *mallocx(size_t, int) __attribute__((weak));
void *rallocx(void *, size_t, int) __attribute__((weak));
size_t xallocx(void *, size_t, size_t, int) __attribute__((weak));
void dallocx(void *, int) __attribute__((weak));
void sdallocx(void *, size_t, int) __attribute__((weak));

enum { MALLOCX, RALLOCX, XALLOCX, DALLOCX, FUNCTIONS };
static const char *names[] = {"mallocx", "rallocx", "xallocx", "dallocx"};
static uint64_t calls[FUNCTIONS], bytes[FUNCTIONS];

static void count(int function, size_t size) {
  calls[function]++;
  bytes[function] += size;
}

__attribute__((noinline)) static unsigned char *make(size_t size, int flags) {
  count(MALLOCX, size);
  unsigned char *block = mallocx(size, flags);
  if (!block || ((flags & 63) && (uintptr_t)block % 64) || ((flags & ZERO) && block[size / 2])) abort();
  return memset(block, 0xff, size);
}

__attribute__((noinline)) static unsigned char *make_anew(void *block, size_t size) {
  count(RALLOCX, size);
  return rallocx(block, size, 0);
}

/* Whether the block has that size now. */
__attribute__((noinline)) static int resize(void *block, size_t size, int flags) {
  count(XALLOCX, size);
  return xallocx(block, size, 0, flags) >= size;
}

static void give_back(void *block, size_t size) {
  count(DALLOCX, 0);
  size ? sdallocx(block, size, 0) : dallocx(block, 0);
}

static void *volatile kept[7];

int main(void) {
  if (!mallocx || !rallocx || !xallocx || !dallocx || !sdallocx) return 9;
  for (int i = 0; i < 100; i++) give_back(make(100, 0), 100);
  for (int i = 0; i < 90; i++) give_back(malloc(200), 200);
  for (int i = 0; i < 80; i++) free(make(300, ZERO | ALIGNED_TO_64));
  for (int i = 0; i < 70; i++) give_back(make_anew(make(400, 0), 4000), 0);
  int resized = 0, zeroed = 0;
  for (int i = 0; i < 60; i++) {
    unsigned char *block = make(65536, 0);
    resized += resize(block, 32768, 0);
    resized += resize(block, (size_t)1 << 40, 0);
    if (resize(block, 65536, ZERO)) resized++, zeroed += !block[65535];
    give_back(block, 0);
  }
  for (int i = 0; i < 7; i++) {
    kept[i] = make(5000, 0);
    resize(kept[i], 5001, 0);
  }
  printf("resized %d zeroed %d\n", resized, zeroed);
  for (int i = 0; i < FUNCTIONS; i++) printf("%s %lu %lu\n", names[i], calls[i], bytes[i]);
  return 0;
}
