/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of users. Every allocation that a client can cause holds a charge on the client's user, and its
 * destructor releases the charge, so the greed of one user never costs another user anything. Loop thread
 * only.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "error.h"

enum account_slot {
        ACCOUNT_CLIENTS, /* open connections */
        ACCOUNT_JOBS,    /* open jobs */
        ACCOUNT_ARENAS,  /* arenas, staging and registered memories */
        ACCOUNT_BYTES,   /* bytes of memory that is shared with clients */
        ACCOUNT_FDS,     /* file descriptors that the daemon holds for clients */
        ACCOUNT_DEVICE,  /* bytes of memory on a GPU */
        ACCOUNT_OWN,     /* bytes of the daemon's own memory for clients, except descriptions of plans */
        ACCOUNT_PLANS,   /* bytes of descriptions of plans, which are in the daemon's own memory, too */
        ACCOUNT_SLOTS,
};

/* Pools: each bounds the sum of one or several slots over all users. */
enum account_pool {
        POOL_NONE,
        POOL_FDS, /* file descriptors */
        POOL_OWN, /* bytes of the daemon's own memory */
        ACCOUNT_POOLS,
};

/* Kinds of refusals that have no charge and are only counted. */
enum account_refusal {
        ACCOUNT_TOO_FAST, /* the user opens connections too fast */
        ACCOUNT_CROWDED,  /* the first connection of a user, while too many other users are connected */
        ACCOUNT_DENIED,   /* the caller has no right to what it asks for */
        ACCOUNT_REFUSALS,
};

struct user;
struct users;

struct charge {            /* zero-initialised: empty */
        struct user *user; /* a reference */
        enum account_slot slot;
        uint64_t amount;
};

struct charges { /* charges of one memory; zero-initialised: empty */
        struct charge arenas, bytes, own, fds, device;
};

/* accounts_set_most() sets how many users may be present at once. A user is present while the daemon holds a
 * file descriptor for it. accounts_check_uid() returns 0, or QUOTA (positive) with *refusal if this uid would
 * be one user too many. */
void accounts_set_most(struct users *users, uint64_t most);
int accounts_check_uid(struct users *users, uid_t uid, struct refusal *refusal);
/*
 * Sets the size of a pool; `shared` 0: no bound. One sixteenth of `shared` is reserved for trusted users
 * (user_is_trusted()), who may fill the pool up to `most`. Half of the rest is divided into equal parts, one
 * for each user that may be present, so that each user has its part, whatever the others hold. The other half
 * is open to all users. A dynamic threshold bounds what a user holds of it (Choudhury and Hahne, "Dynamic
 * Queue Length Thresholds for Shared-Memory Packet Switches"): at most as much as is then still free, or four
 * times that if the user has a running job. A quarter of the open half is reserved for users with running
 * jobs.
 */
void accounts_set_pool(struct users *users, enum account_pool pool, uint64_t shared, uint64_t most);
uint64_t accounts_pooled(const struct users *users, enum account_pool pool);
uint64_t accounts_pooled_by(const struct users *users, uid_t uid, enum account_pool pool);
/* Sets the limit of each slot for one user. Charges that are held already stay. */
void accounts_set_limits(struct users *users, const uint64_t limits[ACCOUNT_SLOTS]);
uint64_t accounts_used(const struct users *users, uid_t uid, enum account_slot slot);
uint64_t accounts_total(const struct users *users, enum account_slot slot);
/* Returns the number of charges refused since the start. */
uint64_t accounts_refused(const struct users *users, enum account_slot slot);
/* Counts a refusal that has no charge. */
void accounts_note(struct users *users, enum account_refusal refusal);
uint64_t accounts_noted(const struct users *users, enum account_refusal refusal);

/* Takes a charge. Returns 0; QUOTA (positive) with *refusal, which names the uid, the slot, the amount in
 * use, the limit or the user's share, and the setting to raise; or -ENOMEM. *charge must be empty. */
int charge_take(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal);
/* Charges an amount that is in use already, whatever the limit. *charge must be empty, and stays so if there
 * is no memory for the user. */
void charge_force(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                  uint64_t amount);
void charge_release(struct charge *charge); /* harmless on an empty one */

struct charges_amount {
        uint64_t bytes, own, device;
        unsigned arenas, fds;
};

/* As charge_take(), for several slots. The caller releases *charges also after a failure, because some of
 * them may have been taken. */
int charges_take(struct charges *charges, struct users *users, uid_t uid, const struct charges_amount *amount,
                 struct refusal *refusal);
void charges_release(struct charges *charges);
