/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the daemons of a cluster: which daemon gets which, which ones are remembered, and how many
 * have room. */
#include "tests.h"

#include "core/roster.h"
#include "rendezvous/machine/nodeset.h"

#define DAY 86400

static struct roster *roster;
static struct roster_owner owner; /* of the daemons that the test places */
static uint64_t instance, run;
static time_t now; /* the time at which it places them */
static unsigned changes;

static void on_change(void *data) {
        changes++;
}

static void open_it(const char *text) {
        assert_int_equal(roster_new(text, now, on_change, NULL, &roster), 0);
}

/* The next process reads what this one has to say. */
static void restart(void) {
        char *text = roster_text(roster);

        assert_non_null(text);
        roster = roster_free(roster);
        open_it(text);
        free(text);
}

static int set_up(void **state) {
        owner = (struct roster_owner){ .key = "main", .uids = "*" };
        instance = run = 1;
        now = 1000 * DAY;
        changes = 0;
        open_it(NULL);
        return 0;
}

static int tear_down(void **state) {
        roster = roster_free(roster);
        return 0;
}

static const uint8_t *id_of(uint32_t node) {
        static uint8_t id[ROSTER_NODE];

        memset(id, 7, sizeof(id));
        memcpy(id, &node, sizeof(node));
        return id;
}

static int place(uint32_t node, const char *host, uint32_t claimed, uint32_t *address, uint32_t *of_host) {
        const struct roster_arrival arrival = { .node = id_of(node),
                                                .instance = instance,
                                                .run = run,
                                                .host = host,
                                                .owner = owner,
                                                .claimed = claimed,
                                                .now = now };

        return roster_place(roster, &arrival, address, of_host);
}

static void assert_placed(uint32_t node, const char *host, uint32_t claimed, uint32_t address,
                          uint32_t of_host) {
        uint32_t got, got_host;

        assert_int_equal(place(node, host, claimed, &got, &got_host), 0);
        assert_int_equal(got, address);
        assert_int_equal(got_host, of_host);
}

static uint32_t take(uint32_t node) {
        uint32_t address, host;

        assert_int_equal(place(node, "host", UINT32_MAX, &address, &host), 0);
        return address;
}

static void assert_refused(uint32_t node) {
        uint32_t address, host;

        assert_int_equal(place(node, "host", UINT32_MAX, &address, &host), -ENOSPC);
}

static void use(uint32_t node) {
        roster_use(roster, id_of(node), now);
}

static void leave(uint32_t node) {
        roster_leave(roster, id_of(node), now);
}

static bool is_known(uint32_t node) {
        struct roster_owner found;

        return roster_find_owner(roster, id_of(node), &found);
}

/* A node keeps its address. The number of a host is the lowest address there. */
TEST_WITH(who_gets_which_address, set_up, tear_down) {
        assert_placed('a', "left", UINT32_MAX, 0, 0);
        assert_placed('b', "right", 0, 1, 1); /* what it claims is taken */
        assert_placed('c', "right", 7, 7, 1);
        assert_placed('d', "left", UINT32_MAX, 2, 0);
        assert_placed('a', "left", 5, 0, 0);
        assert_placed('c', "left", UINT32_MAX, 7, 0);
        assert_placed('e', "right", LIMIT_NODES, 3, 1);
        for (unsigned node = 'a'; node <= 'e'; node++)
                use(node);
        restart();
        assert_placed('f', "other", UINT32_MAX, 4, 4);
        assert_placed('c', "left", UINT32_MAX, 7, 0);
        assert_placed('b', "right", UINT32_MAX, 1, 1);
}

static void assert_owned(uint32_t node, const char *key, const char *uids) {
        struct roster_owner found;

        assert_true(roster_find_owner(roster, id_of(node), &found));
        assert_string_equal(found.key, key);
        assert_string_equal(found.uids, uids);
}

/* The latest owner, also after a restart. */
TEST_WITH(an_id_has_an_owner, set_up, tear_down) {
        assert_placed('a', "left", UINT32_MAX, 0, 0);
        use('a');
        owner = (struct roster_owner){ .key = "limited", .uids = "1000-1000,2000-2999" };
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        use('b');
        for (unsigned i = 0; i < 2; i++) {
                assert_owned('a', "main", "*");
                assert_owned('b', "limited", "1000-1000,2000-2999");
                assert_false(is_known('c'));
                restart();
        }
        owner.key = "new";
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        assert_owned('b', "new", "1000-1000,2000-2999");
        owner.uids = "*";
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        assert_owned('b', "new", "*");
}

/* A daemon that never had a job costs nothing: no write, and no place after it has gone. */
TEST_WITH(who_is_remembered, set_up, tear_down) {
        assert_int_equal(take('a'), 0);
        assert_int_equal(take('b'), 1);
        assert_int_equal(changes, 0);
        use('b');
        use('b');
        assert_int_equal(changes, 1);
        leave('a');
        leave('b');
        leave('c');
        assert_false(is_known('a'));
        assert_true(is_known('b'));
        assert_int_equal(changes, 1);
        take('d');
        restart();
        assert_true(is_known('b'));
        assert_false(is_known('d'));
        assert_int_equal(take('c'), 0);
}

/* The roster writes once a day that a daemon was seen, and other changes at once. */
TEST_WITH(what_is_written, set_up, tear_down) {
        take('a');
        use('a');
        restart();
        changes = 0;
        take('a');
        now += DAY;
        take('a');
        assert_int_equal(changes, 0);
        now++;
        take('a');
        assert_int_equal(changes, 1);
        restart();
        take('a');
        assert_int_equal(changes, 1);
        assert_placed('a', "elsewhere", UINT32_MAX, 0, 0);
        assert_int_equal(changes, 2);
        owner.uids = "1-1";
        assert_placed('a', "elsewhere", UINT32_MAX, 0, 0);
        assert_int_equal(changes, 3);
}

TEST_WITH(who_was_not_seen_for_a_month_is_forgotten, set_up, tear_down) {
        for (uint32_t node = 'a'; node <= 'c'; node++) {
                take(node);
                use(node);
        }
        leave('a');
        leave('b');
        now += 30 * DAY;
        take('b');
        leave('b');
        restart();
        assert_true(is_known('a') && is_known('b') && is_known('c'));
        take('c');
        now++;
        changes = 0;
        take('d'); /* a new daemon comes */
        assert_false(is_known('a'));
        assert_true(is_known('b'));
        assert_int_equal(changes, 1);
        now += 31 * DAY;
        take('e');
        assert_false(is_known('b'));
        assert_true(is_known('c')); /* it is here */
        restart();
        assert_false(is_known('c'));
}

/* A key that is limited to some users has a limited number of addresses. A new daemon of that key gets the
 * address of the one that has been away longest. */
TEST_WITH(a_limited_key_keeps_nobody_out, set_up, tear_down) {
        take(1);
        use(1);
        leave(1);
        owner = (struct roster_owner){ .key = "limited", .uids = "1000-1000" };
        for (uint32_t i = 0; i < ROSTER_LIMITED; i++)
                take(100 + i);
        assert_refused(1000);
        take(100); /* it is known */
        for (uint32_t node = 300; node > 200; node--) {
                use(node);
                leave(node);
                now++;
        }
        take(1000);
        assert_false(is_known(300));
        assert_true(is_known(299) && is_known(201) && is_known(1));
        take(1001);
        assert_false(is_known(299));
        owner = (struct roster_owner){ .key = "main", .uids = "*" };
        take(1);
        take(2);
}

TEST_WITH(limited_keys_together_have_half_of_the_places, set_up, tear_down) {
        char name[16];

        owner = (struct roster_owner){ .key = name, .uids = "1000-1000" };
        for (uint32_t i = 0; i < LIMIT_NODES / 2; i++) {
                snprintf(name, sizeof(name), "k%u", i % 8);
                take(i);
        }
        assert_refused(LIMIT_NODES);
        owner = (struct roster_owner){ .key = "main", .uids = "*" };
        for (uint32_t i = LIMIT_NODES / 2; i < LIMIT_NODES; i++)
                assert_int_equal(take(i), i);
        assert_refused(LIMIT_NODES);
        use(LIMIT_NODES - 1);
        leave(LIMIT_NODES - 1);
        assert_int_equal(take(LIMIT_NODES), LIMIT_NODES - 1);
        take(0);
}

/* A daemon starts with an earlier state directory, which was restored or copied. */
TEST_WITH(an_earlier_start_is_late, set_up, tear_down) {
        instance = 5;
        run = 77;
        take('a');
        assert_false(roster_is_late(roster, id_of('a'), 5, 77));
        assert_false(roster_is_late(roster, id_of('a'), 6, 78));
        assert_true(roster_is_late(roster, id_of('a'), 5, 78));
        assert_true(roster_is_late(roster, id_of('a'), 4, 77));
        assert_false(roster_is_late(roster, id_of('b'), 1, 1));
}

TEST_WITH(damaged_texts_are_refused, set_up, tear_down) {
#define ZERO "00000000000000000000000000000000"
#define HEAD "gradsync nodes 3\n"
        static const char *const texts[] = {
                "",
                "gradsync nodes 2\n",
                HEAD "x",
                HEAD "0 " ZERO " h k * 1",
                HEAD "0 " ZERO " h k *\n",
                HEAD "0 " ZERO " h k uids 1\n",
                HEAD "0 " ZERO " h k * x\n",
                HEAD "0 " ZERO " h k * 1 1\n",
                HEAD "4096 " ZERO " h k * 1\n",
                HEAD "0 000000000000000000000000000000 h k * 1\n",
                HEAD "0 " ZERO " h k * 1\n0 00000000000000000000000000000001 h k * 1\n",
                HEAD "0 " ZERO " h k * 1\n1 " ZERO " h k * 1\n",
        };
        struct roster *none = NULL;
        char *line;

        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
                if (roster_new(texts[i], now, on_change, NULL, &none) != -EBADMSG)
                        fail_msg("text %zu is taken", i);
        assert_true(asprintf(&line, HEAD "0 " ZERO " h k %02100d 1\n", 0) > 0);
        assert_int_equal(roster_new(line, now, on_change, NULL, &none), -EBADMSG);
        free(line);
        assert_null(none);
}
