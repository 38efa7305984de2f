/* BLAKE2b (RFC 7693) with a digest of 32 bytes and no key. */
#ifndef BLAKE2B_H
#define BLAKE2B_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE2B_BYTES 32

typedef struct {
    uint64_t h[8];
    uint64_t count; /* bytes compressed; 2^64 are enough for any file */
    uint8_t buffer[128];
    size_t used; /* of buffer */
} blake2b;

void blake2b_init(blake2b *state);
void blake2b_update(blake2b *state, const void *data, size_t length);
void blake2b_final(blake2b *state, uint8_t digest[BLAKE2B_BYTES]);

#endif
