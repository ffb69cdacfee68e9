/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides about the steps and operations of a former daemon: the journal's content goes to the machine as the
 * report of its node, and the members hear the machine's decision.
 */
#pragma once

#include <stdint.h>

struct job;

/* Tells the machine once all members have come back, or are not awaited any longer. */
void verdict_advance(struct job *job);
/* The new generation is decided, and members do not know it yet: tells them what they have missed, and finds
 * out whether anything is void. The former one had `world` members, `before` of them here. */
void verdict_resolve(struct job *job, uint32_t world, uint32_t before);
