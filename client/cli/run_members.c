// SPDX-License-Identifier: Apache-2.0
/*
 * The processes of `gradsyncctl run`: each leads a process group of its own, dies with us (PR_SET_PDEATHSIG),
 * has its output in our pipes, and learns from the environment who it is. See run.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "run.h"

/* For how long the place of a lost member is kept. It is us who know whether somebody will come for it: nobody, unless processes are
 * started again. Then he will; but until he joins, a trainer may have to load a framework from a slow file system. If he does not
 * come after all, we end the others ourselves. */
#define RESTART_GRACE_S 120

static void set_number(const char *name, unsigned long value) {
        char text[24];

        snprintf(text, sizeof text, "%lu", value);
        setenv(name, text, 1);
}

/* Only the first member reads what we read, and not from a terminal: it is not in the terminal's foreground
 * group. */
static void set_stdin(unsigned rank) {
        if (rank == 0 && !isatty(STDIN_FILENO))
                return;
        int null = open("/dev/null", O_RDONLY);
        if (null > STDIN_FILENO) {
                dup2(null, STDIN_FILENO);
                close(null);
        }
}

/* In the child. Tells `report` why, if the command cannot run. */
_Noreturn static void become(const struct run *run, unsigned rank, const int out[RUN_STREAMS], int report,
                             pid_t parent) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(CLI_ERROR); /* it died before we asked to die with it */
        set_stdin(rank);
        dup2(out[RUN_STDOUT], STDOUT_FILENO);
        dup2(out[RUN_STDERR], STDERR_FILENO);
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, &run->mask, NULL);
        setenv("GRADSYNC_JOB", run->job, 1);
        setenv("GRADSYNC_SOCKET", run->socket, 1);
        set_number("GRADSYNC_WORLD_SIZE", run->options->members);
        if (!getenv("GRADSYNC_REJOIN_GRACE"))
                set_number("GRADSYNC_REJOIN_GRACE", run->options->restarts ? RESTART_GRACE_S : 0);
        set_number("GRADSYNC_RANK", rank);
        set_number("GRADSYNC_LOCAL_RANK", rank);
        execvp(run->options->command[0], run->options->command);
        int error = errno;
        ssize_t told = write(report, &error, sizeof error);
        _exit(told == sizeof error ? 127 : 126);
}

static int make_pipes(int in[RUN_STREAMS], int out[RUN_STREAMS]) {
        for (int i = 0; i < RUN_STREAMS; i++)
                in[i] = out[i] = -1;
        for (int i = 0; i < RUN_STREAMS; i++) {
                int both[2];
                if (pipe2(both, O_CLOEXEC) < 0)
                        return -errno;
                in[i] = both[0];
                out[i] = both[1];
                fcntl(in[i], F_SETFL, O_NONBLOCK);
        }
        return 0;
}

static int exec_failed(const struct run *run, int error) {
        cli_complain("cannot run %s: %s", run->options->command[0], strerror(error));
        return error == ENOENT ? 127 : 126;
}

static int cannot(const char *what, int error) {
        cli_complain("cannot start a member: %s: %s", what, strerror(error));
        return CLI_ERROR;
}

static int adopt(struct run *run, unsigned rank, pid_t pid, int in[RUN_STREAMS]) {
        struct run_member *member = &run->member[rank];

        if (rank >= run->n_members)
                run->n_members = rank + 1; /* they are started in the order of their ranks */
        *member = (struct run_member){
                .rank = rank, .restarts = member->restarts, .pid = pid, .pidfd = pidfd_open(pid, 0)
        };
        memcpy(member->pipe, in, sizeof member->pipe);
        if (member->pidfd < 0)
                return cannot("pidfd_open", errno);
        if (lines_init(&member->lines[RUN_STDOUT]) < 0 || lines_init(&member->lines[RUN_STDERR]) < 0)
                return cannot("buffers", ENOMEM);
        return CLI_OK;
}

int run_member_start(struct run *run, unsigned rank) {
        int in[RUN_STREAMS], out[RUN_STREAMS], report[2] = { -1, -1 }, error, code;
        pid_t parent = getpid(), pid = -1;
        int r = make_pipes(in, out);

        if (r == 0 && pipe2(report, O_CLOEXEC) < 0)
                r = -errno;
        if (r == 0 && (pid = fork()) < 0)
                r = -errno;
        if (pid == 0)
                become(run, rank, out, report[1], parent);
        for (int i = 0; i < RUN_STREAMS; i++)
                if (out[i] >= 0)
                        close(out[i]);
        if (report[1] >= 0)
                close(report[1]);
        if (r < 0) {
                for (int i = 0; i < RUN_STREAMS; i++)
                        if (in[i] >= 0)
                                close(in[i]);
                code = cannot("fork", -r);
        } else {
                setpgid(pid, pid); /* whoever of us is first */
                code = adopt(run, rank, pid, in);
                if (!code && read(report[0], &error, sizeof error) == sizeof error)
                        code = exec_failed(run, error);
        }
        if (report[0] >= 0)
                close(report[0]);
        return code;
}

void run_member_deinit(struct run_member *member) {
        for (int i = 0; i < RUN_STREAMS; i++) {
                if (member->pipe[i] >= 0)
                        close(member->pipe[i]);
                lines_deinit(&member->lines[i]);
        }
        if (member->pidfd >= 0)
                close(member->pidfd);
}

int run_member_restart(struct run *run, unsigned rank) {
        struct run_member *member = &run->member[rank];

        kill(-member->pid, SIGKILL);
        waitpid(member->pid, NULL, 0);
        run_member_deinit(member);
        member->restarts++;
        return run_member_start(run, rank);
}

static pid_t parent_of(const char *pid) {
        char path[64], text[512];

        snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
        _cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
        if (n <= 0)
                return -1;
        text[n] = '\0';
        const char *end = strrchr(text, ')'); /* behind the command name, which may hold anything */
        int parent;
        return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : -1;
}

/* Kills and reaps each child but the daemon; what those leave behind becomes ours (we are a subreaper). How
 * many there were. */
static unsigned kill_children(pid_t spared) {
        DIR *proc = opendir("/proc");
        const struct dirent *entry;
        unsigned n = 0;

        while (proc && (entry = readdir(proc))) {
                pid_t pid = entry->d_name[0] >= '0' && entry->d_name[0] <= '9' ? atoi(entry->d_name) : 0;
                if (pid <= 0 || pid == spared || parent_of(entry->d_name) != getpid())
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
        while (kill_children(run->daemon.pid) > 0)
                continue;
        for (unsigned i = 0; i < run->n_members; i++)
                run_member_deinit(&run->member[i]);
        run->n_members = 0;
}
