/* SPDX-License-Identifier: Apache-2.0 */
/* Members that come back after a restart of the daemon: their job is made anew, with their places in it. */
#include "job/rejoin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "job/plan/position.h"
#include "job/private.h"
#include "job/restart/takeover.h"

#define MOST_WAIT (UINT64_C(3600) * USEC_PER_SEC)
#define LEAST_TELLING (10 * USEC_PER_SEC) /* for a member that comes back near the deadline or after it */

/* A member that comes back, as the journal has it. */
struct former {
        struct journal_job *job;
        const struct journal_generation *from;
        uint32_t local; /* its index there, and in the job */
        struct token token;
};

static int rejoin_refuse_unknown(const struct jobs *jobs, const struct job_rejoin *rejoin,
                                 struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__MEMBER_LOST,
                      "job '%s': this process was in it at a gradsyncd that has ended, and %s: join it again",
                      rejoin->join.name,
                      jobs->journal != NULL ? "the journal of this one does not have it"
                                            : "this one has no journal");
}

/* Whether this daemon can have a job with members on others. */
static int rejoin_check_cluster(const struct jobs_config *config, const struct job_join *join,
                                struct refusal *refusal) {
        if (!join->cluster || (config->cluster != NULL && config->engine != NULL))
                return 0;
        return refuse(refusal, WIRE__CODE__MEMBER_LOST,
                      "job '%s' has members on other daemons, and this gradsyncd has no coordinator, or no "
                      "engine, any more: set `coordinator` in its configuration, and join again",
                      join->name);
}

static struct membership_request wish_of(const struct journal_member *member, uint64_t incarnation) {
        return (struct membership_request){
                .min_world = member->min_world,
                .max_world = member->max_world,
                .has_rank = (member->flags & JOURNAL_HAS_RANK) != 0,
                .has_slot = (member->flags & JOURNAL_HAS_SLOT) != 0,
                .rank = member->rank,
                .slot = member->slot,
                .incarnation = incarnation,
                .grace = member->grace,
                .identity = member->identity,
                .instance = member->instance,
        };
}

/* Completes what the process asks for with what the journal has. */
static int rejoin_look_up(struct jobs *jobs, struct job_rejoin *rejoin, struct former *ret,
                          struct refusal *refusal) {
        struct job_join *join = &rejoin->join;

        ret->job = journal_find_member(jobs->journal, join->uid, join->name, &rejoin->secret, &ret->local);
        if (ret->job == NULL)
                return rejoin_refuse_unknown(jobs, rejoin, refusal);
        const struct journal_about about = journal_about(ret->job);
        ret->from = journal_latest(ret->job);
        ret->token.digest = about.token;
        const struct journal_member *member = &ret->from->member[ret->local];
        join->token = &ret->token;
        join->cluster = about.cluster;
        join->membership = wish_of(member, about.incarnation);
        if (rejoin->generation > ret->from->number.number)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s', rank %u: its latest generation was %u, not %u", join->name,
                              member->rank, ret->from->number.number, rejoin->generation);
        return rejoin_check_cluster(&jobs->config, join, refusal);
}

/* A member that has not come back yet, or was gone before the daemon began: then it has a cause. */
static int add_absent(struct job *job, uint32_t local, const struct journal_member *from,
                      struct refusal *refusal) {
        struct member *member;
        int r = member_new(job, &member, refusal);

        if (r != 0)
                return r;
        member_set_state(member, (from->flags & JOURNAL_LEFT) != 0 ? MEMBER_LEFT : MEMBER_LOST);
        if (journal_member_is_gone(from))
                member->cause = member->state == MEMBER_LEFT ? WIRE__CAUSE__LEAVING : WIRE__CAUSE__EXITED;
        member->id = job_next_id(job);
        member->stable = from->id;
        member->secret = from->secret;
        member->local = local;
        member->rank = from->rank;
        member->local_rank = from->slot;
        member->max_world = from->max_world;
        member->has_rank = true;
        list_append(&job->members, &member->link);
        job->local[local] = member;
        return 0;
}

static struct membership_request request_of(const struct job *job, const struct membership_request *wish,
                                            pid_t pid, uint32_t local) {
        struct membership_request request = *wish;

        request.member = job->local[local]->id;
        request.pid = (int32_t)pid;
        request.returns = job->cluster; /* if the others have gone on without this node */
        return request;
}

/* The member is not awaited any longer. `generation`: the last one of which it has heard. */
static struct returned *rejoin_end_wait(struct job *job, uint32_t local, uint32_t generation) {
        struct returned *part = &job->takeover->part[local];

        part->here = true;
        part->generation = generation;
        part->lacks = (job->takeover->from->member[local].flags & JOURNAL_LACKS) != 0;
        return part;
}

/* Members that were gone before the daemon began are not awaited. The machine hears of those that have left,
 * and does not keep their places. */
static void note_gone(struct job *job) {
        const struct journal_generation *from = job->takeover->from;

        for (uint32_t local = 0; local < from->n_members; local++)
                if (journal_member_is_gone(&from->member[local])) {
                        const struct membership_request wish =
                                wish_of(&from->member[local], job->incarnation);

                        rejoin_end_wait(job, local, from->number.number)->request =
                                request_of(job, &wish, from->member[local].pid, local);
                }
}

static void remove_absent(struct job *job) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link)
                if (member->owner == NULL)
                        member_free(member);
}

/* How many tracks its node needs to speak of all that the journal has. */
static uint32_t rejoin_tracks(const struct journal_generation *from) {
        return TRACK_STEP + (from->n_tracks > 0 ? from->n_tracks : 1);
}

/* Gives a job without members those that the journal has. */
static int rejoin_begin(struct job *job, const struct job_rejoin *rejoin, const struct former *former,
                        struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        const struct journal_generation *from = former->from;
        uint64_t wait = rejoin->wait < MOST_WAIT ? rejoin->wait : MOST_WAIT, now = clock_now();
        uint32_t n = from->n_members;
        size_t parts = sizeof(struct takeover) + n * sizeof(struct returned);
        size_t size = parts + journal_generation_bytes(n);
        struct takeover *takeover = calloc(1, size);

        if (takeover == NULL)
                return -ENOMEM;
        int r = charge_take(&takeover->charge, config->accounts, job->uid, ACCOUNT_OWN, size, refusal);
        if (r == 0)
                r = machine_reserve(job, n + job->machine.node.n, rejoin_tracks(from), refusal);
        for (uint32_t local = 0; local < n && r == 0; local++)
                r = add_absent(job, local, &from->member[local], refusal);
        if (r == 0) /* last: if this job cannot be taken back, its former members must not be awaited */
                r = machine_expect(job, n, refusal);
        if (r != 0) {
                remove_absent(job);
                takeover_free(takeover);
                return r;
        }
        takeover->from = (struct journal_generation *)(void *)((char *)takeover + parts);
        memcpy(takeover->from, from, journal_generation_bytes(n));
        takeover->deadline = now + wait;
        job->kept = former->job;
        journal_take_job(job->table->journal, job->kept);
        job->takeover = takeover;
        job_set_state(job, JOB_REPLACING);
        job->generation = from->number.number;
        job->max_world = rejoin->join.membership.max_world;
        job->world = from->world;
        job->history = from->steps > 0;
        job->n_local = n;
        note_gone(job);
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        job->interrupted = now;
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': gradsyncd was restarted", job->name);
        return 0;
}

/* New processes came to this daemon before the first former member. They wait for a place in the job that is
 * taken back, like new processes that come later. */
static int rejoin_convert(struct job *job, const struct job_rejoin *rejoin, const struct former *former,
                          struct refusal *refusal) {
        struct member *member, *spare;
        struct refusal why;
        int r = rejoin_begin(job, rejoin, former, refusal);

        if (r == 0)
                return 0;
        refuse(&why, WIRE__CODE__QUOTA,
               "job '%s' cannot be taken back after a restart of gradsyncd; join it again", job->name);
        list_for_each_safe(member, spare, &job->members, link) {
                machine_gone(job, member->id, WIRE__CAUSE__RESTARTED);
                member_answer_join(member, &why);
        }
        return r;
}

static int rejoin_stale(const struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__STALE,
                      "job '%s' has gone on without this process: it is in incarnation %" PRIu64
                      ", generation %u, of %u members; this process knows of %" PRIu64 ", %u. Join it anew",
                      job->name, job->incarnation, job->generation, job->world,
                      rejoin->join.membership.incarnation, rejoin->generation);
}

/* The job to which the member belongs; it is made for the first one that comes. */
static int rejoin_find_job(struct jobs *jobs, struct job_rejoin *rejoin, const struct former *former,
                           struct job **ret, struct refusal *refusal) {
        uint64_t incarnation = rejoin->join.membership.incarnation;
        struct job *job = *ret;

        if (job != NULL && job->incarnation < incarnation) {
                job_end(job, WIRE__CAUSE__SUPERSEDED);
                jobs_advance(jobs);
                job = NULL;
        }
        bool forming = job != NULL && job->state == JOB_FORMING && job->machine.node.world == 0;
        if (job != NULL && (job->incarnation > incarnation ||
                            (!forming && (job->takeover == NULL || job->kept != former->job))))
                return rejoin_stale(job, rejoin, refusal);
        if (job != NULL && job->cluster != rejoin->join.cluster)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' has the scope '%s' here, and this process comes back with '%s'",
                              job->name, job->cluster ? "cluster" : "host",
                              rejoin->join.cluster ? "cluster" : "host");
        *ret = job;
        if (forming)
                return rejoin_convert(job, rejoin, former, refusal);
        if (job != NULL)
                return 0;
        int r = job_new(jobs, &rejoin->join, ret, refusal);
        if (r != 0)
                return r;
        r = rejoin_begin(*ret, rejoin, former, refusal);
        if (r != 0)
                job_free(*ret);
        return r;
}

static int rejoin_check_place(const struct job *job, uint32_t local, struct refusal *refusal) {
        const struct member *member = job->local[local];

        if (job->takeover->part[local].here && member->owner != NULL)
                return refuse_for(refusal, WIRE__CODE__RANK_TAKEN, member->rank, (int32_t)member->pid,
                                  "job '%s': rank %u is held by pid %d", job->name, member->rank,
                                  (int)member->pid);
        if (job->takeover->part[local].here)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s': rank %u has come back once and was lost again", job->name,
                              member->rank);
        if (!takeover_is_vacant(job, member->rank))
                return refuse(refusal, WIRE__CODE__RANK_TAKEN,
                              "job '%s': rank %u has gone to another process meanwhile", job->name,
                              member->rank);
        return 0;
}

static int rejoin_check_wait(const struct member *member, const struct membership_request *wish, uint64_t now,
                             struct refusal *refusal) {
        if (wish->timeout == 0 || now < member->joined + wish->timeout)
                return 0;
        return refuse(refusal, WIRE__CODE__TIMEOUT,
                      "job '%s' goes on after a restart of gradsyncd, and not all of its members have come "
                      "back within %.1f s",
                      member->job->name, (double)wish->timeout / 1e6);
}

/* Refuses new processes that ask for what they cannot have now that a former member is back, and those whose
 * time to wait for the others is over. */
static void rejoin_check_joins(struct job *job, uint64_t now) {
        struct member *member, *spare;
        struct refusal refusal;

        list_for_each_safe(member, spare, &job->members, link) {
                const struct report_member *said =
                        member->state == MEMBER_JOINING ? machine_member(job, member->id) : NULL;

                if (said == NULL || (takeover_check_join(job, &said->request, &refusal) == 0 &&
                                     rejoin_check_wait(member, &said->request, now, &refusal) == 0))
                        continue;
                machine_gone(job, member->id, WIRE__CAUSE__RESTARTED);
                member_answer_join(member, &refusal);
                loop_defer(job->table->config.loop, &job->settle);
        }
}

/* The machine has judged already. The place is kept for this member while it brings the rest. */
static int rejoin_take_late(struct job *job, const struct job_rejoin *rejoin, uint32_t local,
                            struct refusal *refusal) {
        struct membership_request request =
                request_of(job, &rejoin->join.membership, rejoin->join.pid, local);

        request.returns = true;
        return job_ask_place(job, &request, &job->takeover->tag, refusal);
}

static void rejoin_take_place(struct job *job, const struct job_rejoin *rejoin, uint32_t local) {
        struct takeover *takeover = job->takeover;
        struct member *member = job->local[local];
        struct returned *part = rejoin_end_wait(job, local, rejoin->generation);
        uint64_t now = clock_now();

        member_set_state(member, MEMBER_ACTIVE);
        member_take(member, &rejoin->join);
        part->due = takeover->deadline > now + LEAST_TELLING ? takeover->deadline : now + LEAST_TELLING;
        part->request = request_of(job, &rejoin->join.membership, rejoin->join.pid, local);
        if (takeover_is_awaiting(job))
                rejoin_check_joins(job, now);
}

/* A process without the job's token has been faster: its job is not the former daemon's. */
static bool rejoin_finds_usurper(const struct job *job, const struct former *former) {
        return job->takeover == NULL && !token_equal(&job->token, &former->token);
}

/* One that had not formed leaves nothing for later: the member's own job may have its name at once. */
static void rejoin_end_usurper(struct job *job) {
        bool formed = job->state != JOB_FORMING;
        struct refusal why;

        refuse(&why, WIRE__CODE__DENIED,
               "job '%s' of uid %u belongs to processes with another token, which have come back after a "
               "restart of gradsyncd: set their token, or choose another name",
               job->name, (unsigned)job->uid);
        job_renounce(job, &why);
        if (formed)
                machine_end(job, WIRE__CAUSE__EVICTED);
        jobs_advance(job->table);
        if (formed)
                return;
        job_archive(job);
        job_free(job);
}

int jobs_rejoin(struct jobs *jobs, struct job_rejoin *rejoin, struct member **ret, struct refusal *refusal) {
        struct job *job = jobs_find(jobs, rejoin->join.uid, rejoin->join.name);
        struct former former;
        int r = 0;

        if (jobs->gate == GATE_STOPPING)
                r = refuse(refusal, WIRE__CODE__DAEMON_LOST, "gradsyncd is ending and takes no more members");
        if (r == 0)
                r = rejoin_look_up(jobs, rejoin, &former, refusal);
        if (r == 0 && job != NULL && rejoin_finds_usurper(job, &former)) {
                rejoin_end_usurper(job);
                job = NULL;
        }
        if (r == 0)
                r = rejoin_find_job(jobs, rejoin, &former, &job, refusal);
        if (r == 0)
                r = rejoin_check_place(job, former.local, refusal);
        if (r == 0 && !takeover_is_awaiting(job))
                r = rejoin_take_late(job, rejoin, former.local, refusal);
        if (r != 0)
                return r;
        rejoin_take_place(job, rejoin, former.local);
        *ret = job->local[former.local];
        job_settle_later(job);
        jobs_watch(jobs);
        return 0;
}

void rejoin_check(struct job *job, uint64_t now) {
        struct refusal refusal;

        if (job->takeover == NULL || job->state == JOB_LOST)
                return;
        if (takeover_is_awaiting(job))
                rejoin_check_joins(job, now);
        if (takeover_is_awaiting(job) && !takeover_any_expected(job))
                loop_defer(job->table->config.loop, &job->settle);
        for (uint32_t local = 0; local < job->n_local; local++) {
                struct member *member = job->local[local];
                const struct returned *part = &job->takeover->part[local];

                if (!takeover_is_telling(job, local) || now < part->due ||
                    (part->told && member->spurned == 0))
                        continue; /* the memory that it has brought is the backend's concern */
                refuse_for(&refusal, WIRE__CODE__TIMEOUT, member->rank, (int32_t)member->pid,
                           "job '%s': rank %u (pid %d) came back after a restart of gradsyncd, and has not "
                           "brought its plans in time",
                           job->name, member->rank, (int)member->pid);
                member_expel(member, &refusal);
        }
}
