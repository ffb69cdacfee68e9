/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a plan share among themselves. */
#pragma once

#include "job/plan/plan.h"

int plan_new(struct job *job, uint32_t ordinal, struct plan **ret, struct refusal *refusal);
struct member *plan_member(const struct plan *plan, uint32_t local);
/* Nobody holds a part of it, and whoever should hear that it failed has heard it. Who came to the job later
 * may have begun behind it. */
bool plan_over(const struct plan *plan);

/* plan_provide.c: the memory of a member's part, new or as the member brings it back; an fd is -1 once it is
 * taken over. */
int plan_allocate(struct plan *plan, struct member *member, struct refusal *refusal);
int plan_adopt(struct plan *plan, struct member *member, int *fds, unsigned n_fds, struct refusal *refusal);
/* What the steps of an agreed plan need on this node. */
int plan_prepare(struct plan *plan, struct refusal *refusal);
