// Copies a thousand words and counts their letters.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static size_t measure(int number) {
    char text[32];
    snprintf(text, sizeof text, "word %d", number);
    char *word = strdup(text);
    size_t letters = strlen(word);
    free(word);
    return letters;
}

int main(void) {
    size_t letters = 0;
    for (int i = 0; i < 1000; i++) letters += measure(i);
    printf("%zu letters\n", letters);
    return 0;
}
