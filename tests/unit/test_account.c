/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets per uid: what is taken counts, what is released is free again, and a refusal says whose and
 * which. */
#include "tests.h"

#include "base/user.h"
#include "proto/gradsync.pb-c.h"

static const uint64_t limits[ACCOUNT_SLOTS] = { 2, 1, 3, 1000, 5, 2000, 3000, 4000 };
static struct users *users;

static int set_up(void **state) {
        return users_new(limits, &users);
}

static int tear_down(void **state) {
        users = users_free(users);
        return 0;
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)

TEST(charges_add_up_and_come_back) {
        struct charge a = { 0 }, b = { 0 }, other = { 0 };

        assert_int_equal(charge_take(&a, users, 7, ACCOUNT_BYTES, 600, NULL), 0);
        assert_int_equal(charge_take(&b, users, 7, ACCOUNT_BYTES, 400, NULL), 0);
        assert_int_equal(charge_take(&other, users, 8, ACCOUNT_BYTES, 1000, NULL), 0);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 1000);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_CLIENTS), 0);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 2000);

        charge_release(&a);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 400);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 1400);
        charge_release(&a); /* empty by now */
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 400);
        charge_release(&b);
        charge_release(&other);
        assert_int_equal(accounts_used(users, 7, ACCOUNT_BYTES), 0);
        assert_int_equal(accounts_total(users, ACCOUNT_BYTES), 0);
}

TEST(a_refusal_names_everything) {
        struct charge first = { 0 }, second = { 0 };
        struct refusal refusal = { 0 };

        assert_int_equal(charge_take(&first, users, 1234, ACCOUNT_BYTES, 999, NULL), 0);
        assert_int_equal(charge_take(&second, users, 1234, ACCOUNT_BYTES, 2, &refusal), WIRE__CODE__QUOTA);
        assert_int_equal(refusal.code, WIRE__CODE__QUOTA);
        assert_false(refusal.has_culprit);
        assert_non_null(strstr(refusal.text, "uid 1234"));
        assert_non_null(strstr(refusal.text, "999"));
        assert_non_null(strstr(refusal.text, "1000"));
        assert_non_null(strstr(refusal.text, "bytes_per_uid"));
        assert_null(second.user);
        assert_int_equal(charge_take(&second, users, 1234, ACCOUNT_BYTES, 1, &refusal), 0);
        charge_release(&first);
        charge_release(&second);
}

TEST(an_amount_cannot_wrap) {
        struct charge first = { 0 }, second = { 0 };

        assert_int_equal(charge_take(&first, users, 1, ACCOUNT_BYTES, 10, NULL), 0);
        assert_int_equal(charge_take(&second, users, 1, ACCOUNT_BYTES, UINT64_MAX - 5, NULL),
                         WIRE__CODE__QUOTA);
        assert_int_equal(accounts_used(users, 1, ACCOUNT_BYTES), 10);
        charge_release(&first);
}

TEST(lower_limits_leave_what_is_held) {
        static const uint64_t lower[ACCOUNT_SLOTS] = { 1, 1, 1, 1 };
        struct charge a = { 0 }, b = { 0 }, c = { 0 };

        assert_int_equal(charge_take(&a, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        assert_int_equal(charge_take(&b, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        accounts_set_limits(users, lower);
        assert_int_equal(accounts_used(users, 1, ACCOUNT_CLIENTS), 2);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), WIRE__CODE__QUOTA);
        charge_release(&a);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), WIRE__CODE__QUOTA);
        charge_release(&b);
        assert_int_equal(charge_take(&c, users, 1, ACCOUNT_CLIENTS, 1, NULL), 0);
        charge_release(&c);
}

TEST(a_refusal_names_the_key_of_its_slot) {
        static const char *const keys[ACCOUNT_SLOTS] = {
                [ACCOUNT_CLIENTS] = "clients_per_uid", [ACCOUNT_JOBS] = "jobs_per_uid",
                [ACCOUNT_ARENAS] = "arenas_per_uid",   [ACCOUNT_BYTES] = "bytes_per_uid",
                [ACCOUNT_FDS] = "fds_per_uid",         [ACCOUNT_DEVICE] = "device_bytes_per_uid",
                [ACCOUNT_OWN] = "daemon_bytes",        [ACCOUNT_PLANS] = "plan_bytes_per_uid",
        };
        struct charge charge = { 0 };
        struct refusal refusal;

        for (unsigned slot = 0; slot < ACCOUNT_SLOTS; slot++) {
                assert_int_equal(charge_take(&charge, users, 1, slot, limits[slot] + 1, &refusal),
                                 WIRE__CODE__QUOTA);
                assert_non_null(strstr(refusal.text, keys[slot]));
        }
}

/* A long text is cut where a character ends: it travels as UTF-8. */
TEST(refusals_are_cut_between_characters) {
        struct refusal refusal;
        char text[2048];

        for (unsigned shift = 0; shift < 4; shift++) {
                static const char four[] = "\xF0\x9F\x90\x8D";
                memset(text, 'x', shift);
                for (size_t at = shift; at + 4 < sizeof(text); at += 4)
                        memcpy(text + at, four, 5);
                assert_int_equal(refuse_for(&refusal, 9, 3, 77, "%s", text), 9);
                size_t length = strlen(refusal.text);
                assert_in_range(length, sizeof(refusal.text) - 4, sizeof(refusal.text) - 1);
                assert_int_equal((length - shift) % 4, 0);
                assert_memory_equal(refusal.text, text, length);
                assert_true(refusal.has_culprit);
                assert_int_equal(refusal.rank, 3);
                assert_int_equal(refusal.pid, 77);
        }
        assert_int_equal(refuse(NULL, 9, "nobody listens"), 9);
}

TEST(users_are_counted_while_they_hold_descriptors) {
        struct charge first = { 0 }, second = { 0 }, other = { 0 };
        struct refusal refusal;

        accounts_set_most(users, 2);
        assert_int_equal(accounts_check_uid(users, 1, &refusal), 0);
        assert_int_equal(charge_take(&first, users, 1, ACCOUNT_FDS, 1, &refusal), 0);
        assert_int_equal(charge_take(&second, users, 1, ACCOUNT_FDS, 1, &refusal), 0);
        assert_int_equal(charge_take(&other, users, 2, ACCOUNT_FDS, 1, &refusal), 0);
        assert_int_equal(accounts_check_uid(users, 3, &refusal), WIRE__CODE__QUOTA);
        assert_non_null(strstr(refusal.text, "2 users are connected, and uid 3"));
        assert_int_equal(accounts_noted(users, ACCOUNT_CROWDED), 1);
        assert_int_equal(accounts_check_uid(users, 2, &refusal), 0); /* it is here */
        charge_release(&first);
        assert_int_equal(accounts_check_uid(users, 3, &refusal), WIRE__CODE__QUOTA);
        charge_release(&second);
        assert_int_equal(accounts_check_uid(users, 3, &refusal), 0);
        charge_release(&other);
}

/* Takes one charge after the other of that user until one is refused; how many there were. */
static unsigned fill(uid_t uid, struct charge *charges, struct refusal *refusal) {
        unsigned n = 0;

        while (charge_take(&charges[n], users, uid, ACCOUNT_FDS, 1, refusal) == 0)
                n++;
        return n;
}

static void let_go(struct charge *charges, unsigned n) {
        for (unsigned i = 0; i < n; i++)
                charge_release(&charges[i]);
}

static void share(uint64_t fds, uint64_t bytes) {
        static const uint64_t wide[ACCOUNT_SLOTS] = {
                [ACCOUNT_FDS] = 100000, [ACCOUNT_OWN] = 1000000, [ACCOUNT_CLIENTS] = 10
        };

        accounts_set_limits(users, wide);
        accounts_set_pool(users, POOL_FDS, fds, fds + 100);
        accounts_set_pool(users, POOL_OWN, bytes, bytes);
}

/* A sixteenth of 3200 is not for users, which leaves 3000. Each of ten users has 150 of its own. Beyond them
 * a user may hold as much of three quarters of 1500 as is free then. */
TEST(a_user_has_a_share) {
        static struct charge first[2000], second[2000], third[2000];
        struct refusal refusal = { 0 };

        share(3200, 0);
        accounts_set_most(users, 10);
        assert_int_equal(fill(70001, first, &refusal), 150 + 562);
        assert_non_null(strstr(refusal.text, "uid 70001 holds 712 file descriptors and asks for 1 more, its "
                                             "share is 712 while all users hold 712 of 3200"));
        assert_non_null(strstr(refusal.text, "raise LimitNOFILE"));
        assert_int_equal(refusal.code, WIRE__CODE__QUOTA);
        assert_int_equal(accounts_refused(users, ACCOUNT_FDS), 1);
        assert_int_equal(fill(70002, second, &refusal), 150 + 281);
        assert_int_equal(fill(70003, third, &refusal), 150 + 141);
        assert_int_equal(charge_take(&first[712], users, 70001, ACCOUNT_FDS, 1, &refusal), WIRE__CODE__QUOTA);
        let_go(first, 712);
        assert_int_equal(accounts_pooled(users, POOL_FDS), 431 + 291);
        assert_int_equal(accounts_pooled_by(users, 70002, POOL_FDS), 431);
        assert_int_equal(fill(70003, third + 291, &refusal), 281 - 141 + 141);
        let_go(second, 431);
        let_go(third, 572);
}

/* However many users have filled their shares, each user that may be here finds its part. One with a running
 * job finds more, and root finds what it needs. */
TEST(there_is_always_a_share) {
        static struct charge charges[3400], more[5];
        struct refusal refusal;
        unsigned n = 0;

        share(3200, 0);
        accounts_set_most(users, 250);
        for (uid_t uid = 70000; uid < 70249; uid++) {
                unsigned before = n;
                n += fill(uid, charges + n, &refusal);
                assert_true(n - before >= 6);
        }
        assert_int_equal(charge_take(&more[0], users, 60000, ACCOUNT_CLIENTS, 1, &refusal), 0);
        assert_int_equal(charge_take(&more[1], users, 60000, ACCOUNT_FDS, 6, &refusal), 0);
        assert_int_equal(charge_take(&more[2], users, 60000, ACCOUNT_FDS, 5, &refusal), WIRE__CODE__QUOTA);
        more[0].user->running = 1;
        assert_int_equal(charge_take(&more[2], users, 60000, ACCOUNT_FDS, 290, &refusal), 0);
        assert_int_equal(charge_take(&more[3], users, 0, ACCOUNT_FDS, 100, &refusal), 0);
        more[0].user->running = 0;
        assert_int_equal(charge_take(&more[4], users, 60000, ACCOUNT_FDS, 1, &refusal), WIRE__CODE__QUOTA);
        more[0].user->operators = 1;
        assert_int_equal(charge_take(&more[4], users, 60000, ACCOUNT_FDS, 1, &refusal), 0);
        let_go(more, 5);
        let_go(charges, n);
}

/* Another number of users, or of descriptors, while some are held. */
TEST(parts_may_change) {
        static struct charge charges[2000], more;
        struct refusal refusal;
        unsigned n;

        share(3200, 0);
        n = fill(70001, charges, &refusal);
        assert_int_equal(n, 1125); /* nothing is divided */
        accounts_set_most(users, 10);
        assert_int_equal(charge_take(&more, users, 70002, ACCOUNT_FDS, 226, &refusal), WIRE__CODE__QUOTA);
        assert_int_equal(charge_take(&more, users, 70002, ACCOUNT_FDS, 225, &refusal), 0);
        charge_release(&more);
        accounts_set_pool(users, POOL_FDS, 6400, 6400);
        assert_int_equal(charge_take(&charges[n], users, 70001, ACCOUNT_FDS, 300 + 1125 - n, &refusal), 0);
        let_go(charges, n + 1);
}

/* All slots of the daemon's own memory count together, and what is charged in any case, too. */
TEST(own_memory_is_shared) {
        struct charge a = { 0 }, b = { 0 }, root = { 0 };
        struct refusal refusal;

        share(0, 160000);
        assert_int_equal(charge_take(&a, users, 70001, ACCOUNT_OWN, 56251, &refusal), WIRE__CODE__QUOTA);
        assert_non_null(strstr(refusal.text, "raise daemon_bytes"));
        assert_int_equal(charge_take(&a, users, 70001, ACCOUNT_OWN, 56250, &refusal), 0);
        charge_force(&b, users, 70002, ACCOUNT_OWN, 98750);
        assert_int_equal(charge_take(&root, users, 0, ACCOUNT_OWN, 5001, &refusal), WIRE__CODE__QUOTA);
        assert_int_equal(charge_take(&root, users, 0, ACCOUNT_OWN, 5000, &refusal), 0);
        charge_release(&a);
        assert_int_equal(charge_take(&a, users, 70003, ACCOUNT_OWN, 1, &refusal), 0);
        charge_release(&a);
        charge_release(&b);
        charge_release(&root);
}
