// SPDX-License-Identifier: Apache-2.0
/*
 * The loop of `gradsyncctl run`: output of the members to ours, line by line; their ends, in the order in
 * which they happened (epoll keeps it); signals to their process groups. See run.h.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>

#include "paint.h"
#include "run.h"

#define DRAIN_MS 2000 /* for what the members left running, once all of them have ended */
#define CHUNK 4096    /* a pipe that is writable takes so much without blocking */

/* What an epoll entry is about: rank << 2 | this. */
enum { ABOUT_SIGNAL, ABOUT_DAEMON, ABOUT_MEMBER, ABOUT_OUTPUT };
#define ABOUT(kind, rank, stream) ((uint64_t)(rank) << 8 | (uint64_t)(stream) << 4 | (uint64_t)(kind))

int64_t run_now_ms(void) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void signal_members(struct run *run, int number) {
        for (unsigned i = 0; i < run->n_members; i++)
                kill(-run->member[i].pid, number);
}

static void kill_members(struct run *run) {
        run->killed = true;
        run->deadline = 0;
        signal_members(run, SIGKILL);
}

/* Asks all members to end, stopped ones too, and gives them the grace time. */
static void stop_members(struct run *run, int number, int result) {
        if (run->stopping)
                return;
        run->stopping = true;
        run->result = result;
        run->deadline = run_now_ms() + (int64_t)run->options->grace_ms;
        signal_members(run, number);
        signal_members(run, SIGCONT);
}

/* Ctrl-Z stops the job and us; when we go on, so does the job. */
static void suspend(struct run *run) {
        signal_members(run, SIGSTOP);
        raise(SIGSTOP);
        signal_members(run, SIGCONT);
}

/* Orphans that became ours are reaped at once; the members themselves are kept for the end. */
static void reap_orphans(const struct run *run) {
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

static void take_signals(struct run *run) {
        struct signalfd_siginfo info;

        while (read(run->signal_fd, &info, sizeof info) == sizeof info) {
                int number = (int)info.ssi_signo;
                if (number == SIGCHLD)
                        reap_orphans(run);
                else if (number == SIGTSTP)
                        suspend(run);
                else if (run->stopping && number != SIGHUP)
                        kill_members(run);
                else
                        stop_members(run, number, 128 + number);
        }
}

static void check_deadline(struct run *run) {
        if (!run->deadline || run_now_ms() < run->deadline)
                return;
        if (!run->killed)
                for (unsigned i = 0; i < run->n_members; i++)
                        if (run->member[i].pidfd >= 0)
                                cli_complain("rank %u (pid %d) has not ended: killed", run->member[i].rank,
                                             run->member[i].pid);
        kill_members(run);
}

static int time_left(const struct run *run) {
        int64_t left = run->deadline - run_now_ms();

        return !run->deadline ? -1 : left > 0 ? (int)left : 0;
}

/* Waits until `fd` takes bytes, with signals and deadlines still served; false if it is not worth waiting any
 * more. */
static bool wait_writable(struct run *run, int fd) {
        for (;;) {
                struct pollfd fds[2] = { { .fd = fd, .events = POLLOUT },
                                         { .fd = run->signal_fd, .events = POLLIN } };
                int n = poll(fds, 2, run->killed ? 0 : time_left(run));
                if (n < 0 && errno != EINTR)
                        return false;
                if (n > 0 && fds[0].revents)
                        return true;
                if (run->killed)
                        return false;
                if (n > 0 && fds[1].revents)
                        take_signals(run);
                check_deadline(run);
        }
}

static void write_out(struct run *run, int stream, const char *bytes, size_t n) {
        int fd = stream == RUN_STDOUT ? STDOUT_FILENO : STDERR_FILENO;

        while (n > 0 && !run->gone[stream]) {
                if (!wait_writable(run, fd))
                        return;
                ssize_t written = write(fd, bytes, n < CHUNK ? n : CHUNK);
                if (written >= 0) {
                        bytes += written;
                        n -= (size_t)written;
                } else if (errno == EPIPE || (errno != EAGAIN && errno != EINTR)) {
                        run->gone[stream] = true;
                        if (errno != EPIPE)
                                cli_complain("cannot write the output: %s", strerror(errno));
                        stop_members(run, SIGTERM, errno == EPIPE ? 128 + SIGPIPE : CLI_ERROR);
                }
        }
}

struct giving {
        struct run *run;
        unsigned rank;
        int stream;
};

static void give_line(void *data, const char *line, size_t length) {
        static const char *const colors[] = { "\033[36m", "\033[35m", "\033[33m",
                                              "\033[32m", "\033[34m", "\033[31m" };
        static char out[LINES_MAX + 64];
        const struct giving *giving = data;
        const struct run_watcher *watcher = giving->run->watcher;
        bool color = giving->run->color[giving->stream];

        if (watcher) {
                watcher->line(watcher->data, giving->rank, giving->stream, line, length);
                return;
        }
        int head = snprintf(out, 64, "%s[%u]%s ", color ? colors[giving->rank % array_size(colors)] : "",
                            giving->rank, color ? "\033[0m" : "");

        memcpy(out + head, line, length);
        out[(size_t)head + length] = '\n';
        write_out(giving->run, giving->stream, out, (size_t)head + length + 1);
}

/* One chunk of one pipe; at its end the unfinished line too. */
static void relay(struct run *run, unsigned rank, int stream) {
        struct run_member *member = &run->member[rank];
        struct giving giving = { run, rank, stream };
        char bytes[16384];
        ssize_t n = read(member->pipe[stream], bytes, sizeof bytes);

        if (n > 0)
                lines_feed(&member->lines[stream], bytes, (size_t)n, give_line, &giving);
        if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
                return;
        lines_flush(&member->lines[stream], give_line, &giving);
        close(member->pipe[stream]);
        member->pipe[stream] = -1;
}

static int follow(const struct run *run, int fd, uint64_t about) {
        struct epoll_event event = { .events = EPOLLIN, .data.u64 = about };

        return epoll_ctl(run->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static int follow_member(const struct run *run, unsigned rank) {
        int r = follow(run, run->member[rank].pidfd, ABOUT(ABOUT_MEMBER, rank, 0));

        for (int k = 0; k < RUN_STREAMS && r == 0; k++)
                r = follow(run, run->member[rank].pipe[k], ABOUT(ABOUT_OUTPUT, rank, k));
        return r;
}

/* What it has written before its end; whoever else holds the pipe is killed with its group. */
static void relay_rest(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];

        for (int k = 0; k < RUN_STREAMS; k++) {
                struct pollfd fd = { .fd = member->pipe[k], .events = POLLIN };

                while (member->pipe[k] >= 0 && poll(&fd, 1, 0) > 0)
                        relay(run, rank, k);
                if (member->pipe[k] >= 0) {
                        struct giving giving = { run, rank, k };
                        lines_flush(&member->lines[k], give_line, &giving);
                }
        }
}

/* Only the one that died is started anew; the others wait for it inside gradsync. */
static void member_restart(struct run *run, unsigned rank, const char *how) {
        struct run_member *member = &run->member[rank];
        int code;

        if (!run->watcher)
                cli_complain("rank %u (pid %d) %s; started again (%lu of %lu)", rank, member->pid, how,
                             member->restarts + 1, run->options->restarts);
        relay_rest(run, rank);
        code = run_member_restart(run, rank);
        if (!code && follow_member(run, rank) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                code = CLI_ERROR;
        }
        if (code)
                stop_members(run, SIGTERM, code);
}

/* The lowest rank but this one that has ended and is not started again, or -1. The world is as large as it was when the job
 * began: without that one nobody who comes anew would ever have a job. */
static int ended_for_good(const struct run *run, unsigned but) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (i != but && run->member[i].pidfd < 0)
                        return (int)i;
        return -1;
}

/* A failure that is not made good: what is told of it, and of what follows. */
static void member_given_up(struct run *run, const struct run_member *member, const char *how, int gone) {
        const char *then = run->options->keep_going || run->options->members == 1 ? "" : "; the others are stopped";
        char why[160] = "";

        if (member->restarts < run->options->restarts)
                snprintf(why, sizeof why, "; not started again, because rank %d has ended and the job cannot have all its "
                         "members any more", gone);
        else if (member->restarts > 0)
                snprintf(why, sizeof why, " after %lu restart%s", member->restarts, member->restarts == 1 ? "" : "s");
        cli_complain("rank %u (pid %d) %s%s%s", member->rank, member->pid, how, why, then);
}

static void member_failed(struct run *run, const struct run_member *member, const siginfo_t *info) {
        bool by_signal = info->si_code != CLD_EXITED;
        int result = by_signal ? 128 + info->si_status : info->si_status;
        int gone = ended_for_good(run, member->rank);
        char how[96];

        if (run->stopping)
                return; /* not its own fault */
        if (by_signal)
                snprintf(how, sizeof how, "was killed by signal %d (%s)", info->si_status, strsignal(info->si_status));
        else
                snprintf(how, sizeof how, "ended with status %d", info->si_status);
        if (member->restarts < run->options->restarts && gone < 0) {
                member_restart(run, member->rank, how);
                return;
        }
        member_given_up(run, member, how, gone);
        if (run->options->keep_going)
                run->result = run->result ? run->result : result;
        else
                stop_members(run, SIGTERM, result);
}

static void member_ended(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];
        siginfo_t info = { 0 };

        if (waitid(P_PIDFD, (id_t)member->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
                return;
        close(member->pidfd);
        member->pidfd = -1;
        if (info.si_code != CLD_EXITED || info.si_status != 0)
                member_failed(run, member, &info);
}

/* The members wait for the one that follows. */
static void daemon_ended(struct run *run) {
        pid_t pid = run->daemon.pid;
        char how[96];

        if (run->stopping) {
                epoll_ctl(run->epoll_fd, EPOLL_CTL_DEL, run->daemon.pidfd, NULL);
                return;
        }
        if (run_daemon_restart(&run->daemon, run->options, &run->mask, how, sizeof how) &&
            follow(run, run->daemon.pidfd, ABOUT(ABOUT_DAEMON, 0, 0)) == 0) {
                cli_complain("the private daemon (pid %d) %s; started again as pid %d", pid, how, run->daemon.pid);
                return;
        }
        cli_complain("the private daemon (pid %d) %s, and is not started again; the job cannot go on", pid, how);
        run_daemon_show_log(&run->daemon);
        stop_members(run, SIGTERM, CLI_ERROR);
}

static int follow_all(struct run *run) {
        int r = follow(run, run->signal_fd, ABOUT(ABOUT_SIGNAL, 0, 0));

        if (r == 0 && run->daemon.pidfd >= 0)
                r = follow(run, run->daemon.pidfd, ABOUT(ABOUT_DAEMON, 0, 0));
        for (unsigned i = 0; i < run->n_members && r == 0; i++)
                r = follow_member(run, i);
        return r;
}

static void dispatch(struct run *run, uint64_t about) {
        unsigned rank = (unsigned)(about >> 8);

        switch (about & 15) {
        case ABOUT_SIGNAL: take_signals(run); break;
        case ABOUT_DAEMON: daemon_ended(run); break;
        case ABOUT_MEMBER: member_ended(run, rank); break;
        default: relay(run, rank, (int)(about >> 4 & 15));
        }
}

static bool alive(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pidfd >= 0)
                        return true;
        return false;
}

static bool has_output(const struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pipe[RUN_STDOUT] >= 0 || run->member[i].pipe[RUN_STDERR] >= 0)
                        return true;
        return false;
}

/* Of pipes that somebody beyond our reach keeps open. */
static void flush_all(struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                for (int k = 0; k < RUN_STREAMS; k++) {
                        struct giving giving = { run, i, k };
                        lines_flush(&run->member[i].lines[k], give_line, &giving);
                }
}

static int patience(const struct run *run) {
        int left = time_left(run);

        if (!run->watcher || run->stopping)
                return left;
        return left < 0 || left > run->watcher->interval_ms ? run->watcher->interval_ms : left;
}

static void look(struct run *run) {
        int code;

        if (run->watcher && !run->stopping && alive(run) && (code = run->watcher->look(run->watcher->data)))
                stop_members(run, SIGTERM, code);
}

void run_watch(struct run *run) {
        struct epoll_event events[64];
        bool draining = false;

        if (follow_all(run) < 0) {
                cli_complain("epoll: %s", strerror(errno));
                run->result = CLI_ERROR;
                return;
        }
        while (alive(run) || has_output(run)) {
                int n = epoll_wait(run->epoll_fd, events, array_size(events), patience(run));
                for (int i = 0; i < n; i++)
                        dispatch(run, events[i].data.u64);
                look(run);
                check_deadline(run);
                /* All have ended, but something they started still holds our pipes: it is asked to end too.
                 * */
                if (!alive(run) && !draining) {
                        draining = true;
                        run->deadline = run_now_ms() + DRAIN_MS;
                        signal_members(run, SIGTERM);
                } else if (draining && run->killed && !run->deadline) {
                        flush_all(run);
                        return;
                }
        }
}
