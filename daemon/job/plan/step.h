/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open step of a plan: from the first READY to committed or void. The job's machine decides which:
 * committed once every bucket of every member was READY, even if members die later; else void. Members are
 * told of either only after the last access to their arenas.
 */
#pragma once

#include "job/machine/comm.h"
#include "job/plan/plan.h"

struct ready {
        uint32_t generation, plan, bucket;
        uint32_t divisor; /* of averages; 0: the number of members */
        uint64_t step;
        bool has_absent;
        const uint8_t *absent; /* one bit per parameter of the bucket: not used here */
        size_t absent_bytes;
};

/* One bucket of the member belongs to the daemon now. 0, also when it was absorbed because its generation is
 * over; a code with *refusal if the member broke a rule. */
int step_ready(struct member *member, const struct ready *ready, struct refusal *refusal);

/* Decisions of the job's machine about the open step, in this order: it may begin; no member will have it, so
 * its tasks are to end; it is committed; it is void, which members can be told now; it never began, and
 * members are told nothing. */
void step_opened(struct plan *plan);
void step_cancel(struct plan *plan);
void step_committed(struct plan *plan);
void step_voided(struct plan *plan);
void step_unbegun(struct plan *plan);
/* No member's gradients have been written to, and all members may go on with it in the next generation. */
bool step_can_wait(const struct plan *plan);

/* A result of the backend: of a bucket, or, above those, of a piece. */
void step_done(struct task_owner *owner, uint32_t index, const struct backend_result *result);

/* Whether some bucket of the open step has been given to the backend. */
bool step_begun(const struct plan *plan);

/* Why nothing more of the open step is launched for now. */
enum gate step_gate(const struct plan *plan);
/* Launches the buckets that were held back. */
void step_release(struct plan *plan);

/*
 * On several nodes a step is a comparison (its payload 0 for the node), then a payload for each piece of the
 * buckets, in their order. These functions describe the collectives, and take their results. step_words() is
 * false on a node that has no opinion.
 */
bool step_words(const struct plan *plan, struct comm_words *ret);
void step_compared(struct plan *plan, bool same, const struct comm_words *heard);
/* `filler`: the collective is for the other nodes only. */
struct engine_piece step_piece(const struct plan *plan, uint32_t number, bool filler);
void step_exchanged(struct plan *plan, uint32_t number);
/* The staging that was asked for has come, or will not: then no member can go on here. */
void step_staged(struct job *job, const struct holder *holder, const struct refusal *refusal);
/* The engine can use memory that it was given under this id: perhaps the staging. */
void step_shared(struct plan *plan, uint64_t id);
/* A node without members opens the step that the others may open, and gives zeros. */
void step_follow(struct plan *plan);
