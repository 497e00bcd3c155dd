// Prints its arguments and its environment, without what the recorder has there.
#include <stdio.h>
#include <string.h>

int main(int count, char **values, char **environment) {
  for (int i = 0; i < count; i++)
    printf("%s ", values[i]);
  for (; *environment; environment++) {
#ifndef PRELOADED
    if (strncmp(*environment, "LD_PRELOAD=", 11) == 0)
      continue;
#endif
    if (strncmp(*environment, "PROFILE_RECORDER_", 17) != 0)
      printf("%s ", *environment);
  }
  printf("\n");
  return 7;
}
