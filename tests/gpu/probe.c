/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a machine with a GPU what its card, driver and libraries really do, where documentation is silent or
 * not to be trusted: what memory outlives whom, who may map it, what a killed process' kernels still write,
 * how long a wait takes. One program without dependencies; libcuda and libnccl are loaded at run time.
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
#include <fcntl.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        STATUS_FAILED = 1,
        STATUS_USAGE = 2,
        STATUS_NO_GPU = 77, /* what test runners take for "skipped" */
        NAME = 64,
        PATTERNS = 32,
        DEVICES = 16,
};

static const char help[] =
        "usage: probe [OPTION]...\n"
        "  --list          names the facts\n"
        "  --only PATTERN  the machine, and only these facts, as a shell matches names; may be repeated\n"
        "  --seconds N     for everything (340); facts that are not begun by then are skipped\n"
        "  --deadline N    seconds for each fact, instead of its own\n"
        "  --root FOLDER   stands for / where files describe the machine\n"
        "  --kernels       prints the kernels, as PTX\n"
        "Exit status: 0 all rows are printed, whatever they say; 1 the GPU or the rows failed; 2 usage; "
        "77 no GPU.\n";

static const struct fact {
        const char *name;
        enum risk risk;
        double deadline; /* seconds */
        actor_run *run;
} facts[] = {
#define FACT_ROW(name, risk, deadline, function) { name, risk, deadline, function },
        FACTS(FACT_ROW)
#undef FACT_ROW
};
#define N_FACTS (sizeof facts / sizeof *facts)

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
        const char *only[PATTERNS], *root;
        unsigned n_only;
        double seconds, deadline; /* 0: each fact has its own */
        bool list, kernels;
        bool user_kernel; /* a user-space kernel such as gVisor answers here */
        int64_t begin_ns;
        unsigned printed, skipped, failed;
};

static void row_name(char *name, const struct section *section, const struct fact *fact) {
        snprintf(name, NAME, "%s%s", section->hardened ? "hardened:" : "", fact->name);
}

static bool wanted(const struct probe *probe, const char *name) {
        for (unsigned i = 0; i < probe->n_only; i++)
                if (fnmatch(probe->only[i], name, 0) == 0)
                        return true;
        return probe->n_only == 0;
}

static bool is_any(const char *answer, const char *const *of, size_t n) {
        for (size_t i = 0; i < n; i++)
                if (strcmp(answer, of[i]) == 0)
                        return true;
        return false;
}

/*
 * Prints one row. Under a user-space kernel a failure is not the driver's answer: no, error, hang and crash
 * become "undecided", and the detail says what it was. With `kernel` every answer does, as it would be the
 * host kernel's, except "skipped".
 */
static int probe_print(struct probe *probe, const char *name, struct step_result *result, bool kernel) {
        static const char *const failures[] = { "error", "hang", "crash", "no" };
        bool only = strncmp(result->answer, "only ", 5) == 0; /* from or to root */
        char detail[STEP_DETAIL + 256];

        snprintf(detail, sizeof detail, "%s", result->detail);
        if (probe->user_kernel && strcmp(result->answer, "skipped") != 0 &&
            (kernel || only || is_any(result->answer, failures, 4))) {
                snprintf(detail, sizeof detail,
                         "%s, but a user-space kernel answered, so this decides nothing: %s", result->answer,
                         result->detail);
                snprintf(result->answer, sizeof result->answer, "undecided");
        }
        int r = row_print(name, result->answer, detail, result->ms);
        if (r < 0)
                fprintf(stderr, "probe: writing the row of %s: %s\n", name, strerror(-r));
        probe->printed++;
        probe->skipped += strcmp(result->answer, "skipped") == 0;
        probe->failed += is_any(result->answer, failures, 3);
        return r;
}

static double seconds_until(int64_t ns) {
        return (double)(ns - clock_ns()) / 1e9;
}

static double deadline_of(const struct probe *probe, const struct fact *fact) {
        return probe->deadline > 0 ? probe->deadline : fact->deadline;
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
        struct actor actor = { .root = probe->root, .role = fact->name, .channel = -1 };
        double deadline = deadline_of(probe, fact), left = seconds_until(until);
        struct step_result result;

        if (left < LEAST_SECONDS * probe->seconds / TOTAL) {
                result = (struct step_result){ .answer = "skipped", .detail = "out of time" };
                return probe_print(probe, name, &result, false);
        }
        step_run(&actor, fact->run, section->hardened ? ACTOR_HARDENED : 0, deadline < left ? deadline : left,
                 &result);
        if (left < deadline && strcmp(result.answer, "hang") == 0) {
                snprintf(result.answer, sizeof result.answer, "skipped");
                snprintf(result.detail + strlen(result.detail), sizeof result.detail - strlen(result.detail),
                         "; out of time, which is %.1f s for this fact", deadline);
        }
        return probe_print(probe, name, &result, is_of_kernel(fact));
}

static int probe_run_section(struct probe *probe, const struct section *section, int64_t until) {
        char name[NAME];

        for (unsigned i = 0; i < N_FACTS; i++) {
                int r;

                row_name(name, section, &facts[i]);
                if (facts[i].risk != section->risk || facts[i].run == fact_machine || !wanted(probe, name))
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

                end += sections[i].seconds * probe->seconds / TOTAL;
                r = probe_run_section(probe, &sections[i], probe->begin_ns + (int64_t)(end * 1e9));
                if (r < 0)
                        return r;
        }
        return 0;
}

/* The first row. Returns 0, or the exit status that follows from it. */
static int probe_run_machine(struct probe *probe) {
        struct actor actor = { .root = probe->root, .role = facts[0].name, .channel = -1 };
        double deadline = deadline_of(probe, &facts[0]);
        struct step_result result;

        step_run(&actor, fact_machine, 0, deadline < probe->seconds ? deadline : probe->seconds, &result);
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

/* Keeps the devices open: without a process that does, the driver would start the card anew for each fact. It
 * may make their files only when it is first used. */
static void hold_devices(void) {
        char path[32];

        for (int i = 0; i < DEVICES; i++) {
                snprintf(path, sizeof path, "/dev/nvidia%d", i);
                open(path, O_RDWR | O_CLOEXEC); /* most do not exist */
        }
}

static int probe_run(struct probe *probe) {
        probe->begin_ns = clock_ns();
        probe->user_kernel = machine_user_kernel(probe->root);
        step_init();
        int status = probe_run_machine(probe);
        if (status == STATUS_NO_GPU)
                return status;
        if (status == 0)
                hold_devices();
        /* Without an answer of the GPU there are still the libraries. */
        if (probe_run_sections(probe, status == 0 ? SECTIONS : 1) < 0 || probe_print_end(probe) < 0)
                status = STATUS_FAILED;
        return status;
}

static int probe_list(const struct probe *probe) {
        char name[NAME];

        for (unsigned s = 0; s < SECTIONS; s++)
                for (unsigned i = 0; i < N_FACTS; i++) {
                        row_name(name, &sections[s], &facts[i]);
                        if (facts[i].risk == sections[s].risk &&
                            (facts[i].run == fact_machine || wanted(probe, name)))
                                puts(name);
                }
        return 0;
}

static bool probe_read_seconds(const char *option, double *seconds) {
        char *end;

        *seconds = strtod(optarg, &end);
        if (end != optarg && *end == '\0' && *seconds > 0 && *seconds <= 86400)
                return true;
        fprintf(stderr, "probe: --%s %s: not a number of seconds\n", option, optarg);
        return false;
}

/* False: it is wrong, which was said. */
static bool probe_take(struct probe *probe, int option) {
        switch (option) {
        case 'l': return probe->list = true;
        case 'k': return probe->kernels = true;
        case 'r': probe->root = optarg; return true;
        case 's': return probe_read_seconds("seconds", &probe->seconds);
        case 'd': return probe_read_seconds("deadline", &probe->deadline);
        case 'o':
                if (probe->n_only < PATTERNS) {
                        probe->only[probe->n_only++] = optarg;
                        return true;
                }
                fprintf(stderr, "probe: --only %s: too many patterns\n", optarg);
                return false;
        default: return false; /* getopt_long() has said it */
        }
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },           { "list", no_argument, NULL, 'l' },
                { "only", required_argument, NULL, 'o' },     { "seconds", required_argument, NULL, 's' },
                { "deadline", required_argument, NULL, 'd' }, { "root", required_argument, NULL, 'r' },
                { "kernels", no_argument, NULL, 'k' },        { 0 },
        };
        struct probe probe = { .root = "", .seconds = TOTAL };
        int option;

        while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (option == 'h')
                        return fputs(help, stdout) < 0;
                if (!probe_take(&probe, option))
                        return STATUS_USAGE;
        }
        if (optind != argc) {
                fprintf(stderr, "probe: what is '%s'? See probe --help\n", argv[optind]);
                return STATUS_USAGE;
        }
        if (probe.list)
                return probe_list(&probe);
        if (probe.kernels)
                return fputs(kernels_ptx, stdout) < 0;
        setenv("CUDA_CACHE_DISABLE", "1", 1); /* compiled kernels are not left on the user's disk */
        return probe_run(&probe);
}
