#include "blake2b.h"

#include <string.h>

static const uint64_t IV[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

static const uint8_t SIGMA[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t load64(const uint8_t *p)
{
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--)
        word = word << 8 | p[i];
    return word;
}

static uint64_t rotate(uint64_t x, int bits)
{
    return x >> bits | x << (64 - bits);
}

#define MIX(a, b, c, d, x, y)        \
    do {                             \
        a += b + (x);                \
        d = rotate(d ^ a, 32);       \
        c += d;                      \
        b = rotate(b ^ c, 24);       \
        a += b + (y);                \
        d = rotate(d ^ a, 16);       \
        c += d;                      \
        b = rotate(b ^ c, 63);       \
    } while (0)

static void compress(blake2b *state, const uint8_t block[128], int last)
{
    uint64_t m[16], v[16];

    for (int i = 0; i < 16; i++)
        m[i] = load64(block + 8 * i);
    for (int i = 0; i < 8; i++) {
        v[i] = state->h[i];
        v[i + 8] = IV[i];
    }
    v[12] ^= state->count;
    if (last)
        v[14] = ~v[14];

    for (int round = 0; round < 12; round++) {
        const uint8_t *s = SIGMA[round % 10];
        MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
        MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
        MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
        MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
        MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
        MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
        MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
        MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        state->h[i] ^= v[i] ^ v[i + 8];
}

void blake2b_init(blake2b *state)
{
    memset(state, 0, sizeof *state);
    memcpy(state->h, IV, sizeof IV);
    state->h[0] ^= 0x01010000 ^ BLAKE2B_BYTES; /* fan-out 1, depth 1, no key, digest length */
}

void blake2b_update(blake2b *state, const void *data, size_t length)
{
    const uint8_t *p = data;

    while (length > 0) {
        /* A full buffer is compressed only when more follows: the last block is treated apart. */
        if (state->used == sizeof state->buffer) {
            state->count += sizeof state->buffer;
            compress(state, state->buffer, 0);
            state->used = 0;
        }
        if (state->used == 0 && length > sizeof state->buffer) {
            state->count += sizeof state->buffer;
            compress(state, p, 0);
            p += sizeof state->buffer;
            length -= sizeof state->buffer;
            continue;
        }
        size_t take = sizeof state->buffer - state->used;
        if (take > length)
            take = length;
        memcpy(state->buffer + state->used, p, take);
        state->used += take;
        p += take;
        length -= take;
    }
}

void blake2b_final(blake2b *state, uint8_t digest[BLAKE2B_BYTES])
{
    state->count += state->used;
    memset(state->buffer + state->used, 0, sizeof state->buffer - state->used);
    compress(state, state->buffer, 1);
    for (int i = 0; i < BLAKE2B_BYTES; i++)
        digest[i] = (uint8_t)(state->h[i / 8] >> 8 * (i % 8));
}
