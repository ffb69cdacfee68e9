/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "base/account.h"

struct job;

/* Nothing is exchanged between nodes yet: UNSUPPORTED, with *refusal, if the job has members on others. */
int nodes_check(const struct job *job, struct refusal *refusal);
