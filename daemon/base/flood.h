/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps what one user causes from flooding the log. The first lines about a user and a kind of event are
 * written; while more of them follow, they are only counted, and one line with the count ends the burst. Many
 * users together are bounded as well. It is a part of the process' log, so there is one. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "list.h"

enum flood_kind {
        FLOOD_PROTOCOL,    /* broke the rules of the protocol */
        FLOOD_TURNED_AWAY, /* may not connect, or has too many connections */
        FLOOD_SILENT,      /* connected and said nothing */
        FLOOD_UNREAD,      /* does not read */
        FLOOD_FAILED,      /* the daemon could not do what was asked */
        FLOOD_NO_FDS,      /* of the whole daemon */
        FLOOD_JOBS,        /* jobs that form and end */
        FLOOD_STALLS,
        FLOOD_ORDERS,    /* of operators */
        FLOOD_STRANGERS, /* connections of daemons that did not prove themselves */
        FLOOD_KINDS,
};

#define FLOOD_NO_UID ((uid_t)-1) /* of events that are nobody's */

struct user;
struct users;

/* Events of one kind and one user. Zero-initialised: there is no burst. */
struct flood_burst {
        struct list link;
        struct user *user; /* a reference while the burst goes on */
        enum flood_kind kind;
        unsigned lines; /* written */
        uint64_t count; /* not written */
        uint64_t since, last;
};

/* Bursts are kept with these users from now on. Before this call, only all users together are bounded. */
void flood_begin(struct users *users);
/* Whether a line about this may be written now; otherwise it has been counted. */
bool flood_admits(enum flood_kind kind, uid_t uid, uint64_t now);
/* Logs the counts of bursts that have ended, or last very long. To be called every few seconds. */
void flood_settle(uint64_t now);
/* Logs all counts, and forgets bursts and users. */
void flood_end(void);
