/* SPDX-License-Identifier: Apache-2.0 */
/* HMAC-SHA-256 digests (RFC 2104), by OpenSSL, and their comparison. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256 {
        uint8_t byte[32];
};

/* 0, or -EIO if OpenSSL cannot make one; *ret is undefined then. */
int sha256_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, struct sha256 *ret);
/* Whether all bytes are 0, which stands for no digest. */
bool sha256_is_none(const struct sha256 *digest);
/* Compares in the same time wherever the first difference is. */
bool sha256_equal(const struct sha256 *a, const struct sha256 *b);
