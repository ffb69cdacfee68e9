/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns steps of flight records into a trace in the JSON format that Perfetto and chrome://tracing read. A
 * job is a process of the trace; its threads are the steps of each plan, the ranks with the moments of their
 * READY, and each bucket with its reductions. On none of these tracks do slices overlap. Times are those of
 * the monotonic clock of the daemon that is asked. Pure except for memory and the output.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "gradsync.pb-c.h"

struct perfetto;

/* Writes the head. NULL if memory is short. */
struct perfetto *perfetto_new(FILE *to);
/* Records of another daemon follow; `place` stands in the names of its processes, to distinguish them from
 * those of other daemons ("" for nothing). */
void perfetto_daemon(struct perfetto *trace, const char *place);
/* The records that follow are of another node: `ahead` us have to be added to its times. `note` says on its
 * processes how well that is known. */
void perfetto_node(struct perfetto *trace, const char *place, int64_t ahead, const char *note);
/* Takes the frames of one daemon in the order in which they arrive. 0, -EPROTO for a frame that makes no
 * sense, -ENOMEM. */
int perfetto_step(struct perfetto *trace, const Wire__TraceStep *step);
/* Writes the rest and frees. 0 or -ENOMEM. */
int perfetto_close(struct perfetto *trace);
