// SPDX-License-Identifier: Apache-2.0
/*
 * The loop of `gradsyncctl run`: relays the members' output line by line, notices their ends in the order in
 * which they happen (epoll keeps it), and forwards signals to their process groups. See run.h.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <syslog.h>

#include "client/cli/base/format.h"
#include "client/cli/base/moment.h"
#include "client/cli/run/output.h"
#include "client/cli/run/pause.h"
#include "client/cli/run/stop.h"

#define DRAIN_MS 2000 /* for processes that the members left running */
#define LOSS_MS 1000  /* from the notice of a loss to the end of a process that has succeeded */

/* The kinds of entries in epoll. An entry also has the rank and the stream. */
enum { ABOUT_SIGNAL, ABOUT_DAEMON, ABOUT_MEMBER, ABOUT_OUTPUT, ABOUT_MISSED, ABOUT_NOTICES };
#define ABOUT(kind, rank, stream) ((uint64_t)(rank) << 8 | (uint64_t)(stream) << 4 | (uint64_t)(kind))

/* Blocks the signals that the loop reads from the signalfd. A signal that this program was told to ignore
 * stays ignored, here and in the members. */
int relay_prepare(struct run *run) {
        static const int wanted[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCHLD };
        sigset_t set;

        sigemptyset(&set);
        for (size_t i = 0; i < array_size(wanted); i++) {
                struct sigaction now;
                if (sigaction(wanted[i], NULL, &now) == 0 &&
                    (now.sa_handler != SIG_IGN || wanted[i] == SIGCHLD))
                        sigaddset(&set, wanted[i]);
        }
        signal(SIGCHLD, SIG_DFL);
        signal(SIGPIPE, SIG_IGN);
        sigprocmask(SIG_BLOCK, &set, &run->mask);
        run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        run->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        /* Orphans of the members become children of this process instead of init's, so that it can end
         * them. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        return run->signal_fd < 0 || run->epoll_fd < 0 ? -errno : 0;
}

static int relay_follow(const struct run *run, int fd, uint64_t about) {
        struct epoll_event event = { .events = EPOLLIN, .data.u64 = about };

        return epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* To be called before the descriptor is closed: a process that was forked and has not executed a program yet
 * has it open, too, and then close() does not take it out of epoll. */
static void relay_unfollow(const struct run *run, int fd) {
        if (fd >= 0)
                epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static int relay_follow_member(const struct run *run, unsigned rank) {
        int r = relay_follow(run, run->member[rank].pidfd, ABOUT(ABOUT_MEMBER, rank, 0));

        for (int k = 0; k < RUN_STREAMS && r == 0 && !run->options->bare; k++)
                r = relay_follow(run, run->member[rank].pipe[k], ABOUT(ABOUT_OUTPUT, rank, k));
        return r;
}

/* The lowest rank, other than this one, that has ended and is not started again, or -1. The world is as large
 * as it was when the job began, so without that rank a process that is started again would wait for ever. */
static int relay_ended_for_good(const struct run *run, unsigned other_than) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (i != other_than && run->member[i].pidfd < 0 && !run->member[i].due)
                        return (int)i;
        return -1;
}

/* Reports a failure after which the member is not started again, and what follows. */
static void relay_give_up(struct run *run, const struct run_member *member, int gone) {
        const char *then =
                run->options->keep_going || run->options->members == 1 ? "" : "; the others are ended";
        char why[160] = "";

        if (member->restarts < run->options->restarts)
                snprintf(why, sizeof why,
                         "; not started again, because rank %d has ended and the job cannot have all its "
                         "members any more",
                         gone);
        else if (member->restarts > 0)
                snprintf(why, sizeof why, " after %lu restart%s", member->restarts,
                         format_plural(member->restarts));
        if (!run->options->bare)
                cli_complain("rank %u (pid %d) %s%s%s", member->rank, member->pid, member->how, why, then);
        if (run->options->keep_going)
                run->result = run->result ? run->result : member->result;
        else
                stop_begin(run, SIGTERM, member->result);
}

/* Forgets a process that did not become the command or cannot be followed. The loop would not notice its end,
 * so it must not wait for it. */
static void relay_forget_member(const struct run *run, struct run_member *member) {
        relay_unfollow(run, member->pidfd);
        member->pidfd = fd_close(member->pidfd);
        for (int k = 0; k < RUN_STREAMS; k++) {
                relay_unfollow(run, member->pipe[k]);
                member->pipe[k] = fd_close(member->pipe[k]);
        }
}

/* Only the member that died is started again; the others wait for it inside gradsync. */
static void relay_restart(struct run *run, unsigned rank) {
        output_rest(run, rank);
        if (run->stopping)
                return;
        for (int k = 0; k < RUN_STREAMS; k++)
                relay_unfollow(run, run->member[rank].pipe[k]);
        int code = run_member_restart(run, rank);
        if (!code && relay_follow_member(run, rank) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                code = CLI_ERROR;
        }
        if (code) {
                relay_forget_member(run, &run->member[rank]);
                stop_begin(run, SIGTERM, code);
        }
}

/* Kills the processes that the member has left behind. Its place and its output are kept until it is due. */
static void relay_plan_restart(struct run *run, struct run_member *member) {
        int64_t now = moment_ms();
        int64_t pause = pause_before_start(&member->quick, now - member->started, run->pause_most_ms);
        char when[32] = "";

        if (pause > 0)
                snprintf(when, sizeof when, " in %.2g s", (double)pause / 1000);
        cli_complain("rank %u (pid %d) %s; started again%s (%lu of %lu)", member->rank, member->pid,
                     member->how, when, member->restarts + 1, run->options->restarts);
        kill(-member->pid, SIGKILL);
        member->due = now + pause;
}

static void relay_start_due(struct run *run) {
        for (unsigned i = 0; i < run->n_members && !run->stopping; i++) {
                struct run_member *member = &run->member[i];

                if (!member->due || moment_ms() < member->due)
                        continue;
                int gone = relay_ended_for_good(run, i);
                member->due = 0;
                if (gone >= 0)
                        relay_give_up(run, member, gone);
                else
                        relay_restart(run, i);
        }
}

static void relay_member_failed(struct run *run, struct run_member *member, const siginfo_t *info) {
        int gone = relay_ended_for_good(run, member->rank);

        /* A member that was asked to end is not at fault. */
        if (run->stopping)
                return;
        member->result = info->si_code != CLD_EXITED ? 128 + info->si_status : info->si_status;
        format_end(member->how, sizeof member->how, info);
        if (member->restarts < run->options->restarts && gone < 0)
                relay_plan_restart(run, member);
        else
                relay_give_up(run, member, gone);
}

static void relay_member_ended(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];
        siginfo_t info = { 0 };

        if (waitid(P_PIDFD, (id_t)member->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
                return;
        relay_unfollow(run, member->pidfd);
        member->pidfd = fd_close(member->pidfd);
        member->done = info.si_code == CLD_EXITED && info.si_status == 0;
        if (member->done)
                missed_begin(&run->missed);
        else
                relay_member_failed(run, member, &info);
        if (member->loss && !member->done && !run->stopping)
                output_notice(run, member->loss);
        free(member->loss);
        member->loss = NULL;
}

/* Starts another daemon in its place, for which the members wait. */
static void relay_daemon_ended(struct run *run) {
        pid_t pid = run->daemon.pid;
        char how[96];

        relay_unfollow(run, run->daemon.pidfd);
        if (run->stopping)
                return;
        if (run_daemon_restart(&run->daemon, run->options, &run->mask, how, sizeof how) &&
            relay_follow(run, run->daemon.pidfd, ABOUT(ABOUT_DAEMON, 0, 0)) == 0) {
                if (run->daemon.pid != pid)
                        cli_complain("the private daemon (pid %d) %s; started again as pid %d", pid, how,
                                     run->daemon.pid);
                return;
        }
        cli_complain("the private daemon (pid %d) %s, and is not started again; the job cannot go on", pid,
                     how);
        run_daemon_show_log(&run->daemon);
        stop_begin(run, SIGTERM, CLI_ERROR);
}

/* Starts a question to the daemon, if one is due: whether members wait for a rank that has ended with status
 * 0. */
static void relay_ask_missed(struct run *run) {
        int before = run->missed.pipe;
        int r = run->stopping || run->options->bare ? 0 : missed_ask(&run->missed, run);

        if (r == 0 && run->missed.pipe != before)
                r = relay_follow(run, run->missed.pipe, ABOUT(ABOUT_MISSED, 0, 0)) < 0 ? -errno : 0;
        if (r < 0)
                cli_complain("cannot ask the daemon who waits for whom: %s", strerror(-r));
}

static void relay_take_missed(struct run *run) {
        char text[MISSED_TEXT];

        relay_unfollow(run, run->missed.pipe);
        missed_take(&run->missed, text);
        if (!*text || run->stopping)
                return;
        cli_complain("%s", text);
        stop_begin(run, SIGTERM, CLI_ERROR);
}

/* The member to which the process belongs, also one that has ended; NULL: none. */
static struct run_member *relay_member_of(const struct run *run, pid_t pid) {
        int rank;

        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pid == pid)
                        return &run->member[i];
        rank = run_member_of(run, pid);
        return rank < 0 ? NULL : &run->member[rank];
}

static void relay_show_loss(struct run *run, struct run_member *member) {
        output_notice(run, member->loss);
        free(member->loss);
        member->loss = NULL;
}

/* Keeps the daemon's notice of a loss for a moment. The daemon reports any disconnect without LEAVE as a
 * loss, even after success; the process then ends with status 0 a moment later, and its notice is dropped. */
static void relay_keep_loss(struct run *run, struct run_member *member, const char *text) {
        if (member->done)
                return;
        if (member->loss)
                relay_show_loss(run, member);
        member->loss = strdup(text);
        member->loss_due = moment_ms() + LOSS_MS;
        if (member->loss && member->pidfd < 0)
                relay_show_loss(run, member);
}

/* Compares the job's name as well, because a name may contain any words. */
static bool relay_is_loss(const struct run *run, const char *text) {
        char head[320];
        int n = snprintf(head, sizeof head, "job '%s' lost rank ", run->job);

        return n > 0 && (size_t)n < sizeof head && strncmp(text, head, (size_t)n) == 0;
}

static void relay_show_notice(void *data, const struct notice *notice) {
        struct run *run = data;
        struct run_member *member =
                notice->pid && relay_is_loss(run, notice->text) ? relay_member_of(run, notice->pid) : NULL;

        /* While the members are ended, only errors are news: lesser notices are expected, and need no
         * action. */
        if (run->stopping && notice->level > LOG_ERR)
                return;
        if (member)
                relay_keep_loss(run, member, notice->text);
        else
                output_notice(run, notice->text);
}

static void relay_show_due_losses(struct run *run) {
        for (unsigned i = 0; i < run->n_members && !run->stopping; i++)
                if (run->member[i].loss && moment_ms() >= run->member[i].loss_due)
                        relay_show_loss(run, &run->member[i]);
}

static void relay_follow_notices(struct run *run) {
        int r = run->options->bare || !run->daemon.log
                        ? 0
                        : notices_open(&run->notices, run->daemon.log, run->daemon.log_from);

        if (r == 0 && run->notices.inotify >= 0 &&
            relay_follow(run, run->notices.inotify, ABOUT(ABOUT_NOTICES, 0, 0)) < 0)
                r = -errno;
        if (r < 0)
                cli_complain("what the private daemon reports is not shown, only logged: %s", strerror(-r));
        notices_read(&run->notices, relay_show_notice, run);
}

static int relay_follow_all(struct run *run) {
        int r = relay_follow(run, run->signal_fd, ABOUT(ABOUT_SIGNAL, 0, 0));

        if (r == 0 && run->daemon.pidfd >= 0)
                r = relay_follow(run, run->daemon.pidfd, ABOUT(ABOUT_DAEMON, 0, 0));
        for (unsigned i = 0; i < run->n_members && r == 0; i++)
                r = relay_follow_member(run, i);
        return r;
}

static void relay_dispatch(struct run *run, uint64_t about) {
        unsigned rank = (unsigned)(about >> 8);

        switch (about & 15) {
        case ABOUT_SIGNAL: stop_take_signals(run); break;
        case ABOUT_DAEMON: relay_daemon_ended(run); break;
        case ABOUT_MEMBER: relay_member_ended(run, rank); break;
        case ABOUT_MISSED: relay_take_missed(run); break;
        case ABOUT_NOTICES: notices_read(&run->notices, relay_show_notice, run); break;
        default: output_chunk(run, rank, (int)(about >> 4 & 15));
        }
}

static bool relay_alive(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pidfd >= 0 || (run->member[i].due && !run->stopping))
                        return true;
        return false;
}

static bool relay_has_output(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pipe[RUN_STDOUT] >= 0 || run->member[i].pipe[RUN_STDERR] >= 0)
                        return true;
        return false;
}

/* Milliseconds for which the loop may sleep. */
static int relay_sleep(const struct run *run) {
        int64_t next = run->options->bare ? 0 : run->missed.at;
        int stop = stop_time_left(run);

        for (unsigned i = 0; i < run->n_members; i++) {
                const struct run_member *member = &run->member[i];
                int64_t due = member->loss ? member->loss_due : member->due;

                if (due && (!next || due < next))
                        next = due;
        }
        if (!next || run->stopping)
                return stop;
        int64_t left = next - moment_ms();
        return left > 0 ? (int)left : 0;
}

/* Does everything that is due now, whatever woke the loop. */
static void relay_look_around(struct run *run) {
        stop_check(run);
        relay_start_due(run);
        relay_show_due_losses(run);
        relay_ask_missed(run);
}

static void relay_loop(struct run *run) {
        struct epoll_event events[64];
        bool draining = false;

        while (relay_alive(run) || relay_has_output(run)) {
                output_draw(run);
                int n = epoll_wait(run->epoll_fd, events, array_size(events), relay_sleep(run));
                for (int i = 0; i < n; i++)
                        relay_dispatch(run, events[i].data.u64);
                relay_look_around(run);
                /* All members have ended, but processes that they started still hold the pipes: these are
                 * asked to end, too. */
                if (!relay_alive(run) && !draining) {
                        draining = true;
                        run->deadline = moment_ms() + DRAIN_MS;
                        stop_send(run, SIGTERM);
                } else if (draining && run->killed && !run->deadline) {
                        for (unsigned i = 0; i < run->n_members; i++)
                                output_flush(run, i);
                        return;
                }
        }
}

void relay_run(struct run *run) {
        if (relay_follow_all(run) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                run->result = CLI_ERROR;
                return;
        }
        cli_clear_with(output_clear, run);
        relay_follow_notices(run);
        relay_loop(run);
        notices_read(&run->notices, relay_show_notice, run);
        output_clear(run);
        cli_clear_with(NULL, NULL);
}
