/* SPDX-License-Identifier: Apache-2.0 */
/* Which members are awaited after a restart of the daemon, and what those that are back bring. See
 * takeover.h. */
#include "job/restart/takeover.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/data.h"
#include "job/plan/plan.h"

#define MOST_EMPTY (UINT64_C(60) * USEC_PER_SEC)

struct takeover *takeover_free(struct takeover *takeover) {
        if (takeover == NULL)
                return NULL;
        charge_release(&takeover->charge);
        free(takeover);
        return NULL;
}

int takeover_check_join(const struct job *job, const struct membership_request *wish,
                        struct refusal *refusal) {
        const struct journal_member *first = &job->takeover->from->member[0];

        if (wish->min_world != first->min_world || wish->max_world != first->max_world)
                return refuse(
                        refusal, WIRE__CODE__INVALID,
                        "job '%s' is one of %u to %u members, and goes on after a restart of gradsyncd; "
                        "this member asks for %u to %u: give all of them the same world size",
                        job->name, first->min_world, first->max_world, wish->min_world, wish->max_world);
        uint32_t local = wish->has_rank ? takeover_find(job, wish->rank) : job->n_local;
        if (local < job->n_local && takeover_is_back(job, local))
                return refuse_for(
                        refusal, WIRE__CODE__RANK_TAKEN, wish->rank, (int32_t)job->local[local]->pid,
                        "job '%s' goes on after a restart of gradsyncd, and its rank %u is held by pid %d",
                        job->name, wish->rank, (int)job->local[local]->pid);
        return 0;
}

/* A process that is new in the job has come for this rank. */
static bool takeover_is_claimed(const struct job *job, uint32_t rank) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_JOINING && member->has_rank && member->rank == rank)
                        return true;
        return false;
}

/* STATE for a member that is not between REJOINED and the last thing that it brings. */
static int check_telling(const struct member *member, struct refusal *refusal) {
        const struct job *job = member->job;

        if (job->takeover != NULL && member->state == MEMBER_ACTIVE &&
            !job->takeover->part[member->local].told)
                return 0;
        return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' is not on its way back into it",
                      member->rank, job->name);
}

/* All that it brings is one request: what still comes of it after it was refused is absorbed, and so is what
 * comes to a job that has ended. */
static bool takeover_absorbs(const struct member *member, uint32_t request) {
        return (request != 0 && member->spurned == request) || member->job->state == JOB_LOST;
}

static int spurn(struct member *member, uint32_t request, int r) {
        if (r > 0)
                member->spurned = request;
        return r;
}

static int takeover_find_track(const struct member *member, struct plan_former *plan,
                               struct refusal *refusal) {
        const struct journal_track *track = journal_track_of(member->job->takeover->from, plan->plan);

        if (track == NULL)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "plan %u of job '%s', rank %u: the journal of gradsyncd does not have it",
                              plan->plan, member->job->name, member->rank);
        plan->track = track->track;
        return 0;
}

int takeover_plan(struct member *member, struct plan_former *plan, uint32_t request, int *fds, unsigned n_fds,
                  struct refusal *refusal) {
        int r = check_telling(member, refusal);

        if (takeover_absorbs(member, request))
                return 0;
        if (r == 0)
                r = spurn(member, request, takeover_find_track(member, plan, refusal));
        return r != 0 ? r : spurn(member, request, plan_return(member, plan, request, fds, n_fds, refusal));
}

int takeover_staging(struct member *member, uint64_t bytes, uint32_t request, int *fds, unsigned n_fds,
                     struct refusal *refusal) {
        int r = check_telling(member, refusal);

        if (takeover_absorbs(member, request))
                return 0;
        return r != 0 ? r
                      : spurn(member, request, staging_return(member, bytes, request, fds, n_fds, refusal));
}

/* A part that a member has dropped before it came. */
void takeover_drop_part(struct plan *plan, uint32_t local) {
        if (plan->part[local].state != PART_NONE ||
            plan->ordinal >= plan->job->takeover->part[local].next_plan)
                return;
        part_set_state(&plan->part[local], PART_DROPPED);
        plan->dropped = true;
}

/* The verdict is found already: it must be this member's as well. */
static int return_late(struct member *member, struct refusal *refusal) {
        struct job *job = member->job;
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->part[member->local].state >= PART_RETURNING &&
                    plan->part[member->local].state <= PART_MAPPED &&
                    plan->part[member->local].said_step != plan->step)
                        return refuse(refusal, WIRE__CODE__STALE,
                                      "job '%s' goes on after step %" PRIu64
                                      " of plan %u, which rank %u (pid %d) knows of %" PRIu64
                                      " only: it has come back too late; join anew",
                                      job->name, plan->step, plan->ordinal, member->rank, (int)member->pid,
                                      plan->part[member->local].said_step);
        list_for_each(plan, &job->plans, link)
                takeover_drop_part(plan, member->local);
        job->takeover->voided = true; /* the verdict was found without it */
        return 0;
}

int takeover_told(struct member *member, uint32_t next_plan, uint32_t request, struct refusal *refusal) {
        struct job *job = member->job;
        int r = check_telling(member, refusal);

        if (takeover_absorbs(member, request))
                return 0;
        if (r == 0)
                member->next_plan = job->takeover->part[member->local].next_plan = next_plan;
        if (r == 0 && !takeover_is_awaiting(job))
                r = return_late(member, refusal);
        if (r != 0)
                return r;
        member->spurned = 0;
        job->takeover->part[member->local].told = true;
        loop_defer(job->table->config.loop, &job->settle);
        return 0;
}

bool takeover_is_awaiting(const struct job *job) {
        return job->takeover != NULL && !job->takeover->restored;
}

uint32_t takeover_find(const struct job *job, uint32_t rank) {
        uint32_t local = 0;

        if (rank < job->n_local && job->local[rank]->rank == rank)
                return rank; /* as in a job that is all here */
        while (local < job->n_local && job->local[local]->rank != rank)
                local++;
        return local;
}

bool takeover_is_back(const struct job *job, uint32_t local) {
        return job->takeover->part[local].here && job->local[local]->owner != NULL;
}

bool takeover_is_vacant(const struct job *job, uint32_t rank) {
        uint32_t local;

        if (!takeover_is_awaiting(job))
                return places_has(machine_places(&job->machine), rank);
        local = takeover_find(job, rank);
        return local < job->n_local && job->local[local]->state != MEMBER_LEFT &&
               !takeover_is_back(job, local);
}

bool takeover_is_complete(const struct job *job, uint32_t local) {
        return takeover_is_back(job, local) && job->takeover->part[local].told;
}

/* Members that are here and have not brought all, or were refused, or whose memory is not back yet; those
 * that are gone again do not count. */
bool takeover_is_telling(const struct job *job, uint32_t local) {
        if (!takeover_is_back(job, local))
                return false;
        return !job->takeover->part[local].told || job->local[local]->spurned != 0 ||
               job->local[local]->staging.returning || plan_is_returning(job, local);
}

static bool is_empty(const struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->owner != NULL)
                        return false;
        return true;
}

/* Whether the holder of this place may still come: a job without any member is not kept for long. */
static bool takeover_is_expected(const struct job *job, uint32_t local) {
        const struct takeover *takeover = job->takeover;
        uint64_t now = clock_now();

        return takeover_is_awaiting(job) && !takeover->part[local].here && !takeover->part[local].forgotten &&
               now < takeover->deadline && !(is_empty(job) && now >= job->interrupted + MOST_EMPTY) &&
               !takeover_is_claimed(job, job->local[local]->rank);
}

bool takeover_any_expected(const struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (takeover_is_expected(job, local))
                        return true;
        return false;
}

bool takeover_any_telling(const struct job *job) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (takeover_is_telling(job, local))
                        return true;
        return false;
}

bool takeover_busy(const struct job *job) {
        if (job->takeover == NULL || job->state == JOB_LOST) /* no member comes back to that one */
                return false;
        return takeover_any_telling(job) || (is_empty(job) && takeover_any_expected(job));
}

bool takeover_forget(struct job *job, uint32_t rank) {
        uint32_t local = takeover_find(job, rank);

        if (job->takeover == NULL || local == job->n_local || !takeover_is_expected(job, local))
                return false;
        job->takeover->part[local].forgotten = true;
        loop_defer(job->table->config.loop, &job->settle);
        return true;
}
