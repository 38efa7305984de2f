/* One number for a directory: equal on two nodes if and only if what a program can read there is equal. */
#ifndef DATASET_H
#define DATASET_H

#include <stdint.h>

#include "blake2b.h"

typedef struct {
    uint8_t digest[BLAKE2B_BYTES];
    uint64_t files; /* regular files */
    uint64_t bytes; /* that were read and are not in an all-zero block */
    char error[256]; /* empty, or the path and why it could not be read */
} dataset;

/* Reads everything below `root`. What enters the digest, in the order of the sorted names of each directory: path, type,
 * permission bits; of a file its size, its time of modification in nanoseconds and its content; of a symbolic link its
 * target. The root's own mode and times do not enter. Returns 0, or -1 with `error` set. */
int dataset_read(const char *root, dataset *result);

#endif
