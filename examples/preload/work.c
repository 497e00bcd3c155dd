// A C program that knows nothing of the recorder. See README.md beside it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char *kept[1000];

__attribute__((noinline)) static char *make(int n) {
  char *text = malloc(100 + n % 1000);
  sprintf(text, "line %d", n);
  return text;
}

__attribute__((noinline)) static unsigned hash(const char *text) {
  unsigned h = 5381;
  for (int round = 0; round < 200; round++)
    for (const char *c = text; *c; c++) h = h * 33 + (unsigned char)*c;
  return h;
}

int main(int argc, char **argv) {
  time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 60);
  unsigned sum = 0;
  for (int n = 0; time(NULL) < end; n++) {
    int place = n % 1000;
    free(kept[place]);
    kept[place] = make(n);
    sum += hash(kept[place]);
  }
  printf("%u\n", sum);
  return 0;
}
