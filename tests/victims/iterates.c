/* Allocates below a function that nothing describes, as V8's collector has one: it keeps a frame pointer, which no other function here does. */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long sink;

void iterate(void *stack, void *visitor, void (*callback)(void *, void *, long *));
__asm__(".text\n.type iterate, @function\niterate:\n"
        "push %rbp\nmov %rsp, %rbp\npush $0xcdcdcd\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rdx, %r8\nmov %rsp, %rdx\ncall *%r8\nadd $48, %rsp\npop %rbp\nret\n.size iterate, .-iterate\n");

NOINLINE static void visit(void *stack, void *visitor, long *registers) {
  free(malloc((long)stack % 10 + 1));
  sink += registers[5] + (visitor != stack);
}

NOINLINE static void outer(long i) {
  long words[4] = {i, i, i, i};
  iterate((void *)i, words, visit);
  sink += words[i & 3];
}

int main(void) {
  for (long i = 0; i < 1000; i++) outer(i);
  return 0;
}
