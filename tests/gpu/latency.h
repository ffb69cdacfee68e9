/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How measured latencies are told: all facts in the same words.
 */
#pragma once

#include "actor.h"

/*
 * Adds "what: p50 … us, p99 … us, worst … us of n" to the detail, and returns the p50 in microseconds. The
 * samples are nanoseconds, n > 0 of them, and are sorted.
 */
double latency_note(struct actor *actor, const char *what, int64_t *samples, size_t n);
