/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections between daemons. Each end knows for sure who the other end is before anything is said. They
 * carry frames (proto/frame.h) and know nothing of jobs. Over TCP both ends have a key in common (tls.h), and
 * prove it on a thread of its own (door.h). Over a Unix socket the kernel says whose process the other end
 * is: it must be root's, or the same user's. All calls are for the loop thread, and none waits.
 *
 * An end that dials keeps doing so: after a connection has ended, or could not be made, it tries again, after
 * delays that grow up to some seconds. If one daemon connects twice, the newer connection stays. If two
 * living daemons have one id, as copies of one host have, the first connection stays, and the second daemon
 * is told why it is refused.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/loop.h"
#include "link/address.h"
#include "link/door.h"
#include "link/key.h"
#include "link/pulse.h"

#define LINK_MAJOR 1u
#define LINK_MINOR 0u
#define LINK_NODE 16u            /* bytes of a daemon's node id */
#define LINK_PAYLOAD (96u << 10) /* bytes of a frame's payload */
#define LINK_FIRST_TYPE 64u      /* the least type of the owner's frames; lower types are this layer's own */

struct links;
struct peer; /* a connection whose other end has proved itself */

enum link_role {
        LINK_NODE_ROLE = 1, /* this end dials: it has nodes of jobs */
        LINK_COORDINATOR,   /* this end is dialled: it coordinates nodes */
};

struct links_events {
        void (*up)(void *owner, struct peer *peer);
        /* Handles a frame. Returns NULL, or a sentence about what is wrong with it: the connection ends then.
         * The bytes are valid during the call. */
        const char *(*frame)(void *owner, struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                             size_t length);
        /* The connection has ended. `peer` must not be used afterwards. */
        void (*down)(void *owner, struct peer *peer, const char *why);
        /* Whether an accepted peer may be that daemon: returns NULL, or a sentence about why it may not be,
         * which the peer is told. It is asked before an earlier connection of that daemon ends. `admit` NULL:
         * any peer may. */
        const char *(*admit)(void *owner, const struct peer *peer, const uint8_t *node);
};

/* Reasons why an accepted connection was refused. */
enum link_refusal {
        LINK_NOT_REFUSED,
        LINK_REFUSED_KEY,      /* it has not proved in time that it has a known key */
        LINK_REFUSED_UID,      /* it comes over a Unix socket from another user */
        LINK_REFUSED_VERSION,  /* it speaks another major version */
        LINK_REFUSED_IDENTITY, /* it has the id of this daemon or of another one, or the wrong role */
        LINK_REFUSED_PROTOCOL, /* it sends something other than a greeting */
        LINK_REFUSED_LATE,     /* it has not greeted in time, or has hung up before */
        LINK_REFUSED_MANY,     /* too many were proving themselves, or greeting, at the same time */
        LINK_REFUSALS,
};

struct links_stats {
        uint64_t connects, ends;         /* connections that came up, and those of them that have ended */
        uint64_t sent, received;         /* bytes of frames, over all connections */
        uint64_t refused[LINK_REFUSALS]; /* accepted connections that this end refused, by reason */
};

/* A connection, as it is shown to people. */
struct link_view {
        bool dialled, up;
        const uint8_t *node;              /* LINK_NODE bytes; NULL if not known */
        const char *host, *address, *key; /* "" if not known */
        const char *trouble;              /* "" if it is up */
        uint64_t since;                   /* clock_now() when it came up, or went down */
        uint64_t heard;                   /* clock_now() when a frame last came; 0: never */
        uint64_t sent, received;          /* bytes of frames */
        struct pulse pulse;
};

struct links_config {
        struct loop *loop;
        const uint8_t *node; /* LINK_NODE bytes; the caller owns it and all that follows */
        const char *host;    /* name of this host, for people */
        uint64_t instance;
        uint64_t run; /* drawn at the start: distinguishes two daemons that have one id */
        const char *release;
        const struct keys *keys;   /* without keys there is no TCP, unless `insecure` */
        bool insecure;             /* TCP without proof or secrecy */
        struct door_limits limits; /* for connections that have not proved themselves */
        /* Time in us without an acknowledgement of sent data, after which TCP gives up; also without a frame,
         * after which another process may have a daemon's id. */
        uint64_t silence;
        const struct links_events *events;
        void *owner;
};

/* 0, -ENOMEM, -ENOTSUP if there are keys and this was built without TLS, or another negative errno. */
int links_new(const struct links_config *config, struct links **ret);
/* Ends all connections, without down(). NULL is fine. */
struct links *links_free(struct links *links);

/* Listens over TCP. 0; or a negative errno and a sentence in `error`. A Unix socket is bound by the caller,
 * and handed over with links_accept_on(). */
int links_listen(struct links *links, const struct address *address, char *error, size_t size);
/* Accepts connections on a listening Unix socket. Owns the fd from now on if this returns 0; else a negative
 * errno. */
int links_accept_on(struct links *links, int fd);
/* The sentence about an address for TCP where there is no key, and the way to repair it. */
#define LINKS_NO_KEY "there is no TCP between daemons without a key"
#define LINKS_KEY_FIX                                                                                        \
        "make one (gradsyncctl key new), give it to all of them, and set key_file; daemons of one host can " \
        "meet on unix:PATH without one"
/* Keeps a connection to that address. 0; or a negative errno and a sentence in `error`. */
int links_dial(struct links *links, const struct address *address, char *error, size_t size);
/* Calls fn for each connection that is up, and for the dialled one in any case. The view is valid during the
 * call. */
void links_each(const struct links *links, void (*fn)(void *to, const struct link_view *view), void *to);
const struct links_stats *links_stats(const struct links *links);
/* Returns why the dialled connection is not up; NULL if it is up. */
const char *links_trouble(const struct links *links);
/* links_has_failed(): an attempt to dial has failed. links_has_met(): the latest attempt has reached the
 * other end. */
bool links_has_failed(const struct links *links);
bool links_has_met(const struct links *links);
/* Applies changed keys and limits. Ends connections that were made with a key that is gone. */
void links_change(struct links *links, const struct door_limits *limits);

/* Sends a frame, in order; drops it if the connection is about to end. Hangs up on a peer that does not take
 * what it is sent. Never calls back. */
void peer_send(struct peer *peer, unsigned type, uint32_t about, const void *bytes, size_t length);
const uint8_t *peer_node(const struct peer *peer);
uint64_t peer_instance(const struct peer *peer);
uint64_t peer_run(const struct peer *peer); /* drawn by the other end when it started */
/* Returns how far the peer's clocks are from this end's, and how long an answer takes; NULL if not known. */
const struct pulse_sample *peer_pulse(const struct peer *peer);
const char *peer_host(const struct peer *peer);    /* as the peer says; "" if it does not */
const char *peer_release(const struct peer *peer); /* as the peer says */
const char *peer_name(const struct peer *peer);    /* address of the peer, for people */
/* Writes the address of this end: a number; "127.0.0.1" over a Unix socket. */
void peer_local_address(const struct peer *peer, char *text, size_t size);
bool peer_was_dialled(const struct peer *peer);
bool peer_speaks_for(const struct peer *peer, uid_t uid);
/* Returns the authority by which the peer is trusted: the name of its key, or KEY_NONE. The name is valid as
 * long as the keys are. `uids` gets the uids that the peer speaks for, as key_uids() writes them; "" if its
 * key is not in force any more. */
const char *peer_authority(const struct peer *peer, char uids[KEY_UIDS]);
