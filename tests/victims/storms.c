/* Much of what a program can do to whoever follows it. The argument names the case; each prints what is true about it, and its memory before and after. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
typedef void Enter(long nanoseconds);

static void fail(const char *what) { printf("failed: %s\n", what); exit(1); }

/* Resident memory in KiB and number of mappings. */
static void print_memory(const char *when) {
  char line[4096];
  long resident = 0, mappings = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &resident);
  fclose(file);
  file = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, file)) mappings++;
  fclose(file);
  printf("%s %ld %ld\n", when, resident, mappings);
}

/* Threads that allocate meanwhile. */
static volatile int stop;
NOINLINE static void hammered(unsigned n) { free(malloc(n % 500 + 1)); }
static void *hammer(void *unused) {
  for (unsigned n = 0; !stop; n++) {
    hammered(n);
    if (n % 64 == 0) usleep(100);
  }
  return unused;
}
static pthread_t hammers[2];
static void start_hammers(void) {
  for (int i = 0; i < 2; i++)
    if (pthread_create(hammers + i, 0, hammer, 0)) fail("pthread_create");
}
static void stop_hammers(void) {
  stop = 1;
  for (int i = 0; i < 2; i++) pthread_join(hammers[i], 0);
}

NOINLINE static void *opened(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(dlerror());
  return library;
}
NOINLINE static void call(void *library, long nanoseconds) {
  ((Enter *)dlsym(library, "enter"))(nanoseconds);
  __asm__ volatile("" ::: "memory");
}

/* Where the library's two functions begin and end in its file. */
static void print_places(void *library, const char *name) {
  char **places = dlsym(library, "places");
  Dl_info info;
  if (!places || !dladdr(places, &info)) fail("places");
  printf("%s", name);
  for (int i = 0; i < 4; i++) printf(" %lx", (long)(places[i] - (char *)info.dli_fbase));
  puts("");
}

/* One library, opened and closed again and again. */
static void reopened(long times, long nanoseconds, const char *path) {
  for (long i = 0; i < times; i++) {
    if (i == 10) print_memory("before");
    void *library = opened(path);
    call(library, nanoseconds);
    dlclose(library);
  }
  print_memory("after");
}

/* A copy of one of eight libraries, with a build id and a name of its own function: a number. */
static void copy(const char *directory, long number, const char *to) {
  static const char note[] = "\4\0\0\0\24\0\0\0\3\0\0\0GNU";
  static char buffer[1 << 20];
  char from[4096], digits[5];
  snprintf(from, sizeof from, "%s/variant%ld.so", directory, number % 8);
  snprintf(digits, sizeof digits, "%04ld", number % 10000);
  FILE *source = fopen(from, "r"), *target = fopen(to, "w");
  if (!source || !target) fail(from);
  size_t length = fread(buffer, 1, sizeof buffer, source);
  char *id = memmem(buffer, length, note, sizeof note);
  if (!id) fail("no build id");
  memcpy(id + sizeof note, &number, sizeof number);
  for (char *name = buffer; (name = memmem(name, buffer + length - name, "inner_0000", 10)); name += 10) memcpy(name + 6, digits, 4);
  if (fwrite(buffer, 1, length, target) != length || fclose(target)) fail(to);
  fclose(source);
}

/* Many libraries at once, called in turn. */
static void together(long count, long nanoseconds, const char *directory) {
  void **libraries = calloc(count, sizeof *libraries);
  char path[4096];
  print_memory("before");
  for (long i = 0; i < count; i++) {
    snprintf(path, sizeof path, "%s/copy%04ld.so", directory, i);
    copy(directory, i, path);
    libraries[i] = opened(path);
  }
  for (int round = 0; round < 10; round++)
    for (long i = 0; i < count; i++) call(libraries[i], nanoseconds);
  print_memory("after");
}

/* Copies of eight libraries one after the other, each deleted after use: files take their predecessors' inodes, libraries their addresses. */
static void one_after_the_other(long count, long nanoseconds, const char *directory, int same_name) {
  static ino_t inodes[100000];
  long distinct = 0;
  char path[4096];
  for (long i = 0; i < count; i++) {
    if (i == 100) print_memory("before");
    snprintf(path, sizeof path, "%s/copy%04ld.so", directory, same_name ? 0 : i);
    copy(directory, i, path);
    struct stat status;
    if (stat(path, &status)) fail("stat");
    long k = 0;
    while (k < distinct && inodes[k] != status.st_ino) k++;
    if (k == distinct) inodes[distinct++] = status.st_ino;
    void *library = opened(path);
    call(library, nanoseconds);
    print_places(library, strrchr(path, '/') + 1);
    dlclose(library);
    unlink(path);
  }
  print_memory("after");
  printf("inodes %ld\n", distinct);
}

/* Threads that live for a moment, and may be given another name by their own first line. */
static const char *renamed;
NOINLINE static void *brief(void *unused) {
  if (renamed) pthread_setname_np(pthread_self(), renamed);
  free(malloc(100));
  return unused;
}
static void threads(long count) {
  for (long i = 0; i < count; i += 8) {
    if (i == 800) print_memory("before");
    pthread_t threads[8];
    for (int k = 0; k < 8; k++)
      if (pthread_create(&threads[k], 0, brief, 0)) fail("pthread_create");
    for (int k = 0; k < 8; k++) pthread_join(threads[k], 0);
  }
  print_memory("after");
}

/* storms CASE COUNT NANOSECONDS PATH */
int main(int argc, char **argv) {
  if (argc < 5) return 2;
  const char *name = argv[1], *path = argv[4];
  long count = atol(argv[2]), nanoseconds = atol(argv[3]);
  if (!strcmp(name, "threads") || !strcmp(name, "renamed")) {
    renamed = strcmp(name, "renamed") ? 0 : "connection";
    threads(count);
    return 0;
  }
  start_hammers();
  if (!strcmp(name, "reopened")) reopened(count, nanoseconds, path);
  else if (!strcmp(name, "together")) together(count, nanoseconds, path);
  else if (!strcmp(name, "names")) one_after_the_other(count, nanoseconds, path, 0);
  else if (!strcmp(name, "one-name")) one_after_the_other(count, nanoseconds, path, 1);
  else return 2;
  stop_hammers();
  return 0;
}
