/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The budgets of users. Everything that a client can cause to be allocated holds a charge on its user and
 * gives it back in its destructor, so the greed of one user never costs another user anything. Loop thread
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
        ACCOUNT_BYTES,   /* bytes of them that clients share */
        ACCOUNT_FDS,     /* file descriptors that the daemon holds for them */
        ACCOUNT_DEVICE,  /* bytes of memories on a GPU */
        ACCOUNT_OWN,     /* bytes that are the daemon's own: whatever else it holds for them, except */
        ACCOUNT_PLANS,   /* bytes of descriptions of plans, which are its own, too */
        ACCOUNT_SLOTS,
};

/* What there is for all users together, in one or several slots. */
enum account_pool {
        POOL_NONE,
        POOL_FDS, /* file descriptors */
        POOL_OWN, /* bytes of the daemon's own memory */
        ACCOUNT_POOLS,
};

/* Refusals that have no charge. */
enum account_refusal {
        ACCOUNT_TOO_FAST, /* connections */
        ACCOUNT_CROWDED,  /* the first connection of a user, while too many others are here */
        ACCOUNT_DENIED,   /* whatever the caller may not */
        ACCOUNT_REFUSALS,
};

struct user;
struct users;

struct charge {            /* zero-initialised: empty */
        struct user *user; /* a reference */
        enum account_slot slot;
        uint64_t amount;
};

struct charges { /* of a memory; the same */
        struct charge arenas, bytes, own, fds, device;
};

/* How many users may be here at once: those for which the daemon has file descriptors. 0; or QUOTA
 * (positive) with *refusal, if this uid would be one more. */
void accounts_set_most(struct users *users, uint64_t most);
int accounts_check_uid(struct users *users, uid_t uid, struct refusal *refusal);
/*
 * How much of it there is; 0: no bound. A sixteenth is kept for those that look after the daemon, who may
 * have up to `most`. Half of the rest is there in equal parts for as many users as may be connected, so that
 * each finds its part, whatever the others hold. What a user holds beyond its part is bounded by a dynamic
 * threshold (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"): it
 * may be as much as is still free then, and four times that if the user has a running job. A quarter is kept
 * for such users.
 */
void accounts_set_pool(struct users *users, enum account_pool pool, uint64_t shared, uint64_t most);
uint64_t accounts_pooled(const struct users *users, enum account_pool pool);
uint64_t accounts_pooled_by(const struct users *users, uid_t uid, enum account_pool pool);
/* What is held already stays. */
void accounts_set_limits(struct users *users, const uint64_t limits[ACCOUNT_SLOTS]);
uint64_t accounts_used(const struct users *users, uid_t uid, enum account_slot slot);
uint64_t accounts_total(const struct users *users, enum account_slot slot);
/* Charges refused since the start. */
uint64_t accounts_refused(const struct users *users, enum account_slot slot);
/* Counts a refusal that has no charge. */
void accounts_note(struct users *users, enum account_refusal refusal);
uint64_t accounts_noted(const struct users *users, enum account_refusal refusal);

/* 0; QUOTA (positive) with *refusal filled, naming the uid, the slot, what is used, the limit or the user's
 * share, and what to raise; or -ENOMEM. *charge must be empty. */
int charge_take(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal);
/* Charges what is there already, whatever the limit; nothing, if there is no memory for it. *charge must be
 * empty. */
void charge_force(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                  uint64_t amount);
void charge_release(struct charge *charge); /* harmless on an empty one */

struct charges_amount {
        uint64_t bytes, own, device;
        unsigned arenas, fds;
};

/* As charge_take(); what has been taken is to be released also if it fails. */
int charges_take(struct charges *charges, struct users *users, uid_t uid, const struct charges_amount *amount,
                 struct refusal *refusal);
void charges_release(struct charges *charges);
