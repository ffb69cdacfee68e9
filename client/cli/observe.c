// SPDX-License-Identifier: Apache-2.0
/* Looks at all daemons that can be found: see observe.h. */
#include <string.h>

#include "find.h"
#include "observe.h"

static struct attempt look(const char *path, const struct inquiry *inquiry, bool *ret_found) {
        struct attempt attempt = { 0 };
        struct link link;

        attempt.result = link_open(&link, path, LINK_TIMEOUT);
        if (!attempt.result)
                attempt.result = inquiry->ask(&link, path, inquiry->job, inquiry->data, ret_found);
        memcpy(attempt.error, link.error, sizeof attempt.error);
        link_close(&link);
        return attempt;
}

static void advise(const struct cli *cli, const struct places *places) {
        const char *device = find_device(cli);

        if (places->source == FIND_SOCKET_OPTION || places->source == FIND_SOCKET_VARIABLE) {
                fprintf(stderr, "Start it:  gradsyncd --device %s --socket %s\n", device, places->path[0]);
                return;
        }
        fprintf(stderr,
                "Start one:  systemctl start 'gradsyncd@%s'\n"
                "       or:  gradsyncd --device %s\n"
                "       or:  gradsyncctl run -n 2 -- CMD, which starts a private one for its job\n",
                device, device);
}

int observe_nobody(const struct cli *cli, const struct places *places, const struct attempt *attempts, const char *denied) {
        const char *complaint = "no daemon is running";

        for (size_t i = 0; i < places->n; i++)
                if (attempts[i].result == LINK_DENIED)
                        complaint = denied;
        cli_complain("%s", complaint);
        for (size_t i = 0; i < places->n; i++)
                fprintf(stderr, "  tried %s: %s\n", places->path[i], attempts[i].error);
        if (complaint == denied)
                return CLI_ERROR;
        advise(cli, places);
        return CLI_NO_DAEMON;
}

/* Whether a failure is worth a word although others answered. A daemon that ends while it is asked is as one that had
 * ended before. */
static bool notable(enum link_result result) {
        return result != LINK_OK && result != LINK_ABSENT && result != LINK_GONE && result != LINK_DENIED;
}

static int judge(const struct cli *cli, const char *job, const struct places *places,
                 const struct attempt *attempts, size_t tried, size_t answered, size_t kept) {
        bool trouble = false;

        for (size_t i = 0; i < tried; i++)
                if (notable(attempts[i].result)) {
                        cli_complain("%s: %s", places->path[i], attempts[i].error);
                        trouble = true;
                }
        if (!answered && !trouble)
                return observe_nobody(cli, places, attempts, "no daemon may be asked by you; gradsyncctl doctor says more");
        if (answered && !kept) {
                cli_complain("there is no job \"%s\"; gradsyncctl list jobs shows which there are", job);
                return CLI_UNKNOWN_JOB;
        }
        return trouble ? CLI_ERROR : CLI_OK;
}

int inquire(const struct cli *cli, const struct inquiry *inquiry) {
        struct places places;
        size_t answered = 0, kept = 0, tried = 0;

        if (find_all(cli, &places) < 0) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        _cleanup_(freep) struct attempt *attempts = calloc(places.n, sizeof *attempts);
        for (size_t i = 0; attempts && i < places.n && !(places.one && answered); i++) {
                bool found = false;
                tried = i + 1;
                attempts[i] = look(places.path[i], inquiry, &found);
                answered += !attempts[i].result;
                kept += !attempts[i].result && found;
        }
        int code = CLI_ERROR;
        if (attempts)
                code = judge(cli, inquiry->job, &places, attempts, tried, answered, kept);
        places_deinit(&places);
        return code;
}

static enum link_result add_snapshot(struct link *link, const char *path, const char *job, void *data,
                                     bool *ret_found) {
        struct observation *observation = data;
        struct snapshot *grown = realloc(observation->snapshot, (observation->n + 1) * sizeof *grown);

        if (!grown)
                return link_failed(link, "out of memory");
        observation->snapshot = grown;
        enum link_result r = snapshot_fetch(link, path, job, &grown[observation->n]);
        if (r)
                return r;
        *ret_found = grown[observation->n].found;
        if (*ret_found)
                observation->n++;
        else
                snapshot_deinit(&grown[observation->n]);
        return LINK_OK;
}

int observe(const struct cli *cli, const char *job, struct observation *ret) {
        *ret = (struct observation){ 0 };
        return inquire(cli, &(struct inquiry){ .job = job, .ask = add_snapshot, .data = ret });
}

void observation_deinit(struct observation *observation) {
        for (size_t i = 0; i < observation->n; i++)
                snapshot_deinit(&observation->snapshot[i]);
        free(observation->snapshot);
        *observation = (struct observation){ 0 };
}
