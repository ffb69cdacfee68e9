/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections between daemons: each end knows for sure who the other one is before anything is said. They
 * carry frames (proto/frame.h) and know nothing of jobs. Over TCP both ends have a key in common (tls.h), and
 * prove it on a thread of its own (door.h); over a Unix socket the kernel says whose process the other end
 * is: root's, or the same user's. All calls are the loop thread's, and none waits.
 *
 * An end that dials keeps doing so: after a connection has ended, or could not be made, it tries again, later
 * and later up to some seconds. Of two connections with one daemon the newer one stays. Two daemons that live
 * and have one id, as copies of one host have, are told so: the first one stays.
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
#define LINK_PAYLOAD (96u << 10) /* bytes of a frame */
#define LINK_FIRST_TYPE 64u      /* of a frame of the owner's; those below it are this layer's own */

struct links;
struct peer; /* a connection whose other end has proved itself */

enum link_role {
        LINK_NODE_ROLE = 1, /* this end dials: it has nodes of jobs */
        LINK_COORDINATOR,   /* … and this one coordinates them */
};

struct links_events {
        void (*up)(void *owner, struct peer *peer);
        /* NULL, or a sentence about what is wrong with it: the connection ends then. The bytes are valid
         * during the call. */
        const char *(*frame)(void *owner, struct peer *peer, unsigned type, uint32_t about, const void *bytes,
                             size_t length);
        /* The pointer must not be used afterwards. */
        void (*down)(void *owner, struct peer *peer, const char *why);
        /* Whether the other end, which has been accepted, may be that daemon: NULL, or a sentence about why
         * it may not, which it is told. It is asked before an earlier connection of that daemon ends. NULL:
         * any may. */
        const char *(*admit)(void *owner, const struct peer *peer, const uint8_t *node);
};

/* Why a connection was not let in. */
enum link_refusal {
        LINK_NOT_REFUSED,
        LINK_REFUSED_KEY,      /* it has not proved in time that it has one that is known */
        LINK_REFUSED_UID,      /* over a Unix socket, another user's */
        LINK_REFUSED_VERSION,  /* it speaks another major version */
        LINK_REFUSED_IDENTITY, /* its id is this daemon's or another one's, or it plays the wrong part */
        LINK_REFUSED_PROTOCOL, /* what it sends is no greeting */
        LINK_REFUSED_LATE,     /* it has not greeted in time, or has hung up before */
        LINK_REFUSED_MANY,     /* too many were greeting at the same time */
        LINK_REFUSALS,
};

struct links_stats {
        uint64_t connects, ends;         /* connections that were up, and those of them that have ended */
        uint64_t sent, received;         /* bytes of frames, over all of them */
        uint64_t refused[LINK_REFUSALS]; /* by this end, of those that it had accepted */
};

/* A connection, as people are shown it. */
struct link_view {
        bool dialled, up;
        const uint8_t *node;              /* LINK_NODE bytes; NULL: not known */
        const char *host, *address, *key; /* "": not known */
        const char *trouble;              /* "" if it is up */
        uint64_t since;                   /* it is up, or is not: clock_now() */
        uint64_t heard;                   /* when something came last; 0: never */
        uint64_t sent, received;          /* bytes of frames */
        struct pulse pulse;
};

struct links_config {
        struct loop *loop;
        const uint8_t *node; /* LINK_NODE bytes; the caller's, like what follows */
        const char *host;    /* its name, for people */
        uint64_t instance;
        uint64_t run; /* drawn at the start: tells two daemons apart that have one id */
        const char *release;
        const struct keys *keys;   /* none: no TCP, unless: */
        bool insecure;             /* TCP without proof or secrecy */
        struct door_limits limits; /* of those that have not proved themselves */
        uint64_t silence; /* us without an acknowledgement of what was sent, after which TCP gives up; and
                             without a word, after which another process may have a daemon's id */
        const struct links_events *events;
        void *owner;
};

/* 0, -ENOMEM, or -ENOTSUP: there are keys, and this was built without TLS. */
int links_new(const struct links_config *config, struct links **ret);
/* Tells nobody. NULL is fine. */
struct links *links_free(struct links *links);

/* 0; or a negative errno and a sentence in `error`. Over TCP; a Unix socket is bound by the caller, and
 * handed over with links_accept_on(). */
int links_listen(struct links *links, const struct address *address, char *error, size_t size);
/* The fd is the links' from now on if this returns 0. */
int links_accept_on(struct links *links, int fd);
/* Why there is no connection to that address over TCP where there is no key. */
void links_say_no_key(const char *address, char *error, size_t size);
/* Keeps a connection to that address. */
int links_dial(struct links *links, const struct address *address, char *error, size_t size);
/* Those that are up, and the dialled one in any case. The view is valid during the call. */
void links_each(const struct links *links, void (*fn)(void *to, const struct link_view *view), void *to);
const struct links_stats *links_stats(const struct links *links);
/* What keeps the dialled connection from being there; NULL: it is. */
const char *links_trouble(const struct links *links);
/* The dialled connection has been tried, and it has failed; the other end was there at least. */
bool links_has_failed(const struct links *links);
bool links_has_met(const struct links *links);
/* Keys or limits have changed: connections that were made with a key that is gone end. */
void links_change(struct links *links, const struct door_limits *limits);

/* Sent in order; dropped if the connection is about to end. A peer that does not take what it is sent is hung
 * up. Never calls back. */
void peer_send(struct peer *peer, unsigned type, uint32_t about, const void *bytes, size_t length);
const uint8_t *peer_node(const struct peer *peer);
uint64_t peer_instance(const struct peer *peer);
uint64_t peer_run(const struct peer *peer); /* drawn by the other end when it started */
/* How far its clocks are from this end's, and how long an answer takes; NULL: not known. */
const struct pulse_sample *peer_pulse(const struct peer *peer);
const char *peer_host(const struct peer *peer);    /* as it says; "": it does not */
const char *peer_release(const struct peer *peer); /* so is this */
const char *peer_name(const struct peer *peer);    /* its address, for people */
/* The address of this end: a number; "127.0.0.1" over a Unix socket. */
void peer_local_address(const struct peer *peer, char *text, size_t size);
bool peer_was_dialled(const struct peer *peer);
bool peer_speaks_for(const struct peer *peer, uid_t uid);
/* By what it is trusted: the name of its key, or KEY_NONE, which is valid as long as the keys are; and the
 * uids that it speaks for, as key_uids(). "" if its key is not in force any more. */
const char *peer_authority(const struct peer *peer, char uids[KEY_UIDS]);
