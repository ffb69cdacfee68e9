/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA-256 and HMAC (FIPS 180-4, RFC 2104), for builds without OpenSSL, too. For what is short and seldom: a
 * job's token, once for each join.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sha256 {
        uint8_t byte[32];
};

struct sha256 sha256_of(const void *data, size_t bytes);
/* A key may have any length; what is computed with it is wiped. */
struct sha256 sha256_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes);
/* Takes the same time wherever the first difference is. */
bool sha256_equal(const struct sha256 *a, const struct sha256 *b);
