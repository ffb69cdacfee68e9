/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The addresses of a cluster's daemons, as its coordinator knows them and remembers them from one run to the
 * next. A daemon is remembered from its first job on, until it has not been seen for a month. One that never
 * had a job is forgotten when it goes. Pure: the owner keeps the text on the disk (core/saver.h).
 *
 * A key that speaks for some users only can have ROSTER_LIMITED daemons here, and all such keys together half
 * of LIMIT_NODES, so that none of them keeps others out. If a key has that many, its next daemon gets the
 * address of one of the key's daemons: the one that is not here and was seen longest ago.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define ROSTER_NODE 16u     /* bytes of a node id */
#define ROSTER_HOST 64u     /* characters of a host's id */
#define ROSTER_LIMITED 512u /* daemons of a limited key */

struct roster;

/* The credentials of a daemon when it was here: the name of its key, or KEY_NONE, and the uids for which it
 * spoke (link/key.h). */
struct roster_owner {
        const char *key, *uids;
};

struct roster_arrival {
        const uint8_t *node; /* ROSTER_NODE bytes, */
        uint64_t instance;   /* the number of its start, */
        uint64_t run;        /* and a number that this run has drawn */
        const char *host;
        struct roster_owner owner; /* its id is theirs from now on */
        uint32_t claimed;          /* the address that it had before, as it says */
        time_t now;
};

/* `text`: as roster_text() gave it; NULL: there is none yet. `changed` is called when the text is another
 * one. 0, -EBADMSG or -ENOMEM. */
int roster_new(const char *text, time_t now, void (*changed)(void *data), void *data, struct roster **ret);
struct roster *roster_free(struct roster *roster); /* NULL is fine */
/* For free(); NULL: there is no memory. */
char *roster_text(const struct roster *roster);

/* The address of that daemon, and the number of its host: the lowest address of any daemon there. One that is
 * new gets what it claims, if that is free, or the lowest free one. 0; -ENOSPC: its key has too many that are
 * here; or -ENOMEM. */
int roster_place(struct roster *roster, const struct roster_arrival *arrival, uint32_t *ret_address,
                 uint32_t *ret_host);
/* That daemon has a job: it is remembered. */
void roster_use(struct roster *roster, const uint8_t node[ROSTER_NODE], time_t now);
/* It is not here any more, and no job waits for it. */
void roster_leave(struct roster *roster, const uint8_t node[ROSTER_NODE], time_t now);

/* Finds the owner of that daemon's id. False: it is not known. Valid until the next call that changes
 * anything. */
bool roster_find_owner(const struct roster *roster, const uint8_t node[ROSTER_NODE],
                       struct roster_owner *ret);
/* Whether a later start of that daemon was here, or another process that says it is the same start. */
bool roster_is_late(const struct roster *roster, const uint8_t node[ROSTER_NODE], uint64_t instance,
                    uint64_t run);
