// SPDX-License-Identifier: Apache-2.0
/* Checks of the environment variables that name jobs and sockets, as the library reads them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/base/cli.h"
#include "client/cli/base/format.h"
#include "client/cli/doctor/doctor.h"
#include "client/lib/base/fail.h"
#include "gradsync/gradsync.h"

static const char *const check = "environment";

static bool doctor_environment_own_variables_count(size_t at, const struct environ_job *job,
                                                   struct findings *findings) {
        const char *set, *missing;

        if (!job->launcher || !environ_passes_over(at, &set, &missing))
                return true;
        findings_add(findings, check, VERDICT_WARN,
                     format_new("%s is set but %s is not, so the variables of %s count", set, missing,
                                job->launcher),
                     format_new("export the variable that is missing, or unset the other one"));
        return false;
}

static bool doctor_environment_launchers_fit(struct findings *findings) {
        struct environ_job first, other;
        char missing[256] = "";
        size_t at = 0;
        int r = environ_next_job(&at, &first);
        bool fits = doctor_environment_own_variables_count(at, &first, findings);

        if (r == GRADSYNC_OK && !first.launcher && environ_launcher_variable())
                environ_missing(missing, sizeof missing);
        if (*missing)
                findings_add(findings, check, VERDICT_FAIL, format_new("%s", missing),
                             format_new("export the variable that is missing, or unset the other one"));
        while (r == GRADSYNC_OK && first.launcher) {
                r = environ_next_job(&at, &other);
                if (r != GRADSYNC_OK || !other.launcher)
                        break;
                if (other.rank < 0 || other.rank == first.rank)
                        continue;
                findings_add(findings, check, VERDICT_WARN,
                             format_new("rank %" PRIi64 " of %s counts, rank %" PRIi64 " of %s does not",
                                        first.rank, first.launcher, other.rank, other.launcher),
                             format_new("unset the variables of the launcher that you do not mean"));
                return false;
        }
        if (r != GRADSYNC_OK)
                findings_add(findings, check, VERDICT_FAIL, format_new("%s", fail_text()),
                             format_new("correct it, or unset the variables of that launcher"));
        return fits && r == GRADSYNC_OK && !*missing;
}

static bool doctor_environment_socket_variable_fits(struct findings *findings) {
        const char *path = environ_get("GRADSYNC_SOCKET");
        struct stat info;

        if (!path)
                return true;
        const char *why = stat(path, &info) < 0     ? strerror(errno)
                          : !S_ISSOCK(info.st_mode) ? "it is no socket"
                                                    : NULL;
        if (why)
                findings_add(
                        findings, check, VERDICT_FAIL,
                        format_new("GRADSYNC_SOCKET points to %s: %s", path, why),
                        format_new(
                                "unset GRADSYNC_SOCKET, or let it name the socket of a running gradsyncd"));
        return !why;
}

static bool doctor_environment_directory_variable_fits(const char *name, struct findings *findings) {
        const char *path = environ_get(name);
        struct stat info;

        if (!path || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
                return true;
        findings_add(findings, check, VERDICT_WARN,
                     format_new("%s points to %s, which is no directory", name, path),
                     format_new("mkdir -p %s, or unset %s", path, name));
        return false;
}

void doctor_environment(struct findings *findings) {
        bool fits = doctor_environment_socket_variable_fits(findings);

        fits = doctor_environment_launchers_fit(findings) && fits;
        fits = doctor_environment_directory_variable_fits("XDG_RUNTIME_DIR", findings) && fits;
        fits = doctor_environment_directory_variable_fits("TMPDIR", findings) && fits;
        if (fits)
                findings_add(findings, check, VERDICT_OK,
                             format_new("the variables of gradsync and of launchers fit together"), NULL);
}
