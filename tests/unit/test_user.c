/* SPDX-License-Identifier: Apache-2.0 */
/* One table of users: who holds something stays in it, and of the others those that came last. */
#include "tests.h"

#include "base/clock.h"
#include "base/user.h"

#define START (1000 * USEC_PER_SEC)

static struct users *users;

static int set_up(void **state) {
        static const uint64_t limits[ACCOUNT_SLOTS] = { [ACCOUNT_JOBS] = 2 };

        return users_new(limits, &users);
}

static int tear_down(void **state) {
        users_free(users);
        return 0;
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)

/* Whether this user may open a connection now, of two that are allowed in a second. */
static bool connects(uid_t uid, uint64_t now) {
        return token_bucket_take(&user_get(users, uid)->pace, 2, now);
}

TEST(a_uid_is_one_user) {
        struct user *user = user_get(users, 7);

        assert_ptr_equal(user_get(users, 7), user);
        assert_ptr_equal(user_find(users, 7), user);
        assert_ptr_not_equal(user_get(users, 8), user);
        assert_null(user_find(users, 9));
}

TEST(users_do_not_share_a_pace) {
        assert_true(connects(7, START) && connects(7, START));
        assert_false(connects(7, START));
        assert_true(connects(8, START));
}

TEST(a_charge_keeps_its_user) {
        struct charge charge = { 0 };

        assert_int_equal(charge_take(&charge, users, 7, ACCOUNT_JOBS, 1, NULL), 0);
        for (uid_t uid = 1000; uid < 1000 + 2 * USERS_STRANGERS; uid++)
                user_get(users, uid);
        users_sweep(users, START);
        assert_ptr_equal(user_find(users, 7), charge.user);
        assert_null(user_find(users, 1000 + 2 * USERS_STRANGERS - 1));
        charge_release(&charge);
        users_sweep(users, START);
        assert_null(user_find(users, 7));
}

TEST(a_pace_is_remembered_for_a_second) {
        struct charge charge = { 0 };

        assert_int_equal(charge_take(&charge, users, 7, ACCOUNT_JOBS, 1, NULL), 0);
        assert_true(connects(7, START));
        charge_release(&charge);
        users_sweep(users, START + USEC_PER_SEC - 1);
        assert_non_null(user_find(users, 7));
        users_sweep(users, START + USEC_PER_SEC);
        assert_null(user_find(users, 7));
}

TEST(the_one_that_stayed_away_longest_is_forgotten) {
        for (uid_t uid = 0; uid < USERS_STRANGERS; uid++)
                assert_true(connects(uid, START) && connects(uid, START));
        assert_false(connects(0, START)); /* has come again, so uid 1 has stayed away for longest */
        assert_true(connects(1000, START));
        assert_false(connects(0, START));
        assert_false(connects(2, START));
        assert_true(connects(1, START));
}

/* Those who hold something do not push out who is remembered. */
TEST(strangers_alone_are_counted) {
        struct charge charge[3 * USERS_STRANGERS] = { 0 };

        assert_true(connects(5, START));
        for (uid_t i = 0; i < 3 * USERS_STRANGERS; i++)
                assert_int_equal(charge_take(&charge[i], users, 1000 + i, ACCOUNT_JOBS, 1, NULL), 0);
        assert_non_null(user_find(users, 5));
        for (uid_t i = 0; i < 3 * USERS_STRANGERS; i++)
                charge_release(&charge[i]);
        assert_null(user_find(users, 5));
        assert_null(user_find(users, 1000 + 2 * USERS_STRANGERS - 1));
        assert_non_null(user_find(users, 1000 + 2 * USERS_STRANGERS));
}
