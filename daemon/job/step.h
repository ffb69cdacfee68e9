/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The open step of a plan: from the first READY to committed or void. Committed once every bucket of every
 * member was READY, whoever dies later; else void. Either is told only after the last access to the arenas.
 */
#pragma once

#include "gradsync.pb-c.h"
#include "job/plan.h"

/* One bucket of the member belongs to the daemon now. 0, also when it was absorbed because its generation is
 * over; a code with *refusal if the member broke a rule. */
int step_ready(struct member *member, const Wire__Ready *ready, struct refusal *refusal);

/* The job has lost a member: ends the open step, now or when the backend has let go of it. */
void step_break(struct plan *plan);

/* A result of the backend. */
void step_done(struct task_owner *owner, uint32_t bucket, const struct backend_result *result);

/* Whether some bucket of the open step has been given to the backend. */
bool step_begun(const struct plan *plan);

/* Whether an operator holds the open step back: nothing more of it is launched for now. */
bool step_held(const struct plan *plan);
/* Launches what was held back. */
void step_release(struct plan *plan);
