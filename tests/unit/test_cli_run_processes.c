/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of gradsyncctl run, where no run can show it by itself: ends that are none, starts that fail. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "client/cli/run/run.h"
#include "proto/cleanup.h"

static pid_t start_sleeper(void) {
        pid_t pid = fork();

        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                pause();
                _exit(0);
        }
        assert_true(pid > 0);
        return pid;
}

static void end_sleeper(pid_t pid) {
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The loop may be woken for a descriptor that is closed. */
static void a_daemon_that_has_not_ended_stays(void **state) {
        const struct run_options options = { 0 };
        struct run_daemon daemon = RUN_DAEMON_INIT;
        char how[96] = "something";
        sigset_t mask;

        sigemptyset(&mask);
        daemon.pid = start_sleeper();
        daemon.pidfd = pidfd_open(daemon.pid, 0);
        assert_true(daemon.pidfd >= 0);
        const struct run_daemon before = daemon;
        assert_true(run_daemon_restart(&daemon, &options, &mask, how, sizeof how));
        assert_memory_equal(&daemon, &before, sizeof before);
        assert_string_equal(how, "");
        assert_true(fcntl(daemon.pidfd, F_GETFD) >= 0);
        assert_int_equal(kill(daemon.pid, 0), 0);
        close(daemon.pidfd);
        end_sleeper(daemon.pid);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_daemon_that_has_not_ended_stays),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
