/* A library whose calls are known: every way of calling, each from a root of its own, and functions that a root does not reach. */
#include <stdlib.h>

#define ALONE __attribute__((noipa))
typedef int (*Function)(int);
static volatile int sink;

ALONE static int called(int x) { sink = x; return x + 1; }
ALONE static int jumped_to(int x) { sink = x + 1; return x + 2; }
ALONE static int in_a_table(int x) { sink = x + 2; return x + 3; }
ALONE static int stored(int x) { sink = x + 3; return x + 4; }
ALONE static int passed(int x) { sink = x + 4; return x + 5; }
ALONE static int one(int x) { sink = x + 5; return x + 6; }
ALONE static int two(int x) { sink = x + 6; return x + 7; }
ALONE static void __attribute__((noreturn)) fails(int x) { sink = x; abort(); }

struct Table { long tag; Function function; };
static const struct Table table = {1, in_a_table};
static const struct Table *volatile chosen;
static Function pointer;
static __thread int variable;

ALONE static int apply(Function f, int x) { return f(x) + 1; }

int root_calls(int x) { return called(x) + 1; }
int root_jumps(int x) { return jumped_to(x); }
int root_takes_a_table(int x) { chosen = &table; return chosen->function(x) + 1; }
void set(void) { pointer = stored; }
int root_calls_through_a_variable(int x) { return pointer ? pointer(x) + 1 : 0; }
int root_passes_a_function(int x) { return apply(passed, x) + 1; }
int root_allocates(int x) { void *volatile p = malloc(x); free(p); return 1; }
int root_uses_a_thread_local(void) { return ++variable; }
int root_fails(int x) { if (x) fails(x); return 0; }
int root_calls_an_argument(Function f) { return f(1) + 1; }
ALONE static int takes(int x) { volatile char room[3000]; room[x] = 1; return room[x]; }
int root_takes_stack(int x) { volatile char room[1000]; room[x] = 1; return takes(x) + room[x]; }
int root_locks(int *p) { return __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST) + __atomic_exchange_n(p, 2, __ATOMIC_SEQ_CST); }
int root_switches(int x) {
  switch (x) {
    case 0: return one(x) + 1;
    case 1: return two(x) + 2;
    case 2: return one(x) + 3;
    case 3: return two(x) + 4;
    case 4: return one(x) + 5;
    case 5: return two(x) + 6;
    case 6: return one(x) + 7;
    case 7: return two(x) + 8;
    default: return 0;
  }
}
