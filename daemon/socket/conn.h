/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connected SOCK_SEQPACKET socket: packets in, packets out, back-pressure. It knows bytes and fds, not
 * messages. While something is queued for a client it is not read from; a client that lets too much pile up
 * is disconnected.
 */
#pragma once

#include "base/closer.h"
#include "base/list.h"
#include "base/loop.h"
#include "base/tidy.h"
#include "base/user.h"
#include "proto/fdpass.h"
#include "session/session.h"

#define CONN_QUEUE_MAX (4u << 20) /* bytes queued for one client */
#define CONN_OWN_FDS 64u          /* more than the daemon itself needs for a moment */

struct conns { /* what all connections share */
        struct loop *loop;
        struct sessions *sessions;
        struct users *users;
        struct closer *closer;
        uint64_t fds_room;   /* fds that the process may have */
        unsigned batch_most; /* packets read at once */
        struct list list;
        struct line line;
        bool has_admin_group, allow_nobody;
        gid_t admin_group;         /* whose members are operators */
        uint64_t connects_per_uid; /* a second */
        struct tidy tidy;
        /* FDPASS_BATCH times FRAME_MAX: packets are handled before the next ones are read */
        uint8_t *buffers;
};

struct conn;

#define CONN_NOBODY 65534u /* stands for every uid that is unknown here, and for careless services */

int conns_init(struct conns *conns, struct loop *loop, struct sessions *sessions, struct users *users,
               struct closer *closer);
void conns_deinit(struct conns *conns); /* closes all */

/* Takes the socket over, also on failure. The charge for the client is taken from its uid. False if the
 * client has been turned away: then it is better to let further ones wait for a while. */
bool conn_accept(struct conns *conns, int sock);
/* Ends a connection that the daemon has no room for. */
void conn_shed(struct conns *conns, int sock);
