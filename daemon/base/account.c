/* SPDX-License-Identifier: Apache-2.0 */
/* Charges, their limits, and counts of what was refused. Which users there are, and for how long, is decided
 * in user.c. */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/gradsync.pb-c.h"
#include "user.h"

static const struct {
        const char *key, *what;
} account_slots[ACCOUNT_SLOTS] = {
        [ACCOUNT_CLIENTS] = { "clients_per_uid", "connections" },
        [ACCOUNT_JOBS] = { "jobs_per_uid", "jobs" },
        [ACCOUNT_ARENAS] = { "arenas_per_uid", "arenas" },
        [ACCOUNT_FDS] = { "fds_per_uid", "file descriptors" },
        [ACCOUNT_BYTES] = { "bytes_per_uid", "bytes of shared memory and plans" },
        [ACCOUNT_DEVICE] = { "device_bytes_per_uid", "bytes of the GPU's memory" },
};

void accounts_set_limits(struct users *users, const uint64_t limits[ACCOUNT_SLOTS]) {
        memcpy(users->limits, limits, sizeof(users->limits));
}

uint64_t accounts_used(const struct users *users, uid_t uid, enum account_slot slot) {
        const struct user *user = user_find(users, uid);

        return user ? user->used[slot] : 0;
}

uint64_t accounts_total(const struct users *users, enum account_slot slot) {
        return users->total[slot];
}

uint64_t accounts_refused(const struct users *users, enum account_slot slot) {
        return users->refused[slot];
}

void accounts_note(struct users *users, enum account_refusal refusal) {
        users->noted[refusal]++;
}

uint64_t accounts_noted(const struct users *users, enum account_refusal refusal) {
        return users->noted[refusal];
}

int charge_take(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal) {
        assert(!charge->user);

        uint64_t limit = users->limits[slot], used = accounts_used(users, uid, slot);
        if (used > limit || amount > limit - used) {
                users->refused[slot]++;
                return refuse(refusal, WIRE__CODE__QUOTA,
                              "uid %u holds %" PRIu64 " %s and asks for %" PRIu64
                              " more, the limit is %" PRIu64
                              ": release some, or raise %s in section [limits] of the daemon's configuration",
                              (unsigned)uid, used, account_slots[slot].what, amount, limit,
                              account_slots[slot].key);
        }

        charge_force(charge, users, uid, slot, amount);
        return charge->user ? 0 : -ENOMEM;
}

void charge_force(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                  uint64_t amount) {
        assert(!charge->user);

        struct user *user = user_get(users, uid);
        if (!user)
                return;
        user_ref(user);
        user->used[slot] += amount;
        users->total[slot] += amount; /* cannot wrap before memory is exhausted */
        *charge = (struct charge){ .user = user, .slot = slot, .amount = amount };
}

void charge_release(struct charge *charge) {
        struct user *user = charge->user;

        if (!user)
                return;
        assert(user->used[charge->slot] >= charge->amount);
        user->used[charge->slot] -= charge->amount;
        user->users->total[charge->slot] -= charge->amount;
        user_unref(user);
        *charge = (struct charge){ 0 };
}

int charges_take(struct charges *charges, struct users *users, uid_t uid, unsigned arenas, uint64_t bytes,
                 unsigned fds, uint64_t device, struct refusal *refusal) {
        int r = charge_take(&charges->arenas, users, uid, ACCOUNT_ARENAS, arenas, refusal);

        if (r == 0)
                r = charge_take(&charges->bytes, users, uid, ACCOUNT_BYTES, bytes, refusal);
        if (r == 0)
                r = charge_take(&charges->device, users, uid, ACCOUNT_DEVICE, device, refusal);
        return r == 0 ? charge_take(&charges->fds, users, uid, ACCOUNT_FDS, fds, refusal) : r;
}

void charges_release(struct charges *charges) {
        charge_release(&charges->arenas);
        charge_release(&charges->bytes);
        charge_release(&charges->fds);
        charge_release(&charges->device);
}
