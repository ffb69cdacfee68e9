/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel_seal.h"

#include <string.h>

#define BYTE_COST 8u            /* times the cost of a byte that is added */
#define PIECE_COST (16u << 10)  /* bytes that are added in the time of two short digests */
#define SLICE_BYTES (64u << 10) /* bytes of a slice of small pieces */
#define SLICE_PIECES 64u        /* most pieces of a slice */

static uint64_t kernel_seal_piece(const struct backend_seal *seal) {
        return seal->part < SEAL_PIECE ? seal->part : SEAL_PIECE;
}

bool kernel_seal_is_valid(const struct backend_task *description) {
        const struct backend_seal *seal = description->seal;
        bool makes = description->n_inputs == 1 && description->n_outputs == 2;
        bool checks = description->n_inputs == 2 && description->n_outputs == 0;

        return (makes || checks) && seal->part > 0 && seal->part <= LIMIT_ARENA && !description->find &&
               description->first == 0 && description->dtype == WIRE__DTYPE__U8 &&
               description->reduce == WIRE__REDUCE__REDUCE_NONE;
}

size_t kernel_seal_slice(const struct backend_seal *seal) {
        uint64_t pieces = SLICE_BYTES / kernel_seal_piece(seal);

        return pieces < 1 ? 1 : pieces < SLICE_PIECES ? pieces : SLICE_PIECES;
}

uint64_t kernel_seal_traffic(const struct backend_task *description) {
        return description->elements * (BYTE_COST * kernel_seal_piece(description->seal) + PIECE_COST);
}

struct seal_piece {
        uint64_t at, bytes; /* within the range */
};

static struct seal_piece kernel_seal_place(const struct backend_seal *seal, uint64_t piece) {
        uint64_t each = seal_pieces(seal->part), at = piece % each * SEAL_PIECE, left = seal->part - at;

        return (struct seal_piece){ piece / each * seal->part + at, left < SEAL_PIECE ? left : SEAL_PIECE };
}

/* Returns the seal of a piece; all zero, which is no seal, if none can be made. */
static struct sha256 kernel_seal_of(const struct backend_seal *seal, uint64_t piece,
                                    const unsigned char *data, uint64_t bytes) {
        uint64_t number = seal->number + piece;
        struct sha256 key, made;

        if (sha256_hmac(&seal->key, sizeof(seal->key), &number, sizeof(number), &key) < 0 ||
            sha256_hmac(&key, sizeof(key), data, bytes, &made) < 0)
                return (struct sha256){ 0 };
        return made;
}

/* Copies pieces, and seals the copies: other processes may write to the input meanwhile. */
void kernel_seal_make(const struct kernel_slice *slice) {
        for (uint64_t i = slice->first; i < slice->first + slice->elements; i++) {
                struct seal_piece piece = kernel_seal_place(slice->seal, i);
                unsigned char *copy = slice->outputs[1] + piece.at;

                memcpy(copy, slice->inputs[0] + piece.at, piece.bytes);
                struct sha256 made = kernel_seal_of(slice->seal, i, copy, piece.bytes);
                memcpy(slice->outputs[0] + i * SEAL_BYTES, &made, sizeof(made));
        }
}

void kernel_seal_check(const struct kernel_slice *slice) {
        for (uint64_t i = slice->first; i < slice->first + slice->elements; i++) {
                struct seal_piece piece = kernel_seal_place(slice->seal, i);
                struct sha256 made = kernel_seal_of(slice->seal, i, slice->inputs[0] + piece.at, piece.bytes);
                struct sha256 shown;

                memcpy(&shown, slice->inputs[1] + i * SEAL_BYTES, sizeof(shown));
                if (sha256_is_none(&made) || !sha256_equal(&made, &shown)) {
                        *slice->found = i;
                        return;
                }
        }
}
