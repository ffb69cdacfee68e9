// SPDX-License-Identifier: Apache-2.0
/* gradsyncctl metrics: the state of one daemon as the daemon gives it out itself, on the standard output or
 * in a file for collectors. */
#include "proto/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/ask/observe.h"
#include "client/cli/base/format.h"
#include "client/cli/cmd/cmd.h"
#include "proto/metrics_sum.h"

/* Whether a later job has the same name and uid. Only the last one is shown: earlier ones are ending, and
 * names must be unique. */
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

static int cmd_metrics_show_job(const struct metrics_out *to, const struct snapshot_job *from,
                                size_t family) {
        _cleanup_(freep) struct metrics_rank *ranks = calloc(from->n_members + 1, sizeof *ranks);
        enum metrics_need need = metrics_needs(family);
        struct metrics_job job = { .job = from->job, .n_members = snapshot_places(from), .rank = ranks };

        if (!ranks)
                return cli_out_of_memory();
        job.n_spares = from->n_members - job.n_members;
        if (need == METRICS_LATE || need == METRICS_EXPOSED)
                job.n_ranks = cmd_metrics_fill(from, need == METRICS_LATE, ranks);
        metrics_write_job(to, family, &job);
        return CLI_OK;
}

static void cmd_metrics_show_states(const struct metrics_out *to, const struct snapshot *from) {
        struct metrics_sum sum = { 0 };

        for (size_t i = 0; i < from->n_jobs; i++)
                metrics_sum_add(&sum, &(struct metrics_job){ .job = from->job[i].job });
        metrics_write_states(to, sum.jobs);
}

static int cmd_metrics_show(const struct metrics_out *to, const struct snapshot *from) {
        int r = CLI_OK;

        metrics_write_daemon(to, from->daemon);
        cmd_metrics_show_states(to, from);
        for (size_t family = 0; family < metrics_n_families && !r; family++) {
                metrics_begin_family(to, family);
                for (size_t i = 0; i < from->n_jobs && !r; i++)
                        if (!cmd_metrics_superseded(from, i))
                                r = cmd_metrics_show_job(to, &from->job[i], family);
        }
        return r;
}

/* Replaces the file as a whole: a reader sees the old text or the new one, and a failure leaves the old one.
 * Collectors do not look for files that end like the draft. */
static bool cmd_metrics_replace(const char *path, const char *text, size_t size) {
        _cleanup_(freep) char *draft = format_new("%s.XXXXXX", path);
        int fd = draft ? mkostemp(draft, O_CLOEXEC) : -1;
        FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;

        if (!to) {
                int why = draft ? errno : ENOMEM;

                if (fd >= 0) {
                        close(fd);
                        unlink(draft);
                }
                errno = why;
                return false;
        }
        bool fine = fwrite(text, 1, size, to) == size && fflush(to) == 0 && fchmod(fd, 0644) == 0;
        int why = errno;
        if (fclose(to) != 0 && fine) {
                fine = false;
                why = errno;
        }
        if (fine && rename(draft, path) == 0)
                return true;
        why = fine ? errno : why;
        unlink(draft);
        errno = why;
        return false;
}

/* `path`: NULL or "-" is the standard output. */
static int cmd_metrics_write_out(const char *path, const char *text, size_t size) {
        bool here = !path || strcmp(path, "-") == 0;
        bool fine = here ? fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0
                         : cmd_metrics_replace(path, text, size);

        if (fine)
                return CLI_OK;
        cli_complain("cannot write %s: %s", here ? "the metrics" : path, strerror(errno));
        return CLI_ERROR;
}

/* Writes nothing until the whole text is there. */
static int cmd_metrics_give_out(const char *path, const struct snapshot *from) {
        _cleanup_(freep) char *text = NULL;
        size_t size = 0;
        struct metrics_out to = { .file = open_memstream(&text, &size), .device = from->daemon->device };

        if (!to.file)
                return cli_out_of_memory();
        int r = cmd_metrics_show(&to, from);
        if (fclose(to.file) != 0)
                return cli_out_of_memory();
        return r ? r : cmd_metrics_write_out(path, text, size);
}

static int cmd_metrics_parse(struct cli *cli, const char **ret_output, int argc, char **argv) {
        const struct cli_option own[] = { { "output", 'o', CLI_TEXT, .value = ret_output } };
        int r = cli_options(cli, argc, argv, false, own, array_size(own));

        if (r)
                return r;
        if (*ret_output && !**ret_output)
                return cli_refuse_option(cli, "--output: the name of the file is empty");
        return optind < argc ? cli_refuse_option(cli, "metrics takes no argument") : 0;
}

int cmd_metrics(struct cli *cli, int argc, char **argv) {
        const char *output = NULL;
        struct observation observation;
        int r = cmd_metrics_parse(cli, &output, argc, argv);

        if (r)
                return r - 1;
        int code = observe(cli, NULL, &observation);
        if (observation.n > 1) {
                cli_complain(
                        "%zu daemons answer, and their metrics cannot be mixed; say which one with --socket",
                        observation.n);
                code = CLI_ERROR;
        } else if (observation.n == 1) {
                r = cmd_metrics_give_out(output, &observation.snapshot[0]);
                code = code ? code : r;
        }
        observe_deinit(&observation);
        return code;
}
