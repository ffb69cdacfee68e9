// SPDX-License-Identifier: Apache-2.0
/* Checks of what the environment says about jobs and sockets, and of what earlier runs left behind. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"
#include "private.h"
#include "proto/frame.h"
#include "proto/names.h"

static const char *const check = "environment";

static const char *variable(const char *name) {
        const char *value = getenv(name);

        return value && *value ? value : NULL;
}

/* The variables by which one launcher tells a process who it is. All of `needed` or none of it. */
struct launcher {
        const char *name;
        const char *world, *rank;
        const char *job;  /* NULL: not needed */
        const char *sign; /* a variable that only this launcher sets; NULL: any of the others is */
};

static const struct launcher launchers[] = {
        { "gradsync", "GRADSYNC_WORLD_SIZE", "GRADSYNC_RANK", "GRADSYNC_JOB", NULL },
        { "torchrun", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RUN_ID" },
        { "slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID" },
};

static bool whole_number(const char *text, unsigned long *ret) {
        return cli_parse_number(text, 0, 1000000000, ret);
}

static const char *rank_variable(const struct launcher *launcher) {
        /* Kubernetes gives the index; the rest is set by hand. */
        if (!variable(launcher->rank) && strcmp(launcher->rank, "GRADSYNC_RANK") == 0 &&
            variable("JOB_COMPLETION_INDEX"))
                return "JOB_COMPLETION_INDEX";
        return launcher->rank;
}

/* A spare gets its rank from the daemon. */
static bool spares_rank(const struct launcher *launcher, const char *rank_name) {
        const char *spare = variable("GRADSYNC_SPARE");

        return strcmp(launcher->rank, "GRADSYNC_RANK") == 0 && !variable(rank_name) && spare && strcmp(spare, "1") == 0;
}

static void missing(struct report *report, const char *set, const char *unset) {
        report_add(report, check, VERDICT_FAIL, say("%s is set, but %s is not", set, unset),
                   say("export %s, or unset %s", unset, set));
}

/* Whether the launcher has spoken at all. */
static bool present(const struct launcher *launcher) {
        if (launcher->sign)
                return variable(launcher->sign);
        return variable(launcher->world) || variable(launcher->rank) ||
               (launcher->job && variable(launcher->job));
}

/* A value that is no number, or a rank that the world has no room for. */
static bool numbers_fit(const struct launcher *launcher, const char *rank_name, struct report *report) {
        const char *names[] = { launcher->world, rank_name };
        unsigned long values[2] = { 0, 0 };

        size_t n = array_size(names) - spares_rank(launcher, rank_name);

        for (size_t i = 0; i < n; i++)
                if (!whole_number(variable(names[i]), &values[i])) {
                        report_add(report, check, VERDICT_FAIL,
                                   say("%s is \"%s\", not a number", names[i], variable(names[i])),
                                   say("export %s=%s", names[i], i ? "0" : "1"));
                        return false;
                }
        if (values[0] == 0) {
                report_add(report, check, VERDICT_FAIL, say("%s is 0", names[0]),
                           say("export %s=1, or more", names[0]));
                return false;
        }
        if (values[1] >= values[0]) {
                report_add(report, check, VERDICT_FAIL,
                           say("%s is %lu, but %s is %lu: ranks go from 0 to %lu", names[1], values[1],
                               names[0], values[0], values[0] - 1),
                           say("export %s=%lu, or a smaller %s", names[0], values[1] + 1, names[1]));
                return false;
        }
        return true;
}

/* True if nothing is wrong with what this launcher says. */
static bool launcher_fits(const struct launcher *launcher, struct report *report) {
        const char *rank = rank_variable(launcher);
        const char *needed[] = { launcher->job, launcher->world, rank };
        const char *set = NULL;
        bool whole = true;

        if (!present(launcher))
                return true;
        for (size_t i = 0; i < array_size(needed); i++)
                if (needed[i] && variable(needed[i]) && !set)
                        set = needed[i];
        for (size_t i = 0; i < array_size(needed); i++)
                if (needed[i] && !variable(needed[i]) && !(i == 2 && spares_rank(launcher, rank))) {
                        missing(report, set ? set : launcher->sign, needed[i]);
                        whole = false;
                }
        return whole && numbers_fit(launcher, rank, report);
}

/* Two launchers that both say everything: the first counts, which may surprise. */
static bool launchers_agree(struct report *report) {
        const struct launcher *first = NULL;
        bool agree = true;

        for (size_t i = 0; i < array_size(launchers); i++) {
                const struct launcher *l = &launchers[i];
                const char *rank = rank_variable(l);
                if (!present(l) || !variable(l->world) || !variable(rank))
                        continue;
                if (!first) {
                        first = l;
                } else if (strcmp(variable(rank_variable(first)), variable(rank)) != 0) {
                        report_add(report, check, VERDICT_WARN,
                                   say("%s=%s counts, %s=%s does not", rank_variable(first),
                                       variable(rank_variable(first)), rank, variable(rank)),
                                   say("unset the variables of the launcher that you do not mean"));
                        agree = false;
                }
        }
        return agree;
}

static bool socket_variable_fits(struct report *report) {
        const char *path = variable("GRADSYNC_SOCKET");
        struct stat info;

        if (!path)
                return true;
        if (stat(path, &info) < 0) {
                report_add(report, check, VERDICT_FAIL,
                           say("GRADSYNC_SOCKET points to %s: %s", path, strerror(errno)),
                           say("unset GRADSYNC_SOCKET, or let it name the socket of a running gradsyncd"));
                return false;
        }
        if (!S_ISSOCK(info.st_mode)) {
                report_add(report, check, VERDICT_FAIL,
                           say("GRADSYNC_SOCKET points to %s, which is no socket", path),
                           say("unset GRADSYNC_SOCKET, or let it name the socket of a running gradsyncd"));
                return false;
        }
        return true;
}

static bool directory_variable_fits(const char *name, struct report *report) {
        const char *path = variable(name);
        struct stat info;

        if (!path || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
                return true;
        report_add(report, check, VERDICT_WARN, say("%s points to %s, which is no directory", name, path),
                   say("mkdir -p %s, or unset %s", path, name));
        return false;
}

static bool job_variable_fits(struct report *report) {
        const char *job = variable("GRADSYNC_JOB");

        if (!job || name_valid_job(job))
                return true;
        report_add(report, check, VERDICT_FAIL,
                   say("GRADSYNC_JOB is \"%s\", which cannot be the name of a job", job),
                   say("choose 1 to %u bytes of UTF-8 without \"/\" and control characters", LIMIT_NAME));
        return false;
}

void check_environment(const struct checkup *checkup, struct report *report) {
        bool fits = socket_variable_fits(report);

        fits = job_variable_fits(report) && fits;
        for (size_t i = 0; i < array_size(launchers); i++)
                fits = launcher_fits(&launchers[i], report) && fits;
        fits = launchers_agree(report) && fits;
        fits = directory_variable_fits("XDG_RUNTIME_DIR", report) && fits;
        fits = directory_variable_fits("TMPDIR", report) && fits;
        if (fits)
                report_add(report, check, VERDICT_OK,
                           say("the variables of gradsync and of launchers fit together"), NULL);
}

void check_leftovers(const struct checkup *checkup, struct report *report) {
        struct private_list list;
        size_t in_use = 0, left = 0;
        int r = private_scan(&list);

        if (r < 0)
                return report_add(report, "leftovers", VERDICT_WARN,
                                  say("%s cannot be read: %s", private_parent(), strerror(-r)),
                                  say("let TMPDIR name a directory of your own"));
        for (size_t i = 0; i < list.n; i++) {
                const struct private_place *place = &list.place[i];
                if (place->owned) {
                        in_use++;
                        continue;
                }
                left++;
                if (place->daemon)
                        report_add(report, "leftovers", VERDICT_WARN,
                                   say("%s: a private daemon (pid %d) outlived its gradsyncctl run",
                                       place->directory, (int)place->daemon),
                                   say("kill %d; rm -r %s", (int)place->daemon, place->directory));
                else
                        report_add(report, "leftovers", VERDICT_WARN,
                                   say("%s: left by a private daemon that is gone", place->directory),
                                   say("rm -r %s", place->directory));
        }
        if (!left)
                report_add(report, "leftovers", VERDICT_OK,
                           in_use ? say("none; %zu private daemon%s in use", in_use, in_use == 1 ? "" : "s")
                                  : say("none"),
                           NULL);
        private_list_deinit(&list);
}
