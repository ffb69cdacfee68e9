/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations for the files of a plan. */
#pragma once

#include "job/plan/plan.h"

int plan_new(struct job *job, uint32_t ordinal, struct plan **ret, struct refusal *refusal);
struct member *plan_member(const struct plan *plan, uint32_t local);
/* No member has a part of it, and all that wait for it have been told if it failed. A member that joined
 * later may have begun with plans after it. */
bool plan_over(const struct plan *plan);

/* Drops the reference if only members that are gone have brought it, and no member that stays has been
 * compared with it. */
void plan_forget_reference(struct plan *plan);

/* plan_provide.c: all that a member's part needs except the memory that the backend is to be asked for, with
 * the charges; or the same for what the member brings back, where an fd is -1 once it is taken over. */
int plan_provide(struct plan *plan, struct member *member, struct refusal *refusal);
int plan_provide_again(struct plan *plan, struct member *member, int *fds, unsigned n_fds,
                       struct refusal *refusal);
/* Adds to *refusal which plan and member the memory belongs to. Returns its code. */
int plan_refuse_memory(const struct plan *plan, const struct member *member, struct refusal *refusal);
/* plan_agree.c: an answer of the backend that came late. */
void plan_late(struct job *job, const struct holder *holder, const struct refusal *refusal);
/* Provides what the steps of an agreed plan need on this node. */
int plan_prepare(struct plan *plan, struct refusal *refusal);
