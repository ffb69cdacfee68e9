/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of the open operation for the backend and the engine.
 *
 * On one node the inputs are combined into the outputs: at once for a broadcast or an allreduce, one output
 * after the other for an allgather or a reduce-scatter. On several nodes an operation is a comparison of the
 * calls, and one payload: inputs here are gathered into memory shared with the engine, the engine exchanges
 * that, and it is handed out to the members here. A broadcast is the root's copy, an allreduce a reduction;
 * an allgather is a sum in which every byte has one node that gives it, a reduce-scatter a reduction of which
 * each member takes its part.
 *
 * Where the nodes are on several hosts, and members ask for it, a broadcast or an allgather is sealed: seals
 * (backend/seal.h) travel after the data. The root's node makes them for a broadcast; each member's node
 * makes those of its part of an allgather. Their key is derived from the secret of the generation, which came
 * over TLS, and from the description of the operation. Each node checks them before its members get anything.
 */
#pragma once

#include "job/machine/comm.h"
#include "job/plan/shared.h"

struct job;

enum spread_phase {
        SPREAD_GATHERS, /* and exchanges */
        SPREAD_CHECKS,  /* its seals */
        SPREAD_HANDS_OUT,
};

struct spread {               /* embedded in struct operation */
        struct shared memory; /* three equal parts: the payload, scratch, and zeros */
        enum spread_phase phase;
        bool failed; /* the backend does not take the inputs */
        bool broken; /* a member has withdrawn some of them, or of the outputs */
        /* The call that all members here made; no bytes: their calls differ, or it is a barrier. */
        unsigned kind, dtype, reduce;
        uint32_t root; /* rank in the communicator */
        uint64_t bytes;
        bool sealed;
        struct backend_seal seal; /* of all of it */
};

bool spread_reduces(unsigned kind);
bool spread_can_be_sealed(unsigned kind);
struct operation_request;
bool spread_is_sealed(const struct job *job, const struct operation_request *call);
/* Provides what an operation needs: memory, once the job is on several nodes. 0, QUOTA with *refusal, or a
 * negative errno. */
int spread_prepare(struct job *job, struct refusal *refusal);
/* All members have called, and this is the only node. */
void spread_here(struct job *job);
/* Sets the words that nodes compare. False: this node has no opinion on the call. */
bool spread_words(const struct job *job, struct comm_words *ret);
/* After the comparison. 0, or a negative errno: this node cannot take part. */
int spread_compared(struct job *job, bool same, const struct comm_words *words);
struct engine_piece spread_piece(const struct job *job, bool filler);
/* Nothing of it is in a member's memory, and all members may call it again in the next generation. */
bool spread_can_wait(const struct job *job);
/* No task touches it any more, and it will not be committed. */
void spread_let_go(struct job *job);
/* The payload is here. */
void spread_exchanged(struct job *job);
