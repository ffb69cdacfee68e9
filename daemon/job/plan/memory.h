/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that members bring: registered by its fds, and used by plans in place of an arena of ours. A claim
 * says which bytes of it a plan has; no byte belongs to two claims, however often, and by whichever member,
 * the memory was registered. And the watch over all memory that a member shares with us: a member that
 * withdraws some while we use it is evicted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/account.h"
#include "base/list.h"

struct description;
struct holding;
struct job;
struct jobs;
struct member;
struct plan;

struct memory {
        struct memory *next; /* of its member */
        struct member *member;
        uint32_t handle;        /* in its member; from 1 */
        uint64_t offset, bytes; /* within the memory that the member has offered */
        struct holding *arena;
        uint32_t request; /* to be answered once it is there; 0: it is */
        struct list claims;
};

struct memory_span { /* of what was offered */
        uint64_t start, end;
        const struct memory_claim *claim;
};

#define MEMORY_SPAN_COST                                                                                     \
        (sizeof(struct memory_span) + 4 * sizeof(void *)) /* with its node in jobs->claimed */

struct memory_claim {              /* the part of one memory that one plan uses */
        struct list link;          /* memory->claims */
        struct memory_claim *next; /* of the same part of the plan */
        const struct plan *plan;
        struct memory *memory;
        uint32_t n; /* spans that are in jobs->claimed */
        struct memory_span span[];
};

/* Both are answered through events, now or later; a code with *refusal, or a negative errno. Fds that are
 * taken over are -1. `what` is of kind OFFERED, without an id. */
int memory_offer(struct member *member, uint32_t request, const struct memory_request *what,
                 struct refusal *refusal);
static inline int memory_register(struct member *member, uint32_t request, int *fds, unsigned n_fds,
                                  uint64_t offset, uint64_t bytes, struct refusal *refusal) {
        return memory_offer(member, request,
                            &(struct memory_request){ .kind = MEMORY_OFFERED,
                                                      .bytes = bytes,
                                                      .offset = offset,
                                                      .fds = fds,
                                                      .n_fds = n_fds },
                            refusal);
}
/* STATE while a plan uses it. */
int memory_unregister(struct member *member, uint32_t request, uint32_t handle, struct refusal *refusal);
/* Releases all memories of a member that is gone; its plans have no claims any more. */
void memories_release(struct member *member);

/*
 * Claims for the plan the bytes of the member's memories in which its buckets lie, and writes to `place`
 * where each of these buckets is. 0 with *ret; INVALID or STATE with *refusal; -ENOMEM.
 */
int memory_claim(struct member *member, const struct plan *plan, const struct description *description,
                 struct backend_range *place, struct memory_claim **ret, struct refusal *refusal);
/* The whole list; NULL is fine. */
void memory_unclaim(struct memory_claim *claims);

/* The backend has found that the member gave pages back: it is evicted. */
void memory_withdrawn(struct member *member);
/* Whether `bytes` bytes of an arena can be used: see check() of backend.h. If not, its member is evicted.
 */
bool memory_intact(struct member *member, struct backend_memory *memory, uint64_t bytes);
