// SPDX-License-Identifier: Apache-2.0
/* The end of the members: see stop.h. */
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "client/cli/base/moment.h"
#include "client/cli/run/ranks.h"
#include "client/cli/run/stop.h"
#include "proto/frame.h"

void stop_send(const struct run *run, int number) {
        for (unsigned i = 0; i < run->n_members; i++)
                kill(-run->member[i].pid, number);
}

static void stop_kill(struct run *run) {
        run->killed = true;
        run->deadline = 0;
        stop_send(run, SIGKILL);
}

void stop_begin(struct run *run, int number, int result) {
        if (run->stopping)
                return;
        run->stopping = true;
        run->result = result;
        run->deadline = moment_ms() + (int64_t)run->options->grace_ms;
        stop_send(run, number);
        stop_send(run, SIGCONT);
}

/* Ctrl-Z stops the job and this program; when the program goes on, so does the job. A member that belongs to
 * this program stops what it has started by itself. */
static void stop_suspend(const struct run *run) {
        cli_clear();
        stop_send(run, run->options->bare ? SIGTSTP : SIGSTOP);
        raise(SIGSTOP);
        stop_send(run, SIGCONT);
}

/* Orphans that became children of this process are reaped at once; the members themselves are kept for the
 * end. */
static void stop_reap_orphans(const struct run *run) {
        siginfo_t info = { 0 };

        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
                for (unsigned i = 0; i < run->n_members; i++)
                        if (run->member[i].pid == info.si_pid)
                                return; /* it hides later orphans until run_members_end() */
                if (info.si_pid == run->daemon.pid)
                        return;
                waitpid(info.si_pid, NULL, 0);
                info.si_pid = 0;
        }
}

/* Says what a signal does, if stderr takes the text at once. Its reader may be stuck, and the next signal
 * must be handled all the same. */
static void stop_say(const struct run *run, int number) {
        const char *name = sigabbrev_np(number);
        struct pollfd fd = { .fd = STDERR_FILENO, .events = POLLOUT };
        bool running[LIMIT_LOCAL] = { false };
        char ranks[RANKS_TEXT];
        unsigned n = 0;

        for (unsigned i = 0; i < run->n_members; i++) {
                running[i] = run->member[i].pidfd >= 0;
                n += running[i];
        }
        if (n == 0 || run->options->bare || poll(&fd, 1, 0) != 1 || !(fd.revents & POLLOUT))
                return;
        ranks_text(running, run->n_members, ranks);
        if (run->signalled)
                cli_complain("SIG%s again: %s of job '%s' %s killed", name, ranks, run->job,
                             n == 1 ? "is" : "are");
        else if (run->stopping)
                cli_complain("SIG%s: job '%s' is being ended already, and %s %s time to end; a second signal "
                             "kills %s",
                             name, run->job, ranks, n == 1 ? "has" : "have", n == 1 ? "it" : "them");
        else
                cli_complain("SIG%s: job '%s' ends, and %s with it; a second signal kills %s", name, run->job,
                             ranks, n == 1 ? "it" : "them");
}

/* The first signal asks the members to end; if they were asked before, for another reason, they keep their
 * grace time. The next one kills them, except SIGHUP: a terminal that goes away may send several. */
static void stop_take_end(struct run *run, int number) {
        if (run->signalled && number == SIGHUP)
                return;
        if (!run->killed)
                stop_say(run, number);
        if (run->signalled) {
                stop_kill(run);
        } else if (run->stopping) {
                stop_send(run, number);
        } else {
                run->interrupted = true;
                stop_begin(run, number, 128 + number);
        }
        run->signalled = true;
}

void stop_take_signals(struct run *run) {
        struct signalfd_siginfo info;

        while (read(run->signal_fd, &info, sizeof info) == sizeof info) {
                int number = (int)info.ssi_signo;
                if (number == SIGCHLD) {
                        stop_reap_orphans(run);
                } else if (number == SIGTSTP) {
                        stop_suspend(run);
                } else {
                        stop_take_end(run, number);
                }
        }
}

void stop_check(struct run *run) {
        if (!run->deadline || moment_ms() < run->deadline)
                return;
        for (unsigned i = 0; i < run->n_members && !run->killed; i++)
                if (run->member[i].pidfd >= 0)
                        cli_complain("rank %u (pid %d) has not ended: killed", run->member[i].rank,
                                     run->member[i].pid);
        stop_kill(run);
}

int stop_time_left(const struct run *run) {
        int64_t left = run->deadline - moment_ms();

        return !run->deadline ? -1 : left > 0 ? (int)left : 0;
}
