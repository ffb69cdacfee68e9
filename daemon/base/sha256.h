/* SPDX-License-Identifier: Apache-2.0 */
/* Digests by HMAC-SHA-256 (RFC 2104), of OpenSSL, and their comparison. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256 {
        uint8_t byte[32];
};

/* 0, or -EIO: there is none to be had, and *ret says nothing. */
int sha256_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, struct sha256 *ret);
/* All of it is 0: it stands for none. */
bool sha256_is_none(const struct sha256 *digest);
/* Takes the same time wherever the first difference is. */
bool sha256_equal(const struct sha256 *a, const struct sha256 *b);
