/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs schedules, one for each seed, on all CPUs, and counts where faults struck. Ends with 1 if a rule was
 * violated, with 2 if only a pair of phase and fault was struck too seldom.
 *
 *   simulation [--schedules N] [--seed S] [--jobs J] [--coverage] [--trace]
 *   simulation-planted --list | --plant BUG [--schedules N] [--seed S] [--jobs J] [--trace]
 *
 * The second one has bugs in it. It runs schedules until the one that was switched on violates the rule that
 * it is meant to, and ends with 1 if that does not happen.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/machine/planted.h"
#include "sim.h"

#define MAX_JOBS 256u
#define HITS_PER_MILLION 1000u

#ifdef MACHINE_PLANTED_BUGS
enum planted planted_bug;

static const struct {
        const char *name;
        enum rule rule;
} bugs[N_PLANTED] = {
        [PLANTED_COMMITS_IN_DOUBT] = { "commits-in-doubt", RULE_SAME_STATE },
        [PLANTED_PREPARES_EARLY] = { "prepares-early", RULE_WAIT },
        [PLANTED_IGNORES_MISSING] = { "ignores-missing", RULE_TRUE_SUM },
        [PLANTED_TELLS_UNLANDED] = { "tells-unlanded", RULE_TRUE_SUM },
        [PLANTED_TELLS_EARLY] = { "tells-early", RULE_ARENA },
        [PLANTED_RANK_TWICE] = { "rank-twice", RULE_RANK },
        [PLANTED_GENERATION_TWICE] = { "generation-twice", RULE_GENERATION },
        [PLANTED_FORGETS_A_NODE] = { "forgets-a-node", RULE_WAIT },
        [PLANTED_CUT_TOO_LOW] = { "cut-too-low", RULE_COUNTS },
        [PLANTED_FENCE_OPEN] = { "fence-open", RULE_FENCED },
        [PLANTED_GROWS_ANYWHERE] = { "grows-anywhere", RULE_NO_FAULT },
        [PLANTED_RESTLESS] = { "restless", RULE_ONE_FAULT },
        [PLANTED_HASTY] = { "hasty", RULE_ONE_FAULT },
        [PLANTED_STATE_OF_ANYBODY] = { "state-of-anybody", RULE_SAME_STATE },
        [PLANTED_HOLDS_BACK] = { "holds-back", RULE_WAIT },
        [PLANTED_STOPS_ONCE] = { "stops-once", RULE_WAIT },
        [PLANTED_HOLDS_FOR_SPARES] = { "holds-for-spares", RULE_WAIT },
        [PLANTED_BLAMES_ANYBODY] = { "blames-anybody", RULE_LOSS },
        [PLANTED_PREPARES_BY_MARK] = { "prepares-by-mark", RULE_TRUE_SUM },
        [PLANTED_ASSUMES_UNTOUCHED] = { "assumes-untouched", RULE_RESTART },
        [PLANTED_AWAITS_NO_NODE] = { "awaits-no-node", RULE_ONE_FAULT },
        [PLANTED_FORGETS_TERMS] = { "forgets-terms", RULE_TERM },
        [PLANTED_TRUSTS_CLOCKS] = { "trusts-clocks", RULE_WAIT },
        [PLANTED_NUMBERS_ALONE] = { "numbers-alone", RULE_TRACK },
        [PLANTED_COUNTS_ALONE] = { "counts-alone", RULE_TRACK },
        [PLANTED_FORGETS_COMMITS] = { "forgets-commits", RULE_RESTART },
        [PLANTED_LAUNCHES_BY_READY] = { "launches-by-ready", RULE_ORDER },
        [PLANTED_ASKS_EARLY] = { "asks-early", RULE_WAIT },
        [PLANTED_KEEPS_TURNS] = { "keeps-turns", RULE_ORDER },
        [PLANTED_FORGETS_TURNS] = { "forgets-turns", RULE_ORDER },
        [PLANTED_CREDITS_LOWEST] = { "credits-lowest", RULE_WAIT },
        [PLANTED_VOID_FOR_SOME] = { "void-for-some", RULE_TORN },
        [PLANTED_LAUNCHES_UNAGREED] = { "launches-unagreed", RULE_READY },
        [PLANTED_AGREES_WITH_ANY] = { "agrees-with-any", RULE_READY },
        [PLANTED_FORGETS_GO] = { "forgets-go", RULE_ORDER },
        [PLANTED_KEEPS_GO] = { "keeps-go", RULE_READY },
        [PLANTED_LAUNCHES_BY_LANE] = { "launches-by-lane", RULE_ORDER },
        [PLANTED_FORGETS_TO_SYNC] = { "forgets-to-sync", RULE_TORN },
};

static bool plant(const char *name, int *ret_rule) {
        for (int bug = 1; bug < N_PLANTED; bug++)
                if (strcmp(name, bugs[bug].name) == 0) {
                        planted_bug = bug;
                        *ret_rule = bugs[bug].rule;
                        return true;
                }
        return false;
}

static void list_bugs(void) {
        for (int bug = 1; bug < N_PLANTED; bug++)
                puts(bugs[bug].name);
}
#else
static bool plant(const char *name, int *ret_rule) {
        return false;
}

static void list_bugs(void) {}
#endif

struct tally {
        uint64_t violations[N_RULES], first[N_RULES], hits[N_PHASES][N_FAULTS], shared_hits[N_PHASES], run;
};

static struct options {
        uint64_t schedules, seed;
        unsigned jobs;
        bool trace, coverage;
        int expect; /* the rule that is to be violated; -1: none */
} o = { .schedules = 100000, .expect = -1 };

static void usage(void) {
        fprintf(stderr,
                "simulation [--schedules N] [--seed S] [--jobs J] [--coverage] [--trace]\n"
                "simulation-planted --list | --plant BUG [--schedules N] [--seed S] [--jobs J] [--trace]\n");
        exit(64);
}

static bool parse_flag(const char *argument) {
        if (strcmp(argument, "--list") == 0) {
                list_bugs();
                exit(0);
        }
        if (strcmp(argument, "--coverage") == 0)
                o.coverage = true;
        else if (strcmp(argument, "--trace") == 0)
                o.trace = true;
        else
                return false;
        return true;
}

static void parse(int argc, char **argv) {
        for (int i = 1; i < argc; i++) {
                const char *value = i + 1 < argc ? argv[i + 1] : "";

                if (parse_flag(argv[i]))
                        continue;
                if (strcmp(argv[i], "--schedules") == 0)
                        o.schedules = strtoull(value, NULL, 10);
                else if (strcmp(argv[i], "--seed") == 0)
                        o.seed = strtoull(value, NULL, 10);
                else if (strcmp(argv[i], "--jobs") == 0)
                        o.jobs = (unsigned)strtoul(value, NULL, 10);
                else if (strcmp(argv[i], "--plant") != 0 || !plant(value, &o.expect))
                        usage();
                i++;
        }
        if (o.trace)
                o.schedules = 1;
        if (o.jobs == 0 || o.trace)
                o.jobs = o.trace ? 1 : (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
        if (o.jobs > MAX_JOBS)
                o.jobs = MAX_JOBS;
}

/* Another process has seen what is looked for. */
static bool is_found(const struct tally *tally) {
        for (unsigned job = 0; job < o.jobs && o.expect >= 0; job++)
                if (((const volatile struct tally *)tally)[job].violations[o.expect] > 0)
                        return true;
        return false;
}

static void run_share(struct tally *all, unsigned job) {
        struct tally *tally = &all[job];

        for (uint64_t i = job; i < o.schedules && !is_found(all); i += o.jobs) {
                enum rule rule = schedule_run(o.seed + i, o.trace);

                tally->run++;
                if (rule != RULE_NONE && tally->violations[rule]++ == 0)
                        tally->first[rule] = o.seed + i;
        }
        memcpy(tally->hits, hits, sizeof(hits));
        memcpy(tally->shared_hits, shared_hits, sizeof(shared_hits));
}

static void run_all(struct tally *tally) {
        for (unsigned job = 0; job < o.jobs; job++) {
                pid_t pid = o.jobs > 1 ? fork() : 0;

                if (pid < 0) {
                        perror("fork");
                        exit(1);
                }
                if (pid > 0)
                        continue;
                run_share(tally, job);
                if (o.jobs > 1)
                        _exit(0);
        }
        for (unsigned job = 0; job < o.jobs && o.jobs > 1; job++) {
                int status;

                if (wait(&status) < 0 || status != 0) {
                        fprintf(stderr, "a process of the simulation has ended with %d\n", status);
                        exit(1);
                }
        }
}

static uint64_t count_hits(const struct tally *tally, unsigned phase, unsigned fault) {
        uint64_t n = 0;

        for (unsigned job = 0; job < o.jobs; job++)
                n += fault < N_FAULTS ? tally[job].hits[phase][fault] : tally[job].shared_hits[phase];
        return n;
}

/* Nothing is open before there is a generation, and between steps. */
static bool is_possible(unsigned phase, unsigned column) {
        return column < N_FAULTS || (phase != PHASE_FORM && phase != PHASE_RUN);
}

static bool print_coverage(const struct tally *tally) {
        uint64_t least = o.schedules * HITS_PER_MILLION / 1000000;
        bool enough = true;

        printf("%-8s", "");
        for (unsigned fault = 0; fault < N_FAULTS; fault++)
                printf(" %16s", fault_names[fault]);
        printf(" %16s", "on a shared lane");
        for (unsigned phase = 0; phase < N_PHASES; phase++) {
                printf("\n%-8s", phase_names[phase]);
                for (unsigned fault = 0; fault <= N_FAULTS; fault++) {
                        uint64_t n = count_hits(tally, phase, fault);
                        bool enough_here = n >= least || !is_possible(phase, fault);

                        printf(" %15llu%c", (unsigned long long)n, enough_here ? ' ' : '!');
                        enough &= enough_here;
                }
        }
        printf("\n%s: each pair at least %llu times\n", enough ? "enough" : "NOT ENOUGH",
               (unsigned long long)least);
        return enough;
}

static uint64_t print_violations(const struct tally *tally, int *ret_rule) {
        uint64_t all = 0;

        *ret_rule = RULE_NONE;
        for (int rule = 1; rule < N_RULES; rule++) {
                uint64_t n = 0, first = UINT64_MAX;

                for (unsigned job = 0; job < o.jobs; job++) {
                        n += tally[job].violations[rule];
                        if (tally[job].violations[rule] > 0 && tally[job].first[rule] < first)
                                first = tally[job].first[rule];
                }
                if (n == 0)
                        continue;
                if (rule == o.expect || *ret_rule == RULE_NONE)
                        *ret_rule = rule;
                printf("VIOLATED %s in %llu schedules, first: --seed %llu --trace\n", rule_names[rule],
                       (unsigned long long)n, (unsigned long long)first);
                all += n;
        }
        return all;
}

int main(int argc, char **argv) {
        struct timespec begin, end;
        struct tally *tally;
        uint64_t run = 0, violations;
        bool enough;
        int rule;

        parse(argc, argv);
        tally = mmap(NULL, sizeof(*tally) * o.jobs, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        if (tally == MAP_FAILED) {
                perror("mmap");
                return 1;
        }
        clock_gettime(CLOCK_MONOTONIC, &begin);
        run_all(tally);
        clock_gettime(CLOCK_MONOTONIC, &end);
        for (unsigned job = 0; job < o.jobs; job++)
                run += tally[job].run;
        violations = print_violations(tally, &rule);
        printf("%llu schedules in %.1f s\n", (unsigned long long)run,
               (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
        if (o.expect >= 0)
                return rule == o.expect ? 0 : 1;
        enough = !o.coverage || print_coverage(tally);
        return violations > 0 ? 1 : enough ? 0 : 2;
}
