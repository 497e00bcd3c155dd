/* An executable that exports a malloc of its own, and keeps its own books: calls from here, from the dynamic linker, and from all other objects.
   With THROUGH_NEXT, its functions call those that it finds behind it. Arguments: the library that is opened later; `storm`; any other for an end that is no success. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
extern char __executable_start, etext;

enum { MALLOC, CALLOC, REALLOC, MEMALIGN, FREE, FUNCTIONS };
enum { HERE, LINKER, OTHERS, CALLERS };
static long calls[CALLERS][FUNCTIONS];

static void count(int function, char *from) {
  char *linker = (char *)getauxval(AT_BASE);
  int who = from >= &__executable_start && from < &etext ? HERE : from >= linker && from < linker + 0x33000 ? LINKER : OTHERS;
  __atomic_fetch_add(&calls[who][function], 1, __ATOMIC_RELAXED);
}
#define NOINLINE __attribute__((noinline, noclone))
#define COUNT(function) count(function, __builtin_return_address(0))

#ifdef THROUGH_NEXT
/* What `dlsym` allocates while it looks for the functions is never given back. */
static char early[65536];
static size_t used;
static void *allocate_early(size_t size) { char *at = early + used; used += (size + 15) & ~15UL; return at; }
static __typeof__(malloc) *next_malloc;
static __typeof__(calloc) *next_calloc;
static __typeof__(realloc) *next_realloc;
static __typeof__(memalign) *next_memalign;
static __typeof__(free) *next_free;
static int find(void) {
  static int busy;
  if (next_free) return 1;
  if (busy) return 0;
  busy = 1;
  next_malloc = dlsym(RTLD_NEXT, "malloc"), next_calloc = dlsym(RTLD_NEXT, "calloc"), next_realloc = dlsym(RTLD_NEXT, "realloc");
  next_memalign = dlsym(RTLD_NEXT, "memalign"), next_free = dlsym(RTLD_NEXT, "free");
  return 1;
}
static int is_early(void *p) { return (char *)p >= early && (char *)p < early + sizeof early; }
#define EARLY(size) if (!find()) return allocate_early(size)
#define NEXT(name) next_##name
#else
static int is_early(void *p) { return 0 && p; }
#define EARLY(size)
#define NEXT(name) __libc_##name
#endif

NOINLINE void *malloc(size_t size) { EARLY(size); COUNT(MALLOC); return NEXT(malloc)(size); }
NOINLINE void *calloc(size_t n, size_t size) { EARLY(n * size); COUNT(CALLOC); return NEXT(calloc)(n, size); }
NOINLINE void *realloc(void *p, size_t size) { EARLY(size); COUNT(REALLOC); return NEXT(realloc)(p, size); }
NOINLINE void *memalign(size_t alignment, size_t size) { EARLY(size); COUNT(MEMALIGN); return NEXT(memalign)(alignment, size); }
NOINLINE void free(void *p) { if (is_early(p)) return; COUNT(FREE); NEXT(free)(p); }

void linked(int n);

static void call(void *library, int n) {
  void (*opened)(int) = (void (*)(int))dlsym(library, "opened");
  if (!opened) exit(1);
  opened(n);
}

/* Threads that open and close the library, and others that allocate meanwhile. */
static const char *path;
static void *open_and_close(void *unused) {
  for (int i = 0; i < 300; i++) {
    void *library = dlopen(path, i % 2 ? RTLD_NOW : RTLD_LAZY);
    if (!library) exit(1);
    call(library, 3);
    dlclose(library);
  }
  return unused;
}
static void *stay(void *unused) {
  for (int i = 0; i < 3000; i++) linked(10);
  return unused;
}
static void storm(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    if (pthread_create(threads + i, 0, i % 2 ? stay : open_and_close, 0)) exit(1);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  path = argv[1];
  if (argc > 2 && !strcmp(argv[2], "storm")) storm();
  for (int i = 0; i < 7; i++) free(malloc(10));
  linked(1000);
  void *library = dlopen(argv[1], RTLD_LAZY);
  if (!library) return 1;
  call(library, 200);
  dlclose(library);
  library = dlopen(argv[1], RTLD_NOW);
  call(library, 30);
  dlclose(library);
  /* Its calls go to the C library's malloc, as it asks for. */
  library = dlopen(argv[1], RTLD_LAZY | RTLD_DEEPBIND);
  call(library, 4);
  linked(1);
  static const char *const names[] = {"malloc", "calloc", "realloc", "memalign", "free"};
  /* On the stack: nothing is allocated any more. */
  char book[1024];
  int length = 0;
  for (int i = 0; i < FUNCTIONS; i++)
    length += snprintf(book + length, sizeof book - length, "%s %ld %ld %ld\n", names[i], calls[HERE][i], calls[LINKER][i], calls[OTHERS][i]);
  _exit(write(1, book, length) == length && (argc < 3 || !strcmp(argv[2], "storm")) ? 0 : 3);
}
