/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where connections over TCP prove themselves, on a thread of its own: it accepts them, computes handshakes,
 * and ends those of strangers. The event thread gets what has proved itself, and never waits for the
 * arithmetic. A connection belongs to one of the two threads at a time.
 *
 * Strangers are bounded in number, size, time and rate: DOOR_PLACES at once, `per_address` and `together`
 * handshakes a second. Addresses share what there is (share.h). Without TLS nothing is proved; such a
 * connection passes as soon as it says something.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "link/key.h"
#include "link/tls.h"

#define DOOR_PLACES 64u
#define DOOR_HEARD (16u << 10) /* bytes of a handshake; one of a daemon has less than 1 KiB */
#define DOOR_LISTENERS 64u

struct door;

struct door_limits {
        uint64_t patience; /* us, for a handshake */
        uint64_t per_address, together;
};

enum door_outcome {
        DOOR_PASSED,      /* it was accepted and has proved itself: socket and TLS are the receiver's */
        DOOR_SHAKEN,      /* likewise that with the id; its socket has been the receiver's all along */
        DOOR_FAILED,      /* … has not */
        DOOR_TURNED_AWAY, /* one that was accepted has not; it is gone */
        DOOR_CROWDED,     /* `count` are gone that had no place or no turn, the last from `address` */
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

/* On the loop's thread. */
typedef void (*door_fn)(void *data, const struct door_result *result);

struct door_config {
        struct loop *loop;
        struct tls_context *tls; /* NULL: nothing is proved */
        door_fn fn;
        void *data;
};

/* All of the following are the loop thread's to call. 0 or a negative errno. */
int door_new(const struct door_config *config, const struct keys *keys, const struct door_limits *limits,
             struct door **ret);
/* Ends what is under way. NULL is fine. */
struct door *door_free(struct door *door);
/* Takes the listening socket if it returns 0; else -ENOSPC: there are DOOR_LISTENERS. */
int door_listen(struct door *door, int fd);
/* The connected end's handshake, one at a time. The socket stays the caller's, who leaves it alone until the
 * result comes; the TLS is the door's until then. */
void door_shake(struct door *door, uint64_t id, int sock, struct tls *tls);
/* For connections that come from now on. */
void door_change(struct door *door, const struct keys *keys, const struct door_limits *limits);
