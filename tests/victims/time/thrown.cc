/* A library of C++ that is opened and closed over and over: it throws, catches, and touches a thread-local variable of its own. */
#include <stdexcept>

static __thread char touched[8192];
static volatile long sink;

__attribute__((noinline)) static long dive(long depth) {
  if (depth == 0) throw std::runtime_error("thrown");
  long below = dive(depth - 1);
  sink = below;
  return below + 1;
}

extern "C" long thrown(long depth) {
  touched[depth] += 1;
  try {
    return dive(depth);
  } catch (const std::runtime_error &error) {
    return error.what()[0] == 't' ? depth : -1;
  }
}
