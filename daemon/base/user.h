/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The users that the daemon knows now, by uid: what each of them holds, and how fast it has been lately. A
 * user lives while something refers to it: a charge, or a burst in the log. A user that nothing refers to is
 * remembered for a while, for the pace of its connections. The headers account.h, flood.h, token_bucket.h,
 * line.h, turn.h and closer.h say what the numbers mean. Loop thread only.
 */
#pragma once

#include "account.h"
#include "closer.h"
#include "flood.h"
#include "line.h"
#include "list.h"
#include "token_bucket.h"
#include "turn.h"

#define USERS_STRANGERS 64u /* users that are remembered although nothing refers to them */

struct users {
        struct list list; /* the user that has stayed away for longest comes first */
        unsigned strangers;
        uint64_t limits[ACCOUNT_SLOTS];
        struct users_pool {
                uint64_t shared, most; /* of accounts_set_pool(); `shared` 0: no bound */
                uint64_t own;          /* the part that each user has in any case */
                uint64_t beyond;       /* the sum of what users hold beyond that */
        } pool[ACCOUNT_POOLS];
        uint64_t most,
                present; /* number of users with file descriptors, as a connection is: limit, and now */
        uint64_t total[ACCOUNT_SLOTS], refused[ACCOUNT_SLOTS], noted[ACCOUNT_REFUSALS];
};

struct user {
        struct list link;
        struct users *users;
        uid_t uid;
        uint64_t references;
        /* Jobs of this user that have formed and not ended. The job layer counts them. */
        uint64_t running;
        /* Connections of this user with the rights of an operator. The socket layer counts them. */
        uint64_t operators;
        uint64_t used[ACCOUNT_SLOTS];
        struct flood_burst burst[FLOOD_KINDS];
        struct token_bucket pace;
        struct turn turn;
        struct line_queue line;
        struct closer_lane lane;
};

int users_new(const uint64_t limits[ACCOUNT_SLOTS], struct users **ret);
struct users *users_free(struct users *users); /* no reference may be left (asserted); NULL is fine */
/* Forgets the users that nothing refers to and that may go as fast as a new one. The caller calls this now
 * and then. */
void users_sweep(struct users *users, uint64_t now);

/* Returns NULL if the uid is not known, and so holds nothing. */
struct user *user_find(const struct users *users, uid_t uid);
/* As user_find(), for a uid that has just done something: makes the user if it is not known. NULL: no memory.
 * Without a reference the user stays valid until the next call. */
struct user *user_get(struct users *users, uid_t uid);
/* Whether this uid may look after the daemon: root, the daemon's own user, and operators. `user` is NULL if
 * the uid is not known. */
bool user_is_trusted(const struct user *user, uid_t uid);
/* Returns the user's class in line. */
enum line_class user_class(const struct user *user);
void user_ref(struct user *user);
void user_unref(struct user *user);
