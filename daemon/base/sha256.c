/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <string.h>

#define BLOCK 64u

struct hash {
        uint32_t state[8];
        uint8_t block[BLOCK];
        uint64_t bytes;
};

static const uint32_t rounds[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn_right(uint32_t x, unsigned by) {
        return x >> by | x << (32 - by);
}

static void hash_expand(const uint8_t block[BLOCK], uint32_t word[64]) {
        for (unsigned i = 0; i < 16; i++)
                word[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                          (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
        for (unsigned i = 16; i < 64; i++) {
                uint32_t a = word[i - 15], b = word[i - 2];

                word[i] = word[i - 16] + (turn_right(a, 7) ^ turn_right(a, 18) ^ a >> 3) + word[i - 7] +
                          (turn_right(b, 17) ^ turn_right(b, 19) ^ b >> 10);
        }
}

static void hash_take_block(struct hash *hash) {
        uint32_t word[64], s[8];

        hash_expand(hash->block, word);
        memcpy(s, hash->state, sizeof(s));
        for (unsigned i = 0; i < 64; i++) {
                uint32_t one = s[7] + (turn_right(s[4], 6) ^ turn_right(s[4], 11) ^ turn_right(s[4], 25)) +
                               ((s[4] & s[5]) ^ (~s[4] & s[6])) + rounds[i] + word[i];
                uint32_t two = (turn_right(s[0], 2) ^ turn_right(s[0], 13) ^ turn_right(s[0], 22)) +
                               ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

                memmove(&s[1], &s[0], 7 * sizeof(s[0]));
                s[4] += one;
                s[0] = one + two;
        }
        for (unsigned i = 0; i < 8; i++)
                hash->state[i] += s[i];
        explicit_bzero(word, sizeof(word));
        explicit_bzero(s, sizeof(s));
}

static void hash_begin(struct hash *hash) {
        *hash = (struct hash){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
                                          0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

static void hash_add(struct hash *hash, const void *data, size_t bytes) {
        const uint8_t *from = data;

        for (size_t i = 0; i < bytes; i++) {
                hash->block[hash->bytes++ % BLOCK] = from[i];
                if (hash->bytes % BLOCK == 0)
                        hash_take_block(hash);
        }
}

static struct sha256 hash_end(struct hash *hash) {
        static const uint8_t first = 0x80, zero = 0;
        uint64_t bits = hash->bytes * 8;
        uint8_t length[8];
        struct sha256 result;

        for (unsigned i = 0; i < 8; i++)
                length[i] = (uint8_t)(bits >> (56 - 8 * i));
        hash_add(hash, &first, 1);
        while (hash->bytes % BLOCK != BLOCK - sizeof(length))
                hash_add(hash, &zero, 1);
        hash_add(hash, length, sizeof(length));
        for (unsigned i = 0; i < 32; i++)
                result.byte[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
        explicit_bzero(hash, sizeof(*hash));
        return result;
}

struct sha256 sha256_of(const void *data, size_t bytes) {
        struct hash hash;

        hash_begin(&hash);
        hash_add(&hash, data, bytes);
        return hash_end(&hash);
}

static void hash_begin_keyed(struct hash *hash, const uint8_t key[BLOCK], uint8_t pad) {
        uint8_t padded[BLOCK];

        for (unsigned i = 0; i < BLOCK; i++)
                padded[i] = key[i] ^ pad;
        hash_begin(hash);
        hash_add(hash, padded, sizeof(padded));
        explicit_bzero(padded, sizeof(padded));
}

struct sha256 sha256_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes) {
        uint8_t whole[BLOCK] = { 0 };
        struct sha256 inner, shorter;
        struct hash hash;

        if (key_bytes > BLOCK) {
                shorter = sha256_of(key, key_bytes);
                memcpy(whole, shorter.byte, sizeof(shorter.byte));
        } else if (key_bytes > 0) {
                memcpy(whole, key, key_bytes);
        }
        hash_begin_keyed(&hash, whole, 0x36);
        hash_add(&hash, data, bytes);
        inner = hash_end(&hash);
        hash_begin_keyed(&hash, whole, 0x5c);
        hash_add(&hash, inner.byte, sizeof(inner.byte));
        explicit_bzero(whole, sizeof(whole));
        return hash_end(&hash);
}

bool sha256_equal(const struct sha256 *a, const struct sha256 *b) {
        volatile uint8_t difference = 0;

        for (size_t i = 0; i < sizeof(a->byte); i++)
                difference |= a->byte[i] ^ b->byte[i];
        return difference == 0;
}
