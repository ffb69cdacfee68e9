/* SPDX-License-Identifier: Apache-2.0 */
/* Bursts in the log: the first lines are admitted, the rest is counted and told when it is over. */
#include "captured_stderr.h"
#include "tests.h"

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "base/user.h"

#define START (1000 * USEC_PER_SEC)

static struct users *users;

static int set_up(void **state) {
        static const uint64_t limits[ACCOUNT_SLOTS];
        int r = capture_stderr();

        log_open(LOG_INFO);
        if (r == 0)
                r = users_new(limits, &users);
        flood_begin(users);
        return r;
}

static int tear_down(void **state) {
        flood_end();
        users_free(users);
        return release_stderr();
}

#define TEST(name) TEST_WITH(name, set_up, tear_down)

TEST(one_line_then_a_count) {
        assert_true(flood_admits(FLOOD_PROTOCOL, 7, START));
        for (unsigned i = 1; i <= 500; i++)
                assert_false(flood_admits(FLOOD_PROTOCOL, 7, START + i * USEC_PER_MSEC));
        flood_settle(START + USEC_PER_SEC);
        assert_string_equal(written(), ""); /* it may go on */
        flood_settle(START + 11 * USEC_PER_SEC);
        assert_string_equal(
                written_timeless(),
                "gradsyncd warning: uid 7 broke the rules of the protocol: 500 more times in 11 s "
                "[uid=7]\n");
        assert_true(flood_admits(FLOOD_PROTOCOL, 7, START + 12 * USEC_PER_SEC)); /* news again */
}

TEST(one_that_stays_alone_is_not_counted) {
        assert_true(flood_admits(FLOOD_SILENT, 7, START));
        flood_settle(START + 20 * USEC_PER_SEC);
        flood_end();
        assert_string_equal(written(), "");
}

TEST(users_and_kinds_are_told_apart) {
        assert_true(flood_admits(FLOOD_SILENT, 7, START));
        assert_true(flood_admits(FLOOD_SILENT, 8, START));
        assert_true(flood_admits(FLOOD_UNREAD, 7, START));
        assert_false(flood_admits(FLOOD_SILENT, 7, START));
        assert_false(flood_admits(FLOOD_UNREAD, 7, START));
}

TEST(ordinary_events_may_be_many) {
        for (unsigned i = 0; i < 20; i++)
                assert_true(flood_admits(FLOOD_JOBS, 7, START));
        assert_false(flood_admits(FLOOD_JOBS, 7, START));
}

TEST(a_slow_stream_is_no_burst) {
        for (unsigned i = 0; i < 1000; i++) {
                assert_true(flood_admits(FLOOD_JOBS, 7, START + i * USEC_PER_SEC));
                flood_settle(START + i * USEC_PER_SEC);
        }
        assert_string_equal(written(), "");
}

TEST(a_burst_without_end_is_told_now_and_then) {
        uint64_t now = START;

        flood_admits(FLOOD_TURNED_AWAY, 7, now);
        for (unsigned i = 0; i < 1300; i++) {
                now += USEC_PER_SEC;
                flood_admits(FLOOD_TURNED_AWAY, 7, now);
                flood_settle(now);
        }
        assert_string_equal(written_timeless(),
                            "gradsyncd warning: uid 7 was turned away: 600 more times in 600 s [uid=7]\n"
                            "gradsyncd warning: uid 7 was turned away: 600 more times in 600 s [uid=7]\n");
}

TEST(a_crowd_of_users_is_bounded) {
        unsigned admitted = 0;

        for (unsigned uid = 0; uid < 5000; uid++)
                admitted += flood_admits(FLOOD_PROTOCOL, uid, START + uid);
        assert_int_equal(admitted, 100);
        flood_end();
        /* 64 of them hold a place and are told one by one. */
        assert_non_null(strstr(written(), "4836 more events of too many users to name each were not logged"));
}

TEST(what_is_open_at_the_end_is_told) {
        flood_admits(FLOOD_NO_FDS, FLOOD_NO_UID, START);
        flood_admits(FLOOD_NO_FDS, FLOOD_NO_UID, START + USEC_PER_SEC);
        flood_end();
        assert_string_equal(
                written_timeless(),
                "gradsyncd warning: clients were turned away for want of file descriptors: 1 more times "
                "in 1 s\n");
        assert_true(flood_admits(FLOOD_NO_FDS, FLOOD_NO_UID, START));
}

/* Without a table of users nothing is known of one of them. */
TEST(all_together_are_bounded_without_users) {
        unsigned admitted = 0;

        flood_end();
        for (unsigned i = 0; i < 500; i++)
                admitted += flood_admits(FLOOD_PROTOCOL, 7, START + i);
        assert_int_equal(admitted, 100);
}

TEST(a_burst_keeps_its_user) {
        assert_true(flood_admits(FLOOD_PROTOCOL, 7, START));
        users_sweep(users, START + 5 * USEC_PER_SEC);
        assert_non_null(user_find(users, 7));
        flood_settle(START + 20 * USEC_PER_SEC);
        users_sweep(users, START + 20 * USEC_PER_SEC);
        assert_null(user_find(users, 7));
}
