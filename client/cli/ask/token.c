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

/* The variable's value in the environment with which the process was started. */
static bool token_of_process(int pid, char ret[LIMIT_TOKEN + 1]) {
        static const char start[] = TOKEN_VARIABLE "=";
        _cleanup_(token_close) FILE *file = NULL;
        _cleanup_(freep) char *line = NULL;
        size_t room = 0;
        char path[32];

        snprintf(path, sizeof path, "/proc/%d/environ", pid);
        file = fopen(path, "re");
        while (file && getdelim(&line, &room, '\0', file) > 0) {
                const char *value = line + strlen(start);

                if (strncmp(line, start, strlen(start)) != 0 || !*value || strlen(value) > LIMIT_TOKEN)
                        continue;
                strcpy(ret, value);
                return true;
        }
        return false;
}

bool token_find(struct talk *talk, const char *path, const char *job, char ret[LIMIT_TOKEN + 1]) {
        struct snapshot snapshot;
        bool found = false;

        if (snapshot_fetch(talk, path, job, &snapshot))
                return false;
        for (size_t i = 0; i < snapshot.n_jobs && !found; i++)
                for (size_t k = 0; k < snapshot.job[i].n_members && !found; k++) {
                        const Wire__StatusMember *member = snapshot.job[i].member[k];

                        found = member->has_pid && token_of_process(member->pid, ret);
                }
        snapshot_deinit(&snapshot);
        return found;
}
