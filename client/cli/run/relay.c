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

#include "client/cli/base/format.h"
#include "client/cli/base/moment.h"
#include "client/cli/run/run.h"

#define DRAIN_MS 2000 /* for what the members left running, once all of them have ended */
#define CHUNK 4096    /* a pipe that is writable takes so much without blocking */

/* What an epoll entry is about. The entry also has the rank and the stream. */
enum { ABOUT_SIGNAL, ABOUT_DAEMON, ABOUT_MEMBER, ABOUT_OUTPUT, ABOUT_MISSED };
#define ABOUT(kind, rank, stream) ((uint64_t)(rank) << 8 | (uint64_t)(stream) << 4 | (uint64_t)(kind))

/* Blocks what the loop reads from the signalfd. Signals that this program was told to ignore stay ignored,
 * here and in the members. */
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
        /* What members leave becomes a child of this process instead of init's, and so can be ended. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        return run->signal_fd < 0 || run->epoll_fd < 0 ? -errno : 0;
}

static void relay_signal(struct run *run, int number) {
        for (unsigned i = 0; i < run->n_members; i++)
                kill(-run->member[i].pid, number);
}

static void relay_kill(struct run *run) {
        run->killed = true;
        run->deadline = 0;
        relay_signal(run, SIGKILL);
}

/* Asks all members to end, stopped ones too, and gives them the grace time. */
static void relay_stop(struct run *run, int number, int result) {
        if (run->stopping)
                return;
        run->stopping = true;
        run->result = result;
        run->deadline = moment_ms() + (int64_t)run->options->grace_ms;
        relay_signal(run, number);
        relay_signal(run, SIGCONT);
}

/* Ctrl-Z stops the job and this program; when the program goes on, so does the job. A member that belongs to
 * this program stops what it has started by itself. */
static void relay_suspend(struct run *run) {
        relay_signal(run, run->options->bare ? SIGTSTP : SIGSTOP);
        raise(SIGSTOP);
        relay_signal(run, SIGCONT);
}

/* Orphans that became children of this process are reaped at once; the members themselves are kept for the
 * end. */
static void relay_reap_orphans(const struct run *run) {
        siginfo_t info = { 0 };

        while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0) {
                for (unsigned i = 0; i < run->n_members; i++)
                        if (run->member[i].pid == info.si_pid)
                                return; /* it hides later ones until run_members_end() */
                if (info.si_pid == run->daemon.pid)
                        return;
                waitpid(info.si_pid, NULL, 0);
                info.si_pid = 0;
        }
}

static void relay_take_signals(struct run *run) {
        struct signalfd_siginfo info;

        while (read(run->signal_fd, &info, sizeof info) == sizeof info) {
                int number = (int)info.ssi_signo;
                if (number == SIGCHLD)
                        relay_reap_orphans(run);
                else if (number == SIGTSTP)
                        relay_suspend(run);
                else if (run->stopping && number != SIGHUP)
                        relay_kill(run);
                else
                        relay_stop(run, number, 128 + number);
        }
}

static void relay_check_deadline(struct run *run) {
        if (!run->deadline || moment_ms() < run->deadline)
                return;
        if (!run->killed)
                for (unsigned i = 0; i < run->n_members; i++)
                        if (run->member[i].pidfd >= 0)
                                cli_complain("rank %u (pid %d) has not ended: killed", run->member[i].rank,
                                             run->member[i].pid);
        relay_kill(run);
}

static int relay_time_left(const struct run *run) {
        int64_t left = run->deadline - moment_ms();

        return !run->deadline ? -1 : left > 0 ? (int)left : 0;
}

/* Waits until `fd` takes bytes, and serves signals and deadlines meanwhile; false if it is not worth waiting
 * any more. */
static bool relay_wait_writable(struct run *run, int fd) {
        for (;;) {
                struct pollfd fds[2] = { { .fd = fd, .events = POLLOUT },
                                         { .fd = run->signal_fd, .events = POLLIN } };
                int n = poll(fds, 2, run->killed ? 0 : relay_time_left(run));
                if (n < 0 && errno != EINTR)
                        return false;
                if (n > 0 && fds[0].revents)
                        return true;
                if (run->killed)
                        return false;
                if (n > 0 && fds[1].revents)
                        relay_take_signals(run);
                relay_check_deadline(run);
        }
}

static void relay_write(struct run *run, int stream, const char *bytes, size_t n) {
        int fd = stream == RUN_STDOUT ? STDOUT_FILENO : STDERR_FILENO;

        while (n > 0 && !run->gone[stream]) {
                if (!relay_wait_writable(run, fd))
                        return;
                ssize_t written = write(fd, bytes, n < CHUNK ? n : CHUNK);
                if (written >= 0) {
                        bytes += written;
                        n -= (size_t)written;
                } else if (errno == EPIPE || (errno != EAGAIN && errno != EINTR)) {
                        run->gone[stream] = true;
                        if (errno != EPIPE)
                                cli_complain("cannot write the output: %s", strerror(errno));
                        relay_stop(run, SIGTERM, errno == EPIPE ? 128 + SIGPIPE : CLI_ERROR);
                }
        }
}

struct giving {
        struct run *run;
        unsigned rank;
        int stream;
};

static void relay_line(void *data, const char *line, size_t length) {
        static const char *const colors[] = { "\033[36m", "\033[35m", "\033[33m",
                                              "\033[32m", "\033[34m", "\033[31m" };
        static char out[LINES_MAX + 64];
        const struct giving *giving = data;
        bool color = giving->run->color[giving->stream];
        int head = snprintf(out, 64, "%s[%u]%s ", color ? colors[giving->rank % array_size(colors)] : "",
                            giving->rank, color ? "\033[0m" : "");

        memcpy(out + head, line, length);
        out[(size_t)head + length] = '\n';
        relay_write(giving->run, giving->stream, out, (size_t)head + length + 1);
}

/* One chunk of one pipe; at its end the unfinished line too. */
static void relay_chunk(struct run *run, unsigned rank, int stream) {
        struct run_member *member = &run->member[rank];
        struct giving giving = { run, rank, stream };
        char bytes[16384];
        ssize_t n = read(member->pipe[stream], bytes, sizeof bytes);

        if (n > 0)
                lines_feed(&member->lines[stream], bytes, (size_t)n, relay_line, &giving);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return;
        lines_flush(&member->lines[stream], relay_line, &giving);
        close(member->pipe[stream]);
        member->pipe[stream] = -1;
}

static int relay_follow(const struct run *run, int fd, uint64_t about) {
        struct epoll_event event = { .events = EPOLLIN, .data.u64 = about };

        return epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int relay_follow_member(const struct run *run, unsigned rank) {
        int r = relay_follow(run, run->member[rank].pidfd, ABOUT(ABOUT_MEMBER, rank, 0));

        for (int k = 0; k < RUN_STREAMS && r == 0 && !run->options->bare; k++)
                r = relay_follow(run, run->member[rank].pipe[k], ABOUT(ABOUT_OUTPUT, rank, k));
        return r;
}

/* What is left of a line, also of a pipe that a process out of reach keeps open. */
static void relay_flush(struct run *run, unsigned rank) {
        for (int k = 0; k < RUN_STREAMS; k++) {
                struct giving giving = { run, rank, k };
                lines_flush(&run->member[rank].lines[k], relay_line, &giving);
        }
}

/* Relays what the member has written before its end. Other processes that hold the pipe are killed with its
 * group. */
static void relay_rest(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];

        for (int k = 0; k < RUN_STREAMS; k++) {
                struct pollfd fd = { .fd = member->pipe[k], .events = POLLIN };

                while (member->pipe[k] >= 0 && poll(&fd, 1, 0) > 0)
                        relay_chunk(run, rank, k);
        }
        relay_flush(run, rank);
}

/* Only the member that died is started again; the others wait for it inside gradsync. */
static void relay_restart(struct run *run, unsigned rank, const char *how) {
        struct run_member *member = &run->member[rank];

        cli_complain("rank %u (pid %d) %s; started again (%lu of %lu)", rank, member->pid, how,
                     member->restarts + 1, run->options->restarts);
        relay_rest(run, rank);
        int code = run_member_restart(run, rank);
        if (!code && relay_follow_member(run, rank) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                code = CLI_ERROR;
        }
        if (code)
                relay_stop(run, SIGTERM, code);
}

/* The lowest rank, other than this one, that has ended and is not started again, or -1. The world is as large
 * as it was when the job began, so without that rank a process that is started again would wait for ever. */
static int relay_ended_for_good(const struct run *run, unsigned other_than) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (i != other_than && run->member[i].pidfd < 0)
                        return (int)i;
        return -1;
}

/* Reports a failure after which the member is not started again, and what follows. */
static void relay_give_up(struct run *run, const struct run_member *member, const char *how, int gone) {
        const char *then =
                run->options->keep_going || run->options->members == 1 ? "" : "; the others are stopped";
        char why[160] = "";

        if (member->restarts < run->options->restarts)
                snprintf(why, sizeof why,
                         "; not started again, because rank %d has ended and the job cannot have all its "
                         "members any more",
                         gone);
        else if (member->restarts > 0)
                snprintf(why, sizeof why, " after %lu restart%s", member->restarts,
                         format_plural(member->restarts));
        cli_complain("rank %u (pid %d) %s%s%s", member->rank, member->pid, how, why, then);
}

static void relay_member_failed(struct run *run, const struct run_member *member, const siginfo_t *info) {
        bool by_signal = info->si_code != CLD_EXITED;
        int result = by_signal ? 128 + info->si_status : info->si_status;
        int gone = relay_ended_for_good(run, member->rank);
        char how[96];

        /* A member that was asked to end is not at fault. */
        if (run->stopping)
                return;
        format_end(how, sizeof how, info);
        if (member->restarts < run->options->restarts && gone < 0) {
                relay_restart(run, member->rank, how);
                return;
        }
        if (!run->options->bare)
                relay_give_up(run, member, how, gone);
        if (run->options->keep_going)
                run->result = run->result ? run->result : result;
        else
                relay_stop(run, SIGTERM, result);
}

static void relay_member_ended(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];
        siginfo_t info = { 0 };

        if (waitid(P_PIDFD, (id_t)member->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
                return;
        close(member->pidfd);
        member->pidfd = -1;
        member->done = info.si_code == CLD_EXITED && info.si_status == 0;
        if (member->done)
                missed_begin(&run->missed);
        else
                relay_member_failed(run, member, &info);
}

/* The members wait for the daemon that is started in its place. */
static void relay_daemon_ended(struct run *run) {
        pid_t pid = run->daemon.pid;
        char how[96];

        if (run->stopping) {
                epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, run->daemon.pidfd, NULL);
                return;
        }
        if (run_daemon_restart(&run->daemon, run->options, &run->mask, how, sizeof how) &&
            relay_follow(run, run->daemon.pidfd, ABOUT(ABOUT_DAEMON, 0, 0)) == 0) {
                cli_complain("the private daemon (pid %d) %s; started again as pid %d", pid, how,
                             run->daemon.pid);
                return;
        }
        cli_complain("the private daemon (pid %d) %s, and is not started again; the job cannot go on", pid,
                     how);
        run_daemon_show_log(&run->daemon);
        relay_stop(run, SIGTERM, CLI_ERROR);
}

/* Asks whether the others wait for one that has ended well. */
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

        missed_take(&run->missed, text);
        if (!*text || run->stopping)
                return;
        cli_complain("%s", text);
        relay_stop(run, SIGTERM, CLI_ERROR);
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
        case ABOUT_SIGNAL: relay_take_signals(run); break;
        case ABOUT_DAEMON: relay_daemon_ended(run); break;
        case ABOUT_MEMBER: relay_member_ended(run, rank); break;
        case ABOUT_MISSED: relay_take_missed(run); break;
        default: relay_chunk(run, rank, (int)(about >> 4 & 15));
        }
}

static bool relay_alive(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pidfd >= 0)
                        return true;
        return false;
}

static bool relay_has_output(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pipe[RUN_STDOUT] >= 0 || run->member[i].pipe[RUN_STDERR] >= 0)
                        return true;
        return false;
}

/* For how long the loop may sleep. */
static int relay_sleep(const struct run *run) {
        int64_t left = run->missed.at - moment_ms();
        int stop = relay_time_left(run);

        if (!run->missed.at || run->stopping || run->options->bare)
                return stop;
        left = left > 0 ? left : 0;
        return stop >= 0 && stop < left ? stop : (int)left;
}

void relay_run(struct run *run) {
        struct epoll_event events[64];
        bool draining = false;

        if (relay_follow_all(run) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                run->result = CLI_ERROR;
                return;
        }
        while (relay_alive(run) || relay_has_output(run)) {
                int n = epoll_wait(run->epoll_fd, events, array_size(events), relay_sleep(run));
                for (int i = 0; i < n; i++)
                        relay_dispatch(run, events[i].data.u64);
                relay_check_deadline(run);
                relay_ask_missed(run);
                /* All have ended, but something that they started still holds the pipes: it is asked to end
                 * too. */
                if (!relay_alive(run) && !draining) {
                        draining = true;
                        run->deadline = moment_ms() + DRAIN_MS;
                        relay_signal(run, SIGTERM);
                } else if (draining && run->killed && !run->deadline) {
                        for (unsigned i = 0; i < run->n_members; i++)
                                relay_flush(run, i);
                        return;
                }
        }
}
