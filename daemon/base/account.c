/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per-uid budgets: a list of the uids that hold something now. It is short (uids, not clients), so a walk is
 * enough. An account lives from its first charge to the release of its last one.
 */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"
#include "proto/gradsync.pb-c.h"

struct account {
        struct list link;
        struct accounts *accounts;
        uid_t uid;
        uint64_t charges; /* number of charges that point here */
        uint64_t used[ACCOUNT_SLOTS];
};

struct accounts {
        struct list list;
        uint64_t limits[ACCOUNT_SLOTS];
        uint64_t total[ACCOUNT_SLOTS], refused[ACCOUNT_SLOTS], noted[ACCOUNT_REFUSALS];
};

static const struct {
        const char *key, *what;
} slots[ACCOUNT_SLOTS] = {
        [ACCOUNT_CLIENTS] = { "clients_per_uid", "connections" },
        [ACCOUNT_JOBS] = { "jobs_per_uid", "jobs" },
        [ACCOUNT_ARENAS] = { "arenas_per_uid", "arenas" },
        [ACCOUNT_FDS] = { "fds_per_uid", "file descriptors" },
        [ACCOUNT_BYTES] = { "bytes_per_uid", "bytes of shared memory and plans" },
};

const char *account_slot_key(enum account_slot slot) {
        return slots[slot].key;
}

int accounts_new(const uint64_t limits[ACCOUNT_SLOTS], struct accounts **ret) {
        struct accounts *accounts = calloc(1, sizeof(*accounts));

        if (!accounts)
                return -ENOMEM;
        list_init(&accounts->list);
        accounts_set_limits(accounts, limits);
        *ret = accounts;
        return 0;
}

struct accounts *accounts_free(struct accounts *accounts) {
        if (!accounts)
                return NULL;
        assert(list_empty(&accounts->list));
        free(accounts);
        return NULL;
}

void accounts_set_limits(struct accounts *accounts, const uint64_t limits[ACCOUNT_SLOTS]) {
        memcpy(accounts->limits, limits, sizeof(accounts->limits));
}

static struct account *find(const struct accounts *accounts, uid_t uid) {
        struct account *account;

        list_for_each(account, &accounts->list, link)
                if (account->uid == uid)
                        return account;
        return NULL;
}

static struct account *find_or_open(struct accounts *accounts, uid_t uid) {
        struct account *account = find(accounts, uid);

        if (account)
                return account;
        account = calloc(1, sizeof(*account));
        if (!account)
                return NULL;
        account->accounts = accounts;
        account->uid = uid;
        list_append(&accounts->list, &account->link);
        return account;
}

uint64_t accounts_used(const struct accounts *accounts, uid_t uid, enum account_slot slot) {
        const struct account *account = find(accounts, uid);
        return account ? account->used[slot] : 0;
}

uint64_t accounts_total(const struct accounts *accounts, enum account_slot slot) {
        return accounts->total[slot];
}

uint64_t accounts_refused(const struct accounts *accounts, enum account_slot slot) {
        return accounts->refused[slot];
}

void accounts_note(struct accounts *accounts, enum account_refusal refusal) {
        accounts->noted[refusal]++;
}

uint64_t accounts_noted(const struct accounts *accounts, enum account_refusal refusal) {
        return accounts->noted[refusal];
}

int charge_take(struct charge *charge, struct accounts *accounts, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal) {
        assert(!charge->account);

        uint64_t limit = accounts->limits[slot], used = accounts_used(accounts, uid, slot);
        if (used > limit || amount > limit - used) {
                accounts->refused[slot]++;
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "uid %u holds %" PRIu64 " %s and asks for %" PRIu64
                              " more, the limit is %" PRIu64
                              ": release some, or raise %s in section [limits] of the daemon's configuration",
                              (unsigned)uid, used, slots[slot].what, amount, limit, slots[slot].key);
        }

        charge_force(charge, accounts, uid, slot, amount);
        return charge->account ? 0 : -ENOMEM;
}

void charge_force(struct charge *charge, struct accounts *accounts, uid_t uid, enum account_slot slot,
                  uint64_t amount) {
        assert(!charge->account);

        struct account *account = find_or_open(accounts, uid);
        if (!account)
                return;
        account->charges++;
        account->used[slot] += amount;
        accounts->total[slot] += amount; /* cannot wrap before memory is exhausted */
        *charge = (struct charge){ .account = account, .slot = slot, .amount = amount };
}

void charge_release(struct charge *charge) {
        struct account *account = charge->account;

        if (!account)
                return;
        assert(account->used[charge->slot] >= charge->amount);
        account->used[charge->slot] -= charge->amount;
        account->accounts->total[charge->slot] -= charge->amount;
        if (--account->charges == 0) {
                list_remove(&account->link);
                free(account);
        }
        *charge = (struct charge){ 0 };
}
