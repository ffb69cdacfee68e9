/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to the journal, for the next daemon, how a job stands: see struct journal_generation. Until a job
 * that is taken back enters its next generation, the journal has what the former daemon wrote, and which of
 * its members are gone since.
 */
#pragma once

#include <stdbool.h>

struct job;
struct plan;

/* The job enters a generation: to be called before its members are told. `resumed`: nothing is void, and
 * operations are counted on. */
void position_enter(struct job *job, bool resumed);
/* A track has come to another plan, or to none. */
void position_keep(struct job *job);
/* Members are about to hear of a loss, or that something is void. No process comes back to the places of
 * those that are gone. */
void position_end(struct job *job);
/* Members are about to hear of plan->step. */
void position_commit(struct plan *plan);
/* No daemon takes the job back. */
void position_forget(struct job *job);
/* The same, since the journal has no room. */
void position_give_up(struct job *job);
