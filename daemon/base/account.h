/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per-uid budgets. Whatever a client can cause to be allocated holds a charge on its uid and gives it back in
 * its destructor, so one user's greed never costs another one anything. Loop thread only.
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
        ACCOUNT_SLOTS,
};

enum account_refusal {                   /* that have no charge */
                       ACCOUNT_TOO_FAST, /* connections */
                       ACCOUNT_DENIED,   /* whatever the caller may not */
                       ACCOUNT_REFUSALS,
};

struct accounts;
struct account;

struct charge { /* zero-initialised: empty */
        struct account *account;
        enum account_slot slot;
        uint64_t amount;
};

int accounts_new(const uint64_t limits[ACCOUNT_SLOTS], struct accounts **ret);
struct accounts *accounts_free(struct accounts *accounts); /* all charges must be released (asserted) */
/* what is held stays */
void accounts_set_limits(struct accounts *accounts, const uint64_t limits[ACCOUNT_SLOTS]);
uint64_t accounts_used(const struct accounts *accounts, uid_t uid, enum account_slot slot);
uint64_t accounts_total(const struct accounts *accounts, enum account_slot slot);
/* Charges refused since the start. */
uint64_t accounts_refused(const struct accounts *accounts, enum account_slot slot);
/* Counts such a refusal. */
void accounts_note(struct accounts *accounts, enum account_refusal refusal);
uint64_t accounts_noted(const struct accounts *accounts, enum account_refusal refusal);

/* 0; QUOTA (positive) with *refusal filled, naming the uid, the slot, what is used, the limit and the
 * configuration key to raise; or -ENOMEM. *charge must be empty. */
int charge_take(struct charge *charge, struct accounts *accounts, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal);
/* Charges what is there already, whatever the limit; nothing, if there is no memory for it. *charge must
 * be empty. */
void charge_force(struct charge *charge, struct accounts *accounts, uid_t uid, enum account_slot slot,
                  uint64_t amount);
void charge_release(struct charge *charge); /* harmless on an empty one */

/* Name of the slot's key in section [limits] of the configuration: "clients_per_uid", … */
const char *account_slot_key(enum account_slot slot);
