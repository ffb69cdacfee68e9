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
        bool usable; /* by collectives */
};

/* Without an engine nothing is exchanged between nodes: UNSUPPORTED, with *refusal, if the job has members on
 * others. */
int shared_check(const struct job *job, struct refusal *refusal);
/* Of so many bytes as `what` says, and with what else that says. It is there at once, or, if `late` is not
 * NULL, when that is called with a holder of this number. 0; QUOTA with *refusal; or a negative errno. */
int shared_init(struct shared *shared, struct job *job, struct backend *backend,
                const struct memory_request *what, uint32_t number, holding_done_fn late,
                struct refusal *refusal);
/* It has come. 0, also where the engine is not ready to use it yet; or a negative errno. */
int shared_take(struct shared *shared, struct job *job);
/* The engine says so. */
static inline void shared_use(struct shared *shared) {
        shared->usable = true;
}
/* Collectives may use it. */
static inline bool shared_is_there(const struct shared *shared) {
        return shared->usable;
}
/* Neither tasks nor collectives use it. */
void shared_deinit(struct shared *shared);
/* The engine has let go of one that was deinitialised before it had. */
void shared_gone(struct jobs *jobs, uint64_t id);
/* There are such. */
bool shared_any_left(const struct jobs *jobs);
static inline struct backend_range shared_range(const struct shared *shared, uint64_t offset) {
        return (struct backend_range){ .memory = shared->holding->memory, .offset = offset };
}
/* What came beside it. */
unsigned char *shared_beside(const struct shared *shared);
/* As an input that changes nothing in a reduction: of this many elements from `offset` on. */
struct memory_fill shared_neutral(uint64_t offset, unsigned dtype, unsigned reduce, uint64_t elements);
/* Memory that a CPU can write. */
void shared_fill(struct shared *shared, const struct memory_fill *fill);
/* Of what members ask for to what an engine does: they have divided before. */
enum engine_reduce shared_reduce(unsigned reduce);
