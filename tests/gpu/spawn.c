/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fork and exec of the probe itself. Between the two only plain system calls are made, because the process
 * that forks may have the threads of a driver.
 */
#include "spawn.h"

#include "board.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65 /* Linux 6.3 */
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

enum { ARGUMENTS = 24 + 2 * OPTIONS_NCCL };

struct command {
        char *argv[ARGUMENTS];
        unsigned n;
        char board[16], place[16], channel[16], uid[16];
};

static void spawn_add_argument(struct command *command, const char *option, const char *value) {
        command->argv[command->n++] = (char *)option;
        command->argv[command->n++] = (char *)value;
        command->argv[command->n] = NULL;
}

static void spawn_make_command(struct command *command, const struct options *o, const struct spawn *s) {
        command->argv[0] = (char *)"probe";
        command->n = 1;
        snprintf(command->board, sizeof command->board, "%d", s->board_fd);
        snprintf(command->place, sizeof command->place, "%u", s->place);
        snprintf(command->channel, sizeof command->channel, "%d", s->channel);
        snprintf(command->uid, sizeof command->uid, "%u", (unsigned)o->other_uid);
        spawn_add_argument(command, "--role", s->role);
        spawn_add_argument(command, "--board", command->board);
        spawn_add_argument(command, "--place", command->place);
        if (s->channel >= 0)
                spawn_add_argument(command, "--channel", command->channel);
        spawn_add_argument(command, "--libcuda", o->libcuda);
        spawn_add_argument(command, "--root", o->root);
        spawn_add_argument(command, "--uid", command->uid);
        for (unsigned i = 0; i < o->n_nccl; i++)
                spawn_add_argument(command, "--nccl", o->nccl[i]);
}

/* In the child, which cannot begin: the fact's answer, and why. */
static _Noreturn void spawn_refuse(const struct spawn *s, const char *answer, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        board_note(s->board, format, arguments);
        va_end(arguments);
        va_start(arguments, format);
        board_answer(s->board, answer, arguments);
        va_end(arguments);
        _exit(126);
}

static void spawn_harden(const struct spawn *s) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                spawn_refuse(s, "skipped", "PR_SET_NO_NEW_PRIVS: %s", strerror(errno));
        if (prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) < 0)
                spawn_refuse(s, "skipped", "PR_SET_MDWE, which Linux has since 6.3: %s", strerror(errno));
}

static void spawn_become(const struct spawn *s, uid_t uid) {
        if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
            syscall(SYS_setresuid, uid, uid, uid) < 0)
                spawn_refuse(s, "error", "becoming uid %u: %s", (unsigned)uid, strerror(errno));
}

/* In the child. The program is executed by its descriptor: another user may not be able to reach its path. */
static _Noreturn void spawn_begin(const struct options *o, const struct spawn *s, int self,
                                  struct command *command, int null, pid_t parent) {
        extern char **environ;
        const int kept[] = { s->board_fd, s->channel };
        sigset_t nothing;

        sigemptyset(&nothing);
        if (s->own_group)
                setpgid(0, 0);
        for (unsigned i = 0; i < 2; i++)
                if (kept[i] >= 0)
                        fcntl(kept[i], F_SETFD, 0);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        sigprocmask(SIG_SETMASK, &nothing, NULL);
        signal(SIGCHLD, SIG_DFL);
        if (s->hardened)
                spawn_harden(s);
        if (s->other_uid)
                spawn_become(s, o->other_uid);
        /* No other process would end this one if its parent went, or has gone already. Becoming another user
         * resets this. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(126);
        syscall(SYS_execveat, self, "", command->argv, environ, AT_EMPTY_PATH);
        spawn_refuse(s, "error", "exec of the probe: %s", strerror(errno));
}

pid_t spawn_role(const struct options *options, const struct spawn *spawn) {
        struct command command;
        pid_t parent = getpid(), pid;
        int self, null;

        spawn_make_command(&command, options, spawn);
        self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        if (self < 0)
                return -errno;
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (null < 0) {
                close(self);
                return -ENODEV;
        }
        pid = fork();
        if (pid == 0)
                spawn_begin(options, spawn, self, &command, null, parent);
        if (pid < 0)
                pid = -errno;
        else if (spawn->own_group)
                setpgid(pid, pid); /* both do it, so that neither has to wait for the other */
        close(null);
        close(self);
        return pid;
}
