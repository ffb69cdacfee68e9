/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way of a plan's buckets between nodes. Buckets are cut into pieces, which are numbered over all
 * buckets: so one piece is read from the arenas while another one is with the engine and a third one is
 * written back, and the memory between them stays small. The exchange owns the staging: slots, which the
 * pieces take in turn; a scratch slot, for results that no member wants; and neutral elements, which a node
 * gives if it has no members or only fills up. Pieces start, are offered to the engine and give their slots
 * back in their order. step.c moves them. After the elements of the last piece of a bucket a slot has its
 * trailer.
 */
#pragma once

#include "base/list.h"
#include "gradsync.pb-c.h"
#include "job/plan/description.h"
#include "job/plan/shared.h"
#include "job/plan/trailer.h"

#define EXCHANGE_SLOTS 4u
/* Smaller pieces cost more turns of the engine; larger ones leave the link idle for longer, while the first
 * one is read and the last one is written. All nodes have to cut alike. */
#define EXCHANGE_PIECE (UINT64_C(4) << 20)
#define EXCHANGE_PIECE_GPU (UINT64_C(32) << 20) /* between GPUs: a turn costs as much as a MiB */
#define EXCHANGE_DTYPES (WIRE__DTYPE__U8 + 1)

enum slot_state {
        SLOT_FREE,
        SLOT_REDUCING,    /* the backend reads the members' inputs into it */
        SLOT_GIVEN,       /* with the engine, or waits for its turn */
        SLOT_FANNING_OUT, /* the backend copies the result to the members */
        SLOT_WRITTEN,     /* they have it */
        SLOT_SETTLED,     /* the bucket that ends with it is looked at a last time */
};

/* Measures of the inputs, by local index. */
struct exchange_sums {
        double *squares;
        uint64_t *nonfinite; /* values */
};

struct exchange_slot {
        enum slot_state state;
        struct exchange_sums read;
        double written; /* sum of squares of the result */
        void *room;     /* for the backend's task */
};

struct bucket_piece {
        uint32_t number, bucket;
        uint64_t offset;   /* bytes from the start of the bucket */
        uint64_t elements; /* without the trailer */
        bool last;         /* of its bucket */
};

struct exchange {
        struct list link; /* once its plan is gone: waits until the engine has let go of the staging */
        struct shared staging;
        uint64_t digest; /* of the plan */
        unsigned reduce;
        uint32_t most;        /* members here, and in the world */
        uint64_t piece_bytes; /* at most */
        uint32_t *first;      /* by bucket: its first piece; one more is their number */
        uint32_t n_slots, n_pieces;
        uint64_t slot_bytes, tail_bytes;   /* tail: a trailer has no more */
        uint64_t neutral[EXCHANGE_DTYPES]; /* by type: where the neutral elements of the reduction are */
        struct exchange_slot slot[EXCHANGE_SLOTS];
        void *block; /* memory to which the pointers here lead */
        /* The open step. */
        bool asked, compared;            /* the comparison is offered; all nodes have the same */
        uint32_t started, offered, free; /* pieces so far; free: that have given their slots back */
        struct exchange_sums given;      /* of the pieces that are offered, of one bucket */
        struct exchange_sums taken;      /* of those that are written, of one bucket */
        double written;
        /* Measures of the inputs of all nodes, by rank, for the bucket whose trailer was read last. */
        double *rank_sums;
        uint64_t *rank_counts;
        struct charge charge;
};

/* Makes the exchange of the job's plan with that ordinal. Staging is there at once, or when `late` is called
 * with a holder of that number. 0; QUOTA with *refusal; or a negative errno. */
int exchange_new(struct job *job, const struct description *plan, uint32_t ordinal, holding_done_fn late,
                 struct exchange **ret, struct refusal *refusal);
/* The engine uses none of it. NULL is fine. */
struct exchange *exchange_free(struct exchange *exchange);
static inline bool exchange_has_staging(const struct exchange *exchange) {
        return shared_is_there(&exchange->staging);
}
/* The staging could not be made. */
static inline bool exchange_has_failed(const struct exchange *exchange) {
        return exchange->staging.id == 0 && !holding_is_busy(exchange->staging.holding);
}
/* Before each step. */
void exchange_reset(struct exchange *exchange);

struct bucket_piece exchange_piece(const struct exchange *exchange, const struct description *plan,
                                   uint32_t number);
void slot_set_state(struct exchange_slot *slot, enum slot_state state); /* its only writer */
struct exchange_slot *exchange_slot(struct exchange *exchange, uint32_t piece);
struct backend_range exchange_range(const struct exchange *exchange, uint32_t piece);
/* Two nodes have different numbers if the elements of all buckets do not go between nodes in the same way. */
uint64_t exchange_shape(const struct exchange *exchange, const struct description *plan, uint32_t world);
/* Describes a piece to the engine; `idle`: this node gives nothing, and wants nothing. */
struct engine_piece exchange_payload(const struct exchange *exchange, const struct description *plan,
                                     uint32_t piece, uint32_t world, bool idle);

/* Whether there is a next piece, and a slot for it, in staging that is there. */
bool exchange_may_start(const struct exchange *exchange);
/* The backend begins to read the next piece. */
void exchange_start(struct exchange *exchange);
/* Keeps what the backend measured when it read the inputs. */
void exchange_keep(struct exchange *exchange, uint32_t piece, const struct backend_result *read);
/* The next piece is offered: it has its trailer, if it is the last of its bucket. `absent`: the parameters
 * that all members here call absent; NULL: none. */
void exchange_give(struct exchange *exchange, const struct job *job, const struct description *plan,
                   const uint8_t *absent);
/* All members here have the next piece: its slot is settled. Returns whether it was the last one of its
 * bucket. Then the trailer is read: the map, if there is one, keeps the parameters that the members of all
 * nodes call absent. *ret has what was measured when the bucket was read and written, until the next piece is
 * taken. */
bool exchange_take(struct exchange *exchange, const struct job *job, const struct description *plan,
                   uint8_t *absent, struct backend_result *ret);
/* The piece that was taken needs its slot no longer. */
void exchange_let_go(struct exchange *exchange);
