/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks a GPU whether the reduction kernels that are built in here compute what they compute on the host, and
 * how fast they are. One JSON row for each question (fact, answer, detail, ms), written as soon as it is
 * known; "card" first. Needs a driver and nothing else.
 *
 * Exit status: 0 nothing is wrong; 1 an answer is "no" or an error; 2 usage; 77 no GPU.
 */
#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "proto/gradsync.pb-c.h"
#include "proto/names.h"
#include "reductions.h"
#include "row.h"

enum {
        STATUS_FAILED = 1,
        STATUS_USAGE = 2,
        STATUS_NO_GPU = 77,
        QUESTIONS = 160,
        PATTERNS = 16,
};

static const char usage[] =
        "usage: reductions [OPTION]...\n"
        "  --seconds N     questions that are not begun by then are skipped (240)\n"
        "  --only PATTERN  only these questions, as a shell matches names; may be repeated\n"
        "  --small         small buffers and few rounds: for a GPU that is not real\n"
        "  --list          names the questions\n"
        "  --present       asks for nothing but a GPU: 0, 1 or 77\n"
        "Exit status: 0 nothing is wrong, 1 an answer is \"no\" or an error, 2 usage, 77 no GPU.\n";

struct run {
        double seconds;
        const char *only[PATTERNS];
        unsigned n_only, n_questions, failed, skipped, printed;
        bool small, list, present;
        int64_t begin;
        struct device device;
        struct question question[QUESTIONS];
};

void find_answer(struct finding *finding, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(finding->answer, sizeof finding->answer, format, arguments);
        va_end(arguments);
}

void find_note(struct finding *finding, const char *format, ...) {
        size_t used = strlen(finding->detail);
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(finding->detail + used, sizeof finding->detail - used, format, arguments);
        va_end(arguments);
}

/* ---- the questions ---- */

static struct question *run_add(struct run *run, ask_fn *ask, unsigned dtype, const char *format, ...) {
        struct question *question = &run->question[run->n_questions++];
        va_list arguments;

        if (run->n_questions > QUESTIONS)
                abort();
        *question = (struct question){ .ask = ask, .dtype = dtype, .small = run->small };
        va_start(arguments, format);
        vsnprintf(question->name, sizeof question->name, format, arguments);
        va_end(arguments);
        return question;
}

static void run_add_bits(struct run *run) {
        static const unsigned reduces[] = { WIRE__REDUCE__AVG, WIRE__REDUCE__SUM, WIRE__REDUCE__MIN,
                                            WIRE__REDUCE__MAX, WIRE__REDUCE__PROD };

        for (unsigned dtype = WIRE__DTYPE__F32; dtype <= WIRE__DTYPE__U8; dtype++) {
                for (size_t i = 0; i < sizeof reduces / sizeof *reduces; i++)
                        if (reduce_valid(reduces[i], dtype))
                                run_add(run, ask_values, dtype, "bits.%s.%s", dtype_name(dtype),
                                        reduce_name(reduces[i]))
                                        ->reduce = reduces[i];
                run_add(run, ask_values, dtype, "bits.%s.copy", dtype_name(dtype))->reduce =
                        WIRE__REDUCE__REDUCE_NONE;
        }
        for (unsigned dtype = WIRE__DTYPE__F16; dtype <= WIRE__DTYPE__BF16; dtype++)
                run_add(run, ask_conversions, dtype, "bits.%s.conversions", dtype_name(dtype));
        for (unsigned dtype = WIRE__DTYPE__F32; dtype <= WIRE__DTYPE__BF16; dtype++) {
                run_add(run, ask_statistics, dtype, "statistics.%s", dtype_name(dtype));
                run_add(run, ask_find, dtype, "find.%s", dtype_name(dtype));
        }
        run_add(run, ask_kernels, 0, "kernels");
}

static void run_add_speed(struct run *run) {
        static const unsigned dtypes[] = { WIRE__DTYPE__F32, WIRE__DTYPE__BF16 }, ks[] = { 1, 2, 4, 8 },
                              parts[] = { 1, GRID_PARTS };
        static const size_t mib[] = { 1, 25, 128 };

        for (unsigned i = 0; i < 2; i++)
                run_add(run, ask_latency, WIRE__DTYPE__F32, "launch.%ux64KiB", parts[i])->k = parts[i];
        for (unsigned i = 0; i < 2; i++)
                run_add(run, ask_amortised, WIRE__DTYPE__F32, "launch.200x64KiB.by%u", parts[i])->k =
                        parts[i];
        for (unsigned d = 0; d < 2; d++)
                for (unsigned m = 0; m < (run->small ? 1 : 3); m++)
                        for (unsigned k = 0; k < 4; k++) {
                                struct question *question =
                                        run_add(run, ask_bandwidth, dtypes[d], "bandwidth.%s.k%u.%zu%s",
                                                dtype_name(dtypes[d]), ks[k], run->small ? 64 : mib[m],
                                                run->small ? "KiB" : "MiB");
                                question->k = ks[k];
                                question->bytes = run->small ? 64 << 10 : mib[m] << 20;
                        }
}

static bool run_wants(const struct run *run, const char *name) {
        for (unsigned i = 0; i < run->n_only; i++)
                if (fnmatch(run->only[i], name, 0) == 0)
                        return true;
        return run->n_only == 0;
}

/* ---- rows ---- */

static bool run_print(struct run *run, const char *name, const struct finding *finding, int64_t since) {
        int r = row_print(name, finding->answer, finding->detail, (double)(clock_ns() - since) / 1e6);

        if (r < 0)
                fprintf(stderr, "reductions: writing the row of %s: %s\n", name, strerror(-r));
        run->printed++;
        run->failed += strcmp(finding->answer, "no") == 0 || strcmp(finding->answer, "error") == 0;
        run->skipped += strcmp(finding->answer, "skipped") == 0;
        return r == 0;
}

static bool run_print_card(struct run *run) {
        const struct card *card = &run->device.card;
        struct finding finding = { .answer = "" };

        find_answer(&finding, "%s", card->name);
        find_note(&finding,
                  "%s, %s, %d multiprocessors, %zu MiB, L2 %zu KiB, CUDA %d.%d, MPS %s; opened with all "
                  "kernels in %.1f ms",
                  card->uuid, card->architecture, card->processors, card->bytes >> 20, run->device.l2 >> 10,
                  card->cuda.version / 1000, card->cuda.version % 1000 / 10, card->mps ? "yes" : "no",
                  run->device.open_ms);
        return run_print(run, "card", &finding, run->begin);
}

/* False: nothing more can be asked. */
static bool run_ask(struct run *run, const struct question *question) {
        struct finding finding = { .answer = "" };
        int64_t begin = clock_ns();

        if ((double)(begin - run->begin) / 1e9 >= run->seconds) {
                find_answer(&finding, "skipped");
                find_note(&finding, "out of time");
                return run_print(run, question->name, &finding, begin);
        }
        question->ask(&run->device, question, &finding);
        if (run->device.failed[0] != '\0') {
                find_answer(&finding, "error");
                find_note(&finding, "%s%s", finding.detail[0] != '\0' ? "; " : "", run->device.failed);
        }
        return run_print(run, question->name, &finding, begin) && run->device.failed[0] == '\0';
}

static int run_all(struct run *run) {
        struct finding end = { .answer = "done" };
        bool going = run_print_card(run);

        for (unsigned i = 0; i < run->n_questions && going; i++) {
                const struct question *question = &run->question[i];
                /* The kernels that were launched are known only if all questions were asked. */
                bool wanted = question->ask == ask_kernels ? run->n_only == 0 && run->skipped == 0
                                                           : run_wants(run, question->name);
                if (wanted)
                        going = run_ask(run, question);
        }
        find_note(&end, "%u rows, %u skipped, %u wrong%s", run->printed, run->skipped, run->failed,
                  going ? "" : "; the rest could not be asked");
        return run_print(run, "reductions", &end, run->begin) && going && run->failed == 0 ? 0
                                                                                           : STATUS_FAILED;
}

static int run_main(struct run *run) {
        int r;

        run->begin = clock_ns();
        setenv("CUDA_CACHE_DISABLE", "1", 1); /* compiled kernels are not left on the user's disk */
        r = device_open(&run->device);
        if (r == -ENODEV) {
                fprintf(stderr, "reductions: no GPU here: %s\n", run->device.failed);
                return STATUS_NO_GPU;
        }
        if (r < 0) {
                struct finding error = { .answer = "error" };
                find_note(&error, "%s", run->device.failed);
                run_print(run, "card", &error, run->begin);
                return STATUS_FAILED;
        }
        r = run_all(run);
        if (run->device.failed[0] == '\0') /* else it might wait for work that never ends */
                device_close(&run->device);
        return r;
}

/* ---- options ---- */

static bool run_set(struct run *run, int option) {
        char *end = NULL;

        switch (option) {
        case 's':
                run->seconds = strtod(optarg, &end);
                if (*end == '\0' && run->seconds > 0)
                        return true;
                fprintf(stderr, "reductions: --seconds %s: not a number of seconds\n", optarg);
                return false;
        case 'o':
                if (run->n_only == PATTERNS) {
                        fprintf(stderr, "reductions: --only %s: too many patterns\n", optarg);
                        return false;
                }
                run->only[run->n_only++] = optarg;
                return true;
        case 'm': run->small = true; return true;
        case 'l': run->list = true; return true;
        case 'p': run->present = true; return true;
        default: return false; /* getopt_long() has said it */
        }
}

static int run_list(const struct run *run) {
        for (unsigned i = 0; i < run->n_questions; i++)
                if (run_wants(run, run->question[i].name))
                        puts(run->question[i].name);
        return 0;
}

static int run_present(void) {
        char error[320];
        int r = device_present(error, sizeof error);

        if (r < 0)
                fprintf(stderr, "reductions: no GPU that works: %s\n", error);
        return r == 0 ? 0 : r == -ENODEV ? STATUS_NO_GPU : STATUS_FAILED;
}

int main(int argc, char **argv) {
        static const struct option options[] = {
                { "seconds", required_argument, NULL, 's' },
                { "only", required_argument, NULL, 'o' },
                { "small", no_argument, NULL, 'm' },
                { "list", no_argument, NULL, 'l' },
                { "help", no_argument, NULL, 'h' },
                { "present", no_argument, NULL, 'p' },
                { NULL, 0, NULL, 0 },
        };
        static struct run run = { .seconds = 240 };
        int option;

        while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (option == 'h')
                        return fputs(usage, stdout) < 0;
                if (!run_set(&run, option))
                        return STATUS_USAGE;
        }
        if (optind < argc) {
                fprintf(stderr, "reductions: what is '%s'?\n", argv[optind]);
                return STATUS_USAGE;
        }
        if (run.present)
                return run_present();
        run_add_bits(&run);
        run_add_speed(&run);
        if (run.list)
                return run_list(&run);
        return run_main(&run);
}
