/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a plan share among themselves. */
#pragma once

#include "job/plan/plan.h"

int plan_new(struct job *job, uint32_t ordinal, struct plan **ret, struct refusal *refusal);
struct member *plan_member(const struct plan *plan, uint32_t local);
/* Nobody holds a part of it, and whoever should hear that it failed has heard it. Who came to the job later
 * may have begun behind it. */
bool plan_over(const struct plan *plan);

/* What is compared with was brought by those who are gone, and nobody who stays has been compared with it. */
void plan_forget_reference(struct plan *plan);

/* plan_provide.c: all that a member's part needs except the memory that the backend is to be asked for, with
 * the charges; or the same for what the member brings back, where an fd is -1 once it is taken over. */
int plan_provide(struct plan *plan, struct member *member, struct refusal *refusal);
int plan_provide_again(struct plan *plan, struct member *member, int *fds, unsigned n_fds,
                       struct refusal *refusal);
/* Puts it before *refusal whose memory is meant. Returns its code. */
int plan_refuse_memory(const struct plan *plan, const struct member *member, struct refusal *refusal);
/* plan_agree.c: an answer of the backend that came late. */
void plan_late(struct job *job, const struct holder *holder, const struct refusal *refusal);
/* What the steps of an agreed plan need on this node. */
int plan_prepare(struct plan *plan, struct refusal *refusal);
