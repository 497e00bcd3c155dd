/* Gives up its rights, as services do once they have started: the kernel then hides from it where its threads are. One thread works, two wait by calls that a signal breaks off.
   Says how many waits were broken off, and how many ended early. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static volatile int done;
static volatile unsigned long counted;
static int broken, early;

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

static void *work(void *unused) {
    while (!done) counted++;
    return unused;
}

static void noticed(int result, long begun_us, long asked_us) {
    if (result == -1) __atomic_add_fetch(&broken, 1, __ATOMIC_RELAXED);
    else if (now_us() - begun_us < asked_us) __atomic_add_fetch(&early, 1, __ATOMIC_RELAXED);
}

static void *wait_for_events(void *unused) {
    int events = epoll_create1(0);
    struct epoll_event event;
    for (int i = 0; i < 10; i++) {
        long begun = now_us();
        noticed(epoll_wait(events, &event, 1, 60), begun, 60000);
    }
    return unused;
}

int main(void) {
    pthread_t worker, waiter;
    /* A wait that is begun anew with every tick never ends. */
    alarm(60);
    /* Who has no rights of root's hides itself otherwise. */
    if (getuid() == 0 ? setuid(65534) : prctl(PR_SET_DUMPABLE, 0)) return 1;
    if (access("/proc/self/syscall", R_OK) == 0) puts("not hidden");
    pthread_create(&worker, 0, work, 0);
    pthread_create(&waiter, 0, wait_for_events, 0);
    for (int i = 0; i < 10; i++) {
        long begun = now_us();
        noticed(poll(0, 0, 40), begun, 40000);
        struct timespec pause = {0, 20000000};
        begun = now_us();
        noticed(nanosleep(&pause, 0), begun, 20000);
    }
    pthread_join(waiter, 0);
    done = 1;
    pthread_join(worker, 0);
    printf("%d broken off, %d early\n", broken, early);
    return 0;
}
