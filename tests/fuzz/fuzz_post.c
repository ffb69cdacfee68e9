/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What daemons say to each other beside the messages of jobs: the first byte says which it is. What is
 * decoded is within its bounds, and the same after it was encoded and decoded again.
 */
#include "fuzz.h"

#include <string.h>

#include "proto/names.h"
#include "rendezvous/peer.h"
#include "rendezvous/post.h"

static _Alignas(SCRATCH_ALIGN) uint8_t memory[PEER_SCRATCH], again_memory[PEER_SCRATCH];
static struct scratch scratch = { .buffer = memory, .size = PEER_SCRATCH };
static struct scratch second = { .buffer = again_memory, .size = PEER_SCRATCH };
static uint8_t bytes[POST_MAX], again[POST_MAX];

static void same(ssize_t n, ssize_t m) {
        must(n >= 0 && n <= (ssize_t)POST_MAX && n == m && memcmp(bytes, again, (size_t)n) == 0);
}

static void hear_arrival(const uint8_t *data, size_t size) {
        struct post_arrival arrival, back;

        if (post_decode_arrival(&scratch, data, size, &arrival) != NULL)
                return;
        must(name_valid(arrival.host) && name_valid(arrival.name));
        must(!arrival.has_address || arrival.address < LIMIT_NODES);
        ssize_t n = post_encode_arrival(&arrival, bytes);
        must(post_decode_arrival(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_arrival(&back, again));
}

static void hear_place(const uint8_t *data, size_t size) {
        struct post_place place, back;

        if (post_decode_place(&scratch, data, size, &place) != NULL)
                return;
        must(place.address < LIMIT_NODES && place.host < LIMIT_NODES && post_times_valid(&place.times));
        ssize_t n = post_encode_place(&place, bytes);
        must(post_decode_place(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_place(&back, again));
}

static void hear_attach(const uint8_t *data, size_t size) {
        struct post_attach attach, back;

        if (post_decode_attach(&scratch, data, size, &attach) != NULL)
                return;
        must(name_valid_job(attach.job));
        ssize_t n = post_encode_attach(&attach, bytes);
        must(post_decode_attach(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_attach(&back, again));
}

static void hear_refused(const uint8_t *data, size_t size) {
        struct refusal refusal, back;

        if (post_decode_refused(&scratch, data, size, &refusal) != NULL)
                return;
        must(utf8_valid(refusal.text, strlen(refusal.text)));
        ssize_t n = post_encode_refused(&refusal, bytes);
        must(post_decode_refused(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_refused(&back, again));
}

static void hear_table(const uint8_t *data, size_t size) {
        struct post_table table, back;

        if (post_decode_table(&scratch, data, size, &table) != NULL)
                return;
        must(table.from < LIMIT_NODES && table.comm.number > 0 && table.bytes <= HUB_TABLE);
        ssize_t n = post_encode_table(&table, bytes);
        must(post_decode_table(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_table(&back, again));
}

static void hear_ask(const uint8_t *data, size_t size) {
        struct post_ask ask, back;

        if (post_decode_ask(&scratch, data, size, &ask) != NULL)
                return;
        must(ask.bytes <= HUB_WAITS);
        ssize_t n = post_encode_ask(&ask, bytes);
        must(post_decode_ask(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_ask(&back, again));
}

static void hear_tell(const uint8_t *data, size_t size) {
        struct hub_told told, back;

        if (post_decode_tell(&scratch, data, size, &told) != NULL)
                return;
        must(told.bytes <= HUB_ROWS && told.n_hosts <= HUB_HOSTS);
        for (uint32_t i = 0; i < told.n_hosts; i++)
                must(name_valid(told.host[i].name));
        ssize_t n = post_encode_tell(&told, bytes);
        must(post_decode_tell(&second, bytes, (size_t)n, &back) == NULL);
        same(n, post_encode_tell(&back, again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static void (*const hear[])(const uint8_t *, size_t) = { hear_arrival, hear_place, hear_attach,
                                                                 hear_refused, hear_table, hear_ask,
                                                                 hear_tell };

        if (size > 0)
                hear[data[0] % 7](data + 1, size - 1);
        return 0;
}
