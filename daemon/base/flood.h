/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps events that users cause from flooding the log. The first lines about a user and a kind of event are
 * written. While more events follow, they are only counted, and one line with the count ends the burst. The
 * number of lines about all users together is bounded as well. The state belongs to the log, of which the
 * process has one. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "list.h"

enum flood_kind {
        FLOOD_PROTOCOL,    /* a client broke the rules of the protocol */
        FLOOD_TURNED_AWAY, /* a client may not connect, or its user has too many connections */
        FLOOD_SILENT,      /* a client connected and said nothing */
        FLOOD_UNREAD,      /* a client does not read */
        FLOOD_FAILED,      /* the daemon could not do what a client asked for */
        FLOOD_NO_FDS,      /* the daemon has no file descriptors left */
        FLOOD_JOBS,        /* a job forms or ends */
        FLOOD_STALLS,      /* a step or collective stalls */
        FLOOD_ORDERS,      /* an operator gives an order */
        FLOOD_STRANGERS,   /* a peer that connected as a daemon did not prove itself */
        FLOOD_KINDS,
};

#define FLOOD_NO_UID ((uid_t)-1) /* for events that concern no user */

struct user;
struct users;

/* A burst: events of one kind about one user. Zero-initialised: none goes on. */
struct flood_burst {
        struct list link;
        struct user *user; /* a reference while the burst goes on */
        enum flood_kind kind;
        unsigned lines; /* lines written */
        uint64_t count; /* events not written */
        uint64_t since, last;
};

/* Sets the users that keep bursts from now on. Before this call only the lines about all users together are
 * bounded. */
void flood_begin(struct users *users);
/* Whether a line about this event may be written now. If not, the event has been counted. */
bool flood_admits(enum flood_kind kind, uid_t uid, uint64_t now);
/* Logs the counts of bursts that have ended, or that last very long. The caller calls this every few
 * seconds. */
void flood_settle(uint64_t now);
/* Logs all counts, and forgets bursts and users. */
void flood_end(void);
