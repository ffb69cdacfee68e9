// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl metrics: the state of one daemon as OpenMetrics text, as its metrics socket gives it out. */
#include "observe.h"
#include "proto/metrics.h"

static int show(const struct snapshot *from) {
        _cleanup_(freep) struct metrics_job *jobs = calloc(from->n_jobs + 1, sizeof *jobs);

        if (!jobs) {
                cli_complain("out of memory");
                return CLI_ERROR;
        }
        for (size_t i = 0; i < from->n_jobs; i++)
                jobs[i] = (struct metrics_job){ .job = from->job[i].job,
                                                .member = from->job[i].member,
                                                .n_members = from->job[i].n_members };
        metrics_write(stdout, from->daemon, jobs, from->n_jobs);
        return CLI_OK;
}

int cmd_metrics(struct cli *cli, int argc, char **argv) {
        struct observation observation;
        int r = cli_common_options(cli, argc, argv);

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
                r = show(&observation.snapshot[0]);
                code = code ? code : r;
        }
        observation_deinit(&observation);
        return code;
}
