/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

struct job;

/* Names the members that the job waits for, once per stall, and evicts them when it has waited too long. */
void stall_check(struct job *job, uint64_t now);
