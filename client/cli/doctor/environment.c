// SPDX-License-Identifier: Apache-2.0
/* Checks of the environment variables that name jobs and sockets. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"
#include "proto/frame.h"
#include "proto/names.h"

static const char *const check = "environment";

/* The variables by which one launcher tells a process which member it is: all of them are set, or none. */
struct launcher {
        const char *name;
        const char *world, *rank;
        const char *job;  /* NULL: not needed */
        const char *sign; /* a variable that only this launcher sets; NULL: any of the others is */
        bool lends_job;   /* another launcher may have set `job`, so it is no sign */
        bool follows;     /* ignored if another launcher has set everything: srun sets PMI_*, too */
};

static const struct launcher launchers[] = {
        { "gradsync", "GRADSYNC_WORLD_SIZE", "GRADSYNC_RANK", "GRADSYNC_JOB", NULL, false, false },
        { "torchrun", "WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RUN_ID", false, false },
        { "slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID", false, false },
        { "open mpi", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", NULL, true, false },
        { "pmi", "PMI_SIZE", "PMI_RANK", "GRADSYNC_JOB", NULL, true, true },
};

static bool doctor_environment_whole_number(const char *text, unsigned long *ret) {
        return cli_parse_number(text, 0, 1000000000, ret);
}

static const char *doctor_environment_rank_variable(const struct launcher *launcher) {
        /* Kubernetes gives the index; the rest is set by hand. */
        if (!cli_variable(launcher->rank) && strcmp(launcher->rank, "GRADSYNC_RANK") == 0 &&
            cli_variable("JOB_COMPLETION_INDEX"))
                return "JOB_COMPLETION_INDEX";
        return launcher->rank;
}

/* A spare gets its rank from the daemon. */
static bool doctor_environment_spares_rank(const struct launcher *launcher, const char *rank_name) {
        const char *spare = cli_variable("GRADSYNC_SPARE");

        return strcmp(launcher->rank, "GRADSYNC_RANK") == 0 && !cli_variable(rank_name) && spare &&
               strcmp(spare, "1") == 0;
}

static void doctor_environment_missing(struct findings *findings, const char *set, const char *unset) {
        findings_add(findings, check, VERDICT_FAIL, format_new("%s is set, but %s is not", set, unset),
                     format_new("export %s, or unset %s", unset, set));
}

/* Whether MPICH's launcher starts the ranks: it has no name for the job and leaves that to GRADSYNC_JOB. */
static bool doctor_environment_has_pmi(void) {
        return cli_variable("PMI_SIZE") || cli_variable("PMI_RANK");
}

/* An mpirun within a step of Slurm: Slurm's variables are about the processes that start the ranks. */
static bool doctor_environment_is_mpirun_in_a_step(const struct launcher *launcher) {
        return strcmp(launcher->name, "slurm") == 0 &&
               (cli_variable("OMPI_COMM_WORLD_RANK") || cli_variable("MPI_LOCALRANKID"));
}

/* Whether the launcher has set any of its variables. */
static bool doctor_environment_present(const struct launcher *launcher) {
        if (doctor_environment_is_mpirun_in_a_step(launcher))
                return false;
        if (launcher->sign)
                return cli_variable(launcher->sign);
        bool lends = launcher->lends_job || doctor_environment_has_pmi();
        return cli_variable(launcher->world) || cli_variable(launcher->rank) ||
               (launcher->job && !lends && cli_variable(launcher->job));
}

/* Reports a value that is no number, or a rank that is too large for the world. */
static bool doctor_environment_numbers_fit(const struct launcher *launcher, const char *rank_name,
                                           struct findings *findings) {
        const char *names[] = { launcher->world, rank_name };
        unsigned long values[2] = { 0, 0 };

        size_t n = array_size(names) - doctor_environment_spares_rank(launcher, rank_name);

        for (size_t i = 0; i < n; i++)
                if (!doctor_environment_whole_number(cli_variable(names[i]), &values[i])) {
                        findings_add(findings, check, VERDICT_FAIL,
                                     format_new("%s is \"%s\", not a number", names[i],
                                                cli_variable(names[i])),
                                     format_new("export %s=%s", names[i], i ? "0" : "1"));
                        return false;
                }
        if (values[0] == 0) {
                findings_add(findings, check, VERDICT_FAIL, format_new("%s is 0", names[0]),
                             format_new("export %s=1, or more", names[0]));
                return false;
        }
        if (values[1] >= values[0]) {
                findings_add(findings, check, VERDICT_FAIL,
                             format_new("%s is %lu, but %s is %lu: ranks go from 0 to %lu", names[1],
                                        values[1], names[0], values[0], values[0] - 1),
                             format_new("export %s=%lu, or a smaller %s", names[0], values[1] + 1, names[1]));
                return false;
        }
        return true;
}

/* Whether a launcher earlier in the table has set all of its variables. */
static bool doctor_environment_comes_late(const struct launcher *launcher) {
        for (const struct launcher *l = launchers; l < launcher; l++)
                if (doctor_environment_present(l) && cli_variable(l->world) && cli_variable(l->job) &&
                    cli_variable(doctor_environment_rank_variable(l)))
                        return true;
        return false;
}

/* Reports what is wrong with the variables of this launcher. True if nothing is. */
static bool doctor_environment_launcher_fits(const struct launcher *launcher, struct findings *findings) {
        const char *rank = doctor_environment_rank_variable(launcher);
        const char *needed[] = { launcher->job, launcher->world, rank };
        const char *set = NULL;
        bool whole = true;

        if (!doctor_environment_present(launcher) ||
            (launcher->follows && doctor_environment_comes_late(launcher)))
                return true;
        for (size_t i = launcher->lends_job ? 1 : 0; i < array_size(needed); i++)
                if (needed[i] && cli_variable(needed[i]) && !set)
                        set = needed[i];
        for (size_t i = 0; i < array_size(needed); i++)
                if (needed[i] && !cli_variable(needed[i]) &&
                    !(i == 2 && doctor_environment_spares_rank(launcher, rank))) {
                        doctor_environment_missing(findings, set ? set : launcher->sign, needed[i]);
                        whole = false;
                }
        return whole && doctor_environment_numbers_fit(launcher, rank, findings);
}

/* Reports two launchers that both set everything: the first one counts, which may surprise. */
static bool doctor_environment_launchers_agree(struct findings *findings) {
        const struct launcher *first = NULL;
        bool agree = true;

        for (size_t i = 0; i < array_size(launchers); i++) {
                const struct launcher *l = &launchers[i];
                const char *rank = doctor_environment_rank_variable(l);
                if (!doctor_environment_present(l) || !cli_variable(l->world) || !cli_variable(rank) ||
                    (l->follows && doctor_environment_comes_late(l)))
                        continue;
                if (!first) {
                        first = l;
                } else if (strcmp(cli_variable(doctor_environment_rank_variable(first)),
                                  cli_variable(rank)) != 0) {
                        findings_add(findings, check, VERDICT_WARN,
                                     format_new("%s=%s counts, %s=%s does not",
                                                doctor_environment_rank_variable(first),
                                                cli_variable(doctor_environment_rank_variable(first)), rank,
                                                cli_variable(rank)),
                                     format_new("unset the variables of the launcher that you do not mean"));
                        agree = false;
                }
        }
        return agree;
}

static bool doctor_environment_socket_variable_fits(struct findings *findings) {
        const char *path = cli_variable("GRADSYNC_SOCKET");
        struct stat info;

        if (!path)
                return true;
        if (stat(path, &info) < 0) {
                findings_add(
                        findings, check, VERDICT_FAIL,
                        format_new("GRADSYNC_SOCKET points to %s: %s", path, strerror(errno)),
                        format_new(
                                "unset GRADSYNC_SOCKET, or let it name the socket of a running gradsyncd"));
                return false;
        }
        if (!S_ISSOCK(info.st_mode)) {
                findings_add(
                        findings, check, VERDICT_FAIL,
                        format_new("GRADSYNC_SOCKET points to %s, which is no socket", path),
                        format_new(
                                "unset GRADSYNC_SOCKET, or let it name the socket of a running gradsyncd"));
                return false;
        }
        return true;
}

static bool doctor_environment_directory_variable_fits(const char *name, struct findings *findings) {
        const char *path = cli_variable(name);
        struct stat info;

        if (!path || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
                return true;
        findings_add(findings, check, VERDICT_WARN,
                     format_new("%s points to %s, which is no directory", name, path),
                     format_new("mkdir -p %s, or unset %s", path, name));
        return false;
}

static bool doctor_environment_job_variable_fits(struct findings *findings) {
        const char *job = cli_variable("GRADSYNC_JOB");

        if (!job || name_valid_job(job))
                return true;
        findings_add(findings, check, VERDICT_FAIL,
                     format_new("GRADSYNC_JOB is \"%s\", which cannot be the name of a job", job),
                     format_new("choose 1 to %u bytes of UTF-8 without \"/\" and control characters",
                                LIMIT_NAME));
        return false;
}

void doctor_environment(struct findings *findings) {
        bool fits = doctor_environment_socket_variable_fits(findings);

        fits = doctor_environment_job_variable_fits(findings) && fits;
        for (size_t i = 0; i < array_size(launchers); i++)
                fits = doctor_environment_launcher_fits(&launchers[i], findings) && fits;
        fits = doctor_environment_launchers_agree(findings) && fits;
        fits = doctor_environment_directory_variable_fits("XDG_RUNTIME_DIR", findings) && fits;
        fits = doctor_environment_directory_variable_fits("TMPDIR", findings) && fits;
        if (fits)
                findings_add(findings, check, VERDICT_OK,
                             format_new("the variables of gradsync and of launchers fit together"), NULL);
}
