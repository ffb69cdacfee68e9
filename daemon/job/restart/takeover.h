/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that a former daemon had formed, on its way back: the journal has what it was, and its members come
 * with their arenas. When all are here, or those missing count as lost, the journal's content becomes the
 * report of the job's node, the machine judges by it, and the job goes on in its next generation: resumed, if
 * nothing is void and no member is missing, else as after a loss.
 *
 * A member that has not heard of a commit gets its results from the journal.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "job/data.h"

struct plan_former;

struct returned {            /* by local index in the generation before, as in the journal */
        bool here;           /* it has come back, or was gone before the daemon began; it may be gone again */
        bool forgotten;      /* it is not awaited */
        bool told;           /* it has brought everything */
        bool lacks;          /* something of the job's state */
        uint64_t due;        /* it is evicted if it has not brought everything by then */
        uint32_t generation; /* the last one of which it has heard */
        uint32_t next_plan;
        struct membership_request request;
};

struct takeover {
        struct journal_generation *from; /* the latest one, as the journal had it; in the same allocation */
        uint64_t deadline;               /* after it missing members are lost */
        bool restored;                   /* the machine has got the report, and has judged */
        bool voided;                     /* some step is void */
        bool resumed;   /* nothing is void, and no member is missing; known when the next generation begins */
        bool behind;    /* some member lacks the results of a committed step */
        bool began;     /* a step was open */
        struct tag tag; /* of the state of its members, once it is restored */
        uint64_t operations;   /* that have ended in the generation before */
        bool operation_failed; /* the last of them did */
        struct charge charge;
        struct returned part[]; /* one for each member that was here */
};

/* A member that is back brings each plan after its description, the staging memory, and the ordinal of its
 * next plan. Fds that are taken over are -1. STATE if the member is not on its way back. The plan's
 * track is found here. */
int takeover_plan(struct member *member, struct plan_former *plan, uint32_t request, int *fds, unsigned n_fds,
                  struct refusal *refusal);
int takeover_staging(struct member *member, uint64_t bytes, uint32_t request, int *fds, unsigned n_fds,
                     struct refusal *refusal);
int takeover_told(struct member *member, uint32_t next_plan, uint32_t request, struct refusal *refusal);

/* The holder of this place is awaited no longer. False: it was not awaited. */
bool takeover_forget(struct job *job, uint32_t rank);

/* For the job layer. */
/* Some member is still bringing what it has; or all that came have left, and others may still come, which
 * must be told. */
bool takeover_busy(const struct job *job);
/* The machine waits for members. */
bool takeover_is_awaiting(const struct job *job);
/* INVALID or RANK_TAKEN for a newcomer that asks for what it cannot have. */
int takeover_check_join(const struct job *job, const struct membership_request *wish,
                        struct refusal *refusal);
/* No member has this rank, though the job has formed. */
bool takeover_is_vacant(const struct job *job, uint32_t rank);
/* The local index of the member that had this rank; n_local: none here. */
uint32_t takeover_find(const struct job *job, uint32_t rank);
bool takeover_is_back(const struct job *job, uint32_t local);
/* It is back, and has brought everything. */
bool takeover_is_complete(const struct job *job, uint32_t local);
/* Some member may still come; some member is here and has not brought all, or the backend is still taking
 * over what it has brought. */
bool takeover_any_expected(const struct job *job);
bool takeover_any_telling(const struct job *job);
bool takeover_is_telling(const struct job *job, uint32_t local);
/* A part that a member has dropped before it came. */
void takeover_drop_part(struct plan *plan, uint32_t local);
struct takeover *takeover_free(struct takeover *takeover);
