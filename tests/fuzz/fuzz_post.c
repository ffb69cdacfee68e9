/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons other than those of jobs; the first byte is the type. Decoded values are within
 * their bounds, and the same after they were encoded and decoded again.
 */
#include "fuzz.h"

#include <string.h>

#include "proto/names.h"
#include "rendezvous/wire/peer.h"
#include "rendezvous/wire/post.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH], again_memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static struct scratch second = { .buffer = again_memory, .size = PEER_SCRATCH };
static uint8_t bytes[POST_MAX], again[POST_MAX];

static void same(ssize_t n, ssize_t m) {
        must(n >= 0 && n <= (ssize_t)POST_MAX && n == m && memcmp(bytes, again, (size_t)n) == 0);
}

/* Defines hear_NAME(): decoded values are within their bounds, and the same after they were sent on. */
#define HEAR(name, type, condition)                                                                          \
        static void hear_##name(const uint8_t *data, size_t size) {                                          \
                struct type is, back;                                                                        \
                                                                                                             \
                if (post_decode_##name(&scratch, data, size, &is) != NULL)                                   \
                        return;                                                                              \
                must(condition);                                                                             \
                ssize_t n = post_encode_##name(&is, bytes);                                                  \
                must(post_decode_##name(&second, bytes, (size_t)n, &back) == NULL);                          \
                same(n, post_encode_##name(&back, again));                                                   \
        }

HEAR(arrival, post_arrival,
     name_valid(is.host) && name_valid(is.name) && (!is.has_address || is.address < LIMIT_NODES))
HEAR(place, post_place, is.address < LIMIT_NODES && is.host < LIMIT_NODES && post_times_valid(&is.times))
HEAR(attach, post_attach, name_valid_job(is.job))
HEAR(refused, refusal, utf8_valid(is.text, strlen(is.text)))
HEAR(table, post_table, is.from<LIMIT_NODES && is.comm.number> 0 && is.bytes <= HUB_TABLE)
HEAR(letter, hub_letter, is.size <= HUB_LETTER)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static void (*const hear[])(const uint8_t *, size_t) = { hear_arrival, hear_place, hear_attach,
                                                                 hear_refused, hear_table, hear_letter };

        if (size > 0)
                hear[data[0] % 6](data + 1, size - 1);
        return 0;
}
