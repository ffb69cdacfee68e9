/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a node's daemon and the daemon of its coordinator on their connection, as bytes:
 * protobuf-c with bounds. Pure: no socket, no log, and no memory but the caller's. Each message is the
 * payload of a frame with a type; frames about a job carry the number that the node's daemon has given to it
 * on this connection.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "proto/scratch.h"
#include "rendezvous/hub.h"

enum post_kind {
        POST_ARRIVAL = 64, /* node: here I am; first on each connection */
        POST_PLACE,        /* coordinator: the answer */
        POST_ATTACH,       /* node: the number is that of this job; frames about it may follow at once */
        POST_DETACH,       /* node: it has left that job. Without payload */
        POST_ORDER,        /* coordinator: peer.h has the bytes; */
        POST_REPORT,       /* node: likewise */
        POST_REFUSED,      /* coordinator: it does not have this job, and the number means nothing any more */
        POST_TABLE,        /* both: a table that the engine of a node publishes */
        POST_LETTER,       /* both: see struct hub_letter */
        POST_KINDS,        /* from here on: of a newer version, and skipped whenever it comes */
};

#define POST_HOST 64u /* bytes of a host's id */
#define POST_NAME 255u
#define POST_MAX (96u << 10) /* bytes of a payload */

struct post_arrival {
        uint32_t device;          /* ranks on one host go by it */
        char host[POST_HOST + 1]; /* the same for all daemons of the host, and no others */
        bool has_address;         /* it was given one by this coordinator, or one before it: */
        uint32_t address;
        char name[POST_NAME + 1]; /* of the host, for people */
};

struct post_place {
        uint32_t address, host;
        struct machine_times times;
};

struct post_attach {
        uid_t uid;
        uint64_t incarnation;
        char job[LIMIT_NAME + 1];
        struct sha256 token; /* see struct hub_job */
};

struct post_table {
        struct generation comm;
        uint32_t from; /* to the coordinator: the sender */
        const void *table;
        size_t bytes;
};

/* The bytes; or -EMSGSIZE. Those of a table or a letter are read, not copied. */
ssize_t post_encode_arrival(const struct post_arrival *arrival, uint8_t out[POST_MAX]);
ssize_t post_encode_place(const struct post_place *place, uint8_t out[POST_MAX]);
ssize_t post_encode_attach(const struct post_attach *attach, uint8_t out[POST_MAX]);
ssize_t post_encode_refused(const struct refusal *refusal, uint8_t out[POST_MAX]);
ssize_t post_encode_table(const struct post_table *table, uint8_t out[POST_MAX]);
ssize_t post_encode_letter(const struct hub_letter *letter, uint8_t out[POST_MAX]);

/* A scratch of PEER_SCRATCH bytes is enough. NULL, or a constant sentence about what is wrong: nothing of
 * *ret may be used then. Times that no machine can live with are wrong. The bytes of a table or a letter lie
 * in the scratch. */
const char *post_decode_arrival(struct scratch *scratch, const void *bytes, size_t length,
                                struct post_arrival *ret);
const char *post_decode_place(struct scratch *scratch, const void *bytes, size_t length,
                              struct post_place *ret);
const char *post_decode_attach(struct scratch *scratch, const void *bytes, size_t length,
                               struct post_attach *ret);
const char *post_decode_refused(struct scratch *scratch, const void *bytes, size_t length,
                                struct refusal *ret);
const char *post_decode_table(struct scratch *scratch, const void *bytes, size_t length,
                              struct post_table *ret);
const char *post_decode_letter(struct scratch *scratch, const void *bytes, size_t length,
                               struct hub_letter *ret);

/* heartbeat < patience < death < abandon, death is longer than two heartbeats, and nothing beyond a day. */
bool post_times_valid(const struct machine_times *times);
