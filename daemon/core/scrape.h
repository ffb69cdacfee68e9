/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of metrics, a piece at a time. A piece takes only a moment, and shows the daemon as it is at that
 * moment. The text has jobs one by one, or all of them together. The samples of a family have to stand
 * together, so the scrape goes through the jobs once for each family, by their handles. That needs no copy of
 * all jobs at the beginning, whose size would have no bound. So samples of two families of a job may differ
 * by a step, and a job that ends meanwhile is in the first families only. Jobs that begin meanwhile are left
 * out. Sums over jobs are made first, and are exact.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "report/report.h"

enum scrape_stage {
        SCRAPE_DAEMON,
        SCRAPE_SUM,
        SCRAPE_TOTALS,
        SCRAPE_FAMILY,
        SCRAPE_JOBS,
        SCRAPE_OVER,
};

struct scrape_config {
        struct reports *reports;
        const char *device;
        bool jobs; /* one by one, with their names and uids */
};

struct scrape {
        const struct scrape_config *config;
        struct reports_sum sum;
        enum scrape_stage stage;
        size_t family;
        uint32_t until; /* the newest job at the beginning */
        struct reports_measure at;
};

/* The config has to outlive it. It must not be moved until it is over or scrape_end() is called. */
void scrape_begin(struct scrape *scrape, const struct scrape_config *config);
/* Ends the scrape at any point; harmless before it has begun. */
void scrape_end(struct scrape *scrape);
bool scrape_is_over(const struct scrape *scrape);
/* Writes the next piece to `to`. */
void scrape_write(struct scrape *scrape, FILE *to);
