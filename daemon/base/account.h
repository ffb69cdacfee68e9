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
        ACCOUNT_BYTES,   /* bytes of them, and of plans kept for comparison */
        ACCOUNT_FDS,     /* file descriptors that the daemon holds for them */
        ACCOUNT_DEVICE,  /* bytes of memories on a GPU */
        ACCOUNT_SLOTS,
};

/* Refusals that have no charge. */
enum account_refusal {
        ACCOUNT_TOO_FAST, /* connections */
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
        struct charge arenas, bytes, fds, device;
};

/* What is held already stays. */
void accounts_set_limits(struct users *users, const uint64_t limits[ACCOUNT_SLOTS]);
uint64_t accounts_used(const struct users *users, uid_t uid, enum account_slot slot);
uint64_t accounts_total(const struct users *users, enum account_slot slot);
/* Charges refused since the start. */
uint64_t accounts_refused(const struct users *users, enum account_slot slot);
/* Counts a refusal that has no charge. */
void accounts_note(struct users *users, enum account_refusal refusal);
uint64_t accounts_noted(const struct users *users, enum account_refusal refusal);

/* 0; QUOTA (positive) with *refusal filled, naming the uid, the slot, what is used, the limit and the
 * configuration key to raise; or -ENOMEM. *charge must be empty. */
int charge_take(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal);
/* Charges what is there already, whatever the limit; nothing, if there is no memory for it. *charge must be
 * empty. */
void charge_force(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                  uint64_t amount);
void charge_release(struct charge *charge); /* harmless on an empty one */
/* As charge_take(); what has been taken is to be released also if it fails. */
int charges_take(struct charges *charges, struct users *users, uid_t uid, unsigned arenas, uint64_t bytes,
                 unsigned fds, uint64_t device, struct refusal *refusal);
void charges_release(struct charges *charges);
