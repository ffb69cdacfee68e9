/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seals of what a memory holds: HMAC-SHA-256 (RFC 2104) of each piece of it, so that workers make and check
 * them in any order, and no piece keeps one for long. The memory consists of parts of one size, of which each
 * begins with a piece of its own. A piece is keyed by its number, so none stands for another.
 */
#pragma once

#include <stdint.h>

#include "base/sha256.h"

#define SEAL_PIECE (UINT64_C(256) << 10) /* bytes; the last one of a part may have fewer */
#define SEAL_BYTES ((uint64_t)sizeof(struct sha256))

struct backend_seal {
        struct sha256 key;
        uint64_t part;   /* bytes of each, at least 1 */
        uint64_t number; /* of the first piece of the range; a part begins with it */
};

/* A part has so many. */
static inline uint64_t seal_pieces(uint64_t part) {
        return (part + SEAL_PIECE - 1) / SEAL_PIECE;
}
