/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the daemons of a cluster: who gets which, and what is remembered of it on the disk. */
#include "tests.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/roster.h"
#include "rendezvous/nodeset.h"

static char directory[] = "/tmp/gs-roster-XXXXXX", path[64], fresh[64], error[512];
static struct roster *roster;
static struct roster_owner owner; /* of those that are placed */

static void open_it(void) {
        assert_int_equal(roster_open(directory, "n", &roster, error, sizeof(error)), 0);
}

static int set_up(void **state) {
        owner = (struct roster_owner){ .key = "main", .uids = "*" };
        strcpy(directory + strlen(directory) - 6, "XXXXXX");
        if (mkdtemp(directory) == NULL)
                return -1;
        snprintf(path, sizeof(path), "%s/n.nodes", directory);
        snprintf(fresh, sizeof(fresh), "%s/n.nodes.new", directory);
        open_it();
        return 0;
}

static int tear_down(void **state) {
        char place[64];

        roster = roster_free(roster);
        snprintf(place, sizeof(place), "%s/n.place", directory);
        unlink(path);
        unlink(fresh);
        rmdir(fresh);
        unlink(place);
        return rmdir(directory);
}

/* Returns what roster_place() does; the node is so many bytes of that letter. */
static int place(char node, const char *host, uint32_t claimed, uint32_t *address, uint32_t *of_host) {
        uint8_t id[ROSTER_NODE];

        memset(id, node, sizeof(id));
        return roster_place(roster, id, host, &owner, claimed, address, of_host);
}

static void assert_placed(char node, const char *host, uint32_t claimed, uint32_t address, uint32_t of_host) {
        uint32_t got, got_host;

        assert_int_equal(place(node, host, claimed, &got, &got_host), 0);
        assert_int_equal(got, address);
        assert_int_equal(got_host, of_host);
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
        roster = roster_free(roster);
        open_it(); /* after a restart */
        assert_placed('f', "other", UINT32_MAX, 4, 4);
        assert_placed('c', "left", UINT32_MAX, 7, 0);
        assert_placed('b', "right", UINT32_MAX, 1, 1);
}

static void assert_owned(char node, const char *key, const char *uids) {
        struct roster_owner found;
        uint8_t id[ROSTER_NODE];

        memset(id, node, sizeof(id));
        assert_true(roster_find_owner(roster, id, &found));
        assert_string_equal(found.key, key);
        assert_string_equal(found.uids, uids);
}

/* The latest owner, also after a restart. */
TEST_WITH(an_id_has_an_owner, set_up, tear_down) {
        struct roster_owner found;

        assert_placed('a', "left", UINT32_MAX, 0, 0);
        owner = (struct roster_owner){ .key = "limited", .uids = "1000-1000,2000-2999" };
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        for (unsigned run = 0; run < 2; run++) {
                assert_owned('a', "main", "*");
                assert_owned('b', "limited", "1000-1000,2000-2999");
                assert_false(roster_find_owner(roster, (uint8_t[ROSTER_NODE]){ 0 }, &found));
                roster = roster_free(roster);
                open_it();
        }
        owner.key = "new";
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        assert_owned('b', "new", "1000-1000,2000-2999");
        owner.uids = "*";
        assert_placed('b', "right", UINT32_MAX, 1, 1);
        assert_owned('b', "new", "*");
}

/* An address that is not on the disk is nobody's. */
TEST_WITH(what_cannot_be_saved_is_not_given_out, set_up, tear_down) {
        struct rlimit limit, little;
        uint32_t address, host;

        assert_placed('a', "left", UINT32_MAX, 0, 0);
        assert_int_equal(mkdir(fresh, 0700), 0);
        assert_int_equal(place('b', "right", UINT32_MAX, &address, &host), -EISDIR);
        assert_int_equal(place('a', "right", UINT32_MAX, &address, &host), -EISDIR);
        assert_placed('a', "left", UINT32_MAX, 0, 0);
        assert_int_equal(rmdir(fresh), 0);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        little = (struct rlimit){ .rlim_cur = 40, .rlim_max = limit.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
        assert_int_equal(place('b', "right", UINT32_MAX, &address, &host), -ENOSPC);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        assert_placed('c', "right", UINT32_MAX, 1, 1);
        roster = roster_free(roster);
        open_it();
        assert_placed('b', "right", UINT32_MAX, 2, 1);
}

TEST_WITH(damaged_files_are_refused, set_up, tear_down) {
#define ZERO "00000000000000000000000000000000"
        static const char *const texts[] = {
                "",
                "gradsync nodes 3\n",
                "gradsync nodes 2\nx",
                "gradsync nodes 2\n0 " ZERO " h k *",
                "gradsync nodes 2\n0 " ZERO " h k\n",
                "gradsync nodes 2\n0 " ZERO " h k uids\n",
                "gradsync nodes 2\n4096 " ZERO " h k *\n",
                "gradsync nodes 2\n0 000000000000000000000000000000 h k *\n",
                "gradsync nodes 2\n0 " ZERO " h k *\n0 00000000000000000000000000000001 h k *\n",
                "gradsync nodes 2\n0 " ZERO " h k *\n1 " ZERO " h k *\n",
        };

        for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
                FILE *file = fopen(path, "w");

                fputs(texts[i], file);
                fclose(file);
                roster = roster_free(roster);
                if (roster_open(directory, "n", &roster, error, sizeof(error)) != -EBADMSG)
                        fail_msg("text %zu is taken: %s", i, texts[i]);
                assert_non_null(strstr(error, path));
        }
}

TEST_WITH(a_daemon_remembers_its_place, set_up, tear_down) {
        uint32_t address, host;

        roster_recall(directory, "n", &address, &host);
        assert_int_equal(address, UINT32_MAX);
        assert_int_equal(roster_remember(directory, "n", 5, 3), 0);
        roster_recall(directory, "n", &address, &host);
        assert_int_equal(address, 5);
        assert_int_equal(host, 3);
        assert_int_equal(roster_remember(directory, "n", LIMIT_NODES, 3), 0);
        roster_recall(directory, "n", &address, &host);
        assert_int_equal(address, UINT32_MAX);
        assert_true(roster_remember("/nowhere", "n", 1, 1) < 0);
}
