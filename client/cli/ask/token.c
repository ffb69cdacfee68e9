// SPDX-License-Identifier: Apache-2.0
#include "client/cli/ask/token.h"

#include <stdio.h>
#include <string.h>

#include "client/cli/ask/snapshot.h"
#include "proto/cleanup.h"

static void token_close(FILE **file) {
        if (*file)
                fclose(*file);
}

/* Takes the token from the environment with which the process was started. An environment that names another
 * job is refused: if the member is on another host or in another PID namespace, its pid may be that of some
 * other process here. */
static bool token_of_process(int pid, const char *job, char ret[LIMIT_TOKEN + 1]) {
        static const char token[] = TOKEN_VARIABLE "=", name[] = "GRADSYNC_JOB=";
        _cleanup_(token_close) FILE *file = NULL;
        _cleanup_(freep) char *line = NULL;
        size_t room = 0;
        char path[32];

        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        file = fopen(path, "re");
        ret[0] = '\0';
        while (file && getdelim(&line, &room, '\0', file) > 0) {
                const char *value = strchr(line, '=') ? strchr(line, '=') + 1 : "";

                if (strncmp(line, name, strlen(name)) == 0 && strcmp(value, job) != 0)
                        return false;
                if (strncmp(line, token, strlen(token)) == 0 && strlen(value) <= LIMIT_TOKEN)
                        strcpy(ret, value);
        }
        return ret[0] != '\0';
}

bool token_find(struct talk *talk, const char *path, const char *job, char ret[LIMIT_TOKEN + 1]) {
        struct snapshot snapshot;
        bool found = false;

        if (snapshot_fetch(talk, path, job, &snapshot))
                return false;
        for (size_t i = 0; i < snapshot.n_jobs && !found; i++) {
                const struct snapshot_job *of = &snapshot.job[i];

                for (size_t k = 0; k < of->n_members && !found; k++)
                        found = of->member[k]->has_pid && of->job->name &&
                                token_of_process(of->member[k]->pid, of->job->name, ret);
        }
        snapshot_deinit(&snapshot);
        return found;
}
