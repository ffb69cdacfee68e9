/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that outlives the daemon, so that the next one knows how far open steps were. Each plan has a slot:
 * the step that was opened last, a mark for each bucket before the first and after the last write to it, and
 * the results. A crash between the end of a step and the news of it costs nothing.
 *
 * The file is mapped, so a store to it survives the process, but not the machine. The next daemon goes on
 * with the same file. It believes nothing in it that it has not checked. A plan that finds no room is left
 * out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "proto/frame.h"
#include "rendezvous/machine/words.h"

struct journal;
struct journal_plan; /* the slot of a plan */

struct journal_key {
        uid_t uid;
        const char *job;
        uint64_t incarnation;
        uint32_t plan;
        uint32_t params, buckets; /* that it has */
};

/* Opens the file, or makes it; as long as the journal is open no other process can have it. 0; 1 and a
 * sentence in `error` if the content is of no use and was dropped; or a negative errno and a sentence. */
int journal_open(const char *path, struct journal **ret, char *error, size_t size);
struct journal *journal_close(struct journal *journal);
/* Drops the plans of a former daemon that have not been added since. */
void journal_sweep(struct journal *journal);

/* Bytes that a plan takes. */
uint64_t journal_bytes(const struct journal_key *key, uint32_t most_local);
/* The slot that a former daemon has left of the plan, or a new one, which belongs to no generation yet. NULL
 * if there is no room, or no journal; then, as for all of these, nothing is kept of the plan. */
struct journal_plan *journal_add(struct journal *journal, const struct journal_key *key, uint32_t most_local);
void journal_drop(struct journal *journal, struct journal_plan *plan);
/* No step is open in it yet. */
void journal_generation(struct journal_plan *plan, uint32_t generation, uint32_t n_local);
void journal_step(struct journal_plan *plan, uint64_t step); /* 0: the one that was open is void */
void journal_begin(struct journal_plan *plan, uint32_t bucket);
/* `first`: parameters in the buckets before it. */
void journal_done(struct journal_plan *plan, uint32_t bucket, uint32_t first,
                  const struct backend_result *result, const uint8_t *unused, size_t unused_bytes);

/* The step that was opened last, if it was in that generation, with so many members here. */
struct trace journal_trace(const struct journal_plan *plan, uint32_t generation, uint32_t n_local);
/* A bucket of a step that is done. *ret and *ret_unused (NULL, or a map of the bucket's parameters) are valid
 * until the next step is opened. */
void journal_result(const struct journal_plan *plan, uint32_t bucket, uint32_t first,
                    struct backend_result *ret, const uint8_t **ret_unused);
