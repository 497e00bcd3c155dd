// Leaks known numbers of blocks at three sites, in a parent and a child, and frees at a fourth.
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile kept;

__attribute__((noipa)) void leak_large(int n) {
    for (int i = 0; i < n; i++) kept = malloc(5000);
}

__attribute__((noipa)) void leak_small(int n) {
    for (int i = 0; i < n; i++) kept = calloc(2, 12);
}

__attribute__((noipa)) void leak_copies(int n) {
    for (int i = 0; i < n; i++) kept = strdup("fifteen letters");
}

__attribute__((noipa)) void frees(int n) {
    for (int i = 0; i < n; i++) {
        void *volatile block = malloc(100000);
        block = realloc(block, 200000);
        free(block);
    }
}

int main(int argc, char **argv) {
    (void)argv;
    leak_large(30);
    leak_small(700);
    leak_copies(11);
    frees(50);
    if (argc > 1) {
        if (fork() == 0) {
            leak_large(12);
            frees(50);
            _exit(0);
        }
        int status;
        wait(&status);
    }
    return 0;
}
