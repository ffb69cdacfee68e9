/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe's side of a fact: a process group, a deadline, and what the board says in the end. The processes
 * of a fact are all in one group, and those that their parent leaves behind come to the probe, so that one
 * kill ends and one loop reaps all of them.
 */
#include "step.h"

#include "clock.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t end_ns = 3000000000;  /* for the end of a process that has answered */
static const int64_t kill_ns = 5000000000; /* for that of a killed one: else it is stuck in the kernel */
static const int64_t look_ns = 100000000;  /* between two looks for an answer */

void step_init(void) {
        sigset_t child;

        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        signal(SIGCHLD, SIG_DFL); /* where it is ignored there are no children to wait for */
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigprocmask(SIG_BLOCK, &child, NULL);
}

/* Waits for a change of some child, or until the time has come. */
static void step_await_child(int64_t until) {
        int64_t left = until - clock_ns();
        struct timespec timeout = { .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
        sigset_t child;

        if (left <= 0)
                return;
        sigemptyset(&child);
        sigaddset(&child, SIGCHLD);
        sigtimedwait(&child, NULL, &timeout);
}

/* Returns whether the process has ended. It stays a zombie, so that no other group gets its number. */
static bool step_await_end(pid_t pid, const struct board *board, int64_t until, siginfo_t *end) {
        bool answered = false;

        for (;;) {
                int64_t now = clock_ns();

                if (!answered && board_answered(board)) { /* it may be stuck on its way out */
                        answered = true;
                        until = now + end_ns < until ? now + end_ns : until;
                }
                end->si_pid = 0;
                if (waitid(P_PID, (id_t)pid, end, WEXITED | WNOHANG | WNOWAIT) == 0 && end->si_pid == pid)
                        return true;
                if (now >= until)
                        return false;
                step_await_child(now + look_ns < until ? now + look_ns : until);
        }
}

/* Kills and reaps a whole group. Returns how many of its processes could not be killed. */
static unsigned step_end_group(pid_t group) {
        int64_t until = clock_ns() + kill_ns;

        kill(-group, SIGKILL);
        for (;;) {
                pid_t pid = waitpid(-group, NULL, WNOHANG);

                if (pid < 0 && errno != EINTR)
                        return 0;
                if (pid == 0 && clock_ns() >= until)
                        return 1;
                if (pid == 0)
                        step_await_child(until);
        }
}

static void step_add(struct step_result *result, const char *format, ...) {
        size_t used = strlen(result->detail);
        va_list arguments;

        if (used > 0 && used < sizeof result->detail - 2)
                used += (size_t)snprintf(result->detail + used, sizeof result->detail - used, "; ");
        va_start(arguments, format);
        vsnprintf(result->detail + used, sizeof result->detail - used, format, arguments);
        va_end(arguments);
}

static void step_set(struct step_result *result, const char *answer) {
        snprintf(result->answer, sizeof result->answer, "%s", answer);
}

/* Makes the result from the board and from how the fact's own process has ended. */
static void step_conclude(struct step_result *result, struct board *board, bool ended, const siginfo_t *end,
                          double seconds) {
        const char *doing = board->place[0].doing;
        char where[512];

        board->answer[sizeof board->answer - 1] = '\0';
        board->detail[sizeof board->detail - 1] = '\0';
        snprintf(result->detail, sizeof result->detail, "%s", board->detail);
        if (board_answered(board)) {
                step_set(result, board->answer);
                if (!ended)
                        step_add(result, "its process did not end");
        } else if (!ended) {
                board_where(board, where, sizeof where);
                step_set(result, "hang");
                step_add(result, "no answer within %.1f s: %s", seconds, where);
        } else if (end->si_code == CLD_EXITED) {
                step_set(result, "error");
                step_add(result, "its process ended with %d", end->si_status);
        } else {
                step_set(result, "crash");
                step_add(result, "signal %d (%s) in %.*s", end->si_status, strsignal(end->si_status),
                         BOARD_DOING, doing[0] ? doing : "no call");
        }
}

void step_run(struct actor *actor, actor_run *run, unsigned flags, double seconds,
              struct step_result *result) {
        int64_t begin = clock_ns();
        siginfo_t end = { 0 };
        pid_t pid = -ENOMEM;

        *result = (struct step_result){ .answer = "error" };
        actor->board = board_new();
        if (actor->board != NULL)
                pid = actor_start(actor, run, flags);
        if (pid < 0) {
                step_add(result, "starting its process: %s", strerror(-pid));
        } else {
                bool ended = step_await_end(pid, actor->board, begin + (int64_t)(seconds * 1e9), &end);

                step_conclude(result, actor->board, ended, &end, seconds);
                if (step_end_group(pid) > 0)
                        step_add(result, "a process of it cannot be killed (group %d)", (int)pid);
        }
        if (actor->board != NULL)
                munmap(actor->board, sizeof *actor->board);
        result->ms = (double)(clock_ns() - begin) / 1e6;
}
