/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;

/* A wait that is no longer than that is no fault of a member: a notice comes after it. */
uint64_t stall_patience(const struct job *job);
/* Whether the members have been told of a wait that lasts. */
bool stall_is_told(const struct job *job);
/* Names the members that the job waits for, once per stall, and evicts them when it has waited too long. */
void stall_check(struct job *job, uint64_t now);
