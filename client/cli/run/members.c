// SPDX-License-Identifier: Apache-2.0
/*
 * The processes of `gradsyncctl run`: each leads a process group of its own, dies with this program
 * (PR_SET_PDEATHSIG), writes into pipes of this program, and learns from the environment which member it is
 * (variables.c).
 * See run.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client/cli/base/bundled.h"
#include "client/cli/base/moment.h"
#include "client/cli/run/run.h"

#define ANCESTORS 32u /* of a process that are looked at */

/* Only the first member reads this program's input, and not from a terminal: it is not in the terminal's
 * foreground group. */
static void run_member_set_stdin(unsigned rank) {
        if (rank == 0 && !isatty(STDIN_FILENO))
                return;
        int null = open("/dev/null", O_RDONLY);
        if (null > STDIN_FILENO) {
                dup2(null, STDIN_FILENO);
                close(null);
        }
}

/* Runs in the child. Writes to `report` why the command cannot run. */
_Noreturn static void run_member_become(const struct run *run, unsigned rank, const int out[RUN_STREAMS],
                                        int report, pid_t parent) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The parent may have died before this process asked to die with it. */
        if (getppid() != parent)
                _exit(CLI_ERROR);
        run_member_set_stdin(rank);
        if (!run->options->bare) {
                dup2(out[RUN_STDOUT], STDOUT_FILENO);
                dup2(out[RUN_STDERR], STDERR_FILENO);
        }
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, &run->mask, NULL);
        run_set_member_variables(rank);
        execvp(run->options->command[0], run->options->command);
        if (errno == ENOENT && run->example)
                execv(run->example, run->options->command);
        int error = errno;
        ssize_t told = write(report, &error, sizeof error);
        _exit(told == sizeof error ? 127 : 126);
}

static int run_member_make_pipes(bool bare, int in[RUN_STREAMS], int out[RUN_STREAMS]) {
        for (int i = 0; i < RUN_STREAMS; i++)
                in[i] = out[i] = -1;
        for (int i = 0; i < RUN_STREAMS && !bare; i++) {
                int both[2];
                if (pipe2(both, O_CLOEXEC) < 0)
                        return -errno;
                in[i] = both[0];
                out[i] = both[1];
                fcntl(in[i], F_SETFL, O_NONBLOCK);
        }
        return 0;
}

static int run_member_exec_failed(const struct run *run, int error) {
        cli_complain("cannot run %s: %s", run->options->command[0], strerror(error));
        return error == ENOENT ? 127 : 126;
}

static int run_member_cannot(const char *what, int error) {
        cli_complain("cannot start a member: %s: %s", what, strerror(error));
        return CLI_ERROR;
}

static int run_member_adopt(struct run *run, unsigned rank, pid_t pid, int in[RUN_STREAMS]) {
        struct run_member *member = &run->member[rank];

        /* They are started in the order of their ranks. */
        if (rank >= run->n_members)
                run->n_members = rank + 1;
        *member = (struct run_member){
                .rank = rank,
                .restarts = member->restarts,
                .pid = pid,
                .pidfd = pidfd_open(pid, 0),
                .started = moment_ms(),
                .quick = member->quick,
                .log = member->log,
        };
        memcpy(member->pipe, in, sizeof member->pipe);
        if (member->pidfd < 0)
                return run_member_cannot("pidfd_open", errno);
        if (lines_init(&member->lines[RUN_STDOUT]) < 0 || lines_init(&member->lines[RUN_STDERR]) < 0)
                return run_member_cannot("buffers", ENOMEM);
        return CLI_OK;
}

int run_member_start(struct run *run, unsigned rank) {
        int in[RUN_STREAMS], out[RUN_STREAMS], report[2] = { -1, -1 }, error, code;
        pid_t parent = getpid(), pid = -1;
        int r = run_member_make_pipes(run->options->bare, in, out);

        if (r == 0 && pipe2(report, O_CLOEXEC) < 0)
                r = -errno;
        if (r == 0 && (pid = fork()) < 0)
                r = -errno;
        if (pid == 0)
                run_member_become(run, rank, out, report[1], parent);
        for (int i = 0; i < RUN_STREAMS; i++)
                fd_close(out[i]);
        fd_close(report[1]);
        if (r < 0) {
                for (int i = 0; i < RUN_STREAMS; i++)
                        fd_close(in[i]);
                code = run_member_cannot("fork", -r);
        } else {
                setpgid(pid, pid); /* the child does the same: whichever is first */
                code = run_member_adopt(run, rank, pid, in);
                if (!code && read(report[0], &error, sizeof error) == sizeof error)
                        code = run_member_exec_failed(run, error);
        }
        fd_close(report[0]);
        return code;
}

int run_members_start(struct run *run) {
        int code = CLI_OK;

        run_set_common_variables(run);
        run->example = bundled_example(run->options->command[0]);
        run->pause_most_ms = run_longest_pause();
        for (unsigned rank = 0; rank < run->options->members && !code; rank++)
                code = run_member_start(run, rank);
        return code;
}

static void run_member_deinit(struct run_member *member) {
        for (int i = 0; i < RUN_STREAMS; i++) {
                member->pipe[i] = fd_close(member->pipe[i]);
                lines_deinit(&member->lines[i]);
        }
        member->pidfd = fd_close(member->pidfd);
}

int run_member_restart(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];

        kill(-member->pid, SIGKILL);
        waitpid(member->pid, NULL, 0);
        run_member_deinit(member);
        member->restarts++;
        return run_member_start(run, rank);
}

static pid_t run_member_parent_of(pid_t pid) {
        char path[64], text[512];

        snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
        _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        if (n <= 0)
                return -1;
        text[n] = '\0';
        /* The name of the command stands in parentheses and may contain anything, parentheses too. */
        const char *end = strrchr(text, ')');
        int parent;
        return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

static int run_member_led_by(const struct run *run, pid_t pid) {
        for (unsigned i = 0; i < run->n_members; i++)
                if (run->member[i].pidfd >= 0 && run->member[i].pid == pid)
                        return (int)i;
        return -1;
}

/* The process group is enough in nearly all cases, and costs one call. */
int run_member_of(const struct run *run, pid_t pid) {
        int rank = run_member_led_by(run, getpgid(pid));

        for (unsigned depth = 0; rank < 0 && depth < ANCESTORS && pid > 1; depth++) {
                rank = run_member_led_by(run, pid);
                pid = rank < 0 ? run_member_parent_of(pid) : pid;
        }
        return rank;
}

/* Kills and reaps each child except the daemon, and returns their number. This process is a subreaper: the
 * children of those become its own. */
static unsigned run_member_kill_children(pid_t spared) {
        DIR *proc = opendir("/proc");
        const struct dirent *entry;
        unsigned n = 0;

        while (proc && (entry = readdir(proc))) {
                pid_t pid = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? atoi(entry->d_name) : 0;
                if (pid <= 0 || pid == spared || run_member_parent_of(pid) != getpid())
                        continue;
                if (kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid)
                        n++;
        }
        if (proc)
                closedir(proc);
        return n;
}

void run_members_end(struct run *run) {
        for (unsigned i = 0; i < run->n_members; i++)
                kill(-run->member[i].pid, SIGKILL);
        while (run_member_kill_children(run->daemon.pid) > 0)
                continue;
        for (unsigned i = 0; i < run->n_members; i++)
                run_member_deinit(&run->member[i]);
        run->n_members = 0;
        free(run->example);
        run->example = NULL;
}
