// Exceptions through frames with destructors: landing pads, rethrows, nested and stored exceptions.
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#define APART __attribute__((noinline, noclone))

namespace {

volatile long sink;
long destroyed;

struct Guard {
  ~Guard() { destroyed++; }
};

struct Virtual {
  virtual ~Virtual() {}
};
struct Derived : Virtual {};

APART void throws(int depth, int kind) {
  Guard guard;
  if (depth > 0) {
    std::vector<long> values(depth, kind);
    throws(depth - 1, kind);
    sink = values[0];
  }
  switch (kind) {
    case 0: throw 5;
    case 1: throw std::runtime_error("too long for the string to lie in the object itself");
    case 2: dynamic_cast<Derived &>(*new Virtual);
    default: throw Derived();
  }
}

APART long rethrows(int depth, int kind) {
  try {
    Guard guard;
    throws(depth, kind);
  } catch (const std::exception &error) {
    destroyed++;
    throw;
  } catch (const Virtual &) {
    throw std::logic_error("another one");
  }
  return 0;
}

APART long catches(int depth, int kind) {
  try {
    return rethrows(depth, kind);
  } catch (int number) {
    return number;
  } catch (const std::exception &error) {
    return error.what()[0] != 0;
  }
}

APART void destroys_while_unwinding() {
  struct Catches {
    ~Catches() {
      try {
        throws(0, 0);
      } catch (...) {
        destroyed++;
      }
    }
  };
  Catches catches;
  throws(0, 1);
}

APART long stored() {
  std::exception_ptr pointer;
  try {
    throws(0, 1);
  } catch (...) {
    pointer = std::current_exception();
  }
  try {
    std::rethrow_exception(pointer);
  } catch (const std::runtime_error &error) {
    return error.what()[0];
  }
}

}  // namespace

extern "C" void simple() {
  destroyed = 0;
  if (catches(0, 0) != 5 || catches(2, 1) != 1 || destroyed < 5) abort();
}

extern "C" void nested() {
  destroyed = 0;
  if (catches(0, 2) != 1 || catches(1, 3) != 1) abort();
  try {
    destroys_while_unwinding();
  } catch (const std::exception &) {
    destroyed++;
  }
  if (stored() != 't' || destroyed < 8) abort();
}
