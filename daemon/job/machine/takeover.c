/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking jobs back from the members that a former daemon has left. See takeover.h. What that daemon has left
 * itself (state.h) tells of what it had no time to say.
 */
#include "job/machine/takeover.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "job/plan/plan.h"
#include "job/private.h"

#define MOST_WAIT (UINT64_C(3600) * USEC_PER_SEC)
#define MOST_NUMBERS (1u << 17) /* of results that are told to one member at once: as many fit its queue */
#define MOST_EMPTY (UINT64_C(60) * USEC_PER_SEC)
#define MOST_GENERATIONS (UINT32_C(1) << 31) /* those that follow are counted from there on */
#define MOST_OPERATIONS (UINT64_C(1) << 62)  /* the same of operations */
/* Of a member: those of its job that come later are counted from the highest on. */
#define MOST_ID (UINT64_C(1) << 48)

struct takeover *takeover_free(struct takeover *takeover) {
        if (takeover == NULL)
                return NULL;
        charge_release(&takeover->charge);
        free(takeover);
        return NULL;
}

static int takeover_check_rejoin(const struct job_rejoin *rejoin, struct refusal *refusal) {
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
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': local rank %u, in a job of at most %u, is no place", name,
                              wish->slot, wish->max_world);
        if (rejoin->operations >= MOST_OPERATIONS)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s': %" PRIu64 " operations cannot have ended", name, rejoin->operations);
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
static int takeover_begin(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        const struct jobs_config *config = &job->table->config;
        uint64_t wait = rejoin->wait < MOST_WAIT ? rejoin->wait : MOST_WAIT, now = clock_now();
        size_t size = sizeof(struct takeover) + rejoin->world * sizeof(struct returned);
        struct takeover *takeover = calloc(1, size);
        int r;

        if (takeover == NULL)
                return -ENOMEM;
        r = charge_take(&takeover->charge, config->accounts, job->uid, ACCOUNT_BYTES, size, refusal);
        if (r == 0)
                r = machine_reserve(job, rejoin->world + job->machine.node.n, 0, refusal);
        for (uint32_t rank = 0; rank < rejoin->world && r == 0; rank++)
                r = add_absent(job, rank, refusal);
        if (r == 0) /* last: who comes to a job that could not be taken back must not wait for anybody */
                r = machine_expect(job, rejoin->world, refusal);
        if (r != 0) {
                remove_absent(job);
                takeover_free(takeover);
                return r;
        }
        takeover->generation = rejoin->generation;
        takeover->first = rejoin->join.membership;
        takeover->deadline = now + wait;
        job->takeover = takeover;
        job_set_state(job, JOB_REPLACING);
        job->generation = rejoin->generation;
        job->max_world = rejoin->join.membership.max_world;
        job->world = job->n_local = rejoin->world; /* all of its places are of this node */
        job->loss = (struct membership_loss){ .cause = WIRE__CAUSE__RESTARTED };
        job->interrupted = now;
        snprintf(job->loss_text, sizeof(job->loss_text), "job '%s': gradsyncd was restarted", job->name);
        return 0;
}

/* What came to this daemon first were processes that are new in the job: they wait for a place in it, like
 * any that comes later. */
static int takeover_convert(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        struct member *member, *spare;
        struct refusal why;
        int r = takeover_begin(job, rejoin, refusal);

        if (r == 0)
                return 0;
        refuse(&why, WIRE__CODE__QUOTA,
               "job '%s' cannot be taken back after a restart of gradsyncd; join it again", job->name);
        list_for_each_safe(member, spare, &job->members, link) {
                machine_gone(job, member->id, WIRE__CAUSE__RESTARTED);
                job_answer_join(member, &why);
        }
        return r;
}

/* Whether somebody who knows of this generation and world belongs to the job that is being taken back: of a
 * change, not all need to have heard. */
static bool agrees(const struct job *job, const struct job_rejoin *rejoin) {
        uint32_t known = job->takeover->generation, told = rejoin->generation;

        return rejoin->world == job->world &&
               (told == known || told + 1 == known || (told == known + 1 && takeover_is_awaiting(job)));
}

static int takeover_stale(const struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        return refuse(refusal, WIRE__CODE__STALE,
                      "job '%s' has gone on without this process: it is in incarnation %" PRIu64
                      ", generation %u, of %u members; "
                      "this process knows of %" PRIu64 ", %u, of %u. Join it anew",
                      job->name, job->incarnation, job->generation, job->world,
                      rejoin->join.membership.incarnation, rejoin->generation, rejoin->world);
}

/* The job to which the member belongs; it is made if nobody has come before. */
static int takeover_find_job(struct jobs *jobs, const struct job_rejoin *rejoin, struct job **ret,
                             struct refusal *refusal) {
        uint64_t incarnation = rejoin->join.membership.incarnation;
        struct job *job = *ret;
        int r;

        if (job != NULL && job->incarnation > incarnation)
                return takeover_stale(job, rejoin, refusal);
        if (job != NULL && (job->incarnation < incarnation ||
                            (job->takeover != NULL && rejoin->generation > job->takeover->generation + 1))) {
                job_end(job, WIRE__CAUSE__SUPERSEDED);
                job = NULL;
        }
        if (job != NULL && job->state == JOB_FORMING)
                r = takeover_convert(job, rejoin, refusal);
        else if (job != NULL)
                r = job->takeover != NULL && agrees(job, rejoin) ? 0 : takeover_stale(job, rejoin, refusal);
        else {
                r = job_new(jobs, &rejoin->join, &job, refusal);
                if (r != 0)
                        return r;
                r = takeover_begin(job, rejoin, refusal);
                if (r != 0)
                        job_free(job);
        }
        *ret = job;
        return r;
}

static int takeover_check_place(const struct job *job, const struct job_rejoin *rejoin,
                                struct refusal *refusal) {
        const struct membership_request *wish = &rejoin->join.membership, *first = &job->takeover->first;

        if (wish->min_world != first->min_world || wish->max_world != first->max_world)
                return refuse(refusal, WIRE__CODE__INVALID,
                              "job '%s' is one of %u to %u members, rank %u says %u to %u", job->name,
                              first->min_world, first->max_world, wish->rank, wish->min_world,
                              wish->max_world);
        if (!takeover_is_vacant(job, wish->rank))
                return refuse_for(refusal, WIRE__CODE__RANK_TAKEN, wish->rank,
                                  (int32_t)job->local[wish->rank]->pid, "job '%s': rank %u is held by pid %d",
                                  job->name, wish->rank, (int)job->local[wish->rank]->pid);
        if (job->takeover->part[wish->rank].here)
                return refuse(refusal, WIRE__CODE__STALE,
                              "job '%s': rank %u has come back once and was lost again", job->name,
                              wish->rank);
        return 0;
}

int takeover_check_join(const struct job *job, const struct membership_request *wish,
                        struct refusal *refusal) {
        const struct membership_request *first = &job->takeover->first;

        if (wish->min_world != first->min_world || wish->max_world != first->max_world)
                return refuse(
                        refusal, WIRE__CODE__INVALID,
                        "job '%s' is one of %u to %u members, and goes on after a restart of gradsyncd; "
                        "this member asks for %u to %u: give all of them the same world size",
                        job->name, first->min_world, first->max_world, wish->min_world, wish->max_world);
        if (wish->has_rank && wish->rank < job->world && takeover_is_back(job, wish->rank))
                return refuse_for(
                        refusal, WIRE__CODE__RANK_TAKEN, wish->rank, (int32_t)job->local[wish->rank]->pid,
                        "job '%s' goes on after a restart of gradsyncd, and its rank %u is held by pid %d",
                        job->name, wish->rank, (int)job->local[wish->rank]->pid);
        return 0;
}

static const struct membership_request *wish_of(const struct job *job, uint64_t member) {
        const struct node *node = &job->machine.node;

        for (uint32_t i = 0; i < node->n; i++)
                if (node->member[i].request.member == member)
                        return &node->member[i].request;
        return NULL;
}

static int check_wait(const struct member *member, const struct membership_request *wish, uint64_t now,
                      struct refusal *refusal) {
        if (wish->timeout == 0 || now < member->joined + wish->timeout)
                return 0;
        return refuse(refusal, WIRE__CODE__TIMEOUT,
                      "job '%s' goes on after a restart of gradsyncd, and not all of its members have come "
                      "back within %.1f s",
                      member->job->name, (double)wish->timeout / 1e6);
}

/* Processes that are new in the job: refuses those that ask for what they cannot have now that somebody is
 * back, and those that have waited long enough for the others' return. */
static void check_joins(struct job *job, uint64_t now) {
        struct member *member, *spare;
        struct refusal refusal;

        list_for_each_safe(member, spare, &job->members, link) {
                const struct membership_request *wish =
                        member->state == MEMBER_JOINING ? wish_of(job, member->id) : NULL;

                if (wish == NULL || (takeover_check_join(job, wish, &refusal) == 0 &&
                                     check_wait(member, wish, now, &refusal) == 0))
                        continue;
                machine_gone(job, member->id, WIRE__CAUSE__RESTARTED);
                job_answer_join(member, &refusal);
                loop_defer(job->table->config.loop, &job->settle);
        }
}

/* A process that is new in the job has come for this rank. */
static bool takeover_is_claimed(const struct job *job, uint32_t rank) {
        const struct member *member;

        list_for_each(member, &job->members, link)
                if (member->state == MEMBER_JOINING && member->has_rank && member->rank == rank)
                        return true;
        return false;
}

/* What its machine knows of a member's state: no more than whether it has any. */
static struct tag tag_of(const struct job *job, bool history) {
        if (!history)
                return (struct tag){ 0 };
        return (struct tag){ .incarnation = job->incarnation,
                             .generation = job->takeover->generation,
                             .step = 1 };
}

static struct membership_request request_of(const struct job *job, const struct job_rejoin *rejoin) {
        struct membership_request request = rejoin->join.membership;

        request.member = job->local[request.rank]->id;
        request.pid = (int32_t)rejoin->join.pid;
        request.has_rank = rejoin->asked_rank;
        request.has_slot = rejoin->asked_slot;
        return request;
}

/* The verdict is found already: the place is this member's while it tells the rest. */
static int take_late(struct job *job, const struct job_rejoin *rejoin, struct refusal *refusal) {
        struct membership_request request = request_of(job, rejoin);
        struct tag tag = tag_of(job, rejoin->history);

        request.returns = true;
        return machine_return(job, &request, &tag, refusal);
}

static void takeover_take_place(struct job *job, const struct job_rejoin *rejoin) {
        const struct membership_request *wish = &rejoin->join.membership;
        struct takeover *takeover = job->takeover;
        struct member *member = job->local[wish->rank];
        struct returned *part = &takeover->part[wish->rank];

        if (rejoin->stable > job->last_id)
                job->last_id = rejoin->stable;
        member_set_state(member, MEMBER_ACTIVE);
        member->stable = rejoin->stable;
        member->local_rank = wish->slot;
        member->pid = rejoin->join.pid;
        member->client = rejoin->join.client;
        member->returns = rejoin->join.returns;
        member->joined = clock_now();
        member->next_plan = rejoin->next_plan;
        member->owner = rejoin->join.owner;
        snprintf(member->program, sizeof(member->program), "%s", rejoin->join.program);
        list_append(rejoin->join.owner_members, &member->owner_link);
        if (rejoin->generation > takeover->generation)
                takeover->generation = job->generation = rejoin->generation;
        *part = (struct returned){
                .here = true,
                .history = rejoin->history,
                .word = { .generation = rejoin->generation,
                          .orderly = rejoin->orderly,
                          .resumed = rejoin->resumed },
                .request = request_of(job, rejoin),
                .operation_failed = rejoin->operation_failed,
                .next_plan = rejoin->next_plan,
                .operations = rejoin->operations,
        };
        takeover->ended |= rejoin->ended;
        job->history |= rejoin->history;
        if (rejoin->has_lost && rejoin->lost < job->world)
                takeover_forget(job, rejoin->lost);
        if (takeover_is_awaiting(job))
                check_joins(job, clock_now());
}

int jobs_rejoin(struct jobs *jobs, const struct job_rejoin *rejoin, struct member **ret,
                struct refusal *refusal) {
        struct job *job = jobs_find(jobs, rejoin->join.uid, rejoin->join.name);
        int r = takeover_check_rejoin(rejoin, refusal);

        if (r == 0 && jobs->gate == GATE_STOPPING)
                r = refuse(refusal, WIRE__CODE__DAEMON_LOST,
                           "gradsyncd is stopping and takes no more members");
        if (r == 0 && job != NULL)
                r = job_check_token(job, rejoin->join.token, refusal);
        if (r == 0)
                r = takeover_find_job(jobs, rejoin, &job, refusal);
        if (r == 0)
                r = takeover_check_place(job, rejoin, refusal);
        if (r == 0 && !takeover_is_awaiting(job))
                r = take_late(job, rejoin, refusal);
        if (r != 0)
                return r;
        takeover_take_place(job, rejoin);
        *ret = job->local[rejoin->join.membership.rank];
        (*ret)->join_request = rejoin->join.request;
        loop_defer(job->table->config.loop, &job->settle);
        jobs_watch(jobs);
        return 0;
}

/* What a member tells after REJOINED, until it has told everything. */
static int check_telling(const struct member *member, struct refusal *refusal) {
        const struct job *job = member->job;

        if (job->takeover != NULL && member->state == MEMBER_ACTIVE &&
            !job->takeover->part[member->rank].word.told)
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

/* A part that a member has dropped before it came. */
static void drop_part(struct plan *plan, uint32_t rank) {
        if (plan->part[rank].state != PART_NONE || plan->ordinal >= plan->job->takeover->part[rank].next_plan)
                return;
        part_set_state(&plan->part[rank], PART_DROPPED);
        plan->dropped = true;
}

/* The verdict is found already: it must be this member's as well. */
static int return_late(struct member *member, struct refusal *refusal) {
        struct job *job = member->job;
        struct plan *plan;

        list_for_each(plan, &job->plans, link)
                if (plan->part[member->local].state == PART_MAPPED &&
                    plan->part[member->local].said_step != plan->step)
                        return refuse(refusal, WIRE__CODE__STALE,
                                      "job '%s' goes on after step %" PRIu64
                                      " of plan %u, which rank %u (pid %d) knows of %" PRIu64
                                      " only: it has come back too late; join anew",
                                      job->name, plan->step, plan->ordinal, member->rank, (int)member->pid,
                                      plan->part[member->local].said_step);
        list_for_each(plan, &job->plans, link)
                drop_part(plan, member->local);
        job->takeover->voided = true; /* the verdict was found without its word */
        return 0;
}

int takeover_told(struct member *member, struct refusal *refusal) {
        struct job *job = member->job;
        int r = check_telling(member, refusal);

        if (r == 0 && !takeover_is_awaiting(job))
                r = return_late(member, refusal);
        if (r != 0)
                return r;
        job->takeover->part[member->rank].word.told = true;
        loop_defer(job->table->config.loop, &job->settle);
        return 0;
}

bool takeover_is_awaiting(const struct job *job) {
        return job->takeover != NULL && !job->takeover->restored;
}

bool takeover_is_back(const struct job *job, uint32_t rank) {
        return job->takeover->part[rank].here && job->local[rank]->owner != NULL;
}

bool takeover_is_vacant(const struct job *job, uint32_t rank) {
        const struct membership *m = machine_membership(&job->machine);

        return takeover_is_awaiting(job) ? !takeover_is_back(job, rank) : rank < m->n && m->member[rank].lost;
}

/* Members that are here and have not told all; those who are gone again are nobody's concern. */
static bool takeover_is_telling(const struct job *job, uint32_t rank) {
        return takeover_is_back(job, rank) && !job->takeover->part[rank].word.told;
}

static bool is_empty(const struct job *job) {
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (job->local[rank]->owner != NULL)
                        return false;
        return true;
}

/* Whether the holder of this place may still come: a job that nobody is in is not kept for long. */
static bool takeover_is_expected(const struct job *job, uint32_t rank) {
        const struct takeover *takeover = job->takeover;
        uint64_t now = clock_now();

        return takeover_is_awaiting(job) && !takeover->part[rank].here && !takeover->part[rank].forgotten &&
               now < takeover->deadline && !(is_empty(job) && now >= job->interrupted + MOST_EMPTY) &&
               !takeover_is_claimed(job, rank);
}

static bool any_expected(const struct job *job) {
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (takeover_is_expected(job, rank))
                        return true;
        return false;
}

static bool any_telling(const struct job *job) {
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (takeover_is_telling(job, rank))
                        return true;
        return false;
}

bool takeover_busy(const struct job *job) {
        if (job->takeover == NULL || job->state == JOB_LOST) /* to that one nobody comes back any more */
                return false;
        return any_telling(job) || (is_empty(job) && any_expected(job));
}

bool takeover_forget(struct job *job, uint32_t rank) {
        if (job->takeover == NULL || !takeover_is_expected(job, rank))
                return false;
        job->takeover->part[rank].forgotten = true;
        loop_defer(job->table->config.loop, &job->settle);
        return true;
}

void takeover_check(struct job *job, uint64_t now) {
        struct refusal refusal;

        if (job->takeover == NULL || job->state == JOB_LOST)
                return;
        if (takeover_is_awaiting(job))
                check_joins(job, now);
        if (takeover_is_awaiting(job) && !any_expected(job))
                loop_defer(job->table->config.loop, &job->settle);
        if (now < job->takeover->deadline)
                return;
        for (uint32_t rank = 0; rank < job->world; rank++) {
                if (!takeover_is_telling(job, rank))
                        continue;
                refuse_for(&refusal, WIRE__CODE__TIMEOUT, rank, (int32_t)job->local[rank]->pid,
                           "job '%s': rank %u (pid %d) came back after a restart of gradsyncd, and has not "
                           "told of its plans in time",
                           job->name, rank, (int)job->local[rank]->pid);
                job->table->config.events->evict(job->local[rank], &refusal);
        }
}

static bool is_back(const struct job *job, uint32_t rank) {
        return takeover_is_back(job, rank) && job->takeover->part[rank].word.told;
}

/* Whether the member has heard of the latest generation. */
static bool is_current(const struct takeover *takeover, uint32_t rank) {
        return takeover->part[rank].word.generation == takeover->generation;
}

/* Of the first n ranks of the former generation; what a member has said that is gone again does not count. */
static void list_words(const struct job *job, uint32_t n, struct word *word) {
        for (uint32_t rank = 0; rank < n; rank++) {
                word[rank] = job->takeover->part[rank].word;
                word[rank].told = is_back(job, rank);
                word[rank].ended |= job->takeover->ended;
        }
}

static bool all_current(const struct job *job, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (job->takeover->part[rank].here && !is_current(job->takeover, rank))
                        return false;
        return true;
}

/* Parts that a member has dropped before it came. */
static void drop_parts(struct plan *plan, uint32_t before) {
        for (uint32_t rank = 0; rank < before; rank++)
                if (is_back(plan->job, rank))
                        drop_part(plan, rank);
}

static const struct past_plan *find_past(const struct plan *plan, uint32_t before) {
        const struct job *job = plan->job;

        if (plan->reference == NULL)
                return NULL;
        return past_find(job->table->past,
                         &(struct state_key){ job->uid, job->name, job->incarnation, plan->ordinal },
                         job->takeover->generation, before, plan->reference);
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

static struct word_step about_of(const struct plan *plan, uint32_t rank) {
        const struct plan_part *part = &plan->part[rank];

        return (struct word_step){ .known = part->state == PART_MAPPED,
                                   .step = part->said_step,
                                   .launched = part->said_launched };
}

/* The member has not heard of the last commit; whether it has now. */
static bool takeover_catch_up(struct plan *plan, uint32_t rank, const struct word *word,
                              const struct past_plan *past) {
        const struct word_step about = about_of(plan, rank);
        const struct trace trace = past_trace(past);
        struct job *job = plan->job;
        uint64_t numbers = (uint64_t)plan->reference->n_buckets * (job->world + 3);

        if (!is_back(job, rank))
                return false;
        if (numbers <= MOST_NUMBERS && words_can_hear(word, &about, job->takeover->generation, &trace,
                                                      plan->step, plan->reference->n_buckets)) {
                tell_results(plan, rank, past);
                return true;
        }
        job->takeover->behind = true;
        job->table->config.events->plan_step(job->local[rank], plan);
        return false;
}

/* Whether each member knows of the last commit by now. */
static bool tell_last_step(struct plan *plan, uint32_t before, const struct word *word) {
        const struct past_plan *past = find_past(plan, before);
        bool heard = true;

        for (uint32_t rank = 0; rank < before; rank++)
                if (plan->part[rank].state == PART_MAPPED && plan->part[rank].said_step != plan->step)
                        heard = takeover_catch_up(plan, rank, &word[rank], past) && heard;
        return heard;
}

/* The plan's track, as the former daemon would report it. */
static void report_plan(struct plan *plan, const struct word *word, struct message *report) {
        const struct trace trace = past_trace(find_past(plan, plan->job->world));
        struct word_step about[LIMIT_LOCAL];
        struct words_unit unit;

        drop_parts(plan, plan->job->world);
        if (!plan->agreed)
                return;
        for (uint32_t rank = 0; rank < plan->job->world; rank++)
                about[rank] = about_of(plan, rank);
        unit = words_unit(word, about, plan->job->world, &trace);
        plan->step = unit.committed;
        plan->job->takeover->began |= unit.began;
        while (report->n_tracks <= plan->track) {
                report->mark[report->n_tracks] = report->committed[report->n_tracks] = 0;
                report->prepared[report->n_tracks++] = 0;
        }
        report->committed[plan->track] = unit.committed;
        report->mark[plan->track] = unit.committed + unit.opened;
        report->prepared[plan->track] = unit.committed + unit.prepared;
}

static void report_member(const struct job *job, uint32_t rank, struct message *report) {
        const struct returned *part = &job->takeover->part[rank];

        report->member_of[report->n_members++] =
                (struct message_member){ .request = part->request,
                                         .tag = tag_of(job, part->history),
                                         .rank = rank,
                                         .slot = job->local[rank]->local_rank,
                                         .id = job->local[rank]->stable,
                                         .in = true };
}

/* It has come back, and said goodbye: nobody waits for its place. */
static bool takeover_has_left(const struct job *job, uint32_t rank) {
        return job->takeover->part[rank].here && job->local[rank]->state == MEMBER_LEFT;
}

/* Everybody has told, or is not awaited any longer: what they know is the machine's from now on. */
static void takeover_restore(struct job *job) {
        struct word word[LIMIT_LOCAL];
        struct message report;
        struct plan *plan;

        message_clear(&report);
        list_words(job, job->world, word);
        report.generation.number = job->takeover->generation;
        report.world = job->world;
        report.n_tracks = 0;
        list_for_each(plan, &job->plans, link)
                report_plan(plan, word, &report);
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (word[rank].told || takeover_has_left(job, rank))
                        report_member(job, rank, &report);
        report.history = tag_of(job, job->history); /* also of those who are gone again */
        job->takeover->restored = true;
        machine_restore(job, &report);
        for (uint32_t rank = 0; rank < job->world; rank++)
                if (takeover_has_left(job, rank))
                        machine_gone(job, job->local[rank]->id, WIRE__CAUSE__LEAVING);
}

void takeover_advance(struct job *job) {
        if (takeover_is_awaiting(job) && job->state != JOB_LOST && !any_telling(job) && !any_expected(job))
                takeover_restore(job);
}

void takeover_committed(struct plan *plan) {
        plan->step++;
}

void takeover_voided(struct plan *plan) {
        plan->job->takeover->voided = true;
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
                          job->world, job->last_step,
                          job->takeover->resumed ? "nothing is void" : "open steps are void");
}

void takeover_resolve(struct job *job, uint32_t before) {
        struct takeover *takeover = job->takeover;
        struct word word[LIMIT_LOCAL];
        struct plan *plan;
        bool resumed;

        list_words(job, before, word);
        resumed = job->world == before && words_all_here(word, before) && !takeover->voided;
        list_for_each(plan, &job->plans, link) {
                resumed = tell_last_step(plan, before, word) && resumed;
                if (plan->step > job->last_step)
                        job->last_step = plan->step;
        }
        resolve_operations(job, before);
        if (!resumed && !all_current(job, before))
                takeover->operations = 0; /* the counts are of different generations */
        takeover->resumed = resumed;
        job->void_steps += !resumed && takeover->began;
        if (job->loss.cause == WIRE__CAUSE__RESTARTED)
                snprintf(job->loss_text, sizeof(job->loss_text),
                         "job '%s': gradsyncd was restarted after step %" PRIu64 "%s", job->name,
                         job->last_step, job->world < before ? ", and not all members came back" : "");
        tell_verdict(job);
}
