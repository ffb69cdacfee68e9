/* SPDX-License-Identifier: Apache-2.0 */
/* Between the machine of a job and the engines that lead to its other nodes. Each engine makes a part of the
 * job's communicator, with lanes of its own. */
#pragma once

#include "engine/engine.h"
#include "rendezvous/machine/message.h"

struct job;
struct jobs;

/* BUILD, DROP, ABORT and LAUNCH, on several nodes. */
void collective_act(struct job *job, const struct action *action);
/* The engine of that node has published this for the communicator that is being built. */
void collective_learn(struct job *job, uint32_t from, const void *table, size_t bytes);
/* Ends what the engine does for the job. */
void collective_give_up(struct job *job);
/* Ends all communicators: the engine, which says so in bounded time, has no hand on any memory any more. */
void collective_end(struct jobs *jobs);
/* The jobs are gone: waits until the engine has let go of all memory, which is bounded. */
void collective_let_go(struct jobs *jobs);
/* After units have ended or a generation has begun: a node without members follows the others. */
void collective_follow(struct job *job);
/* An engine's events about its part of the job's communicator; see engine.h. */
void collective_published(struct job *job, uint32_t part, const void *table, size_t bytes);
void collective_built(struct job *job, uint32_t part, const uint32_t *unreachable, uint32_t n);
void collective_done(struct job *job, uint32_t part, uint32_t lane, uint64_t sequence, const uint64_t *value);
void collective_unreachable(struct job *job, uint32_t part, const uint32_t *nodes, uint32_t n);
/* Frees the exchanges of plans that are gone, unless the engine still uses one. */
void collective_free_exchanges(struct job *job);
