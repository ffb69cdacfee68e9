/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the daemon that no member has: a backend works on it, and the engine exchanges it with other
 * nodes. The uid of the job that needs it is charged for it. */
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
/* Allocates memory as described by `what`. It is there at once, or, if `late` is not NULL, when `late` is
 * called with a holder of this number. 0; QUOTA with *refusal; or a negative errno. */
int shared_init(struct shared *shared, struct job *job, struct backend *backend,
                const struct memory_request *what, uint32_t number, holding_done_fn late,
                struct refusal *refusal);
/* Gives the engine memory that has come from the backend. 0, also if the engine is not ready to use it yet;
 * or a negative errno. */
int shared_take(struct shared *shared, struct job *job);
/* The engine has said that it can use the memory. */
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
/* Whether the engine still has any of those. */
bool shared_any_left(const struct jobs *jobs);
static inline struct backend_range shared_range(const struct shared *shared, uint64_t offset) {
        return (struct backend_range){ .memory = shared->holding->memory, .offset = offset };
}
/* The bytes on the host that came with the memory. */
unsigned char *shared_companion(const struct shared *shared);
/* Describes this many elements from `offset` on that change nothing in a reduction. */
struct memory_fill shared_neutral(uint64_t offset, unsigned dtype, unsigned reduce, uint64_t elements);
/* Fills memory that a CPU can write. */
void shared_fill(struct shared *shared, const struct memory_fill *fill);
/* The engine's name for a reduction. An average is a sum for it: the inputs have been divided before. */
enum engine_reduce shared_reduce(unsigned reduce);
