/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a machine with a GPU what its card, driver and libraries really do, where documentation is silent or
 * not to be trusted: what memory outlives whom, who may map it, what a killed process' kernels still write,
 * how long a wait takes. One program without dependencies, which runs itself again for each role that a
 * question needs; libcuda and libnccl are loaded at run time.
 *
 * Each fact has processes of its own and a deadline, so that a hang and a crash are answers like others.
 * Facts come in the order of their risk, and all but the last one once more under the restrictions of a
 * hardened systemd unit ("hardened:" before the name). The time for everything is shared out in advance: a
 * section that hangs takes its own time, not that of those after it.
 */
#include "clock.h"
#include "facts.h"
#include "machine.h"
#include "row.h"
#include "step.h"

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum {
        STATUS_FAILED = 1,
        STATUS_USAGE = 2,
        STATUS_NO_GPU = 77, /* what test runners take for "skipped" */
        NAME = 64,
};

static const struct section {
        enum risk risk;
        bool hardened;
        double seconds; /* of TOTAL */
} sections[] = {
        { RISK_NONE, false, 30 },  { RISK_LOW, false, 85 },       { RISK_LOW, true, 60 },
        { RISK_KILL, false, 45 },  { RISK_KILL, true, 35 },       { RISK_NCCL, false, 35 },
        { RISK_NCCL, true, 20 },   { RISK_UNDEFINED, false, 10 }, { RISK_UNDEFINED, true, 8 },
        { RISK_FAULT, false, 12 },
};
#define SECTIONS (sizeof sections / sizeof *sections)
#define TOTAL 340.0
#define LEAST_SECONDS 3.0 /* of TOTAL; with less time left a fact is not begun */

struct probe {
        struct options options;
        struct rows rows;
        int64_t begin_ns;
        unsigned printed, skipped, failed;
};

static void row_name(char *name, const struct section *section, const struct fact *fact) {
        snprintf(name, NAME, "%s%s", section->hardened ? "hardened:" : "", fact->name);
}

static bool wanted(const struct options *options, const char *name) {
        for (unsigned i = 0; i < options->n_only; i++)
                if (fnmatch(options->only[i], name, 0) == 0)
                        return true;
        return options->n_only == 0;
}

static int probe_print(struct probe *probe, const char *name, const struct step_result *result, bool kernel) {
        int r = rows_print(&probe->rows, name, result->answer, result->detail, result->ms, kernel);

        if (r < 0)
                fprintf(stderr, "probe: writing the row of %s: %s\n", name, strerror(-r));
        probe->printed++;
        probe->skipped += strcmp(result->answer, "skipped") == 0;
        probe->failed += strcmp(result->answer, "error") == 0 || strcmp(result->answer, "hang") == 0 ||
                         strcmp(result->answer, "crash") == 0;
        return r;
}

static double seconds_until(int64_t ns) {
        return (double)(ns - clock_ns()) / 1e9;
}

static double deadline_of(const struct probe *probe, const struct fact *fact) {
        return probe->options.deadline > 0 ? probe->options.deadline : fact->deadline;
}

/* Whether the answer is the host kernel's, be it good or bad: what is left of processes that died, and what
 * is undefined. */
static bool is_of_kernel(const struct fact *fact) {
        return fact->risk == RISK_KILL || fact->risk == RISK_UNDEFINED || fact->risk == RISK_FAULT;
}

/* Runs a fact for its own deadline, and for no longer than its section has left. With too little left it is
 * not begun. */
static int probe_run_fact(struct probe *probe, const char *name, const struct section *section,
                          const struct fact *fact, int64_t until) {
        double deadline = deadline_of(probe, fact), left = seconds_until(until);
        struct step_result result;

        if (left < LEAST_SECONDS * probe->options.seconds / TOTAL) {
                result = (struct step_result){ .answer = "skipped", .detail = "out of time" };
                return probe_print(probe, name, &result, false);
        }
        step_run(&probe->options, fact->name, section->hardened, deadline < left ? deadline : left, &result);
        if (left < deadline && strcmp(result.answer, "hang") == 0) {
                snprintf(result.answer, sizeof result.answer, "skipped");
                snprintf(result.detail + strlen(result.detail), sizeof result.detail - strlen(result.detail),
                         "; out of time, which is %.1f s for this fact", deadline);
        }
        return probe_print(probe, name, &result, is_of_kernel(fact));
}

static int probe_run_section(struct probe *probe, const struct section *section, int64_t until) {
        char name[NAME];

        for (unsigned i = 0; i < n_facts; i++) {
                int r;

                row_name(name, section, &facts[i]);
                if (facts[i].risk != section->risk || facts[i].run == fact_machine ||
                    !wanted(&probe->options, name))
                        continue;
                r = probe_run_fact(probe, name, section, &facts[i], until);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* The facts after the first one. A section may use what those before it have left. */
static int probe_run_sections(struct probe *probe, unsigned n) {
        double end = 0;

        for (unsigned i = 0; i < n; i++) {
                int r;

                end += sections[i].seconds * probe->options.seconds / TOTAL;
                r = probe_run_section(probe, &sections[i], probe->begin_ns + (int64_t)(end * 1e9));
                if (r < 0)
                        return r;
        }
        return 0;
}

/* The first row. Returns 0, or the exit status that follows from it. */
static int probe_run_machine(struct probe *probe) {
        double deadline = deadline_of(probe, &facts[0]);
        struct step_result result;

        step_run(&probe->options, facts[0].name, false,
                 deadline < probe->options.seconds ? deadline : probe->options.seconds, &result);
        if (strcmp(result.answer, "none") == 0) {
                fprintf(stderr, "probe: no GPU here: %s\n", result.detail);
                return STATUS_NO_GPU;
        }
        if (probe_print(probe, facts[0].name, &result, false) < 0)
                return STATUS_FAILED;
        return probe->failed > 0 ? STATUS_FAILED : 0;
}

static int probe_print_end(struct probe *probe) {
        struct step_result end = { .answer = "done" };

        snprintf(end.detail, sizeof end.detail,
                 "%u rows, %u skipped, %u ended in an error, a hang or a crash", probe->printed,
                 probe->skipped, probe->failed);
        end.ms = (double)(clock_ns() - probe->begin_ns) / 1e6;
        return probe_print(probe, "probe", &end, false);
}

static int probe_run(struct probe *probe) {
        pid_t holder = -1;
        int status;

        probe->begin_ns = clock_ns();
        probe->rows.user_kernel = machine_user_kernel(probe->options.root);
        step_init();
        status = probe_run_machine(probe);
        if (status == STATUS_NO_GPU)
                return status;
        /* The driver may make the device files only when it is first used. */
        if (status == 0)
                holder = step_start(&probe->options, "holder");
        /* Without an answer of the GPU there are still the libraries. */
        if (probe_run_sections(probe, status == 0 ? SECTIONS : 1) < 0 || probe_print_end(probe) < 0)
                status = STATUS_FAILED;
        if (holder > 0)
                kill(-holder, SIGKILL);
        return status;
}

static int probe_list(const struct options *options) {
        char name[NAME];

        for (unsigned s = 0; s < SECTIONS; s++)
                for (unsigned i = 0; i < n_facts; i++) {
                        row_name(name, &sections[s], &facts[i]);
                        if (facts[i].risk == sections[s].risk &&
                            (facts[i].run == fact_machine || wanted(options, name)))
                                puts(name);
                }
        return 0;
}

static int probe_play(const struct options *options) {
        bool peer;
        actor_run *role = facts_role(options->role, &peer);

        if (role == NULL) {
                fprintf(stderr, "probe: --role %s: there is no such role\n", options->role);
                return STATUS_USAGE;
        }
        if (peer != (options->channel >= 0)) {
                fprintf(stderr, "probe: --role %s: %s\n", options->role,
                        peer ? "is a peer's and needs a --channel" : "is not a peer's and has no --channel");
                return STATUS_USAGE;
        }
        actor_play(options, role);
}

int main(int argc, char **argv) {
        struct probe probe = { 0 };
        int status = options_read(&probe.options, argc, argv), r;

        if (status != -1)
                return status;
        if (probe.options.role != NULL)
                return probe_play(&probe.options);
        if (probe.options.list)
                return probe_list(&probe.options);
        if (probe.options.kernels) {
                fputs(kernels_ptx, stdout);
                return 0;
        }
        r = rows_open(&probe.rows, probe.options.out);
        if (r < 0) {
                fprintf(stderr, "probe: --out %s: %s\n", probe.options.out, strerror(-r));
                return STATUS_USAGE;
        }
        setenv("CUDA_CACHE_DISABLE", "1", 1); /* compiled kernels are not left on the user's disk */
        status = probe_run(&probe);
        rows_close(&probe.rows);
        return status;
}
