/* An allocator that a signal handler can leave by a jump, at each instruction: it has no lock, and a thread's free blocks are in lists of its own, by size. At worst a block is lost. */
#include <errno.h>
#include <stddef.h>
#include <string.h>

enum { CLASSES = 64, HEADER = 16 };
static char area[1UL << 31] __attribute__((aligned(64)));
static size_t next;
struct block { struct block *volatile next; };
static __thread struct block *volatile lists[CLASSES] __attribute__((tls_model("initial-exec")));

static void *fresh(size_t alignment, size_t size) {
  size_t whole = (size + alignment + HEADER + 15) & ~(size_t)15;
  size_t at = __atomic_fetch_add(&next, whole, __ATOMIC_RELAXED);
  if (whole < size || at + whole > sizeof area) {
    errno = ENOMEM;
    return 0;
  }
  char *block = (char *)(((size_t)area + at + HEADER + alignment - 1) & ~(alignment - 1));
  ((size_t *)block)[-1] = size;
  return block;
}
static struct block *volatile *list_of(size_t size) { return size - 1 < CLASSES * 16 ? &lists[(size - 1) / 16] : 0; }

void *malloc(size_t size) {
  size = (size + 15 + !size) & ~(size_t)15;
  struct block *volatile *list = list_of(size), *block = list ? *list : 0;
  if (!block) return fresh(16, size);
  *list = block->next;
  return (void *)block;
}
void free(void *given) {
  struct block *volatile *list = given ? list_of(((size_t *)given)[-1]) : 0;
  if (!list) return;
  struct block *block = given;
  block->next = *list;
  *list = block;
}
void *calloc(size_t count, size_t size) {
  void *block = size && count > (size_t)-1 / size ? 0 : malloc(count * size);
  return block ? memset(block, 0, count * size) : 0;
}
void *realloc(void *before, size_t size) {
  void *block = malloc(size);
  if (!block || !before) return block;
  size_t had = ((size_t *)before)[-1];
  memcpy(block, before, had < size ? had : size);
  free(before);
  return block;
}
void *memalign(size_t alignment, size_t size) { return fresh(alignment < 16 ? 16 : alignment, (size + 15 + !size) & ~(size_t)15); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = memalign(alignment, size);
  return *block ? 0 : ENOMEM;
}
size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-1] : 0; }
