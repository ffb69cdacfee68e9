/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that a job has of a backend: a member's arena, staging or registered memory, or the daemon's own,
 * with what its user is charged for it and the one request that may be under way. A late answer finds its
 * member and plan by numbers, so one that has gone meanwhile is not found. A holding outlives its owner until
 * the backend has let go of the memory; only then are the charges given back.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "base/account.h"
#include "base/list.h"

struct job;
struct jobs;
struct member;

enum holding_state {
        HOLDING_NONE,     /* no memory: nothing was asked for, or in vain */
        HOLDING_ASKED,    /* the backend makes it, or takes it over */
        HOLDING_THERE,    /* not for tasks yet */
        HOLDING_MAPPING,  /* asked to attach it */
        HOLDING_ATTACHED, /* for tasks */
        HOLDING_FREEING,  /* asked to let it go */
};

struct holder {
        uint32_t job;
        uint64_t member;  /* 0: the job itself */
        uint32_t number;  /* the member's own: a plan's ordinal, a memory's handle */
        uint32_t request; /* to be answered once it is gone; 0: none */
};

/* Called for an answer that comes late: `refusal` is NULL if the request has succeeded. */
typedef void (*holding_done_fn)(struct job *job, const struct holder *holder, const struct refusal *refusal);
/* The memory is gone: the answer to a member's request. */
typedef void (*holding_gone_fn)(struct member *member, uint32_t request, uint32_t number);

struct holding {
        struct list link; /* jobs->holdings */
        struct jobs *jobs;
        uint64_t id; /* of its requests, too */
        enum holding_state state;
        bool unwanted;   /* its owner has gone, or has given it up */
        bool attached;   /* tasks may use it as soon as it is there */
        uint64_t shared; /* id of it for the engine, which has yet to let go of it; 0: it has not */
        uint64_t wanted; /* bytes of it */
        uint64_t since;  /* clock_now() of the request that is under way */
        struct holder holder;
        holding_done_fn done;
        holding_gone_fn gone;
        struct backend *backend;
        struct backend_memory *memory; /* NULL until it is there */
        struct charges charges;
};

struct holdings { /* embedded */
        struct list list;
        uint64_t last;
};

/* Charges the job's user. 0; QUOTA with *refusal; -ENOMEM. `member` may be NULL. */
int holding_new(struct job *job, const struct member *member, uint32_t number, struct backend *backend,
                const struct charges_amount *cost, holding_done_fn done, struct holding **ret,
                struct refusal *refusal);
/* One memory of so many bytes, where this backend has it, that clients touch first; and what the daemon has
 * beside it: so many bytes on the host, and the page tables that map it. */
struct charges_amount holding_cost(const struct backend *backend, uint64_t bytes, uint64_t own);
/* A request about it, without an id: anything but MEMORY_FREE. 0: it is done, or, if it is busy then, done()
 * will be called. A code with *refusal, or a negative errno: it came to nothing. */
int holding_ask(struct holding *holding, const struct job *job, const struct memory_request *what,
                struct refusal *refusal);
static inline bool holding_is_busy(const struct holding *holding) {
        return holding->state == HOLDING_ASKED || holding->state == HOLDING_MAPPING;
}
/* The owner needs the memory no more, and no task uses it. A request that is under way is called off. NULL is
 * fine; returns NULL. */
struct holding *holding_free(struct holding *holding);
/* Before that: gone() is to be called once the memory is gone, unless its member goes first. */
void holding_answer(struct holding *holding, uint32_t request, holding_gone_fn gone);

/* QUOTA with *refusal, if this result of making shared memory means that there is no room; else the result.
 */
int holding_refuse_room(const struct job *job, uint64_t bytes, int r, struct refusal *refusal);

/* Takes an answer of the backend. */
void holdings_made(struct jobs *jobs, const struct memory_result *result);
/* Frees the rest, once all jobs are gone and the backend has ended with all that it worked at. */
void holdings_deinit(struct holdings *holdings);

/* The member that has it; NULL if it has gone. */
struct member *holder_find(const struct job *job, const struct holder *holder);
