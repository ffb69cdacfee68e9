// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of a daemon's settings. gradsyncd makes them itself (gradsyncd --check), because it has the keys and
 * knows how daemons meet; the doctor runs it once more, with the arguments of the daemon that answers. If
 * another user runs the daemon, the caller may not read its key: the doctor repeats what that daemon says of
 * its connections.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/base/bundled.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"

#define ARGUMENTS 256u
#define ARGUMENT_BYTES 65536u

extern char **environ;

/* ---- what the daemon says ---- */

static void doctor_cluster_links(const struct checkup *checkup, struct findings *findings) {
        for (size_t i = 0; i < checkup->snapshot.n_links; i++) {
                const Wire__StatusLink *l = checkup->snapshot.link[i];
                const char *address = l->address ? l->address : "";

                if (!l->role || strcmp(l->role, "coordinator") != 0)
                        continue;
                if (l->state && strcmp(l->state, "connected") == 0)
                        findings_add(findings, "coordinator", VERDICT_OK,
                                     format_new("%s is on host %s", address, l->host ? l->host : "?"), NULL);
                else
                        findings_add(
                                findings, "coordinator", VERDICT_FAIL,
                                format_new("the daemon has no connection to %s: %s", address,
                                           l->text ? l->text : ""),
                                format_new("run gradsyncctl doctor as root, or as the daemon's user, to see "
                                           "why"));
        }
}

/* ---- gradsyncd --check ---- */

struct doctor_command {
        char *program;
        char text[ARGUMENT_BYTES]; /* of the daemon's arguments */
        char *argument[ARGUMENTS];
};

/* The arguments of a process, without its name. */
static size_t doctor_cluster_read_arguments(pid_t pid, struct doctor_command *command, size_t n) {
        _cleanup_(freep) char *path = format_new("/proc/%d/cmdline", (int)pid);
        FILE *file = path ? fopen(path, "re") : NULL;

        if (!file)
                return n;
        size_t size = fread(command->text, 1, sizeof command->text - 1, file);
        fclose(file);
        command->text[size] = '\0';
        for (char *at = command->text + strlen(command->text) + 1;
             at < command->text + size && n < ARGUMENTS - 1; at += strlen(at) + 1)
                command->argument[n++] = at;
        return n;
}

static bool doctor_cluster_prepare(const struct checkup *checkup, struct doctor_command *command) {
        const Wire__StatusDaemon *daemon = checkup->snapshot.daemon;
        size_t n = 0;

        command->program = bundled_daemon();
        if (!command->program)
                return false;
        command->argument[n++] = command->program;
        command->argument[n++] = (char *)"--check";
        if (daemon) {
                n = doctor_cluster_read_arguments(daemon->pid, command, n);
        } else {
                command->argument[n++] = (char *)"--device";
                command->argument[n++] = (char *)sockets_device(checkup->cli);
        }
        command->argument[n] = NULL;
        return true;
}

static pid_t doctor_cluster_start(const struct doctor_command *command, FILE **ret) {
        posix_spawn_file_actions_t actions;
        int ends[2];
        pid_t pid;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -1;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
        int r = posix_spawnp(&pid, command->program, &actions, NULL, command->argument, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        *ret = r == 0 ? fdopen(ends[0], "r") : NULL;
        if (!*ret)
                close(ends[0]);
        return r == 0 ? pid : -1;
}

/* RESULT TAB CHECK TAB TEXT TAB FIX. False: it is no such line. */
static bool doctor_cluster_take_line(char *line, struct findings *findings) {
        char *part[4], *rest = line;
        enum verdict verdict;

        for (size_t i = 0; i < array_size(part); i++) {
                part[i] = strsep(&rest, "\t\n");
                if (!part[i])
                        return false;
        }
        for (verdict = VERDICT_OK; strcmp(part[0], verdict_names[verdict]) != 0; verdict++)
                if (verdict == VERDICT_FAIL)
                        return false;
        /* The daemon's cpuset may be another one than the doctor's, in which the CPUs have been tried. */
        if (verdict == VERDICT_FAIL && strcmp(part[1], "affinity") == 0)
                verdict = VERDICT_WARN;
        findings_add(findings, part[1], verdict, format_new("%s", part[2]),
                     verdict == VERDICT_OK ? NULL : format_new("%s", part[3]));
        return true;
}

/* A gradsyncd that could not be run, or does not understand its settings, says so in its last line. */
static void doctor_cluster_run(const struct doctor_command *command, struct findings *findings) {
        char line[4096], last[4096] = "";
        size_t taken = 0;
        FILE *from = NULL;
        int status = 0;
        pid_t pid = doctor_cluster_start(command, &from);

        while (from && fgets(line, sizeof line, from)) {
                memcpy(last, line, sizeof last);
                taken += doctor_cluster_take_line(line, findings);
        }
        if (from)
                fclose(from);
        if (pid > 0)
                waitpid(pid, &status, 0);
        last[strcspn(last, "\n")] = '\0';
        if (pid > 0 && status != 0 && taken == 0)
                findings_add(
                        findings, "cluster settings", VERDICT_WARN, format_new("not checked: %s", last),
                        format_new(
                                "repair what gradsyncd --check says, or use the gradsyncd of this release"));
}

void doctor_cluster(const struct checkup *checkup, struct findings *findings) {
        const Wire__StatusDaemon *daemon = checkup->snapshot.daemon;
        struct doctor_command *command = calloc(1, sizeof *command);

        if (daemon && daemon->uid != geteuid() && geteuid() != 0)
                doctor_cluster_links(checkup, findings);
        else if (!command || !doctor_cluster_prepare(checkup, command))
                findings->incomplete = true;
        else
                doctor_cluster_run(command, findings);
        if (command)
                free(command->program);
        free(command);
}
