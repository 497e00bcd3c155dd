/* Code made at run time that is called from C and calls C. The argument names the case. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline, noclone))
enum { FUNCTIONS = 300, APART = 16 };

typedef void Callee(long i);
typedef void Generated(long i, long unused, long unused_too, Callee *callee);

/* sub rsp, 8; call rcx; add rsp, 8; ret: CPython's perf trampoline. */
static const unsigned char trampoline[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3};
/* push rbp; mov rbp, rsp; sub rsp, 32; call rcx; leave; ret: JIT code that keeps a frame pointer. */
static const unsigned char framed[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0xff, 0xd1, 0xc9, 0xc3};

static unsigned char *code;
static volatile long sink;

static void *executable(void *at, size_t size) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0);
  void *memory = mmap(at, size, PROT_READ | PROT_WRITE | PROT_EXEC, flags, -1, 0);
  if (memory == MAP_FAILED || (at && memory != at)) { perror("mmap"); exit(1); }
  return memory;
}

static void generate(const unsigned char *function, size_t size) {
  /* Whoever looks at code before the first function finds no memory there. */
  code = executable(0, 4096 + FUNCTIONS * APART);
  mprotect(code, 4096, PROT_NONE);
  code += 4096;
  for (int i = 0; i < FUNCTIONS; i++) memcpy(code + i * APART, function, size);
}

NOINLINE static void through(long number, long i, Callee *callee) {
  ((Generated *)(code + number % FUNCTIONS * APART))(i, 0, 0, callee);
  sink++;
}

static Callee *leaf;
/* What lies between: functions that keep values of their own in registers and on the stack across the call. */
NOINLINE static void middle(long i) {
  volatile char local[48];
  local[i % 48] = 1;
  through(i * 7, i, leaf);
  sink += local[i % 48] + i;
}
NOINLINE static void outer(long i) { through(i, i, middle); sink += i; }
NOINLINE static void allocates(long i) { free(malloc(i % 8 + 1)); sink++; }
NOINLINE static void does_little(long i) { sink += i; }

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* 3000 allocations, or a second of calls with an allocation now and then. */
NOINLINE static void work(int burn) {
  leaf = burn ? does_little : allocates;
  double end = cpu_seconds() + 1;
  for (long i = 0; burn ? cpu_seconds() < end : i < 3000; i++) {
    if (!burn) outer(i);
    for (int k = 0; burn && k < 300000; k++) outer(i);
    if (burn) free(malloc(100));
  }
}

/* Calls with a frame pointer that is none. */
void call_with_rbp(Generated *function, long i, long rbp, Callee *callee);
__asm__(".text\n.type call_with_rbp, @function\ncall_with_rbp:\n.cfi_startproc\n"
        "push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset rbp, 0\n"
        "mov %rdi, %rax\nmov %rsi, %rdi\nmov %rdx, %rbp\ncall *%rax\n"
        "pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore rbp\nret\n.cfi_endproc\n.size call_with_rbp, . - call_with_rbp\n");
NOINLINE static void any_frame_pointer(void) {
  long values[] = {0, 5, 0x1000, -1, (long)&values, (long)malloc(1), (long)&any_frame_pointer};
  for (unsigned v = 0; v < sizeof values / sizeof *values; v++)
    for (long i = 0; i < 100; i++) call_with_rbp((Generated *)code, i, values[v], allocates);
  free((void *)values[5]);
}

/* One place, and what lies there changes: the call ends at the same address in both. */
NOINLINE static void as_trampoline(void) { ((Generated *)(code + 4))(1, 0, 0, allocates); sink++; }
NOINLINE static void as_framed(void) { ((Generated *)code)(1, 0, 0, allocates); sink--; }
NOINLINE static void replaced(int unmap) {
  code = executable(0, 4096);
  for (int i = 0; i < 200; i++) {
    if (unmap) munmap(code, 4096), executable(code, 4096);
    if (i % 2) memcpy(code, framed, sizeof framed), as_framed();
    else memcpy(code + 4, trampoline, sizeof trampoline), as_trampoline();
  }
}

/* Generated code that calls generated code, with frame pointers as V8 and the JVM keep them: at 64 a loop that calls what is at 0. */
static const unsigned char callee[] = {0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3};
static const unsigned char caller[] = {0x55, 0x48, 0x89, 0xe5, 0x53, 0x50, 0x89, 0xfb, 0xe8, 0xb3, 0xff, 0xff,
                                       0xff, 0xff, 0xcb, 0x75, 0xf7, 0x58, 0x5b, 0x5d, 0xc3};
NOINLINE static void nested(void) {
  code = executable(0, 4096);
  memcpy(code, callee, sizeof callee);
  memcpy(code + 64, caller, sizeof caller);
  for (double end = cpu_seconds() + 1; cpu_seconds() < end; free(malloc(100))) ((Callee *)(code + 64))(100000), sink++;
}

/* Code lay where a library is opened later: `enters` calls malloc from the address that the trampoline called from. */
struct place { char *start, *end, *call; };
NOINLINE static void from_trampoline(char *at) { ((Generated *)at)(1, 0, 0, allocates); sink++; }
NOINLINE static void from_library(Callee *enters) { enters(1); sink++; }
static void *opened(const char *path, struct place *place) {
  void *library = dlopen(path, RTLD_NOW);
  if (!library) { puts(dlerror()); exit(1); }
  place->call = dlsym(library, "called_from");
  place->start = *(char **)dlsym(library, "start_of_library");
  place->end = *(char **)dlsym(library, "end_of_library");
  return library;
}
NOINLINE static void library(const char *path) {
  struct place first, second;
  dlclose(opened(path, &first));
  int met = 0;
  for (int i = 0; i < 100; i++) {
    size_t size = (first.end - first.start + 4095) & ~4095UL;
    executable(first.start, size);
    memcpy(first.call - 6, trampoline, sizeof trampoline);
    from_trampoline(first.call - 6);
    munmap(first.start, size);
    void *library = opened(path, &second);
    met += first.call == second.call;
    from_library(dlsym(library, "enters"));
    dlclose(library);
    first = second;
  }
  printf("%d\n", met);
}

int main(int argc, char **argv) {
  const char *name = argc > 1 ? argv[1] : "";
  int burn = argc > 2 && !strcmp(argv[2], "burn");
  if (!strcmp(name, "trampolines")) {
    generate(trampoline, sizeof trampoline);
    work(burn);
  } else if (!strcmp(name, "frame-pointers")) {
    generate(framed, sizeof framed);
    work(burn);
  } else if (!strcmp(name, "any-frame-pointer")) {
    generate(framed, sizeof framed);
    any_frame_pointer();
  } else if (!strcmp(name, "rewritten")) {
    replaced(0);
  } else if (!strcmp(name, "remapped")) {
    replaced(1);
  } else if (!strcmp(name, "nested")) {
    nested();
  } else if (!strcmp(name, "library")) {
    library(argv[2]);
    return 0;
  } else {
    return 2;
  }
  printf("%ld\n", (long)code);
  return 0;
}
