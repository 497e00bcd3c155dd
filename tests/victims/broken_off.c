/* A thread waits by poll(2), made in each way that there is; meanwhile a SIGPROF comes to it, of which it knows nothing, and then what it waits for. Prints what each wait returned. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As glibc has it from 2.41 on, in a process with several threads: one function makes all calls that end a thread that is cancelled. Its first argument is the address of that thread's state. */
long make_call(int *state, long number, long a, long b, long c, long d, long e, long f);
asm(".text\n.type make_call, @function\nmake_call: .cfi_startproc\n"
    "mov %rdi, %r11\n mov %rsi, %rax\n mov %rdx, %rdi\n mov %rcx, %rsi\n mov %r8, %rdx\n mov %r9, %r10\n"
    "mov 8(%rsp), %r8\n mov 16(%rsp), %r9\n mov %r11, 8(%rsp)\n syscall\n ret\n"
    ".cfi_endproc\n.size make_call, . - make_call\n");

/* Its caller has the number as its seventh argument. */
static __attribute__((noinline)) long by_one_function(long a, long b, long c, long d, long e, long f, long number) {
    int state = 0;
    long result = make_call(&state, number, a, b, c, d, e, f);
    return result + state;
}

/* The same with a frame pointer, as some distributions build it. */
static __attribute__((noinline, optimize("no-omit-frame-pointer"))) long by_one_function_with_frame(long a, long b, long c, long d, long e, long f, long number) {
    int state = 0;
    long result = make_call(&state, number, a, b, c, d, e, f);
    return result + state;
}

/* With one thread, that caller makes the call itself. */
long load_and_call(long a, long b, long c, long d, long e, long f, long number);
asm(".text\n.type load_and_call, @function\nload_and_call: .cfi_startproc\n"
    "mov %rcx, %r10\n mov 8(%rsp), %rax\n syscall\n ret\n"
    ".cfi_endproc\n.size load_and_call, . - load_and_call\n");
long load_and_call_with_frame(long a, long b, long c, long d, long e, long f, long number);
asm(".text\n.type load_and_call_with_frame, @function\nload_and_call_with_frame: .cfi_startproc\n"
    "push %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_offset rbp, -16\n mov %rsp, %rbp\n .cfi_def_cfa_register rbp\n"
    "mov %rcx, %r10\n mov 16(%rbp), %rax\n syscall\n leave\n .cfi_def_cfa rsp, 8\n ret\n"
    ".cfi_endproc\n.size load_and_call_with_frame, . - load_and_call_with_frame\n");

static int ends[2], way;
static volatile int tid;

static void *wait_for_it(void *result) {
    struct pollfd of = {ends[0], POLLIN, 0};
    long (*const makers[])(long, long, long, long, long, long, long) = {by_one_function, by_one_function_with_frame, load_and_call, load_and_call_with_frame};
    tid = gettid();
    if (way == 0) {
        int polled = poll(&of, 1, 10000);
        *(long *)result = polled == -1 ? -errno : polled;
    } else if (way == 1) {
        long polled = syscall(SYS_poll, &of, 1, 10000);
        *(long *)result = polled == -1 ? -errno : polled;
    } else {
        *(long *)result = makers[way - 2]((long)&of, 1, 10000, 0, 0, 0, SYS_poll);
    }
    return 0;
}

/* Whether the thread sleeps in a call. */
static int waits(void) {
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/self/task/%d/stat", tid);
    FILE *file = fopen(name, "r");
    if (!file || !fgets(line, sizeof line, file)) return 0;
    fclose(file);
    char *behind = strrchr(line, ')');
    return behind && behind[2] == 'S';
}

/* Whether the process has a handler for SIGPROF, whoever put it there: it would end by the signal otherwise. */
static int is_caught(void) {
    char line[256];
    unsigned long caught = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "SigCgt: %lx", &caught);
    if (file) fclose(file);
    return caught >> (SIGPROF - 1) & 1;
}

int main(void) {
    static const char *const names[] = {"the C library's function", "syscall", "one function", "one function, frame pointer", "loaded", "loaded, frame pointer"};
    for (way = 0; way < 6; way++) {
        long result = 0;
        pthread_t thread;
        tid = 0;
        if (pipe(ends) || pthread_create(&thread, 0, wait_for_it, &result)) return 1;
        while (!tid || !waits() || !is_caught()) usleep(1000);
        syscall(SYS_tgkill, getpid(), tid, SIGPROF);
        usleep(20000);
        if (write(ends[1], "x", 1) != 1) return 1;
        pthread_join(thread, 0);
        printf("%s: %ld\n", names[way], result);
        close(ends[0]);
        close(ends[1]);
    }
    return 0;
}
