/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals of the contents of a memory: an HMAC-SHA-256 (RFC 2104) of each piece of it, so that workers make and
 * check them in any order, and no piece keeps a worker for long. The memory consists of parts of one size. A
 * piece begins where a part begins. The key of a piece depends on its number, so the seal of one piece does
 * not fit another.
 */
#pragma once

#include <stdint.h>

#include "base/sha256.h"

#define SEAL_PIECE (UINT64_C(256) << 10) /* bytes; the last piece of a part may have fewer */
#define SEAL_BYTES ((uint64_t)sizeof(struct sha256))

struct backend_seal {
        struct sha256 key;
        uint64_t part;   /* bytes of each part, at least 1 */
        uint64_t number; /* number of the range's first piece; a part begins with it */
};

/* Returns the number of pieces in a part. */
static inline uint64_t seal_pieces(uint64_t part) {
        return (part + SEAL_PIECE - 1) / SEAL_PIECE;
}
