/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of connections between daemons share: link.c makes them and ends them, link_view.c shows
 * them. */
#pragma once

#include "base/list.h"
#include "link/link.h"
#include "link/resolver.h"
#include "link/tls.h"

#define HOST_MOST 255u
#define READ_BYTES (64u << 10)

enum peer_state { CONNECTING, SHAKING, GREETING, UP, DEAD };

struct bytes {
        uint8_t *data;
        size_t begin, end, room;
};

struct peer {
        struct list link;
        struct links *links;
        enum peer_state state;
        int sock;
        struct loop_io *io;
        struct loop_timer *deadline; /* of the greeting */
        struct loop_deferred reap;
        struct tls *tls; /* NULL: the bytes of frames are those of the wire */
        bool dialled, local;
        uid_t uid; /* of the other end, if it is local */
        uint8_t node[LINK_NODE];
        uint64_t instance, run;
        char name[ADDRESS_TEXT + 64];
        struct bytes in; /* the beginning of a frame */
        struct bytes out;
        bool told; /* the owner knows it */
        enum link_refusal refusal;
        char why[512];
        char host[HOST_MOST + 1], release[64]; /* as it says */
        uint64_t up_since, heard, sent, received;
        struct pulse pulse;
};

struct listener { /* on a Unix socket */
        struct list link;
        struct links *links;
        int fd;
        struct loop_io *io;
};

struct dial {
        bool wanted;
        struct address address;
        struct resolver *resolver;
        struct loop_timer *again;
        uint64_t wait;
        uint64_t id;       /* of the latest handshake */
        struct peer *peer; /* the present try, or what has come of it */
        uint64_t down_since;
        bool failed, met; /* some try; in the latest one the other end was reached */
        char trouble[512], logged[512];
};

/* Connections that had no place or no turn: said once, and then how many they were. */
struct crowd {
        struct loop_timer *quiet;
        uint64_t since; /* 0: there is none */
        uint64_t count;
};

struct links {
        struct links_config config;
        struct tls_context *tls; /* NULL: no keys */
        struct door *door;       /* NULL: no TCP */
        struct list peers, listeners;
        unsigned strangers;
        struct crowd crowd;
        struct loop_timer *expiry; /* of keys */
        struct dial dial;
        struct links_stats stats;
        char why[1024]; /* a greeting is refused */
        struct loop_timer *pulse;
        uint8_t buffer[READ_BYTES];
};

/* As it is in force now; NULL: it is not, or there is none. */
static inline const struct key *peer_key(const struct peer *peer) {
        const struct key *shown = peer->tls != NULL ? tls_key(peer->tls) : NULL;

        return shown != NULL ? keys_still_have(peer->links->config.keys, shown, time(NULL)) : NULL;
}

/* Ends the connections whose key is gone, or over, and looks again when the next one is. */
