/* SPDX-License-Identifier: Apache-2.0 */
/* Structures that the files of connections between daemons share: link.c makes and ends connections,
 * link_view.c shows them. */
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
        struct loop_timer *deadline; /* for the greeting */
        struct loop_deferred reap;
        struct tls *tls; /* NULL: the bytes of the wire are those of frames */
        bool dialled, local;
        uid_t uid; /* uid of the other end, if it is local */
        uint8_t node[LINK_NODE];
        uint64_t instance, run;
        char name[ADDRESS_TEXT + 64];
        struct bytes in; /* received bytes of a frame that is not complete */
        struct bytes out;
        bool told; /* the owner has been told of it by up() */
        enum link_refusal refusal;
        char why[512];
        char host[HOST_MOST + 1], release[64]; /* as the other end says */
        uint64_t up_since, heard, sent, received;
        struct pulse pulse;
};

struct link_listener { /* a listening Unix socket */
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
        uint64_t id;       /* id of the latest handshake */
        struct peer *peer; /* the connection of the present attempt, or the one that it has led to */
        uint64_t down_since;
        bool failed, met; /* some attempt has failed; the latest one has reached the other end */
        char trouble[512], logged[512];
};

/* Connections that had no place or no turn. The first one is logged, then the number of all. */
struct crowd {
        struct loop_timer *quiet;
        uint64_t since; /* when the crowd began; 0: there is none */
        uint64_t count;
};

struct links {
        struct links_config config;
        struct tls_context *tls; /* NULL if there are no keys */
        struct door *door;       /* NULL if there is no TCP */
        struct list peers, listeners;
        unsigned strangers;
        struct crowd crowd;
        struct loop_timer *expiry; /* for the next key that expires */
        struct dial dial;
        struct links_stats stats;
        char why[1024]; /* why a greeting is refused */
        struct loop_timer *pulse;
        uint8_t buffer[READ_BYTES];
};

/* Returns the key of a peer as it is in force now; NULL if it is not in force, or there is none. */
static inline const struct key *peer_key(const struct peer *peer) {
        const struct key *shown = peer->tls != NULL ? tls_key(peer->tls) : NULL;

        return shown != NULL ? keys_still_have(peer->links->config.keys, shown, time(NULL)) : NULL;
}
