/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connected SOCK_SEQPACKET socket: packets in, packets out, back-pressure. It knows bytes and fds, not
 * messages. While something is queued for a client, nothing is read from that client. A client that lets too
 * much pile up is disconnected.
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
#define CONN_OWN_FDS 64u          /* fds left free for the daemon itself: more than it needs for a moment */

struct conns { /* state that all connections share */
        struct loop *loop;
        struct sessions *sessions;
        struct users *users;
        struct closer *closer;
        uint64_t fds_room;   /* number of fds that the process may have */
        unsigned batch_most; /* packets read at once */
        struct list list;
        struct line line;
        bool has_admin_group, allow_nobody;
        gid_t admin_group;         /* members of this group are operators */
        uint64_t connects_per_uid; /* connections that a uid may open in a second */
        struct tidy tidy;
        /* FDPASS_BATCH times FRAME_MAX bytes. All connections share them, because packets are handled before
         * the next ones are read. */
        uint8_t *buffers;
};

struct conn;

#define CONN_NOBODY 65534u /* stands for all uids that are unknown here, and for careless services */

int conns_init(struct conns *conns, struct loop *loop, struct sessions *sessions, struct users *users,
               struct closer *closer);
void conns_deinit(struct conns *conns); /* closes all connections */

/* Takes the socket over, also on failure. Charges the client to its uid. Returns false if the client has been
 * turned away: then it is better to let further clients wait for a while. */
bool conn_accept(struct conns *conns, int sock);
/* Ends a connection that the daemon has no room for. Takes the socket over. */
void conn_shed(struct conns *conns, int sock);
