// Every kind of operator new and operator delete, called a known number of times; exceptions out of operator new, and a jump.
#include <csetjmp>
#include <cstdio>
#include <new>

static jmp_buf out;
static volatile std::size_t absurd = std::size_t(1) << 62;

template <typename... Arguments>
[[gnu::noinline]] void *plain(std::size_t size, Arguments... arguments) { return ::operator new(size, arguments...); }
template <typename... Arguments>
[[gnu::noinline]] void *array(std::size_t size, Arguments... arguments) { return ::operator new[](size, arguments...); }

// Tells that the frames of an allocation that failed were unwound.
struct Unwound {
  int *count;
  ~Unwound() { ++*count; }
};
static int unwound;
[[gnu::noinline]] static void *fails() {
  Unwound frame{&unwound};
  return plain(absurd);
}

[[gnu::noinline]] static void kinds() {
  const std::align_val_t page{4096};
  for (int i = 0; i < 100; i++) ::operator delete(plain(10));
  for (int i = 0; i < 90; i++) ::operator delete(plain(20), std::size_t(20));
  for (int i = 0; i < 80; i++) ::operator delete(plain(30, std::nothrow), std::nothrow);
  for (int i = 0; i < 70; i++) ::operator delete(plain(40, page), page);
  for (int i = 0; i < 60; i++) ::operator delete(plain(50, page), std::size_t(50), page);
  for (int i = 0; i < 50; i++) ::operator delete(plain(60, page, std::nothrow), page, std::nothrow);
  for (int i = 0; i < 40; i++) ::operator delete[](array(70));
  for (int i = 0; i < 30; i++) ::operator delete[](array(80), std::size_t(80));
  for (int i = 0; i < 20; i++) ::operator delete[](array(90, std::nothrow), std::nothrow);
  for (int i = 0; i < 10; i++) ::operator delete[](array(100, page), page);
  for (int i = 0; i < 9; i++) ::operator delete[](array(110, page), std::size_t(110), page);
  for (int i = 0; i < 8; i++) ::operator delete[](array(120, page, std::nothrow), page, std::nothrow);
}

int main() {
  kinds();
  for (int i = 0; i < 5; i++) {
    try {
      fails();
    } catch (const std::bad_alloc &) {
      std::puts("bad_alloc");
    }
    std::set_new_handler([] { throw 42; });
    try {
      fails();
    } catch (int number) {
      std::printf("%d\n", number);
    }
    std::set_new_handler([] { std::longjmp(out, 7); });
    // No frame of `fails` here: a jump over a destructor is not allowed.
    if (int number = setjmp(out)) {
      std::printf("jumped %d\n", number);
    } else {
      plain(absurd);
    }
    std::set_new_handler(nullptr);
    kinds();
  }
  std::printf("unwound %d\n", unwound);
  return plain(absurd, std::nothrow) == nullptr ? 5 : 6;
}
