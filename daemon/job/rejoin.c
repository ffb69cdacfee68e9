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

#define MOST_WAIT (UINT64_C(3600) * USEC_PER_SEC)
#define LEAST_TELLING (10 * USEC_PER_SEC)    /* for a member that comes back near the deadline or after it */
#define MOST_GENERATIONS (UINT32_C(1) << 31) /* so that the generations that follow can still be counted */
#define MOST_OPERATIONS (UINT64_C(1) << 62)  /* so that operations can still be counted */
/* The ids of members that join later are counted from the highest known one on. */
#define MOST_ID (UINT64_C(1) << 48)

static int rejoin_check_claims(const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct membership_request *wish = &rejoin->join.membership;
        const char *name = rejoin->join.name;

        if (rejoin->said.word.generation == 0 || rejoin->said.word.generation >= MOST_GENERATIONS)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': there is no generation %u", name,
                              rejoin->said.word.generation);
        if (rejoin->world == 0 || rejoin->world > wish->max_world || wish->rank >= rejoin->world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': rank %u of %u, in a job of at most %u, is no place", name,
                              wish->rank, rejoin->world, wish->max_world);
        if (wish->slot >= wish->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': local rank %u, in a job of at most %u, is no place", name,
                              wish->slot, wish->max_world);
        if (rejoin->said.operations >= MOST_OPERATIONS)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': %" PRIu64 " operations cannot have ended", name,
                              rejoin->said.operations);
        if (rejoin->stable == 0 || rejoin->stable >= MOST_ID)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': %" PRIu64 " is no member id", name,
                              rejoin->stable);
        return 0;
}

/* The place in the generation that the member knows, or in the next one: the former daemon may have been
 * killed before it had told the member. NULL: the journal does not have it. */
static const struct journal_place *rejoin_look_up(struct jobs *jobs, const struct job_rejoin *rejoin) {
        const struct job_join *join = &rejoin->join;
        const struct journal_job *kept =
                journal_find_job(jobs->journal, join->uid, join->name, join->membership.incarnation);
        const struct journal_place *place = journal_place_of(kept, rejoin->said.word.generation);

        return place != NULL ? place : journal_place_of(kept, rejoin->said.word.generation + 1);
}

/* Where the job was, for a job that is to be taken back, or is being taken back. */
static int rejoin_find_place(struct jobs *jobs, struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct journal_place *place = NULL;
        uint32_t rank = rejoin->join.membership.rank;

        if (!rejoin->join.cluster)
                place_alone(&rejoin->place, rejoin->said.word.generation, rejoin->world);
        else if ((place = rejoin_look_up(jobs, rejoin)) != NULL)
                rejoin->place = *place;
        else
                return refuse(refusal, WIRE__CODE__MEMBER_LOST,
                              "job '%s' has members on other daemons, and the journal of this gradsyncd does "
                              "not say where in the cluster they were in generation %u: join it again",
                              rejoin->join.name, rejoin->said.word.generation);
        if (place_has(&rejoin->place, rank) && rejoin->world == rejoin->place.world)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "job '%s': rank %u of %u was not on this gradsyncd in generation %u", rejoin->join.name,
                      rank, rejoin->world, rejoin->said.word.generation);
}

/* A member that has not come back yet. To the rest of the job layer it looks like one that is lost. */
static int add_absent(struct job *job, uint32_t local, uint32_t rank, struct refusal *refusal) {
        struct member *member;
        int r = member_new(job, &member, refusal);

        if (r != 0)
                return r;
        member_set_state(member, MEMBER_LOST);
        member->id = job_next_id(job);
        member->local = local;
        member->rank = member->local_rank = rank;
        member->has_rank = true;
        list_append(&job->members, &member->link);
        job->local[local] = member;
        return 0;
}

static void remove_absent(struct job *job) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link)
                if (member->owner == NULL)
                        member_free(member);
}

/* Gives a job without members the places of the former generation. */
static int rejoin_begin(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        uint64_t wait = rejoin->wait < MOST_WAIT ? rejoin->wait : MOST_WAIT, now = clock_now();
        uint32_t n = rejoin->place.n_ranks;
        size_t size = sizeof(struct takeover) + n * sizeof(struct returned);
        struct takeover *takeover = calloc(1, size);

        if (takeover == NULL)
                return -ENOMEM;
        int r = charge_take(&takeover->charge, config->accounts, job->uid, ACCOUNT_OWN, size, refusal);
        if (r == 0)
                r = machine_reserve(job, n + job->machine.node.n, 0, refusal);
        for (uint32_t local = 0; local < n && r == 0; local++)
                r = add_absent(job, local, rejoin->place.rank[local], refusal);
        if (r == 0) /* last: if this job cannot be taken back, nobody must wait for its former members */
                r = machine_expect(job, n, refusal);
        if (r != 0) {
                remove_absent(job);
                takeover_free(takeover);
                return r;
        }
        takeover->generation = rejoin->said.word.generation;
        takeover->first = rejoin->join.membership;
        position_claim(job);
        takeover->place = rejoin->place;
        takeover->deadline = now + wait;
        job->takeover = takeover;
        job_set_state(job, JOB_REPLACING);
        job->generation = rejoin->said.word.generation;
        job->max_world = rejoin->join.membership.max_world;
        job->world = rejoin->world;
        job->n_local = n;
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        job->interrupted = now;
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': gradsyncd was restarted", job->name);
        return 0;
}

/* New processes came to this daemon before the first former member. They wait for a place in the job that is
 * taken back, like new processes that come later. */
static int rejoin_convert(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        struct member *member, *spare;
        struct refusal why;
        int r = rejoin_begin(job, rejoin, refusal);

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

/* Whether a member that knows this generation and world belongs to the job that is being taken back. Not all
 * members need to have heard of the latest generation. */
static bool rejoin_agrees(const struct job *job, const struct job_rejoin *rejoin) {
        uint32_t known = job->takeover->generation, told = rejoin->said.word.generation;

        return rejoin->world == job->world && place_agrees(&rejoin->place, &job->takeover->place) &&
               (told == known || told + 1 == known || (told == known + 1 && takeover_is_awaiting(job)));
}

static int rejoin_stale(const struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__STALE,
                      "job '%s' has gone on without this process: it is in incarnation %" PRIu64
                      ", generation %u, of %u members; "
                      "this process knows of %" PRIu64 ", %u, of %u. Join it anew",
                      job->name, job->incarnation, job->generation, job->world,
                      rejoin->join.membership.incarnation, rejoin->said.word.generation, rejoin->world);
}

/* The job to which the member belongs; it is made if nobody has come before. */
static int rejoin_find_job(struct jobs *jobs, struct job_rejoin *rejoin, struct job **ret,
                           struct refusal *refusal) {
        uint64_t incarnation = rejoin->join.membership.incarnation;
        struct job *job = *ret;
        int r;

        if (job != NULL && job->incarnation > incarnation)
                return rejoin_stale(job, rejoin, refusal);
        if (job != NULL &&
            (job->incarnation < incarnation ||
             (job->takeover != NULL && rejoin->said.word.generation > job->takeover->generation + 1))) {
                job_end(job, WIRE__CAUSE__SUPERSEDED);
                jobs_advance(jobs);
                job = NULL;
        }
        if (job != NULL && job->cluster != rejoin->join.cluster)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' has the scope '%s' here, and this process comes back with '%s'",
                              job->name, job->cluster ? "cluster" : "host",
                              rejoin->join.cluster ? "cluster" : "host");
        bool forming = job != NULL && job->state == JOB_FORMING && job->machine.node.world == 0;
        if (job != NULL && !forming && job->takeover == NULL)
                return rejoin_stale(job, rejoin, refusal);
        r = rejoin_find_place(jobs, rejoin, refusal);
        if (r != 0)
                return r;
        if (forming)
                r = rejoin_convert(job, rejoin, refusal);
        else if (job != NULL)
                r = rejoin_agrees(job, rejoin) ? 0 : rejoin_stale(job, rejoin, refusal);
        else {
                r = job_new(jobs, &rejoin->join, &job, refusal);
                if (r != 0)
                        return r;
                r = rejoin_begin(job, rejoin, refusal);
                if (r != 0)
                        job_free(job);
        }
        *ret = job;
        return r;
}

static int rejoin_check_place(const struct job *job, const struct job_rejoin *rejoin,
                              struct refusal *refusal) {
        const struct membership_request *wish = &rejoin->join.membership, *first = &job->takeover->first;

        if (wish->min_world != first->min_world || wish->max_world != first->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' is one of %u to %u members, rank %u says %u to %u", job->name,
                              first->min_world, first->max_world, wish->rank, wish->min_world,
                              wish->max_world);
        uint32_t local = takeover_find(job, wish->rank);
        if (!takeover_is_vacant(job, wish->rank))
                return refuse_for(refusal, WIRE__CODE__RANK_TAKEN, wish->rank,
                                  (int32_t)job->local[local]->pid, "job '%s': rank %u is held by pid %d",
                                  job->name, wish->rank, (int)job->local[local]->pid);
        if (job->takeover->part[local].here)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s': rank %u has come back once and was lost again", job->name,
                              wish->rank);
        return 0;
}

static const struct membership_request *wish_of(const struct job *job, uint64_t member) {
        const struct node *node = &job->machine.node;

        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i].request;
        return NULL;
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
                const struct membership_request *wish =
                        member->state == MEMBER_JOINING ? wish_of(job, member->id) : NULL;

                if (wish == NULL || (takeover_check_join(job, wish, &refusal) == 0 &&
                                     rejoin_check_wait(member, wish, now, &refusal) == 0))
                        continue;
                machine_gone(job, member->id, WIRE__CAUSE__RESTARTED);
                member_answer_join(member, &refusal);
                loop_defer(job->table->config.loop, &job->settle);
        }
}

static struct membership_request request_of(const struct job *job, const struct job_rejoin *rejoin) {
        struct membership_request request = rejoin->join.membership;

        request.member = job->local[takeover_find(job, request.rank)]->id;
        request.pid = (int32_t)rejoin->join.pid;
        request.returns = job->cluster; /* if the others have gone on without this node */
        return request;
}

/* The machine has judged already. The place is kept for this member while it tells the rest. */
static int rejoin_take_late(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        struct membership_request request = request_of(job, rejoin);
        struct tag tag = takeover_tag(job, rejoin->said.history);

        request.returns = true;
        return job_ask_place(job, &request, &tag, refusal);
}

static void rejoin_take_place(struct job *job, const struct job_rejoin *rejoin) {
        const struct membership_request *wish = &rejoin->join.membership;
        struct takeover *takeover = job->takeover;
        uint32_t local = takeover_find(job, wish->rank);
        struct member *member = job->local[local];
        struct returned *part = &takeover->part[local];
        uint64_t now = clock_now();

        member_set_state(member, MEMBER_ACTIVE);
        member_take(member, &rejoin->join);
        member->stable = rejoin->stable;
        member->max_world = wish->max_world;
        member->local_rank = wish->slot;
        member->next_plan = rejoin->said.next_plan;
        if (rejoin->said.word.generation > takeover->generation)
                takeover->generation = job->generation = rejoin->said.word.generation;
        if (generation_compare(rejoin->place.generation, takeover->place.generation) > 0)
                takeover->place = rejoin->place;
        *part = rejoin->said;
        part->here = true;
        part->due = takeover->deadline > now + LEAST_TELLING ? takeover->deadline : now + LEAST_TELLING;
        part->request = request_of(job, rejoin);
        takeover->ended |= part->word.ended;
        takeover->proven |= rejoin->proven;
        job->history |= part->history;
        if (rejoin->has_lost)
                takeover_forget(job, rejoin->lost);
        if (takeover_is_awaiting(job))
                rejoin_check_joins(job, now);
}

/* A process without the job's token has been faster. Nobody but a former member can show that it was one;
 * a job in which nobody has is not the former daemon's. */
static bool rejoin_finds_usurper(const struct job *job, const struct job_rejoin *rejoin) {
        bool others = job->takeover != NULL && job->takeover->proven;

        return rejoin->proven && !others && !token_equal(&job->token, rejoin->join.token);
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
        ending_note(job);
        job_free(job);
}

int jobs_rejoin(struct jobs *jobs, struct job_rejoin *rejoin, struct member **ret, struct refusal *refusal) {
        struct job *job = jobs_find(jobs, rejoin->join.uid, rejoin->join.name);
        int r = rejoin_check_claims(rejoin, refusal);

        if (r == 0 && jobs->gate == GATE_STOPPING)
                r = refuse(refusal, WIRE__CODE__DAEMON_LOST, "gradsyncd is ending and takes no more members");
        if (r == 0 && job != NULL && rejoin_finds_usurper(job, rejoin)) {
                rejoin_end_usurper(job);
                job = NULL;
        }
        if (r == 0 && job != NULL)
                r = job_check_token(job, rejoin->join.token, refusal);
        if (r == 0)
                r = rejoin_find_job(jobs, rejoin, &job, refusal);
        if (r == 0)
                r = rejoin_check_place(job, rejoin, refusal);
        if (r == 0)
                r = machine_reserve(job, 0, place_tracks(&rejoin->place), refusal);
        if (r == 0 && !takeover_is_awaiting(job))
                r = rejoin_take_late(job, rejoin, refusal);
        if (r != 0)
                return r;
        rejoin_take_place(job, rejoin);
        *ret = job->local[takeover_find(job, rejoin->join.membership.rank)];
        loop_defer(job->table->config.loop, &job->settle);
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
                    (part->word.told && member->spurned == 0))
                        continue; /* the memory that it has brought is the backend's concern */
                refuse_for(&refusal, WIRE__CODE__TIMEOUT, member->rank, (int32_t)member->pid,
                           "job '%s': rank %u (pid %d) came back after a restart of gradsyncd, and has not "
                           "told of its plans in time",
                           job->name, member->rank, (int)member->pid);
                member_expel(member, &refusal);
        }
}
