/* The C library's memory and string functions, with sizes around each of their thresholds. */
#define _GNU_SOURCE
#include <string.h>
#include <wchar.h>

static char from[20001], to[20001];
volatile long sink;

static const int thresholds[] = {160, 192, 224, 256, 384, 512, 768, 1024, 2048, 4096};

static void each(void (*f)(size_t)) {
  for (size_t size = 0; size <= 132; size++) f(size);
  for (size_t i = 0; i < sizeof thresholds / sizeof *thresholds; i++) {
    f(thresholds[i] + 1);
  }
}

static void copy(size_t size) {
  memcpy(to, from, size);
  memmove(to + 3, to, size);
  memmove(to, to + 65, size);
  mempcpy(to + 1, from + 2, size);
}

static void fill(size_t size) { memset(to + 1, 7, size); }

static void search(size_t size) {
  const char *text = from + sizeof from - 1 - size;
  sink += memcmp(from, to, size) + (memchr(from, 2, size) != 0) + (memrchr(from, 2, size) != 0);
  sink += strlen(text) + strnlen(text, size / 2 + 1) + (strchr(text, 3) != 0) + (strrchr(text, 1) != 0);
  sink += strcmp(text, text) + strncmp(text, text, size / 2 + 1) + strcasecmp(text, text);
  sink += (strstr(text, "\1\1\2") != 0) + strspn(text, "\1") + strcspn(text, "\2\3") + (strpbrk(text, "\4") != 0);
  strcpy(to, text);
  strncpy(to, text, size);
  stpcpy(to, text);
  to[0] = 0;
  strcat(to, text);
  sink += wmemcmp((wchar_t *)from, (wchar_t *)to, size / 4) + (rawmemchr(text, 0) != 0);
}

void copies(void) {
  each(copy);
  each(fill);
  /* Past the caches, if they are said to be small. */
  memcpy(to, from, 17000);
}

void searches(void) {
  memset(from, 1, sizeof from - 1);
  memset(to, 1, sizeof to - 1);
  for (size_t size = 0; size < 70; size += 5) search(size);
  search(255);
  search(513);
}
