/* SPDX-License-Identifier: Apache-2.0 */
/* Charges, their limits, and counts of refusals. user.c decides which users exist, and for how long. */
#include "account.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/gradsync.pb-c.h"
#include "user.h"

#define POOL_KEPT 16u    /* 1 / POOL_KEPT of a pool is reserved for trusted users */
#define POOL_RUNNING 4u  /* 1 / POOL_RUNNING of a pool's open part is reserved for users with running jobs */
#define SHARE_RUNNING 4u /* a user with a running job may hold so many times the free amount, others once */

static const struct {
        const char *key, *what;
        enum account_pool pool;
} account_slots[ACCOUNT_SLOTS] = {
        [ACCOUNT_CLIENTS] = { "clients_per_uid", "connections", POOL_NONE },
        [ACCOUNT_JOBS] = { "jobs_per_uid", "jobs", POOL_NONE },
        [ACCOUNT_ARENAS] = { "arenas_per_uid", "arenas", POOL_NONE },
        [ACCOUNT_FDS] = { "fds_per_uid", "file descriptors", POOL_FDS },
        [ACCOUNT_BYTES] = { "bytes_per_uid", "bytes of shared memory", POOL_NONE },
        [ACCOUNT_PLANS] = { "plan_bytes_per_uid", "bytes of descriptions of plans", POOL_OWN },
        [ACCOUNT_DEVICE] = { "device_bytes_per_uid", "bytes of the GPU's memory", POOL_NONE },
        [ACCOUNT_OWN] = { "daemon_bytes", "bytes of the daemon's own memory", POOL_OWN },
};

static const char *const account_pool_remedies[ACCOUNT_POOLS] = {
        [POOL_NONE] = "",
        [POOL_FDS] = "LimitNOFILE of the daemon's service",
        [POOL_OWN] = ("daemon_bytes in section [limits] of the daemon's configuration, with MemoryMax of its "
                      "service"),
};

void accounts_set_limits(struct users *users, const uint64_t limits[ACCOUNT_SLOTS]) {
        memcpy(users->limits, limits, sizeof(users->limits));
}

/* Returns the sum over a pool's slots. The amounts are those of one user, or of all users. */
static uint64_t account_pool_sum(const uint64_t amount[ACCOUNT_SLOTS], enum account_pool pool) {
        uint64_t sum = 0;

        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++)
                sum += account_slots[slot].pool == pool ? amount[slot] : 0;
        return sum;
}

uint64_t accounts_pooled(const struct users *users, enum account_pool pool) {
        return account_pool_sum(users->total, pool);
}

uint64_t accounts_pooled_by(const struct users *users, uid_t uid, enum account_pool pool) {
        const struct user *user = user_find(users, uid);

        return user != NULL ? account_pool_sum(user->used, pool) : 0;
}

static uint64_t account_pool_beyond(const struct users_pool *pool, uint64_t held) {
        return held > pool->own ? held - pool->own : 0;
}

/* Returns the part of a pool that is not reserved for trusted users. */
static uint64_t account_pool_room(const struct users_pool *pool) {
        return pool->shared - pool->shared / POOL_KEPT;
}

/* Returns the part of that which is not divided among users. */
static uint64_t account_pool_open(const struct users *users, const struct users_pool *pool) {
        return account_pool_room(pool) - pool->own * users->most;
}

static void account_pool_divide(struct users *users, enum account_pool which) {
        struct users_pool *pool = &users->pool[which];
        const struct user *user;

        pool->own = users->most > 0 ? account_pool_room(pool) / 2 / users->most : 0;
        pool->beyond = 0;
        list_for_each(user, &users->list, link)
                pool->beyond += account_pool_beyond(pool, account_pool_sum(user->used, which));
}

void accounts_set_pool(struct users *users, enum account_pool pool, uint64_t shared, uint64_t most) {
        users->pool[pool].shared = shared;
        users->pool[pool].most = most;
        account_pool_divide(users, pool);
}

void accounts_set_most(struct users *users, uint64_t most) {
        users->most = most;
        for (unsigned pool = 0; pool < ACCOUNT_POOLS; pool++)
                account_pool_divide(users, pool);
}

int accounts_check_uid(struct users *users, uid_t uid, struct refusal *refusal) {
        if (users->present < users->most || accounts_used(users, uid, ACCOUNT_FDS) > 0)
                return 0;
        users->noted[ACCOUNT_CROWDED]++;
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "%" PRIu64 " users are connected, and uid %u would be one more; the limit is %" PRIu64
                      ": try again when some have gone, or raise uids in section [limits] of the daemon's "
                      "configuration",
                      users->present, (unsigned)uid, users->most);
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

static int account_check_limit(const struct users *users, uid_t uid, enum account_slot slot, uint64_t amount,
                               struct refusal *refusal) {
        uint64_t limit = users->limits[slot], used = accounts_used(users, uid, slot);

        if (used <= limit && amount <= limit - used)
                return 0;
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "uid %u holds %" PRIu64 " %s and asks for %" PRIu64 " more, the limit is %" PRIu64
                      ": release some, or raise %s in section [limits] of the daemon's configuration",
                      (unsigned)uid, used, account_slots[slot].what, amount, limit, account_slots[slot].key);
}

/* Returns the free amount of the open part, as if this user held nothing of it. The part reserved for users
 * with running jobs is free only for them. */
static uint64_t account_pool_free(const struct users *users, const struct users_pool *pool, bool running,
                                  uint64_t beyond) {
        uint64_t open = account_pool_open(users, pool), others = pool->beyond - beyond;

        open -= running ? 0 : open / POOL_RUNNING;
        return open > others ? open - others : 0;
}

/* Returns the amount that the user may hold. */
static uint64_t account_pool_share(const struct users *users, enum account_pool which, uid_t uid,
                                   uint64_t held) {
        const struct users_pool *pool = &users->pool[which];
        const struct user *user = user_find(users, uid);
        uint64_t others = accounts_pooled(users, which) - held;
        bool running = user != NULL && user->running > 0;
        unsigned times = running ? SHARE_RUNNING : 1;

        if (user_is_trusted(user, uid))
                return pool->most > others ? pool->most - others : 0;
        return pool->own +
               times * account_pool_free(users, pool, running, account_pool_beyond(pool, held)) / (times + 1);
}

static int account_check_share(const struct users *users, uid_t uid, enum account_slot slot, uint64_t amount,
                               struct refusal *refusal) {
        enum account_pool pool = account_slots[slot].pool;
        uint64_t held = accounts_pooled_by(users, uid, pool), share;

        if (users->pool[pool].shared == 0)
                return 0;
        share = account_pool_share(users, pool, uid, held);
        if (held <= share && amount <= share - held)
                return 0;
        return refuse(refusal, WIRE__CODE__QUOTA,
                      "uid %u holds %" PRIu64 " %s and asks for %" PRIu64 " more, its share is %" PRIu64
                      " while all users hold %" PRIu64 " of %" PRIu64
                      ": release some, try again when others have, or raise %s",
                      (unsigned)uid, held, account_slots[slot].what, amount, share,
                      accounts_pooled(users, pool), users->pool[pool].shared, account_pool_remedies[pool]);
}

int charge_take(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                uint64_t amount, struct refusal *refusal) {
        assert(!charge->user);

        int r = account_check_limit(users, uid, slot, amount, refusal);
        if (r == 0 && amount > 0)
                r = account_check_share(users, uid, slot, amount, refusal);
        if (r != 0) {
                users->refused[slot]++;
                return r;
        }
        charge_force(charge, users, uid, slot, amount);
        return charge->user ? 0 : -ENOMEM;
}

static void user_hold(struct user *user, enum account_slot slot, uint64_t amount) {
        enum account_pool which = account_slots[slot].pool;
        struct users_pool *pool = &user->users->pool[which];

        pool->beyond -= account_pool_beyond(pool, account_pool_sum(user->used, which));
        user->used[slot] = amount;
        pool->beyond += account_pool_beyond(pool, account_pool_sum(user->used, which));
}

void charge_force(struct charge *charge, struct users *users, uid_t uid, enum account_slot slot,
                  uint64_t amount) {
        assert(!charge->user);

        struct user *user = user_get(users, uid);
        if (!user)
                return;
        user_ref(user);
        users->present += slot == ACCOUNT_FDS && user->used[slot] == 0 && amount > 0;
        user_hold(user, slot, user->used[slot] + amount);
        users->total[slot] += amount; /* cannot wrap before memory is exhausted */
        *charge = (struct charge){ .user = user, .slot = slot, .amount = amount };
}

void charge_release(struct charge *charge) {
        struct user *user = charge->user;

        if (!user)
                return;
        assert(user->used[charge->slot] >= charge->amount);
        user_hold(user, charge->slot, user->used[charge->slot] - charge->amount);
        user->users->present -=
                charge->slot == ACCOUNT_FDS && user->used[charge->slot] == 0 && charge->amount > 0;
        user->users->total[charge->slot] -= charge->amount;
        user_unref(user);
        *charge = (struct charge){ 0 };
}

int charges_take(struct charges *charges, struct users *users, uid_t uid, const struct charges_amount *amount,
                 struct refusal *refusal) {
        int r = charge_take(&charges->arenas, users, uid, ACCOUNT_ARENAS, amount->arenas, refusal);

        if (r == 0)
                r = charge_take(&charges->bytes, users, uid, ACCOUNT_BYTES, amount->bytes, refusal);
        if (r == 0)
                r = charge_take(&charges->own, users, uid, ACCOUNT_OWN, amount->own, refusal);
        if (r == 0)
                r = charge_take(&charges->device, users, uid, ACCOUNT_DEVICE, amount->device, refusal);
        return r == 0 ? charge_take(&charges->fds, users, uid, ACCOUNT_FDS, amount->fds, refusal) : r;
}

void charges_release(struct charges *charges) {
        charge_release(&charges->arenas);
        charge_release(&charges->bytes);
        charge_release(&charges->own);
        charge_release(&charges->fds);
        charge_release(&charges->device);
}
