/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the daemon that no member has: a backend works on it, and the engine exchanges it with other
 * nodes. Charged to the uid of the job for whose sake it is there. */
#pragma once

#include "backend/backend.h"
#include "engine/engine.h"
#include "job/plan/holding.h"

struct shared { /* all zero: none */
        struct holding *holding;
        struct engine *engine;
        uint64_t id; /* for the engine: no other memory of it has the same. 0: it does not know of it */
};

/* Without an engine nothing is exchanged between nodes: UNSUPPORTED, with *refusal, if the job has members on
 * others. */
int shared_check(const struct job *job, struct refusal *refusal);
/* Zeros. 0; QUOTA with *refusal; or a negative errno. */
int shared_init(struct shared *shared, struct job *job, struct backend *backend, uint64_t bytes,
                struct refusal *refusal);
/* Neither backend nor engine uses it. */
void shared_deinit(struct shared *shared);
static inline struct backend_range shared_range(const struct shared *shared, uint64_t offset) {
        return (struct backend_range){ .memory = shared->holding->memory, .offset = offset };
}
unsigned char *shared_address(const struct shared *shared, uint64_t offset);
/* As an input that changes nothing in a reduction: of this many elements from `offset` on. */
void shared_fill_neutral(struct shared *shared, uint64_t offset, unsigned dtype, unsigned reduce,
                         uint64_t elements);
/* Of what members ask for to what an engine does: they have divided before. */
enum engine_reduce shared_reduce(unsigned reduce);
