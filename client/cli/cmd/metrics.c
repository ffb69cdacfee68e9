// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl metrics: the state of one daemon as OpenMetrics text, as the daemon's metrics socket gives it.
 * */
#include "proto/metrics.h"

#include <string.h>

#include "client/cli/ask/observe.h"
#include "client/cli/cmd/cmd.h"

/* Of several jobs with one name and uid, the last one is meant: earlier ones are ending, and names must be
 * unique. */
static bool cmd_metrics_superseded(const struct snapshot *from, size_t index) {
        const Wire__StatusJob *job = from->job[index].job;

        for (size_t i = index + 1; i < from->n_jobs; i++)
                if (from->job[i].job->uid == job->uid && from->job[i].job->name && job->name &&
                    strcmp(from->job[i].job->name, job->name) == 0)
                        return true;
        return false;
}

static bool cmd_metrics_know(const Wire__StatusMember *member, bool late) {
        return !member->unranked && member->pid != 0 && (late ? member->has_late_us : member->has_exposed_us);
}

static size_t cmd_metrics_fill(const struct snapshot_job *from, bool late, struct metrics_rank *ranks) {
        size_t n = 0;

        for (size_t i = 0; i < from->n_members; i++)
                if (cmd_metrics_know(from->member[i], late)) {
                        ranks[n].rank = from->member[i]->rank;
                        ranks[n++].us = late ? from->member[i]->late_us : from->member[i]->exposed_us;
                }
        return n;
}

static int cmd_metrics_show_job(const struct snapshot_job *from, size_t family) {
        _cleanup_(freep) struct metrics_rank *ranks = calloc(from->n_members + 1, sizeof *ranks);
        enum metrics_need need = metrics_needs(family);
        struct metrics_job job = { .job = from->job, .n_members = snapshot_places(from), .rank = ranks };

        if (!ranks)
                return cli_out_of_memory();
        job.n_spares = from->n_members - job.n_members;
        if (need == METRICS_LATE || need == METRICS_EXPOSED)
                job.n_ranks = cmd_metrics_fill(from, need == METRICS_LATE, ranks);
        metrics_write_job(stdout, family, &job);
        return CLI_OK;
}

static int cmd_metrics_show(const struct snapshot *from) {
        int r = CLI_OK;

        metrics_write_daemon(stdout, from->daemon);
        for (size_t family = 0; family < metrics_n_families && !r; family++) {
                metrics_begin_family(stdout, family);
                for (size_t i = 0; i < from->n_jobs && !r; i++)
                        if (!cmd_metrics_superseded(from, i))
                                r = cmd_metrics_show_job(&from->job[i], family);
        }
        if (!r)
                metrics_write_end(stdout);
        return r;
}

int cmd_metrics(struct cli *cli, int argc, char **argv) {
        struct observation observation;
        int r = cli_plain_options(cli, argc, argv, NULL);

        if (r)
                return r - 1;
        if (optind < argc)
                return cli_usage_error(cli, "metrics takes no argument");
        int code = observe(cli, NULL, &observation);
        if (observation.n > 1) {
                cli_complain(
                        "%zu daemons answer, and their metrics cannot be mixed; say which one with --socket",
                        observation.n);
                code = CLI_ERROR;
        } else if (observation.n == 1) {
                r = cmd_metrics_show(&observation.snapshot[0]);
                code = code ? code : r;
        }
        observe_deinit(&observation);
        return code;
}
