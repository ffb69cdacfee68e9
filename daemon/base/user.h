/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The users that the daemon knows now, by uid: what each of them holds, and how fast it has been lately. A
 * user lives while something refers to it: a charge, a burst in the log, descriptors that wait to be closed.
 * A user that nothing refers to is remembered for a while for the pace of its connections. What the numbers
 * mean is the business of account.h, flood.h, pace.h, turn.h and closer.h. Loop thread only.
 */
#pragma once

#include "account.h"
#include "flood.h"
#include "list.h"
#include "pace.h"
#include "turn.h"

#define USERS_STRANGERS 64u /* users that are remembered although nothing refers to them */

struct closer_lane;

struct users {
        struct list list; /* the user that has stayed away for longest comes first */
        unsigned strangers;
        uint64_t limits[ACCOUNT_SLOTS];
        uint64_t total[ACCOUNT_SLOTS], refused[ACCOUNT_SLOTS], noted[ACCOUNT_REFUSALS];
};

struct user {
        struct list link;
        struct users *users;
        uid_t uid;
        uint64_t references;
        uint64_t used[ACCOUNT_SLOTS];
        struct flood_burst burst[FLOOD_KINDS];
        struct pace pace;
        struct turn turn;
        struct closer_lane *lane; /* NULL: no descriptor of this user waits to be closed */
};

int users_new(const uint64_t limits[ACCOUNT_SLOTS], struct users **ret);
struct users *users_free(struct users *users); /* no reference may be left (asserted); NULL is fine */
/* Forgets the users that nothing refers to and that may go as fast as a new one. To be called now and
 * then. */
void users_sweep(struct users *users, uint64_t now);

/* NULL: the uid is not known, so it holds nothing. */
struct user *user_find(const struct users *users, uid_t uid);
/* The same, for a uid that has just done something: makes the user if it is not known. NULL: no memory.
 * Without a reference it stays valid until the next call. */
struct user *user_get(struct users *users, uid_t uid);
void user_ref(struct user *user);
void user_unref(struct user *user);
