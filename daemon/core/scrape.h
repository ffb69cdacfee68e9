/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of metrics, a piece at a time: as much as is made in a moment, from what the daemon is at that
 * moment. Families have to stand together, so jobs are gone through once for each, by their handles. That
 * needs no copy of what they were at the beginning, which nobody could bound; so samples of two families of a
 * job may differ by a step, and a job that ends meanwhile is in the first families only. Jobs that begin
 * meanwhile are left out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "session/session.h"

enum scrape_stage { SCRAPE_DAEMON, SCRAPE_FAMILY, SCRAPE_JOBS, SCRAPE_END, SCRAPE_OVER };

struct scrape {
        struct sessions *sessions;
        enum scrape_stage stage;
        size_t family;
        uint32_t until; /* the newest job at the beginning */
        struct sessions_measure at;
};

void scrape_begin(struct scrape *scrape, struct sessions *sessions);
bool scrape_is_over(const struct scrape *scrape);
/* Adds the next piece to what goes into `to`. */
void scrape_write(struct scrape *scrape, FILE *to);
