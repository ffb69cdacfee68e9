// SPDX-License-Identifier: Apache-2.0
/*
 * The private daemon of `gradsyncctl run`: its directory, its process, and the wait until it answers. A
 * daemon that notifies (sd_notify) is believed; for one that does not, the directory is watched (inotify) for
 * its socket. See run.h.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "client/cli/ask/private.h"
#include "client/cli/ask/talk.h"
#include "client/cli/base/bundled.h"
#include "client/cli/base/escape.h"
#include "client/cli/base/format.h"
#include "client/cli/base/moment.h"
#include "client/cli/run/run.h"

#define START_MS 30000
#define STOP_MS 20000 /* above the daemon's drain timeout */
#define AGAIN_MS 10   /* between a socket's bind and its listen there is no event to wait for */
#define LOG_LINES 12
#define RESTARTS 3 /* within COUNT_MS */
#define COUNT_MS 60000
#define NOTIFY_NAME "notify"

/* ---- the directory ---- */

/* Reports why the directory cannot be made or used, and returns the error. */
static int run_daemon_no_directory(const char *what, const char *where) {
        int error = errno;

        cli_complain("cannot %s %s: %s", what, where, strerror(error));
        return -error;
}

/* The file in --log-dir may have lines of earlier daemons in it. */
static int run_daemon_place_log(struct run_daemon *daemon, const char *log_dir) {
        struct stat info;

        daemon->log = log_dir ? format_new("%s/gradsyncd.log", log_dir)
                              : format_new("%s/" PRIVATE_LOG, daemon->directory);
        if (!daemon->log)
                return -ENOMEM;
        _cleanup_(closep) int fd = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0 || fstat(fd, &info) < 0)
                return run_daemon_no_directory("write", daemon->log);
        daemon->log_from = info.st_size;
        return 0;
}

static int run_daemon_make_directory(struct run_daemon *daemon, const char *log_dir) {
        _cleanup_(freep) char *directory =
                format_new("%s/gradsync-%u.XXXXXX", private_parent(), (unsigned)geteuid());
        char path[PATH_MAX];

        if (!directory)
                return -ENOMEM;
        if (strlen(directory) + sizeof "/" PRIVATE_SOCKET > sizeof((struct sockaddr_un *)0)->sun_path) {
                cli_complain("TMPDIR (%s) is too long for a socket in it; set a shorter one",
                             private_parent());
                return -ENAMETOOLONG;
        }
        if (!mkdtemp(directory))
                return run_daemon_no_directory("make a directory in", private_parent());
        daemon->directory = directory;
        directory = NULL;
        daemon->socket = format_new("%s/" PRIVATE_SOCKET, daemon->directory);
        if (!daemon->socket)
                return -ENOMEM;
        snprintf(path, sizeof path, "%s/" PRIVATE_PID, daemon->directory);
        daemon->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (daemon->lock < 0)
                return run_daemon_no_directory("write to", daemon->directory);
        flock(daemon->lock, LOCK_EX | LOCK_NB);
        return run_daemon_place_log(daemon, log_dir);
}

static void run_daemon_remove_directory(const char *path) {
        DIR *directory = opendir(path);
        const struct dirent *entry;

        while (directory && (entry = readdir(directory)))
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        unlinkat(dirfd(directory), entry->d_name, 0);
        if (directory)
                closedir(directory);
        if (rmdir(path) < 0)
                cli_complain("cannot remove %s: %s", path, strerror(errno));
}

static void run_daemon_point(int fd, int at) {
        if (fd >= 0)
                dup2(fd, at);
}

_Noreturn static void run_daemon_become(const struct run_daemon *daemon, const char *program, char **argv,
                                        const sigset_t *mask, pid_t parent) {
        char path[PATH_MAX];

        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
                _exit(CLI_ERROR);
        int log = open(daemon->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        run_daemon_point(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
        run_daemon_point(log, STDOUT_FILENO);
        run_daemon_point(log, STDERR_FILENO);
        snprintf(path, sizeof path, "%s/" NOTIFY_NAME, daemon->directory);
        setenv("NOTIFY_SOCKET", path, 1);
        /* A service manager meant these for this program, not for the daemon. */
        unsetenv("WATCHDOG_USEC");
        unsetenv("WATCHDOG_PID");
        unsetenv("LISTEN_FDS");
        unsetenv("LISTEN_PID");
        unsetenv("STATE_DIRECTORY");
        unsetenv("RUNTIME_DIRECTORY");
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(program, argv);
        fprintf(stderr, "cannot run %s: %s%s\n", program, strerror(errno),
                strchr(program, '/') ? "" : "; it is neither beside gradsyncctl nor in PATH: install it");
        _exit(127);
}

static int run_daemon_listen_for_notice(struct run_daemon *daemon) {
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        snprintf(address.sun_path, sizeof address.sun_path, "%.95s/" NOTIFY_NAME, daemon->directory);
        daemon->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (daemon->notify < 0 || bind(daemon->notify, (struct sockaddr *)&address, sizeof address) < 0)
                return -errno;
        return 0;
}

static int run_daemon_spawn(struct run_daemon *daemon, const char *device, const struct run_options *options,
                            const sigset_t *mask) {
        _cleanup_(freep) char *program = bundled_daemon();
        _cleanup_(freep) char **argv = calloc(options->daemon_args.n + 6, sizeof *argv);
        pid_t parent = getpid();
        size_t n = 0;

        if (!program || !argv)
                return -ENOMEM;
        argv[n++] = program;
        argv[n++] = (char *)"--device";
        argv[n++] = (char *)device;
        argv[n++] = (char *)"--socket";
        argv[n++] = daemon->socket;
        for (size_t i = 0; i < options->daemon_args.n; i++)
                argv[n++] = (char *)options->daemon_args.text[i];
        pid_t pid = fork();
        if (pid < 0)
                return -errno;
        if (pid == 0)
                run_daemon_become(daemon, program, argv, mask, parent);
        setpgid(pid, pid);
        daemon->pid = pid;
        daemon->pidfd = pidfd_open(pid, 0);
        if (lseek(daemon->lock, 0, SEEK_SET) < 0 || ftruncate(daemon->lock, 0) < 0)
                return -errno;
        return daemon->pidfd < 0 || dprintf(daemon->lock, "%d\n", (int)pid) < 0 ? -errno : 0;
}

bool run_daemon_restart(struct run_daemon *daemon, const struct run_options *options, const sigset_t *mask,
                        char *ret_how, size_t size) {
        siginfo_t info = { 0 };
        int64_t now = moment_ms();

        *ret_how = '\0';
        if (waitid(P_PID, (id_t)daemon->pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
                return true;
        format_end(ret_how, size, &info);
        daemon->pidfd = fd_close(daemon->pidfd);
        daemon->pid = 0;
        if (now - daemon->counted_ms >= COUNT_MS) {
                daemon->counted_ms = now;
                daemon->restarts = 0;
        }
        return daemon->restarts++ < RESTARTS && run_daemon_spawn(daemon, daemon->device, options, mask) == 0;
}

/* ---- readiness ---- */

enum { WAIT_SIGNAL, WAIT_DAEMON, WAIT_NOTICE, WAIT_FILES, WAITS };

static bool run_daemon_says_ready(int notify) {
        char text[4096];
        bool ready = false;
        ssize_t n;

        while ((n = recv(notify, text, sizeof text - 1, 0)) >= 0) {
                text[n] = '\0';
                ready = ready || strncmp(text, "READY=1", 7) == 0 || strstr(text, "\nREADY=1");
        }
        return ready;
}

static enum talk_result run_daemon_answers(const struct run_daemon *daemon, char *error, size_t error_size) {
        struct talk talk;
        enum talk_result r = talk_open(&talk, daemon->socket, TALK_TIMEOUT);

        snprintf(error, error_size, "%s", talk.error);
        talk_close(&talk);
        return r;
}

static void run_daemon_drop_events(int inotify) {
        char events[4096];

        while (read(inotify, events, sizeof events) > 0)
                continue;
}

static int run_daemon_start_failed(const struct run_daemon *daemon, const char *why) {
        cli_complain("the private daemon %s", why);
        run_daemon_show_log(daemon);
        return CLI_ERROR;
}

static int run_daemon_wait_ready(const struct run_daemon *daemon, int signal_fd, int inotify) {
        struct pollfd fds[WAITS] = {
                [WAIT_SIGNAL] = { .fd = signal_fd, .events = POLLIN },
                [WAIT_DAEMON] = { .fd = daemon->pidfd, .events = POLLIN },
                [WAIT_NOTICE] = { .fd = daemon->notify, .events = POLLIN },
                [WAIT_FILES] = { .fd = inotify, .events = POLLIN },
        };
        int64_t deadline = moment_ms() + START_MS;
        char error[1280] = "";
        bool bound = false;

        for (;;) {
                int64_t left = deadline - moment_ms();
                if (left <= 0)
                        return run_daemon_start_failed(daemon, error[0]
                                                                       ? error
                                                                       : "has not opened its socket in time");
                if (poll(fds, WAITS, bound ? AGAIN_MS : (int)left) < 0 && errno != EINTR)
                        return run_daemon_start_failed(daemon, strerror(errno));
                if (fds[WAIT_DAEMON].revents)
                        return run_daemon_start_failed(daemon, "could not start");
                if (fds[WAIT_SIGNAL].revents) {
                        struct signalfd_siginfo info;
                        if (read(signal_fd, &info, sizeof info) == sizeof info && info.ssi_signo != SIGCHLD)
                                return 128 + (int)info.ssi_signo;
                }
                run_daemon_drop_events(inotify);
                bool ready = run_daemon_says_ready(daemon->notify);
                bound = bound || access(daemon->socket, F_OK) == 0;
                if (!bound && !ready)
                        continue;
                enum talk_result r = run_daemon_answers(daemon, error, sizeof error);
                if (r == TALK_OK)
                        return CLI_OK;
                if (ready || r != TALK_ABSENT)
                        return run_daemon_start_failed(daemon, error);
        }
}

int run_daemon_start(struct run_daemon *daemon, const char *device, const struct run_options *options,
                     int signal_fd, const sigset_t *mask) {
        int r = run_daemon_make_directory(daemon, options->log_dir);

        daemon->device = device;
        if (r < 0)
                return CLI_ERROR;
        _cleanup_(closep) int inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        if (inotify >= 0 && inotify_add_watch(inotify, daemon->directory, IN_CREATE | IN_MOVED_TO) < 0)
                r = -errno;
        if (r == 0)
                r = run_daemon_listen_for_notice(daemon);
        if (r == 0)
                r = run_daemon_spawn(daemon, device, options, mask);
        if (r < 0) {
                cli_complain("cannot start a private daemon: %s", strerror(-r));
                return CLI_ERROR;
        }
        return run_daemon_wait_ready(daemon, signal_fd, inotify);
}

/* ---- the end ---- */

void run_daemon_show_log(const struct run_daemon *daemon) {
        char *line = NULL, *last[LOG_LINES] = { NULL };
        size_t size = 0, n = 0;

        FILE *log = fopen(daemon->log, "re");
        if (!log)
                return;
        fseeko(log, daemon->log_from, SEEK_SET);
        while (getline(&line, &size, log) > 0) {
                line[strcspn(line, "\n")] = '\0';
                free(last[n % LOG_LINES]);
                last[n++ % LOG_LINES] = escape_text(line);
        }
        for (size_t i = n > LOG_LINES ? n - LOG_LINES : 0; i < n; i++)
                fprintf(stderr, "[gradsyncd] %s\n", last[i % LOG_LINES] ? last[i % LOG_LINES] : "");
        for (size_t i = 0; i < LOG_LINES; i++)
                free(last[i]);
        free(line);
        fclose(log);
}

/* Asks the daemon to end, and kills it if it does not. */
static void run_daemon_end(const struct run_daemon *daemon) {
        struct pollfd ended = { .fd = daemon->pidfd, .events = POLLIN };
        int64_t deadline = moment_ms() + STOP_MS;
        int status = 0;

        kill(daemon->pid, SIGTERM);
        kill(daemon->pid, SIGCONT);
        while (daemon->pidfd >= 0 && poll(&ended, 1, (int)(deadline - moment_ms())) < 0 && errno == EINTR)
                continue;
        if (!(ended.revents & POLLIN)) {
                cli_complain("the private daemon (pid %d) has not ended: killed", daemon->pid);
                kill(daemon->pid, SIGKILL);
        }
        waitpid(daemon->pid, &status, 0);
}

/* Keeps the log when the directory is removed; a log in --log-dir stays where it is. */
static void run_daemon_keep_log(const struct run_daemon *daemon) {
        size_t length = strlen(daemon->directory);
        bool inside = strncmp(daemon->log, daemon->directory, length) == 0 && daemon->log[length] == '/';
        _cleanup_(freep) char *kept = inside ? format_new("%s.log", daemon->directory) : strdup(daemon->log);

        if (!kept || (inside && rename(daemon->log, kept) < 0))
                cli_complain("the log of the private daemon is lost: %s", strerror(errno));
        else
                cli_complain("the log of the private daemon is in %s", kept);
}

void run_daemon_stop(struct run_daemon *daemon, bool keep) {
        if (daemon->pid > 0)
                run_daemon_end(daemon);
        if (keep && daemon->log)
                run_daemon_keep_log(daemon);
        if (daemon->directory)
                run_daemon_remove_directory(daemon->directory);
        for (int *fd = (int[]){ daemon->pidfd, daemon->lock, daemon->notify, -2 }; *fd != -2; fd++)
                fd_close(*fd);
        free(daemon->directory);
        free(daemon->socket);
        free(daemon->log);
        *daemon = (struct run_daemon)RUN_DAEMON_INIT;
}
