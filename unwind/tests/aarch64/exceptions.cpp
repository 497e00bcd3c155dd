// An exception that goes through a frame with a destructor, and is caught.

namespace {

struct Counts {
    explicit Counts(long *count) : count(count) {}
    ~Counts() { ++*count; }
    long *count;
};

__attribute__((noinline)) void throws() { throw 7; }

__attribute__((noinline)) void cleans_up(long *count) {
    Counts counts(count);
    throws();
}

}  // namespace

extern "C" void exceptions() {
    volatile long caught = 0;
    long count = 0;
    try {
        cleans_up(&count);
    } catch (int value) {
        caught = value + count;
    }
    (void)caught;
}
