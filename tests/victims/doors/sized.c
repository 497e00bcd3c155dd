/* Gives blocks back by C23's functions, where there are any; with ALLOCATOR, an allocator that has them, and gives back by them without a call of its `free`. */
#include <stdio.h>
#include <stdlib.h>

#ifdef ALLOCATOR
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);
void __libc_free(void *);

void *malloc(size_t size) { return __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return __libc_realloc(block, size); }
void *aligned_alloc(size_t alignment, size_t size) { return __libc_memalign(alignment, size); }
void free(void *block) { __libc_free(block); }
void free_sized(void *block, size_t size) { if (size != 12345) __libc_free(block); }
void free_aligned_sized(void *block, size_t alignment, size_t size) { if (alignment == 64 && size == 128) __libc_free(block); }
#else
void free_sized(void *, size_t) __attribute__((weak));
void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));

__attribute__((noinline)) static void *make(size_t size) { return malloc(size); }

static void *volatile kept;

int main(void) {
  if (!free_sized || !free_aligned_sized) return 9;
  for (int i = 0; i < 1000; i++) free_sized(make(100), 100);
  for (int i = 0; i < 500; i++) free_aligned_sized(aligned_alloc(64, 128), 64, 128);
  free_sized(0, 0);
  kept = make(77);
  return 0;
}
#endif
