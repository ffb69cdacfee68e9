/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that a former daemon had formed, on its way back: its members come with what they know of it, and
 * with their arenas. When all are here, or those missing count as lost, what they have said becomes
 * the report of the job's node (words.h), the machine judges by it, and the job goes on in its next
 * generation: resumed, if nothing is void and nobody is missing, else as after a loss.
 *
 * What the former daemon has left (state.h) is the trace beside those words. A member that has not heard of a
 * commit gets its results from there, if it had sent all of the step. What is believed of a member concerns
 * its own job.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "job/data.h"
#include "job/restart/place.h"
#include "rendezvous/machine/words.h"

struct plan_word;

struct returned {       /* by local index in the generation before */
        bool here;      /* it has come back; it may be lost again */
        bool forgotten; /* nobody waits for it */
        bool history;   /* it knows of committed steps, so it has a state */
        uint64_t due;   /* it is evicted if it has not told all by then */
        struct word word;
        struct membership_request request;
        bool operation_failed;
        bool unsynced; /* it was told to take the others' state, or give its own, and has not yet */
        bool lacks;    /* something of the job's state; on one node that is found out later */
        uint32_t next_plan;
        uint64_t operations;
};

struct takeover {
        uint32_t generation;             /* the latest one that any member knows */
        struct membership_request first; /* of the one that came first */
        uint64_t deadline;               /* after it missing members are lost */
        bool proven;                     /* some member has shown that it was in the job */
        bool ended;                      /* some member knows that this generation was at its end */
        bool restored;                   /* the machine has got all of it, and has judged */
        bool voided;                     /* some step is void */
        bool resumed; /* nothing is void, and nobody is missing; known when the next generation begins */
        bool behind;  /* some member lacks the results of a committed step */
        bool began;   /* some member had sent a READY of an open step */
        uint64_t operations;        /* that have ended in the generation before */
        bool operation_failed;      /* the last of them did */
        struct journal_place place; /* in that generation */
        struct charge charge;
        struct returned part[]; /* one for each member that was here */
};

/* What a member tells once it is back: each plan after its description, the staging memory, the end. Fds that
 * are taken over are -1. STATE if the member is not on its way back. The plan's track is found here. */
int takeover_plan(struct member *member, struct plan_word *plan, uint32_t request, int *fds, unsigned n_fds,
                  struct refusal *refusal);
int takeover_staging(struct member *member, uint64_t bytes, uint32_t request, int *fds, unsigned n_fds,
                     struct refusal *refusal);
int takeover_told(struct member *member, uint32_t request, struct refusal *refusal);

/* Nobody waits any longer for the holder of this place, if anybody does: false otherwise. */
bool takeover_forget(struct job *job, uint32_t rank);

/* For the job layer. */
/* Some member is still telling what it knows; or all that came have left, and others may still come, which
 * must be told. */
bool takeover_busy(const struct job *job);
/* The machine waits for what members say. */
bool takeover_is_awaiting(const struct job *job);
/* INVALID or RANK_TAKEN for a newcomer that asks for what it cannot have. */
int takeover_check_join(const struct job *job, const struct membership_request *wish,
                        struct refusal *refusal);
/* Nobody has this rank, though the job has formed. */
bool takeover_is_vacant(const struct job *job, uint32_t rank);
/* The local index of the member that had this rank; n_local: none here. */
uint32_t takeover_find(const struct job *job, uint32_t rank);
bool takeover_is_back(const struct job *job, uint32_t local);
/* Somebody still has to come, and may; somebody is here and has not told all, or the backend is still taking
 * over what it has brought. */
bool takeover_any_expected(const struct job *job);
bool takeover_any_telling(const struct job *job);
bool takeover_is_telling(const struct job *job, uint32_t local);
/* A part that a member has dropped before it came. */
void takeover_drop_part(struct plan *plan, uint32_t local);
/* What its machine knows of a member's state: no more than whether it has any. */
struct tag takeover_tag(const struct job *job, bool history);
struct takeover *takeover_free(struct takeover *takeover);
