/* SPDX-License-Identifier: Apache-2.0 */
#include "seal.h"

#include <string.h>

#define BYTE_COST 8u            /* times that of a byte which is added */
#define PIECE_COST (16u << 10)  /* bytes that are added meanwhile: two short digests */
#define SLICE_BYTES (64u << 10) /* of small pieces */
#define SLICE_PIECES 64u        /* at most */

static uint64_t seal_piece_bytes(const struct backend_seal *seal) {
        return seal->part < SEAL_PIECE ? seal->part : SEAL_PIECE;
}

bool seal_is_valid(const struct backend_task *description) {
        const struct backend_seal *seal = description->seal;
        bool makes = description->n_inputs == 1 && description->n_outputs == 1;
        bool checks = description->n_inputs == 2 && description->n_outputs == 0;

        return (makes || checks) && seal->part > 0 && seal->part <= LIMIT_ARENA && !description->find &&
               description->first == 0 && description->dtype == WIRE__DTYPE__U8 &&
               description->reduce == WIRE__REDUCE__REDUCE_NONE;
}

size_t seal_slice_pieces(const struct backend_seal *seal) {
        uint64_t pieces = SLICE_BYTES / seal_piece_bytes(seal);

        return pieces < 1 ? 1 : pieces < SLICE_PIECES ? pieces : SLICE_PIECES;
}

uint64_t seal_traffic(const struct backend_task *description) {
        return description->elements * (BYTE_COST * seal_piece_bytes(description->seal) + PIECE_COST);
}

/* All zero, which is no seal, if there is none to be had. */
static struct sha256 seal_of(const struct kernel_slice *slice, uint64_t piece) {
        const struct backend_seal *seal = slice->seal;
        uint64_t each = seal_pieces(seal->part), at = piece % each * SEAL_PIECE;
        uint64_t bytes = seal->part - at < SEAL_PIECE ? seal->part - at : SEAL_PIECE;
        const unsigned char *data = slice->inputs[0] + piece / each * seal->part + at;
        uint64_t number = seal->number + piece;
        struct sha256 key, made;

        if (sha256_hmac(&seal->key, sizeof(seal->key), &number, sizeof(number), &key) < 0 ||
            sha256_hmac(&key, sizeof(key), data, bytes, &made) < 0)
                return (struct sha256){ 0 };
        return made;
}

void seal_make(const struct kernel_slice *slice) {
        for (uint64_t piece = slice->first; piece < slice->first + slice->elements; piece++) {
                struct sha256 made = seal_of(slice, piece);

                memcpy(slice->outputs[0] + piece * SEAL_BYTES, &made, sizeof(made));
        }
}

void seal_check(const struct kernel_slice *slice) {
        for (uint64_t piece = slice->first; piece < slice->first + slice->elements; piece++) {
                struct sha256 made = seal_of(slice, piece), shown;

                memcpy(&shown, slice->inputs[1] + piece * SEAL_BYTES, sizeof(shown));
                if (sha256_is_none(&made) || !sha256_equal(&made, &shown)) {
                        *slice->found = piece;
                        return;
                }
        }
}
