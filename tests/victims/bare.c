/* A library whose frame information is in its file alone: compiled with -g -fno-asynchronous-unwind-tables, it has a .debug_frame and no .eh_frame. */
#include <stdlib.h>

__attribute__((noinline)) void *bare_allocate(unsigned long size) {
  void *volatile block = malloc(size);
  return block;
}
