/* Two large regions of code that nothing describes, and between them functions that keep what they like in the register of the frame pointer: here the address of a structure
   whose words look like a frame. */
#include <stdlib.h>

#define NOINLINE __attribute__((noinline, noclone))
static volatile long sink;

void before(void), call_with_rbp(long i, long *rbp, void (*callee)(long));
__asm__(".text\nbefore: .skip 200000, 0x90\nret\n"
        "call_with_rbp: push %rbp\nmov %rsi, %rbp\ncall *%rdx\npop %rbp\nret\n");

NOINLINE static void inner(long i) {
  free(malloc(i % 10 + 1));
  sink++;
}
NOINLINE static void outer(long i) {
  long words[6];
  words[0] = (long)(words + 4);
  words[1] = 0x1234567;
  words[4] = 0;
  words[5] = 0x7654321;
  call_with_rbp(i, words, inner);
  sink += words[i & 3];
}
int main(void) {
  for (long i = 0; i < 1000; i++) outer(i);
  return 0;
}

__asm__(".text\nafter: .skip 200000, 0x90\nret\n");
