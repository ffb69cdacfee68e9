/* SPDX-License-Identifier: Apache-2.0 */
/* How strangers share places and turns: what is one source, whose turn it is, and who is remembered. */
#include "tests.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "base/clock.h"
#include "link/share.h"

static struct share share;

static int setup(void **state) {
        memset(&share, 0, sizeof(share));
        return 0;
}

#define TEST(name) TEST_WITH(name, setup, NULL)

static struct sockaddr_storage address_of(const char *text) {
        struct sockaddr_storage address = { 0 };

        if (strchr(text, ':') != NULL) {
                address.ss_family = AF_INET6;
                assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr), 1);
        } else {
                address.ss_family = AF_INET;
                assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr), 1);
        }
        return address;
}

static unsigned find_at(const char *text, const char *local, uint64_t now) {
        struct sockaddr_storage there = address_of(text), here = address_of(local);

        return share_find(&share, &there, &here, now);
}

static unsigned find(const char *text, uint64_t now) {
        return find_at(text, "192.0.2.1", now);
}

TEST(what_is_one_source) {
        unsigned four = find("10.0.0.1", 1), six = find("2001:db8::1", 1);

        assert_int_not_equal(four, six);
        assert_int_equal(find("10.0.0.1", 2), four);
        assert_int_equal(find("::ffff:10.0.0.1", 2), four);
        assert_int_not_equal(find("10.0.0.2", 2), four);
        assert_int_equal(find("2001:db8::ffff:ffff:ffff:ffff", 2), six);
        assert_int_not_equal(find("2001:db8:0:1::1", 2), six);
}

/* A neighbour that takes many addresses keeps no other neighbour out. */
TEST(each_neighbour_is_a_source) {
        unsigned one = find_at("2001:db8::1", "2001:db8::100", 1);

        assert_int_equal(find_at("2001:db8::1", "2001:db8::100", 2), one);
        assert_int_not_equal(find_at("2001:db8::2", "2001:db8::100", 2), one);
        assert_int_not_equal(find_at("fe80::1", "fe80::100", 2), find_at("fe80::2", "fe80::100", 2));
        assert_int_equal(find_at("2001:db8:0:1::1", "2001:db8::100", 2),
                         find_at("2001:db8:0:1::2", "2001:db8::100", 2));
}

TEST(each_source_has_its_rate) {
        uint64_t now = 60 * USEC_PER_SEC;
        unsigned one = find("10.0.0.1", now), two = find("10.0.0.2", now), admitted = 0;

        for (unsigned i = 0; i < 100; i++)
                admitted += share_admits(&share, one, 20, now);
        assert_int_equal(admitted, 20);
        assert_true(share_admits(&share, two, 20, now));
        now += USEC_PER_SEC / 20;
        assert_true(share_admits(&share, one, 20, now));
        assert_false(share_admits(&share, one, 20, now));
}

TEST(turns_go_round) {
        unsigned one = find("10.0.0.1", 1), two = find("10.0.0.2", 1);

        share_serve(&share, one);
        assert_true(share_precedes(&share, two, one) && !share_precedes(&share, one, two));
        share_serve(&share, two);
        assert_true(share_precedes(&share, one, two) && !share_precedes(&share, two, one));
        share_serve(&share, one);
        unsigned three = find("10.0.0.3", 2); /* a new one comes after those that are waiting */
        assert_true(share_precedes(&share, two, three));
        share_serve(&share, two);
        assert_true(share_precedes(&share, three, two));
}

TEST(who_holds_a_place_is_remembered) {
        unsigned holder = find("10.0.0.1", 1), seen = find("10.0.0.2", 2);
        char text[32];

        share.source[holder].held = 1;
        share_serve(&share, seen);
        for (unsigned i = 0; i < 2 * SHARE_SOURCES; i++) {
                snprintf(text, sizeof(text), "10.1.%u.%u", i / 256, i % 256);
                unsigned other = find(text, 10 + i);
                assert_int_not_equal(other, holder);
                assert_int_equal(find("10.0.0.2", 10 + i), seen); /* it comes again and again */
        }
        assert_int_equal(find("10.0.0.1", 10000), holder);
        assert_int_equal(share.source[seen].served, 1);
}
