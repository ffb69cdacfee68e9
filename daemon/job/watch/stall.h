/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

struct job;

/* Names whom the job waits for, once per stall, and ends what waits for too long. */
void stall_check(struct job *job, uint64_t now);
