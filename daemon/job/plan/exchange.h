/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a plan has for the way of its buckets between nodes: from arenas to a slot, through the engine, and
 * from the slot to arenas. Owns the staging in which the slots lie, beside what is given where there is
 * nothing to give (by a node without members, or that only fills up), and a place for what nobody wants.
 * Buckets take the slots in turn, and are offered to the engine in their order. step.c moves them. After the
 * elements of a bucket a slot has a trailer.
 */
#pragma once

#include "base/list.h"
#include "gradsync.pb-c.h"
#include "job/plan/description.h"
#include "job/plan/shared.h"
#include "job/plan/trailer.h"

#define EXCHANGE_SLOTS 4u
#define EXCHANGE_DTYPES (WIRE__DTYPE__U8 + 1)

struct exchange {
        struct list link; /* once its plan is gone: waits until the engine has let go of the staging */
        struct shared staging;
        uint64_t digest; /* of the plan */
        unsigned reduce;
        uint32_t most;          /* members here, and in the world */
        uint32_t n_slots, next; /* next: the bucket that is offered next */
        uint64_t slot_bytes;
        bool filled; /* they are there; what a filler gives is used by nobody, and need not be neutral */
        uint64_t neutral[EXCHANGE_DTYPES]; /* by type: where the neutral elements of the reduction are */
        bool asked, compared; /* the open step: the comparison is offered; all nodes have the same */
        double *sums;         /* of inputs, by slot and local index */
        uint64_t *counts;     /* of inputs' values that are not finite, in the same way */
        /* The same by rank, of all nodes, for the bucket of which the trailer was read last. */
        double *rank_sums;
        uint64_t *rank_counts;
        struct charge charge;
};

/* Of a plan of the job. 0; QUOTA with *refusal; or a negative errno. */
int exchange_new(struct job *job, const struct description *plan, struct exchange **ret,
                 struct refusal *refusal);
/* The engine uses none of it. NULL is fine. */
struct exchange *exchange_free(struct exchange *exchange);
/* Before the first step without members here. It is done on the calling thread: for a minimum, a maximum or a
 * product, as much as the largest bucket has is written once, as fast as memory goes. */
void exchange_fill(struct exchange *exchange, const struct description *plan);
/* Before each step. */
void exchange_reset(struct exchange *exchange);

struct backend_range exchange_slot(const struct exchange *exchange, uint32_t bucket);
/* How many elements go between nodes in one step. */
uint64_t exchange_elements(const struct exchange *exchange, const struct description *plan, uint32_t world);
/* What the engine exchanges for a bucket; `idle`: this node gives nothing, and wants nothing. */
struct engine_piece exchange_piece(const struct exchange *exchange, const struct description *plan,
                                   uint32_t bucket, uint32_t world, bool idle);
/* What was measured when the inputs were read. */
void exchange_keep(struct exchange *exchange, uint32_t bucket, const struct backend_result *read);
/* After that, and before the bucket is offered: its trailer. `absent`: what all members here call so; NULL:
 * nothing. */
void exchange_tell(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint32_t bucket, const uint8_t *absent);
/* Once its slot has the sum of all: reads the trailer. In the map, if there is one, it leaves what the
 * members of all nodes call absent. */
void exchange_hear(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint32_t bucket, uint8_t *absent);
/* What was measured when the inputs were read, and the result of all nodes was written. */
struct backend_result exchange_result(const struct exchange *exchange, uint32_t bucket, uint32_t n_local,
                                      const struct backend_result *written);
