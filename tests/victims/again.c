/* Becomes itself, as often as the second argument says, each time by another function; burns a little CPU time before, and opens nothing. Says how often it arrived with everything it was given. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

int main(int argc, char **argv) {
    struct timespec spent;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent); while (spent.tv_sec == 0 && spent.tv_nsec < 4000000);
    if (argc != 10 || strcmp(argv[2], "b") || strcmp(argv[9], "i") || !getenv("CARRIED") || strcmp(getenv("CARRIED"), "on")) {
        printf("%d arguments\n", argc);
        return 1;
    }
    int left = atoi(argv[1]);
    if (left == 0) {
        puts("done");
        return 7;
    }
    char next[20], *program = argv[0];
    snprintf(next, sizeof next, "%d", left - 1);
    argv[1] = next;
    int file = -1;
    switch (left % 12) {
        /* More arguments than there are registers. */
        case 0: execl(program, program, next, "b", "c", "d", "e", "f", "g", "h", "i", (char *)0); break;
        case 1: execlp(program, program, next, "b", "c", "d", "e", "f", "g", "h", "i", (char *)0); break;
        case 2: execle(program, program, next, "b", "c", "d", "e", "f", "g", "h", "i", (char *)0, environ); break;
        case 3: execv(program, argv); break;
        case 4: execvp(program, argv); break;
        case 5: execve(program, argv, environ); break;
        case 6: execvpe(program, argv, environ); break;
        case 7: file = open(program, O_RDONLY); fexecve(file, argv, environ); break;
        case 8: file = open(program, O_RDONLY); execveat(file, "", argv, environ, AT_EMPTY_PATH); break;
        case 9: syscall(SYS_execve, program, argv, environ); break;
        case 10: syscall(SYS_execveat, AT_FDCWD, program, argv, environ, 0); break;
        /* It is refused first. */
        case 11: execl("/nowhere", "/nowhere", (char *)0); execv(program, argv); break;
    }
    perror("not executed");
    return 1;
}
