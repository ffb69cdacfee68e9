/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon leaves to the next one beside what the members know: a memfd, kept by the service manager, in
 * which each plan has a mark for each bucket before the first and after the last write to it, and the
 * results. So a crash between the end of a step and the news of it costs nothing. One side writes its own,
 * the other one reads what a former daemon has left; nothing in that is believed before it was checked.
 * Whatever does not fit is left out: the members' word is enough.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "proto/frame.h"
#include "rendezvous/machine/words.h"

struct state;
struct state_plan; /* one plan of it */

struct state_key {
        uid_t uid;
        const char *job;
        uint64_t incarnation;
        uint32_t plan;
        uint32_t params, buckets; /* that it has */
};

int state_new(struct state **ret);
struct state *state_free(struct state *state);
int state_fd(const struct state *state);

/* Bytes that a plan takes. */
uint64_t state_bytes(const struct state_key *key, uint32_t most_local);
/* NULL if there is no room; then, as for all of these, nothing is kept of the plan. It belongs to no
 * generation yet. */
struct state_plan *state_add(struct state *state, const struct state_key *key, uint32_t most_local);
void state_drop(struct state *state, struct state_plan *plan);
void state_generation(struct state_plan *plan, uint32_t generation, uint32_t n_local);
void state_open(struct state_plan *plan, uint64_t step); /* 0: the one that was open is void */
void state_begin(struct state_plan *plan, uint32_t bucket);
/* `first`: parameters in the buckets before it. */
void state_done(struct state_plan *plan, uint32_t bucket, uint32_t first, const struct backend_result *result,
                const uint8_t *unused, size_t unused_bytes);

/* What a former daemon has left in `fd`, which stays the caller's. -EPROTO: another version, or no state at
 * all. */
struct past;
int past_new(int fd, struct past **ret);
struct past *past_free(struct past *past);

/* NULL if it has none of this generation, with so many members here. */
const struct state_plan *past_find(const struct past *past, const struct state_key *key, uint32_t generation,
                                   uint32_t n_local);
/* What it says of the step that was opened last; nothing if `plan` is NULL. */
struct trace past_trace(const struct state_plan *plan);
/* Of a committed step. Valid as long as `past` is; *ret_unused: NULL, or a map of the bucket's parameters. */
void past_result(const struct state_plan *plan, uint32_t bucket, uint32_t first, struct backend_result *ret,
                 const uint8_t **ret_unused);
