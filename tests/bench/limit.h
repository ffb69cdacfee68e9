/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory and cores allow: tight loops over the same kind of buffers (one memfd a member) with the same
 * number of threads as the daemon's workers, but without protocol, slices, statistics or hand-off. The
 * calling thread is the first of the threads; the others sleep between calls of limit_run().
 *
 *   LIMIT_REDUCE  reads k buffers, writes the scaled sum to all k: 2·k·bytes of traffic
 *   LIMIT_SCALE   multiplies k·bytes in place, the plainest loop with the same traffic: what LIMIT_REDUCE is
 * judged by LIMIT_COPY    copies k·bytes/2 from one half of the buffers to the other
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum limit_loop { LIMIT_REDUCE, LIMIT_SCALE, LIMIT_COPY };

struct limit;

/* `bytes` per member. Iterations take turns on so many sets of buffers that together they exceed `rotate`
 * bytes (0: one set). All pages are touched. NULL with errno on failure. */
struct limit *limit_new(unsigned members, size_t bytes, unsigned threads, size_t rotate);
struct limit *limit_free(struct limit *limit);

/* Runs `n` iterations and stores their durations. */
void limit_run(struct limit *limit, enum limit_loop loop, unsigned n, int64_t *ns);

unsigned limit_sets(const struct limit *limit);
/* Bytes copied by one iteration of LIMIT_COPY. */
size_t limit_copied(const struct limit *limit);
/* Four times the last-level cache: what rotation must exceed for a claim about memory. */
size_t limit_rotation(void);
