/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <errno.h>

#include <openssl/crypto.h>
#include <openssl/hmac.h>

int sha256_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, struct sha256 *ret) {
        unsigned length = 0;
        const unsigned char *made = HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, ret->byte, &length);

        return made != NULL && length == sizeof(ret->byte) ? 0 : -EIO;
}

bool sha256_is_none(const struct sha256 *digest) {
        return sha256_equal(digest, &(struct sha256){ 0 });
}

bool sha256_equal(const struct sha256 *a, const struct sha256 *b) {
        return CRYPTO_memcmp(a->byte, b->byte, sizeof(a->byte)) == 0;
}
