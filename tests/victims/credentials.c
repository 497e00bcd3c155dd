/* Becomes another user in the ways in which services do, keeping and taking capabilities meanwhile: what one thread may do then, others may not. Prints what each call returned, then works.
   With an argument, another thread is there, which has what the first one had when it was made. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int capset(cap_user_header_t header, const cap_user_data_t data);

static void said(const char *what, int result) {
    printf("%s: %d\n", what, result == -1 ? -errno : result);
}

/* Has these capabilities in effect, of those that are permitted. */
static void take(int by_number, unsigned which) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{which, which, 0}, {0, 0, 0}};
    said("capset", by_number ? (int)syscall(SYS_capset, &header, data) : capset(&header, data));
}

/* How many threads of the process may do, or take, something else than the calling one. */
static int others_differ(void) {
    char own[2][64] = {"", ""}, name[300], line[256];
    int differing = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (int round = 0; tasks && round < 2; round++) {
        rewinddir(tasks);
        for (struct dirent *task; (task = readdir(tasks));) {
            int is_own = atoi(task->d_name) == gettid(), which = 0, differs = 0;
            snprintf(name, sizeof name, "/proc/self/task/%s/status", task->d_name);
            FILE *file = task->d_name[0] == '.' || (round == 0 && !is_own) ? 0 : fopen(name, "r");
            while (file && fgets(line, sizeof line, file)) {
                if (strncmp(line, "CapPrm", 6) && strncmp(line, "CapEff", 6)) continue;
                if (round == 0) snprintf(own[which], sizeof own[which], "%s", line);
                else differs |= strcmp(own[which], line) != 0;
                which++;
            }
            if (file) fclose(file);
            differing += differs;
        }
    }
    if (tasks) closedir(tasks);
    return own[1][0] ? differing : -1;
}

static void *wait_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static __attribute__((noinline)) unsigned long work(void) {
    unsigned long sum = 0;
    struct timespec spent, begun;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
    do {
        for (int i = 0; i < 100000; i++) sum += i ^ sum >> 3;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    } while ((spent.tv_sec - begun.tv_sec) * 1000000000L + spent.tv_nsec - begun.tv_nsec < 200000000L);
    return sum;
}

int main(int argc, char **argv) {
    const unsigned both = 1U << CAP_SETUID | 1U << CAP_SETGID;
    gid_t groups[] = {65531, 65532};
    /* An agent of the recorder's is there by then. */
    usleep(50000);
    said("keep", prctl(PR_SET_KEEPCAPS, 1));
    if (argc > 1) {
        pthread_t thread;
        pthread_create(&thread, 0, wait_for_ever, argv);
    }
    said("setresuid", setresuid(65534, 65534, 65534));
    if (argc == 1) {
        take(0, both);
        said("setgroups", setgroups(2, groups));
        said("setresgid", setresgid(65533, 65533, 65533));
        take(1, both);
        said("setegid", setegid(65532));
        said("setregid", setregid(65533, 65533));
        said("seteuid", seteuid(65532));
        said("seteuid", seteuid(65534));
        take(0, 1U << CAP_SETUID);
        said("setgid", setgid(65530));
        said("initgroups", initgroups("root", 65530));
        said("setreuid", (int)syscall(SYS_setreuid, 65532, 65532));
        said("setuid", setuid(65532));
        take(1, 0);
    }
    said("others differ", others_differ());
    said("setuid", setuid(65529));
    printf("%d %d %d %d, %d groups\n", getuid(), geteuid(), getgid(), getegid(), getgroups(0, 0));
    return work() == 1 ? 1 : 3;
}
