/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking jobs back from the members that a former daemon has left. See takeover.h. What that daemon has left
 * itself (state.h) tells of what it had no time to say.
 */
#include "job/takeover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "job/plan.h"
#include "job/private.h"

#define MOST_WAIT (UINT64_C(3600) * USEC_PER_SEC)
#define MOST_NUMBERS (1u << 17) /* of results that are told to one member at once: as many fit its queue */
#define MOST_EMPTY (UINT64_C(60) * USEC_PER_SEC)
#define MOST_GENERATIONS (UINT32_C(1) << 31) /* those that follow are counted from there on */
#define MOST_OPERATIONS (UINT64_C(1) << 62)     /* the same of operations */
#define MOST_ID (UINT64_C(1) << 48) /* of a member: those of its job that come later are counted from the highest on */

struct takeover *takeover_free(struct takeover *takeover) {
        if (takeover == NULL)
                return NULL;
        charge_release(&takeover->charge);
        free(takeover);
        return NULL;
}

static int check(const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct membership_request *wish = &rejoin->join.membership;
        const char *name = rejoin->join.name;

        if (rejoin->generation == 0 || rejoin->generation >= MOST_GENERATIONS)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': there is no generation %u", name,
                              rejoin->generation);
        if (rejoin->world == 0 || rejoin->world > wish->max_world || wish->rank >= rejoin->world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': rank %u of %u, in a job of at most %u, is no place", name,
                              wish->rank, rejoin->world, wish->max_world);
        if (wish->slot >= wish->max_world)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': local rank %u, in a job of at most %u, is no place", name,
                              wish->slot, wish->max_world);
        if (rejoin->operations >= MOST_OPERATIONS)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': %" PRIu64 " operations cannot have ended", name,
                              rejoin->operations);
        if (rejoin->stable == 0 || rejoin->stable >= MOST_ID)
                return refuse(refusal, WIRE__CODE__INVALID, "job '%s': %" PRIu64 " is no member id", name,
                              rejoin->stable);
        return 0;
}

/* A member that is not here yet: what is lost, and never was, looks alike to everybody else. */
static int add_absent(struct job *job, uint32_t rank, struct refusal *refusal) {
        struct member *member;
        int r = job_new_member(job, &member, refusal);

        if (r != 0)
                return r;
        member_set_state(member, MEMBER_LOST);
        member->id = job_next_id(job);
        member->rank = member->local = member->local_rank = rank;
        member->has_rank = true;
        list_append(&job->members, &member->link);
        job->local[rank] = member;
        return 0;
}

static void remove_absent(struct job *job) {
        struct member *member, *spare;

        list_for_each_safe(member, spare, &job->members, link)
                if (member->owner == NULL)
                        job_free_member(member);
}

/* Gives a job without members the places of the former generation. */
static int begin(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        uint64_t wait = rejoin->wait < MOST_WAIT ? rejoin->wait : MOST_WAIT, now = clock_now();
        size_t size = sizeof(struct takeover) + rejoin->world * sizeof(struct returned);
        struct takeover *takeover = calloc(1, size);
        int r;

        if (takeover == NULL)
                return -ENOMEM;
        r = charge_take(&takeover->charge, config->accounts, job->uid, ACCOUNT_BYTES, size, refusal);
        if (r == 0)
                r = machine_reserve(job, rejoin->world, 0, refusal);
        for (uint32_t rank = 0; rank < rejoin->world && r == 0; rank++)
                r = add_absent(job, rank, refusal);
        if (r != 0) {
                remove_absent(job);
                takeover_free(takeover);
                return r;
        }
        takeover->generation = rejoin->generation;
        takeover->deadline = now + wait;
        machine_recover(job, &rejoin->join.membership, rejoin->generation, rejoin->world, job->local[0]->id,
                        takeover->deadline);
        job->takeover = takeover;
        job_set_state(job, JOB_REPLACING);
        job->generation = rejoin->generation;
        job->world = job->n_local = rejoin->world;      /* all of its places are of this node */
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        job->interrupted = now;
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': gradsyncd was restarted", job->name);
        return 0;
}

static int take_along(struct job *job, const struct membership_request *wish, const struct job_rejoin *rejoin,
                      struct refusal *refusal) {
        uint32_t rank = rejoin->join.membership.rank;

        if (wish->has_rank && wish->rank == rank)
                return refuse_for(
                        refusal, WIRE__CODE__RANK_TAKEN, rank, (int32_t)rejoin->join.pid,
                        "job '%s' goes on after a restart of gradsyncd, and its rank %u is held by pid %d",
                        job->name, rank, (int)rejoin->join.pid);
        return machine_join(job, wish, refusal);
}

/* What came to this daemon first were processes that are new in the job: now they wait for a place in it, like somebody who
 * has just come. */
static int convert(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct membership *m = machine_membership(&job->machine);
        uint32_t n = m->n + m->n_waiting;
        struct membership_request *wish = calloc(n + 1, sizeof(*wish));
        struct refusal why;
        int r;

        if (wish == NULL)
                return -ENOMEM;
        for (uint32_t i = 0; i < n; i++)
                wish[i] = m->member[i].request;
        for (uint32_t i = 0; i < n; i++)
                machine_gone(job, wish[i].member, WIRE__CAUSE__RESTARTED);
        r = begin(job, rejoin, refusal);
        for (uint32_t i = 0; i < n; i++) {
                struct member *member = job_member(job, wish[i].member);

                wish[i].member = member->id = job_next_id(job);
                refuse(&why, WIRE__CODE__QUOTA, "job '%s' cannot be taken back after a restart of gradsyncd; join it again",
                       job->name);
                if (r != 0 || take_along(job, &wish[i], rejoin, &why) != 0)
                        job_answer_join(member, &why);
        }
        free(wish);
        return r;
}

/* Whether somebody who knows of this generation and world belongs to the job that is being taken back: of a
 * change, not all need to have heard. */
static bool agrees(const struct job *job, const struct job_rejoin *rejoin) {
        uint32_t known = job->takeover->generation, told = rejoin->generation;

        return rejoin->world == job->world &&
               (told == known || told + 1 == known || told == known + 1);
}

static int stale(const struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__STALE,
                      "job '%s' has gone on without this process: it is in incarnation %" PRIu64
                      ", generation %u, of %u members; "
                      "this process knows of %" PRIu64 ", %u, of %u. Join it anew",
                      job->name, job->incarnation, job->generation, job_world(job),
                      rejoin->join.membership.incarnation, rejoin->generation, rejoin->world);
}

/* The job to which the member belongs; it is made if nobody has come before. */
static int find_job(struct jobs *jobs, const struct job_rejoin *rejoin, struct job **ret,
                    struct refusal *refusal) {
        uint64_t incarnation = rejoin->join.membership.incarnation;
        struct job *job = *ret;
        int r;

        if (job != NULL && job->incarnation > incarnation)
                return stale(job, rejoin, refusal);
        if (job != NULL && (job->incarnation < incarnation ||
                            (job->takeover != NULL && rejoin->generation > job->takeover->generation + 1))) {
                job_end(job, WIRE__CAUSE__SUPERSEDED);
                job = NULL;
        }
        if (job != NULL && job->state == JOB_FORMING)
                r = convert(job, rejoin, refusal);
        else if (job != NULL)
                r = job->takeover != NULL && agrees(job, rejoin) ? 0 : stale(job, rejoin, refusal);
        else {
                r = job_new(jobs, &rejoin->join, &job, refusal);
                if (r != 0)
                        return r;
                r = begin(job, rejoin, refusal);
                if (r != 0)
                        job_free(job);
        }
        *ret = job;
        return r;
}

static int check_place(const struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct membership_request *wish = &rejoin->join.membership;
        const struct membership *m = machine_membership(&job->machine);
        const struct membership_member *place = &m->member[wish->rank];

        if (wish->min_world != m->min_world || wish->max_world != m->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' is one of %u to %u members, rank %u says %u to %u", job->name,
                              m->min_world, m->max_world, wish->rank, wish->min_world, wish->max_world);
        if (!place->lost)
                return refuse_for(refusal, WIRE__CODE__RANK_TAKEN, wish->rank, place->request.pid,
                                  "job '%s': rank %u is held by pid %d", job->name, wish->rank,
                                  place->request.pid);
        if (job->takeover->part[wish->rank].here)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s': rank %u has come back once and was lost again", job->name,
                              wish->rank);
        return 0;
}

static void take_place(struct job *job, const struct job_rejoin *rejoin) {
        struct membership_request request = rejoin->join.membership;
        struct takeover *takeover = job->takeover;
        struct member *member = job->local[request.rank];
        uint32_t slot = request.slot;

        request.member = member->id;
        request.pid = (int32_t)rejoin->join.pid;
        request.has_rank = rejoin->asked_rank;
        request.has_slot = rejoin->asked_slot;
        if (rejoin->stable > job->last_id)
                job->last_id = rejoin->stable;
        member_set_state(member, MEMBER_ACTIVE);
        member->stable = rejoin->stable;
        member->local_rank = slot;
        member->pid = rejoin->join.pid;
        member->client = rejoin->join.client;
        member->returns = rejoin->join.returns;
        member->joined = clock_now();
        member->next_plan = rejoin->next_plan;
        member->owner = rejoin->join.owner;
        snprintf(member->program, sizeof(member->program), "%s", rejoin->join.program);
        list_append(rejoin->join.owner_members, &member->owner_link);
        if (rejoin->generation > takeover->generation) {
                takeover->generation = job->generation = rejoin->generation;
                machine_recount(job, rejoin->generation);
        }
        machine_return(job, rejoin->join.membership.rank, slot, rejoin->stable, &request, rejoin->history);
        takeover->ended |= rejoin->ended;
        takeover->part[request.rank] = (struct returned){
                .here = true,
                .orderly = rejoin->orderly,
                .resumed = rejoin->resumed,
                .operation_failed = rejoin->operation_failed,
                .generation = rejoin->generation,
                .next_plan = rejoin->next_plan,
                .operations = rejoin->operations,
        };
        job->history |= rejoin->history;
        if (rejoin->has_lost && rejoin->lost < job_world(job))
                machine_forget(job, rejoin->lost);
}

int jobs_rejoin(struct jobs *jobs, const struct job_rejoin *rejoin, struct member **ret,
                struct refusal *refusal) {
        struct job *job = jobs_find(jobs, rejoin->join.uid, rejoin->join.name);
        int r = check(rejoin, refusal);

        if (r == 0 && jobs->gate == GATE_STOPPING)
                r = refuse(refusal, WIRE__CODE__DAEMON_LOST,
                           "gradsyncd is stopping and takes no more members");
        if (r == 0 && job != NULL)
                r = job_check_token(job, rejoin->join.token, refusal);
        if (r == 0)
                r = find_job(jobs, rejoin, &job, refusal);
        if (r == 0)
                r = check_place(job, rejoin, refusal);
        if (r != 0)
                return r;
        take_place(job, rejoin);
        *ret = job->local[rejoin->join.membership.rank];
        (*ret)->join_request = rejoin->join.request;
        job_settle_later(job);
        jobs_watch(jobs);
        return 0;
}

/* What a member tells after REJOINED, until it has told everything. */
static int check_telling(const struct member *member, struct refusal *refusal) {
        const struct job *job = member->job;

        if (job->takeover != NULL && member->state == MEMBER_ACTIVE &&
            !job->takeover->part[member->rank].told)
                return 0;
        return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' is not on its way back into it",
                      member->rank, job->name);
}

int takeover_plan(struct member *member, const Wire__RejoinPlan *plan, int *fd, struct refusal *refusal) {
        int r = check_telling(member, refusal);

        return r != 0 ? r : plan_return(member, plan, fd, refusal);
}

int takeover_staging(struct member *member, uint64_t bytes, int *fd, struct refusal *refusal) {
        int r = check_telling(member, refusal);

        return r != 0 ? r : staging_return(member, bytes, fd, refusal);
}

int takeover_told(struct member *member, struct refusal *refusal) {
        int r = check_telling(member, refusal);

        if (r != 0)
                return r;
        member->job->takeover->part[member->rank].told = true;
        job_settle_later(member->job);
        return 0;
}

/* Members that are here and have not told all; those who are gone again are nobody's concern. */
static bool is_telling(const struct job *job, uint32_t rank) {
        return job->local[rank]->owner != NULL && job->takeover->part[rank].here &&
               !job->takeover->part[rank].told;
}

static const struct membership_member *place_of(const struct job *job, uint32_t rank) {
        return &machine_membership(&job->machine)->member[rank];
}

/* Whether the holder of some place may still come: a job that nobody is in is not kept for long. */
static bool is_expecting(const struct job *job) {
        uint64_t now = clock_now();

        if (now >= job->interrupted + MOST_EMPTY)
                return false;
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                if (place_of(job, rank)->lost && now < place_of(job, rank)->expected)
                        return true;
        return false;
}

static bool is_empty(const struct job *job) {
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                if (job->local[rank]->owner != NULL)
                        return false;
        return true;
}

bool takeover_busy(const struct job *job) {
        if (job->takeover == NULL || job->state == JOB_LOST)    /* to that one nobody comes back any more */
                return false;
        if (is_empty(job) && is_expecting(job))
                return true;
        for (uint32_t rank = 0; rank < job_world(job); rank++)
                if (is_telling(job, rank))
                        return true;
        return false;
}

bool takeover_forget(struct job *job, uint32_t rank) {
        const struct membership_member *place = place_of(job, rank);

        if (job->takeover == NULL || !place->lost || place->expected == 0)
                return false;
        machine_forget(job, rank);
        job_settle_later(job);
        return true;
}

void takeover_check(struct job *job, uint64_t now) {
        struct refusal refusal;

        if (job->takeover == NULL || job->state == JOB_LOST)
                return;
        if (is_empty(job) && !is_expecting(job))
                job_settle_later(job);
        if (now < job->takeover->deadline)
                return;
        for (uint32_t rank = 0; rank < job_world(job); rank++) {
                if (!is_telling(job, rank))
                        continue;
                refuse_for(
                        &refusal, WIRE__CODE__TIMEOUT, rank, (int32_t)job->local[rank]->pid,
                        "job '%s': rank %u (pid %d) came back after a restart of gradsyncd, and has not told of its plans in time",
                        job->name, rank, (int)job->local[rank]->pid);
                job->table->config.events->evict(job->local[rank], &refusal);
        }
}

static bool is_back(const struct job *job, uint32_t rank) {
        return job->local[rank]->owner != NULL && job->takeover->part[rank].told;
}

/* Whether the member has heard of the latest generation. */
static bool is_current(const struct takeover *takeover, uint32_t rank) {
        return takeover->part[rank].generation == takeover->generation;
}

/* Nobody is missing, and all know of one generation, or of the one before it and nothing was void in between.
 */
static bool same_members(const struct job *job, uint32_t before) {
        const struct takeover *takeover = job->takeover;
        bool all_current = true, entered = true;

        if (takeover->ended || job_world(job) != before)
                return false;
        for (uint32_t rank = 0; rank < before; rank++) {
                const struct returned *part = &takeover->part[rank];

                if (!is_back(job, rank) || part->generation + 1 < takeover->generation)
                        return false;
                all_current &= is_current(takeover, rank);
                entered &= part->resumed || !is_current(takeover, rank);
        }
        return all_current || entered;
}

static bool all_current(const struct job *job, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (job->takeover->part[rank].here && !is_current(job->takeover, rank))
                        return false;
        return true;
}

static bool all_orderly(const struct job *job, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (!job->takeover->part[rank].orderly || !is_current(job->takeover, rank))
                        return false;
        return true;
}

/* Whether everybody has sent READYs of the open step; no bucket of it can have been begun before. */
static bool launched_by_all(const struct plan *plan, uint32_t before) {
        bool all = true;

        for (uint32_t rank = 0; rank < before; rank++) {
                const struct plan_part *part = &plan->part[rank];
                bool mine = part->state == PART_MAPPED && is_current(plan->job->takeover, rank) &&
                            part->said_step == plan->step && part->said_launched > 0;

                plan->job->takeover->began |= mine;
                all &= mine;
        }
        return all;
}

/* Parts that a member has dropped before it came. */
static void drop_parts(struct plan *plan, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (plan->part[rank].state == PART_NONE && is_back(plan->job, rank) &&
                    plan->ordinal < plan->job->takeover->part[rank].next_plan) {
                        part_set_state(&plan->part[rank], PART_DROPPED);
                        plan->dropped = true;
                }
}

static const struct past_plan *find_past(const struct plan *plan, uint32_t before) {
        const struct job *job = plan->job;

        if (plan->reference == NULL)
                return NULL;
        return past_find(job->table->past,
                         &(struct state_key){ job->uid, job->name, job->incarnation,
                                              plan->ordinal },
                         job->takeover->generation, before, plan->reference);
}

/* Whether a member that has sent all of the last step can be told how it ended. */
static bool can_tell(const struct plan *plan, uint32_t rank, const struct past_plan *past) {
        const struct plan_part *part = &plan->part[rank];
        uint64_t numbers = (uint64_t)plan->reference->n_buckets * (job_world(plan->job) + 3);

        return past_verdict(past, plan->step) == PAST_COMMITTED && is_current(plan->job->takeover, rank) &&
               part->said_step + 1 == plan->step && part->said_launched == plan->reference->n_buckets &&
               numbers <= MOST_NUMBERS;
}

static void tell_results(const struct plan *plan, uint32_t rank, const struct past_plan *past) {
        const struct jobs_events *events = plan->job->table->config.events;
        struct member *member = plan->job->local[rank];
        struct backend_result result;
        const uint8_t *unused;

        for (uint32_t b = 0; b < plan->reference->n_buckets; b++) {
                past_result(past, plan->reference, b, &result, &unused);
                events->past_result(member, plan, b, &result, unused, (plan->reference->bucket[b].n + 7) / 8);
        }
        events->past_commit(member, plan);
}

/* The member has not heard of the last commit; whether it has now. */
static bool catch_up(struct plan *plan, uint32_t rank, const struct past_plan *past) {
        struct job *job = plan->job;

        if (!is_back(job, rank))
                return false;
        if (can_tell(plan, rank, past)) {
                tell_results(plan, rank, past);
                return true;
        }
        job->takeover->behind = true;
        job->table->config.events->plan_step(job->local[rank], plan);
        return false;
}

/* The last step that is committed, by the word of any member, or of the daemon before. */
static void find_step(struct plan *plan, uint32_t before, const struct past_plan *past) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (plan->part[rank].state == PART_MAPPED && plan->part[rank].said_step > plan->step)
                        plan->step = plan->part[rank].said_step;
        if (past_verdict(past, plan->step + 1) == PAST_COMMITTED)
                plan->step++;
}

/* The verdict on one plan's open step; whether nothing is void. */
static bool resolve_plan(struct plan *plan, uint32_t before) {
        const struct past_plan *past = find_past(plan, before);
        struct job *job = plan->job;
        bool heard = true, launched;

        drop_parts(plan, before);
        find_step(plan, before, past);
        for (uint32_t rank = 0; rank < before; rank++)
                if (plan->part[rank].state == PART_MAPPED && plan->part[rank].said_step != plan->step)
                        heard = catch_up(plan, rank, past) && heard;
        if (plan->step > job->last_step)
                job->last_step = plan->step;
        launched = launched_by_all(plan, before);
        return heard && (all_orderly(job, before) || !launched ||
                         past_verdict(past, plan->step + 1) == PAST_UNTOUCHED);
}

static void resolve_operations(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;

        for (uint32_t rank = 0; rank < before; rank++) {
                const struct returned *part = &takeover->part[rank];

                if (!part->here || !is_current(takeover, rank) || part->operations < takeover->operations)
                        continue;
                takeover->operation_failed =
                        part->operation_failed ||
                        (part->operations == takeover->operations && takeover->operation_failed);
                takeover->operations = part->operations;
        }
}

static void tell_verdict(const struct job *job) {
        struct log_context context = LOG_CONTEXT_NONE;

        context.job = job->name;
        context.generation = job->generation;
        context.uid = job->uid;
        if (flood_admits(FLOOD_JOBS, job->uid, clock_now()))
                log_write(LOG_INFO, &context,
                          "job has been taken back after a restart with %u members, after step %" PRIu64
                          ": %s",
                          job_world(job), job->last_step,
                          job->takeover->resumed ? "nothing is void" : "open steps are void");
}

void takeover_resolve(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;
        bool resumed = same_members(job, before);
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                resumed = resolve_plan(plan, before) && resumed;
        resolve_operations(job, before);
        if (!resumed && !all_current(job, before))
                takeover->operations = 0; /* the counts are of different generations */
        takeover->resumed = resumed;
        job->void_steps += !resumed && takeover->began;
        if (job->loss.cause == WIRE__CAUSE__RESTARTED)
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s': gradsyncd was restarted after step %" PRIu64 "%s", job->name,
                         job->last_step, job_world(job) < before ? ", and not all members came back" : "");
        tell_verdict(job);
}
