/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of gradsyncctl run, where no run shows it by itself: ends that are none, starts that fail. */
#include "tests.h"

#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "client/cli/run/run.h"
#include "client/cli/run/stop.h"
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

/* It leads a group of its own. */
static pid_t start_leader(void) {
        pid_t pid = start_sleeper();

        assert_int_equal(setpgid(pid, pid), 0);
        return pid;
}

static void end_sleeper(pid_t pid) {
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The loop may be woken for a descriptor that is closed. */
TEST_ALONE(a_daemon_that_has_not_ended_stays) {
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

/* A process of a member's may have left its group, and even the session. */
static pid_t start_child_of_member(int report[2], bool session) {
        pid_t member = fork(), child;

        assert_true(member >= 0);
        if (member == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                setpgid(0, 0);
                child = fork();
                if (child == 0) {
                        prctl(PR_SET_PDEATHSIG, SIGKILL);
                        if (session)
                                setsid();
                        child = getpid();
                        _exit(write(report[1], &child, sizeof child) == sizeof child && pause() != 0);
                }
                pause();
                _exit(0);
        }
        return member;
}

TEST_ALONE(processes_belong_to_ranks) {
        struct run_member member[3] = { { .pidfd = -1 }, { .pidfd = -1 }, { .pidfd = -1 } };
        struct run run = { .member = member, .n_members = array_size(member) };
        pid_t child[3], stranger = start_sleeper();
        int report[2];

        assert_int_equal(pipe(report), 0);
        for (int i = 0; i < 3; i++) {
                member[i].pid = start_child_of_member(report, i == 1);
                member[i].pidfd = pidfd_open(member[i].pid, 0);
                assert_int_equal(read(report[0], &child[i], sizeof child[i]), sizeof child[i]);
        }
        for (int i = 0; i < 3; i++) {
                assert_int_equal(run_member_of(&run, member[i].pid), i);
                assert_int_equal(run_member_of(&run, child[i]), i);
        }
        assert_int_equal(run_member_of(&run, stranger), -1);
        assert_int_equal(run_member_of(&run, getpid()), -1);
        assert_int_equal(run_member_of(&run, 0), -1);
        /* One that has ended has no processes. */
        member[2].pidfd = fd_close(member[2].pidfd);
        assert_int_equal(run_member_of(&run, child[2]), -1);
        for (int i = 0; i < 3; i++) {
                fd_close(member[i].pidfd);
                end_sleeper(member[i].pid);
        }
        end_sleeper(stranger);
        close(report[0]);
        close(report[1]);
}

/* A member that is stopped ends, too. */
TEST_ALONE(who_is_asked_to_end_is_continued) {
        const struct run_options options = { .members = 1, .grace_ms = 600000 };
        struct run_member member = { .pid = start_leader() };
        struct run run = { .options = &options, .member = &member, .n_members = 1 };
        siginfo_t info;

        assert_int_equal(kill(member.pid, SIGSTOP), 0);
        assert_int_equal(waitid(P_PID, (id_t)member.pid, &info, WSTOPPED), 0);
        stop_begin(&run, SIGTERM, 7);
        alarm(60); /* instead of waiting for ever */
        assert_int_equal(waitid(P_PID, (id_t)member.pid, &info, WEXITED), 0);
        alarm(0);
        assert_int_equal(info.si_status, SIGTERM);
        assert_int_equal(run.result, 7);
}

/* The member's next process keeps its counts, its log and its rank. */
TEST_ALONE(a_restart_keeps_what_the_member_is) {
        char *command[] = { (char *)"true", NULL };
        const struct run_options options = { .members = 2, .command = command };
        struct run_member member[2] = { { .log = -1 }, { .log = -1 } };
        struct run run = { .options = &options, .member = member, .socket = "/nowhere", .job = "job" };

        sigemptyset(&run.mask);
        assert_int_equal(run_members_start(&run), CLI_OK);
        pid_t before = member[1].pid;
        member[1].quick = 3;
        member[1].restarts = 4;
        member[1].log = 5;
        assert_int_equal(run_member_restart(&run, 1), CLI_OK);
        assert_int_not_equal(member[1].pid, before);
        assert_int_equal(member[1].rank, 1);
        assert_int_equal(member[1].quick, 3);
        assert_int_equal(member[1].restarts, 5);
        assert_int_equal(member[1].log, 5);
        assert_int_equal(run.n_members, 2);
        run_members_end(&run);
}

/* Its numbers may be those of other files by then. */
TEST_ALONE(a_restart_that_fails_leaves_nothing_to_close) {
        char *command[] = { (char *)"true", NULL };
        const struct run_options options = { .members = 1, .command = command };
        struct run_member member = { .log = -1 };
        struct run run = { .options = &options, .member = &member, .socket = "/nowhere", .job = "job" };
        struct rlimit limit, none;

        sigemptyset(&run.mask);
        assert_int_equal(run_members_start(&run), CLI_OK);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        none = (struct rlimit){ .rlim_cur = 0, .rlim_max = limit.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        int code = run_member_restart(&run, 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(code, CLI_ERROR);
        assert_int_equal(member.pidfd, -1);
        for (int i = 0; i < RUN_STREAMS; i++)
                assert_int_equal(member.pipe[i], -1);
        run_members_end(&run);
}
