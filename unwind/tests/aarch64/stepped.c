// A program whose every instruction is a place to walk from. Each argument names a part; a part runs between `brk #1` and `brk #2`, where the debugger stops.
// After the argument `thread` they run in another thread. Before, it says where its objects lie, and what libgcc says about its callers.
#define _GNU_SOURCE
#include <alloca.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline, noclone))
// Keeps a value, and what it was computed from.
#define KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")

static int module(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size, (void)argument;
    printf("module %lx %s\n", (unsigned long)info->dlpi_addr, info->dlpi_name);
    return 0;
}

static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *argument) {
    (void)argument;
    printf("frame %lx\n", (unsigned long)_Unwind_GetIP(context));
    return _URC_NO_REASON;
}

// Leaves: without a frame, with one, and one that uses so many registers that it saves x29 without x30.
NOINLINE static long leaf(long a, long b) { return a * b + 1; }

NOINLINE static long leaf_with_frame(const char *text) {
    volatile char copy[48];
    long sum = 0;
    for (int i = 0; i < 4; i++) copy[i] = text[i];
    for (int i = 0; i < 4; i++) sum += copy[i];
    return sum;
}

NOINLINE static long many_registers(const long *n) {
    long a = n[0], b = n[1], c = n[2], d = n[3], e = n[4], f = n[5], g = n[6], h = n[7];
    __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h) : : "x0", "x1", "x2", "x3", "x4",
                     "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17");
    return a + b + c + d + e + f + g + h + n[8];
}

NOINLINE static long recursive(int depth, long value) {
    long kept[3] = {value, depth, value ^ depth};
    KEEP(kept);
    if (depth == 0) return leaf(value, 3);
    return recursive(depth - 1, value + 1) + kept[1];
}

NOINLINE static long sums(int count, ...) {
    va_list arguments;
    va_start(arguments, count);
    long sum = 0;
    for (int i = 0; i < count; i++) sum += i % 2 ? (long)va_arg(arguments, double) : va_arg(arguments, long);
    va_end(arguments);
    return leaf(sum, count) + 1;
}

NOINLINE static long variable_length(int length) {
    char text[length];
    memset(text, 'x', length);
    KEEP(text);
    return leaf(text[length / 2], length) + 1;
}

NOINLINE static long on_the_stack(int rounds) {
    long sum = 0;
    for (int i = 1; i <= rounds; i++) {
        long *piece = alloca(i * 40);
        piece[i] = i;
        KEEP(piece);
        sum += leaf(piece[i], i);
    }
    return sum;
}

NOINLINE static long over_aligned(long value) {
    _Alignas(256) long kept[8] = {value, value + 1};
    KEEP(kept);
    return leaf(kept[1], (uintptr_t)kept % 256) + 1;
}

NOINLINE static long over_aligned_and_variable(long value, int length) {
    _Alignas(128) long kept[8] = {value, value + 1};
    char text[length];
    text[length - 1] = 1;
    KEEP(kept);
    KEEP(text);
    return leaf(kept[1], text[length - 1]) + 1;
}

// The offset of a slot has 7 bits in one instruction, 9 and 12 in others; then there are two additions, and probes of the guard page.
#define LARGE(name, bytes)                                                     \
    NOINLINE static long name(long value) {                                    \
        char room[bytes];                                                      \
        room[0] = room[bytes - 1] = (char)value;                               \
        KEEP(room);                                                            \
        return leaf(room[bytes - 1], room[0]) + 1;                             \
    }
LARGE(large_600, 600)
LARGE(large_6000, 6000)
LARGE(large_70000, 70000)
LARGE(large_400000, 400000)
LARGE(large_3000000, 3000000)

struct eight { long n[12]; };

NOINLINE static long by_value(struct eight a, long b, long c, long d, long e, long f, long g, struct eight h, long i) {
    return leaf(a.n[3] + h.n[2], b + c + d + e + f + g + i);
}

NOINLINE static double floats(double a, double b) {
    double kept = a * b;
    __asm__ volatile("" : "+w"(kept) : : "d8", "d9", "d10", "d11", "d12", "d13", "d14", "d15");
    return kept + leaf((long)a, (long)b);
}

NOINLINE static long tail(long a) { return leaf(a, a); }

NOINLINE static long early(long *a) {
    if (!a) return 0;
    long first = leaf(a[0], 1);
    return first > 5 ? first : recursive(2, first) + a[1];
}

static void frames(void) {
    static const long numbers[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    long pair[2] = {1, 2};
    struct eight eight = {{1, 2, 3}};
    long sum = leaf(2, 3) + leaf_with_frame("text") + many_registers(numbers) + recursive(6, 1);
    sum += sums(5, 1L, 2.5, 3L, 4.5, 5L) + variable_length(333) + on_the_stack(4) + over_aligned(7);
    sum += over_aligned_and_variable(5, 77) + large_600(1) + large_6000(2) + large_70000(3) + large_400000(4) + large_3000000(5);
    sum += by_value(eight, 1, 2, 3, 4, 5, 6, eight, 7) + (long)floats(1.5, 2.5) + tail(4) + early(NULL) + early(pair);
    KEEP(&sum);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// The C library, each function bound at its first call.
static void library(void) {
    int numbers[] = {3, 1, 2, 9, 5, 4};
    char text[128];
    qsort(numbers, 6, sizeof *numbers, compare);
    snprintf(text, sizeof text, "%s %d %.3f %lx", "x", 5, 2.5, 7L);
    free(realloc(malloc(100), 100000));
    KEEP(text);
    KEEP(rawmemchr(text, 'x'));
    KEEP(getenv("PATH"));
    time(NULL);
}

static jmp_buf back;

NOINLINE static void jumps(int depth) {
    if (depth == 0) longjmp(back, 7);
    jumps(depth - 1);
    KEEP(&depth);
}

static ucontext_t here, there;
static char stack[64 * 1024] __attribute__((aligned(16)));

static void elsewhere(void) {
    recursive(2, 1);
    swapcontext(&there, &here);
}

static void leaps(void) {
    if (setjmp(back) == 0) jumps(3);
}

static void switches(void) {
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = sizeof stack;
    there.uc_link = &here;
    makecontext(&there, elsewhere, 0);
    swapcontext(&here, &there);
}

// An instruction in front of all others: the debugger stops behind the first.
#define HANDLER __attribute__((patchable_function_entry(1)))

HANDLER static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    recursive(2, (long)context);
}

static void signals(void) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    action.sa_flags |= SA_ONSTACK;
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
}

static volatile long interruptions;

HANDLER static void count_up(int signal) { interruptions += leaf(signal, 0); }

void exceptions(void) __attribute__((weak));
void assembly(void) __attribute__((weak));

static const struct { const char *name; void (*run)(void); } parts[] = {
    {"frames", frames}, {"library", library}, {"leaps", leaps}, {"switches", switches}, {"signals", signals},
    {"exceptions", exceptions}, {"assembly", assembly},
};

// Says where the objects lie and who the callers are, and runs the parts.
static void *run(void *names) {
    dl_iterate_phdr(module, NULL);
    _Unwind_Backtrace(frame, NULL);
    puts("end");
    fflush(stdout);
    // The debugger sends this signal.
    signal(SIGUSR1, count_up);
    for (char **name = names; *name; name++)
        for (unsigned part = 0; part < sizeof parts / sizeof *parts; part++)
            if (!strcmp(parts[part].name, *name)) {
                __asm__ volatile("brk #1");
                parts[part].run();
                __asm__ volatile("brk #2");
            }
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "thread")) {
        pthread_t thread;
        return pthread_create(&thread, NULL, run, arguments + 2) || pthread_join(thread, NULL);
    }
    run(arguments + 1);
    return 0;
}
