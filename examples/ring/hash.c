/* hash: BLAKE2b-256 of standard input, to compare blake2b.c with `b2sum -l 256`; of a directory, as ring prints it. */
#include <stdio.h>

#include "dataset.h"

static void print(const uint8_t *digest, int length)
{
    for (int i = 0; i < length; i++)
        printf("%02x", digest[i]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static char buffer[65536];
    uint8_t digest[BLAKE2B_BYTES];
    blake2b state;
    dataset data;
    size_t n;

    if (argc > 1) {
        if (dataset_read(argv[1], &data) < 0) {
            fprintf(stderr, "hash: %s\n", data.error);
            return 1;
        }
        print(data.digest, BLAKE2B_BYTES / 2);
        return 0;
    }
    blake2b_init(&state);
    while ((n = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        blake2b_update(&state, buffer, n);
    blake2b_final(&state, digest);
    print(digest, BLAKE2B_BYTES);
    return ferror(stdin) ? 1 : 0;
}
