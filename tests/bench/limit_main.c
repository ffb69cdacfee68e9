/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit --members K --bytes B [--threads T] [--iterations N] [--no-rotation] [--serve]
 *
 * Measures the three loops of limit.h in turn, N iterations of each, and prints one JSON line of medians.
 * With --serve it does so once for each line read from standard input, and ends with it: so a driver can
 * interleave it with others.
 */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

#include "limit.h"

struct options {
        unsigned members, threads, iterations;
        size_t bytes, rotate;
        bool serve;
};

static int compare(const void *a, const void *b) {
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
        return (x > y) - (x < y);
}

static double median_us(struct limit *limit, enum limit_loop loop, unsigned n, int64_t *ns) {
        limit_run(limit, loop, n, ns);
        qsort(ns, n, sizeof *ns, compare);
        return (double)(ns[(n - 1) / 2] + ns[n / 2]) / 2000;
}

static void measure(struct limit *limit, const struct options *options, int64_t *ns) {
        double reduce = median_us(limit, LIMIT_REDUCE, options->iterations, ns);
        double scale = median_us(limit, LIMIT_SCALE, options->iterations, ns);
        double copy = options->members < 2 ? 0 : median_us(limit, LIMIT_COPY, options->iterations, ns);
        printf("{\"members\": %u, \"bytes\": %zu, \"threads\": %u, \"sets\": %u, \"rotated\": %s, "
               "\"limit_us\": %.2f, "
               "\"scale_us\": %.2f, \"limit_over_scale\": %.3f, \"copy_gbps\": %.2f}\n",
               options->members, options->bytes, options->threads, limit_sets(limit),
               options->rotate ? "true" : "false", reduce, scale, reduce / scale,
               copy > 0 ? (double)limit_copied(limit) / copy / 1000 : 0);
        fflush(stdout);
}

static int usage(void) {
        fputs("usage: limit --members K --bytes B [--threads T] [--iterations N] [--no-rotation] [--serve]\n",
              stderr);
        return 2;
}

static int options_parse(int argc, char **argv, struct options *options) {
        static const struct option names[] = {
                { "members", required_argument, NULL, 'm' },
                { "bytes", required_argument, NULL, 'b' },
                { "threads", required_argument, NULL, 't' },
                { "iterations", required_argument, NULL, 'i' },
                { "no-rotation", no_argument, NULL, 'r' },
                { "serve", no_argument, NULL, 's' },
                { 0 },
        };
        int c;
        *options = (struct options){ 2, (unsigned)get_nprocs(), 101, 25 << 20, limit_rotation(), false };
        while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
                if (c == 'm')
                        options->members = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'b')
                        options->bytes = strtoull(optarg, NULL, 10);
                else if (c == 't')
                        options->threads = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'i')
                        options->iterations = (unsigned)strtoul(optarg, NULL, 10);
                else if (c == 'r')
                        options->rotate = 0;
                else if (c == 's')
                        options->serve = true;
                else
                        return -1;
        }
        return optind == argc && options->iterations > 0 ? 0 : -1;
}

int main(int argc, char **argv) {
        struct options options;
        struct limit *limit;
        int64_t *ns;
        char line[256];
        if (options_parse(argc, argv, &options) < 0)
                return usage();
        ns = calloc(options.iterations, sizeof *ns);
        limit = ns ? limit_new(options.members, options.bytes, options.threads, options.rotate) : NULL;
        if (!limit) {
                perror("limit");
                return 1;
        }
        if (!options.serve)
                measure(limit, &options, ns);
        while (options.serve && fgets(line, sizeof line, stdin))
                measure(limit, &options, ns);
        limit_free(limit);
        free(ns);
        return 0;
}
