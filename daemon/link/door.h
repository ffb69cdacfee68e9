/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proof of connections over TCP, on a thread of its own. The thread accepts connections, computes handshakes,
 * and ends the connections of strangers that cannot prove themselves. The event thread gets connections that
 * have proved themselves, and never waits for the arithmetic. A connection belongs to one of the two threads
 * at a time.
 *
 * Strangers are bounded in number, size, time and rate: DOOR_PLACES at once, and in a second `per_address`
 * handshakes of one source, `together` of all. share.h divides places and turns among sources. Without TLS
 * there is no proof: a connection passes as soon as it says something.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "link/key.h"
#include "link/tls.h"

#define DOOR_PLACES 64u
#define DOOR_HEARD (16u << 10) /* bytes that a stranger may send; a daemon's handshake has less than 1 KiB */
#define DOOR_LISTENERS 64u

struct door;

struct door_limits {
        uint64_t patience; /* us that a handshake may take */
        uint64_t per_address, together;
};

enum door_outcome {
        DOOR_PASSED,      /* an accepted connection has proved itself; the receiver owns socket and TLS */
        DOOR_SHAKEN,      /* the dialled connection `id` has proved itself; the receiver owns its TLS */
        DOOR_FAILED,      /* the dialled connection `id` has not proved itself */
        DOOR_TURNED_AWAY, /* an accepted connection has not proved itself; it is gone */
        DOOR_CROWDED,     /* `count` connections are gone and not named one by one, last from `address` */
};

struct door_result {
        enum door_outcome outcome;
        uint64_t id;
        int sock;
        struct tls *tls;
        struct sockaddr_storage address;
        unsigned count;
        char why[320];
};

/* Called on the loop's thread. */
typedef void (*door_fn)(void *data, const struct door_result *result);

struct door_config {
        struct loop *loop;
        struct tls_context *tls; /* NULL: connections need no proof */
        door_fn fn;
        void *data;
};

/* The following functions are for the loop thread. 0 or a negative errno. */
int door_new(const struct door_config *config, const struct keys *keys, const struct door_limits *limits,
             struct door **ret);
/* Ends all handshakes that are under way. NULL is fine. */
struct door *door_free(struct door *door);
/* Takes the listening socket if it returns 0; else -ENOSPC: there are DOOR_LISTENERS. */
int door_listen(struct door *door, int fd);
/* Makes the handshake of the end that has connected, one at a time. The caller owns the socket, and leaves it
 * alone until the result comes. The door owns `tls` until then. */
void door_shake(struct door *door, uint64_t id, int sock, struct tls *tls);
/* Sets the keys and limits for connections that come from now on. */
void door_change(struct door *door, const struct keys *keys, const struct door_limits *limits);
