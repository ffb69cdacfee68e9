/* SPDX-License-Identifier: Apache-2.0 */
/* The advice that people get, by the user that asks and by what the host has. The tests lay out a tree as the
 * host's files. */
#include "tests.h"

#include "tree_fixture.h"

#include "proto/advice.h"

static uid_t asks;

uid_t __wrap_geteuid(void);

uid_t __wrap_geteuid(void) {
        return asks;
}

static struct advice advice;
static char text[ADVICE_TEXT];

static void put_program(const char *path) {
        put(path, "#!/bin/sh\n");
        assert_int_equal(chmod(in_tree(path), 0755), 0);
}

/* A user, a host without anything, and a PATH with what a test puts there. */
static int begin(void **state) {
        int r = tree_make(state);

        asks = 1000;
        setenv("PATH", in_tree("path"), 1);
        setenv("HOME", "/home/alice", 1);
        unsetenv("XDG_RUNTIME_DIR");
        return r;
}

static void look(const char *beside) {
        advice_look(&advice, root, beside ? in_tree(beside) : NULL);
}

static const char *start(const char *device, const char *socket) {
        advice_start(&advice, device, socket, " | ", text, sizeof(text));
        return text;
}

#define RUN "gradsyncctl run -n 2 -- CMD, which starts a daemon of its own"

TEST_WITH(a_service_is_started_by_who_may, begin, tree_remove) {
        put("run/systemd/system/x", "");
        put("usr/lib/systemd/system/gradsyncd@.service", "");
        put_program("path/gradsyncctl");
        look(NULL);
        assert_string_equal(start("cuda:0", NULL),
                            "ask the administrator for: systemctl start 'gradsyncd@cuda:0' | " RUN);
        put_program("path/sudo");
        look(NULL);
        assert_string_equal(start("cpu:two", NULL), "sudo systemctl start 'gradsyncd@cpu:two' | " RUN);
        assert_string_equal(advice_as_root(&advice), "sudo ");
        asks = 0;
        look(NULL);
        assert_string_equal(start("cpu", NULL), "systemctl start 'gradsyncd@cpu' | " RUN);
        assert_string_equal(advice_as_root(&advice), "");
}

/* A unit is installed, but systemd does not run; or systemd runs, and there is no unit. */
TEST_WITH(without_a_service_root_starts_the_program, begin, tree_remove) {
        asks = 0;
        put("lib/systemd/system/gradsyncd@.service", "");
        put_program("path/gradsyncctl");
        put_program("path/gradsyncd");
        look(NULL);
        assert_string_equal(start("cpu", NULL), "gradsyncd --device cpu | " RUN);
        assert_false(advice.systemd || advice.service);
        assert_int_equal(unlink(in_tree("lib/systemd/system/gradsyncd@.service")), 0);
        put("run/systemd/system/x", "");
        look(NULL);
        assert_string_equal(start("cpu", NULL), "gradsyncd --device cpu | " RUN);
        assert_true(advice.systemd);
        *advice.daemon = '\0';
        assert_string_equal(start("cpu", NULL),
                            "install gradsyncd, which is neither in PATH nor in /usr/sbin | " RUN);
}

TEST_WITH(a_user_needs_a_place_for_the_socket, begin, tree_remove) {
        put_program("path/gradsyncctl");
        put_program("path/gradsyncd");
        look(NULL);
        assert_string_equal(start("cpu", NULL), RUN);
        setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1); /* which is not there */
        look(NULL);
        assert_string_equal(start("cpu", NULL), RUN);
        put("run/user/1000/x", "");
        look(NULL);
        assert_string_equal(start("cpu", NULL), "gradsyncd --device cpu | " RUN);
        assert_string_equal(start("cpu", "/tmp/s"), "gradsyncd --device cpu --socket /tmp/s");
}

TEST_WITH(a_user_has_a_manager_of_its_own, begin, tree_remove) {
        setenv("XDG_RUNTIME_DIR", "/run/user/1000", 1);
        put("run/user/1000/systemd/private", "");
        put("home/alice/.config/systemd/user/gradsyncd@.service", "");
        put_program("path/gradsyncctl");
        look(NULL);
        assert_string_equal(start("cpu", NULL), "systemctl --user start 'gradsyncd@cpu' | " RUN);
        assert_int_equal(advice_manager(&advice, "cpu", "/run/user/1000/gradsync/cpu/socket"), ADVICE_USER);
        assert_int_equal(advice_manager(&advice, "cpu", "/run/gradsync/cpu/socket"), ADVICE_NOBODY);
        advice_command(&advice, ADVICE_USER, "journalctl", "-u", "cpu", text, sizeof(text));
        assert_string_equal(text, "journalctl --user -u 'gradsyncd@cpu'");
        asks = 0; /* root's daemons are the system's */
        look(NULL);
        assert_false(advice.user_service);
}

/* Named by its path, the socket of the service is still the service's. */
TEST_WITH(a_named_socket_may_be_of_a_service, begin, tree_remove) {
        char device[ADVICE_DEVICE];

        asks = 0;
        put("run/systemd/system/gradsyncd@.service", "");
        put_program("path/gradsyncd");
        look(NULL);
        assert_string_equal(start("cpu", "/run/gradsync/cpu/socket"), "systemctl start 'gradsyncd@cpu'");
        assert_string_equal(start("cpu", "/run/gradsync/cpu:b/socket"), "systemctl start 'gradsyncd@cpu:b'");
        assert_string_equal(start("cpu", "/tmp/gradsync/cpu:b/socket"),
                            "gradsyncd --device cpu:b --socket /tmp/gradsync/cpu:b/socket");
        assert_string_equal(advice_device_at("/run/gradsync/cpu:b/socket", "cpu", device), "cpu:b");
        assert_string_equal(advice_device_at("/gradsync/x/gradsync/cuda:1/socket", "cpu", device), "cuda:1");
        assert_string_equal(advice_device_at("/run/gradsync/foo/socket", "cpu", device), "cpu");
        assert_string_equal(advice_device_at("/run/gradsync/cpu/a/socket", "cpu:c", device), "cpu:c");
        assert_string_equal(advice_device_at("/run/gradsync/socket", "cpu:c", device), "cpu:c");
        assert_string_equal(advice_device_at("/tmp/gradsync/cpu:b/sock", "cpu", device), "cpu");
        assert_string_equal(advice_device_at("socket", "cpu", device), "cpu");
}

TEST_WITH(a_device_that_cannot_be_is_not_started, begin, tree_remove) {
        static const char *const good[] = { "cpu", "cpu:a.b-c_0", "cuda:0", "cuda:GPU-8e0f", "none" };
        static const char *const bad[] = { "",
                                           "gpu",
                                           "gpu0",
                                           "cpu:",
                                           "cuda",
                                           "cuda:",
                                           "cpu0",
                                           "CPU",
                                           "cpu:a/../b",
                                           "cpu:a b",
                                           "cpu:123456789012345678901234567890123" };

        look(NULL);
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
                assert_true(advice_device_valid(good[i]));
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                assert_false(advice_device_valid(bad[i]));
        assert_false(advice_start(&advice, "gpu0", NULL, " | ", text, sizeof(text)));
        assert_string_equal(
                text, "name a device: \"cpu\", \"cpu:LABEL\", \"cuda:N\" or \"cuda:UUID\"; \"gpu0\" is none");
        assert_true(advice_start(&advice, "cpu", NULL, " | ", text, sizeof(text)));
}

/* A program is found beside the one that asks, whatever PATH has. Its name is enough if PATH leads to the
 * same one. */
TEST_WITH(programs_are_those_that_exist, begin, tree_remove) {
        char real[PATH_MAX], wanted[PATH_MAX + 64];

        asks = 0;
        put_program("build/client/cli/gradsyncctl");
        put_program("build/daemon/core/gradsyncd");
        put("build/client/lib/libgradsync.so.0", "");
        put_program("path/gradsyncd");
        look("build/client/cli");
        assert_non_null(realpath(in_tree("build/daemon/core/gradsyncd"), real));
        assert_string_equal(advice.daemon, real);
        look("build/client/lib");
        assert_string_equal(advice.daemon, real);
        assert_non_null(realpath(in_tree("build/client/cli/gradsyncctl"), real));
        assert_string_equal(advice.ctl, real);
        snprintf(wanted, sizeof(wanted), "%s run -n 2 -- CMD, which starts a daemon of its own", real);
        advice_run(&advice, text, sizeof(text));
        assert_string_equal(text, wanted);
        put_program("usr/sbin/gradsyncd");
        put_program("usr/bin/gradsyncctl");
        put("usr/lib/x86_64-linux-gnu/libgradsync.so.0", "");
        look("usr/lib/x86_64-linux-gnu");
        assert_non_null(realpath(in_tree("usr/sbin/gradsyncd"), real));
        assert_string_equal(advice.daemon, real);
        setenv("PATH", in_tree("usr/bin"), 1);
        look("usr/bin");
        assert_string_equal(advice.ctl, "gradsyncctl");
}

TEST_WITH(files_that_are_missing_are_said_to_be, begin, tree_remove) {
        look(NULL);
        assert_string_equal(advice_config(&advice), "/etc/gradsync/gradsyncd.conf (to be created)");
        assert_false(advice.has_limits);
        put("etc/gradsync/gradsyncd.conf", "");
        put("etc/security/limits.conf", "");
        look(NULL);
        assert_string_equal(advice_config(&advice), "/etc/gradsync/gradsyncd.conf");
        assert_true(advice.has_limits);
}
