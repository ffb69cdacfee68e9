/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/account.h"
#include "job/plan/shared.h"

struct job;

/* Without an engine nothing is exchanged between nodes: UNSUPPORTED, with *refusal, if the job has members on
 * others. */
int nodes_check(const struct job *job, struct refusal *refusal);
/* For memory that goes between nodes: under an id of its own. */
struct shared_config nodes_shared(struct job *job, struct backend *backend);
