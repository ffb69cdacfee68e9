// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl metrics: the state of one daemon as OpenMetrics text, as the daemon's metrics socket gives it.
 * */
#include "proto/metrics.h"
#include "client/cli/ask/observe.h"
#include "client/cli/cmd/cmd.h"

static int cmd_metrics_show(const struct snapshot *from) {
        _cleanup_(freep) struct metrics_job *jobs = calloc(from->n_jobs + 1, sizeof *jobs);

        if (!jobs)
                return cli_out_of_memory();
        for (size_t i = 0; i < from->n_jobs; i++)
                jobs[i] = (struct metrics_job){ .job = from->job[i].job,
                                                .member = from->job[i].member,
                                                .n_members = from->job[i].n_members };
        metrics_write(stdout, from->daemon, jobs, from->n_jobs);
        return CLI_OK;
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
