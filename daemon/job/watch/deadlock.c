/* SPDX-License-Identifier: Apache-2.0 */
#include "job/watch/deadlock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/proc.h"
#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan.h"
#include "job/plan/plan_control.h"
#include "job/plan/step.h"
#include "proto/names.h"

#define THINGS (1u + LIMIT_PLANS) /* the operation, and the step or the agreement of each plan */
#define SHOWN 3u                  /* members of a circle that are named */
#define WAITS 16u                 /* of a job that are looked at */
#define NONE UINT32_MAX

/* Something that members are blocked in. */
struct thing {
        enum wait_kind kind;     /* STEP, PLAN or OPERATION */
        const struct plan *plan; /* NULL: the operation */
};

/* All that members here are blocked in. */
struct things {
        struct thing list[THINGS];
        uint32_t n;
        uint32_t in[LIMIT_LOCAL]; /* of each member, the thing; NONE: it is in none */
};

/* One link of a circle: a member, what it is in, and what the next one has to do for that. */
struct link {
        uint32_t rank, next;
        pid_t pid;
        const char *host; /* "": this one */
        char call[CALL_TEXT], due[CALL_TEXT];
};

struct circle {
        struct link link[SHOWN];
        uint32_t n; /* more than SHOWN are not kept */
        uint64_t sign;
        bool traced; /* a debugger holds one of the members */
};

/* ---- what members are blocked in */

/* The member's library says that it is blocked in that. */
static bool deadlock_is_in(const struct plan *plan, uint32_t local, uint64_t what) {
        struct diagnosis page;

        return plan->part[local].state == PART_MAPPED &&
               plan_control_read(plan, local, &page, sizeof(page)) && page.blocked == what;
}

static bool deadlock_in_step(const struct plan *plan, uint32_t local) {
        return plan->agreed && plan_is_open(plan) && deadlock_is_in(plan, local, plan->step + 1);
}

static bool deadlock_in_agreement(const struct plan *plan, uint32_t local) {
        return !plan->agreed && plan->part[local].request != 0 &&
               deadlock_is_in(plan, local, DIAGNOSIS_AGREEMENT);
}

static bool deadlock_in_operation(const struct job *job, uint32_t local) {
        const struct operation_part *part = &job->local[local]->operation;

        return part->pending && part->call.blocking;
}

/* Buckets are given in their order, so a member that has given the last one has given all. */
static bool deadlock_lacks(const struct job *job, const struct thing *thing, uint32_t local) {
        const struct plan_part *part = thing->plan != NULL ? &thing->plan->part[local] : NULL;

        switch (thing->kind) {
        case WAIT_STEP:
                return part->state != PART_DROPPED &&
                       (part->state != PART_MAPPED ||
                        part->ready[thing->plan->reference->n_buckets - 1] != thing->plan->step + 1);
        case WAIT_PLAN: return part_is_awaited(part);
        default: return !job->local[local]->operation.pending;
        }
}

static uint32_t deadlock_add(struct things *things, enum wait_kind kind, const struct plan *plan) {
        for (uint32_t i = 0; i < things->n; i++)
                if (things->list[i].kind == kind && things->list[i].plan == plan)
                        return i;
        if (things->n == THINGS)
                return NONE;
        things->list[things->n] = (struct thing){ kind, plan };
        return things->n++;
}

static uint32_t deadlock_find_thing(const struct job *job, struct things *things, uint32_t local) {
        const struct plan *plan;

        if (deadlock_in_operation(job, local))
                return deadlock_add(things, WAIT_OPERATION, NULL);
        list_for_each(plan, &job->plans, link) {
                if (deadlock_in_step(plan, local))
                        return deadlock_add(things, WAIT_STEP, plan);
                if (deadlock_in_agreement(plan, local))
                        return deadlock_add(things, WAIT_PLAN, plan);
        }
        return NONE;
}

static void deadlock_find_things(const struct job *job, struct things *ret) {
        ret->n = 0;
        for (uint32_t local = 0; local < job->n_local; local++)
                ret->in[local] = deadlock_find_thing(job, ret, local);
}

/* Where such a member is, in words. */
static void deadlock_call(const struct job *job, const struct thing *thing, char text[CALL_TEXT]) {
        char call[CALL_TEXT - sizeof("in ")];

        if (thing->kind == WAIT_STEP && job->plans.next->next == &job->plans) {
                snprintf(text, CALL_TEXT, "at the end of step %" PRIu64, thing->plan->step + 1);
        } else if (thing->kind == WAIT_STEP) {
                snprintf(text, CALL_TEXT, "at the end of step %" PRIu64 " of plan %" PRIu32,
                         thing->plan->step + 1, thing->plan->ordinal);
        } else if (thing->kind == WAIT_PLAN) {
                snprintf(text, CALL_TEXT, "in the making of plan %" PRIu32, thing->plan->ordinal);
        } else {
                operation_describe(job, call, sizeof(call));
                snprintf(text, CALL_TEXT, "in %s", call);
        }
}

static bool deadlock_is_traced(const struct job *job, uint32_t local) {
        return strcmp(proc_state(job->local[local]->pid), "traced") == 0;
}

/* ---- a circle of members on this node */

/* The number of gradients that the member has marked of the open step: while it grows the member goes on. */
static uint64_t deadlock_marks(const struct plan *plan, uint32_t local) {
        union {
                struct diagnosis page;
                uint8_t space[DIAGNOSIS_MOST];
        } read;
        uint32_t bytes = (plan->reference->n_params + 7) / 8;
        uint64_t marks = 0;

        if (!plan_control_read(plan, local, &read.page, DIAGNOSIS_BITMAP + bytes))
                return 0;
        for (uint32_t i = 0; i < bytes; i++)
                marks += (uint64_t)__builtin_popcount(read.page.ready[i]);
        return marks;
}

/* The first parameter of the step that the member has not marked. */
static const char *deadlock_parameter(const struct job *job, const struct plan *plan, uint32_t local) {
        struct looks looks = { 0, LIMIT_PARAMS };
        struct job_wait wait = { .kind = WAIT_STEP, .member = job->local[local], .plan = plan->ordinal };

        while (wait.bucket + 1 < plan->reference->n_buckets &&
               plan->part[local].ready[wait.bucket] == plan->step + 1)
                wait.bucket++;
        return plan_wait_parameter(&wait, &looks);
}

static void link_due_first(struct link *link, const char *parameter) {
        char name[65];

        snprintf(name, sizeof(name), "%.64s", parameter);
        utf8_cut(name);
        snprintf(link->due, sizeof(link->due), "give its gradients, \"%s\" first", name);
}

/* Others are blocked until the member does that. */
static void link_due(struct link *link, enum wait_kind kind, const char *parameter) {
        if (kind == WAIT_STEP && parameter[0] != '\0')
                link_due_first(link, parameter);
        else
                snprintf(link->due, sizeof(link->due), "%s",
                         kind == WAIT_STEP   ? "give its gradients"
                         : kind == WAIT_PLAN ? "make the same plan"
                                             : "make the same call");
}

static void circle_sign(struct circle *circle, const struct want *in, uint32_t rank, uint64_t marks) {
        const uint64_t value[] = { in->what, in->plan, in->step, rank, marks };

        for (size_t i = 0; i < sizeof(value) / sizeof(value[0]); i++)
                circle->sign = (circle->sign ^ value[i]) * 0x100000001b3u; /* FNV-1a, of 64-bit pieces */
}

static struct want deadlock_want(const struct job *job, const struct thing *thing) {
        return (struct want){ .what = thing->kind,
                              .plan = thing->plan != NULL ? thing->plan->ordinal : NONE,
                              .step = thing->kind == WAIT_STEP        ? thing->plan->step + 1
                                      : thing->kind == WAIT_OPERATION ? job->operation.first.sequence
                                                                      : 0 };
}

static void circle_add(struct circle *circle, const struct job *job, const struct thing *thing,
                       uint32_t local, uint32_t next) {
        const struct member *who = job->local[local];
        struct want in = deadlock_want(job, thing);

        circle_sign(circle, &in, who->rank, thing->kind == WAIT_STEP ? deadlock_marks(thing->plan, next) : 0);
        circle->traced |= deadlock_is_traced(job, local);
        if (circle->n < SHOWN) {
                struct link *link = &circle->link[circle->n];

                *link = (struct link){
                        .rank = who->rank, .next = job->local[next]->rank, .pid = who->pid, .host = ""
                };
                deadlock_call(job, thing, link->call);
                link_due(link, thing->kind,
                         thing->kind == WAIT_STEP ? deadlock_parameter(job, thing->plan, next) : "");
        }
        circle->n++;
}

/* Goes from thing to thing: from one that cannot end without a member to the one that this member is in. */
struct trail {
        const struct job *job;
        const struct things *things;
        uint32_t at[THINGS], via[THINGS], n; /* things, and the member that leads on from each */
        bool on[THINGS], seen[THINGS];
};

static bool trail_follow(struct trail *trail, uint32_t thing);

/* Only the circle is left of a trail that has come back. */
static void trail_cut(struct trail *trail, uint32_t thing) {
        uint32_t begin = 0;

        while (trail->at[begin] != thing)
                begin++;
        trail->n -= begin;
        memmove(trail->at, trail->at + begin, trail->n * sizeof(trail->at[0]));
        memmove(trail->via, trail->via + begin, trail->n * sizeof(trail->via[0]));
}

static bool trail_step(struct trail *trail, uint32_t local) {
        uint32_t next = trail->things->in[local];

        trail->via[trail->n - 1] = local;
        if (!trail->on[next])
                return !trail->seen[next] && trail_follow(trail, next);
        trail_cut(trail, next);
        return true;
}

/* No deeper than there are things. */
static bool trail_follow(struct trail *trail, uint32_t thing) {
        const struct things *things = trail->things;

        trail->at[trail->n++] = thing;
        trail->on[thing] = trail->seen[thing] = true;
        for (uint32_t local = 0; local < trail->job->n_local; local++)
                if (things->in[local] != NONE && things->in[local] != thing &&
                    deadlock_lacks(trail->job, &things->list[thing], local) && trail_step(trail, local))
                        return true;
        trail->on[thing] = false;
        trail->n--;
        return false;
}

/* The member in a thing is the one that has led to it. */
static bool deadlock_find_local(const struct job *job, struct circle *ret) {
        struct things things;
        struct trail trail = { .job = job, .things = &things };
        bool found = false;

        deadlock_find_things(job, &things);
        for (uint32_t i = 0; i < things.n && !found; i++)
                found = !trail.seen[i] && trail_follow(&trail, i);
        for (uint32_t k = 0; k < trail.n && found; k++)
                circle_add(ret, job, &things.list[trail.at[k]], trail.via[(k + trail.n - 1) % trail.n],
                           trail.via[k]);
        return found;
}

/* ---- a circle over two nodes */

/* Finds what the wait is for, if some members here are blocked in it and all have done their part of it. */
static bool deadlock_find_waited(const struct job *job, const struct job_wait *wait, struct things *things,
                                 uint32_t *ret) {
        if (wait->kind != WAIT_NODES || job->n_local == 0)
                return false;
        deadlock_find_things(job, things);
        for (uint32_t i = 0; i < things->n; i++) {
                const struct thing *thing = &things->list[i];
                uint32_t local = 0;

                if (thing->kind != wait->purpose ||
                    (thing->plan != NULL && thing->plan->ordinal != wait->plan))
                        continue;
                while (local < job->n_local && !deadlock_lacks(job, thing, local))
                        local++;
                *ret = i;
                return local == job->n_local;
        }
        return false;
}

uint32_t deadlock_list_blocked(const struct job *job, const struct job_wait *wait,
                               uint32_t ranks[LIMIT_LOCAL], char call[CALL_TEXT]) {
        struct things things;
        uint32_t thing, n = 0;

        if (!deadlock_find_waited(job, wait, &things, &thing))
                return 0;
        for (uint32_t local = 0; local < job->n_local; local++)
                if (things.in[local] == thing)
                        ranks[n++] = job->local[local]->rank;
        deadlock_call(job, &things.list[thing], call);
        return n;
}

/* `local` is blocked in the thing here. `lacking`: what it would have to do for the other node. */
static void circle_set_remote(struct circle *circle, const struct job *job, const struct thing *thing,
                              uint32_t local, const struct entangled *remote,
                              const struct job_wait *lacking) {
        struct link *here = &circle->link[0], *there = &circle->link[1];
        const struct member *who = job->local[local];
        struct looks looks = { 0, LIMIT_PARAMS };
        struct want in = deadlock_want(job, thing);
        const struct plan *plan = lacking->kind == WAIT_STEP ? plan_find(who->job, lacking->plan) : NULL;

        *here = (struct link){ .rank = who->rank, .next = remote->rank, .pid = who->pid, .host = "" };
        deadlock_call(job, thing, here->call);
        link_due(here, thing->kind, remote->lacks);
        *there = (struct link){
                .rank = remote->rank, .next = who->rank, .pid = remote->pid, .host = remote->host
        };
        snprintf(there->call, sizeof(there->call), "%s", remote->call);
        utf8_cut(there->call);
        link_due(there, remote->in.what, plan_wait_parameter(lacking, &looks));
        circle->n = 2;
        for (size_t i = 0; remote->lacks[i] != '\0'; i++)
                circle_sign(circle, &in, (uint32_t)i, (uint8_t)remote->lacks[i]);
        circle_sign(circle, &remote->in, remote->rank, plan != NULL ? deadlock_marks(plan, local) : 0);
        circle->traced = remote->traced || deadlock_is_traced(job, local);
}

/* Finds what a member here that is blocked in the thing would have to do for the other node. */
static bool deadlock_find_lacking(struct job *job, const struct things *things, uint32_t thing,
                                  struct entangled *remote, struct job_wait *ret) {
        struct job_wait waits[WAITS];

        remote->in.generation = job->generation;
        remote->in.heard = remote->in.since = clock_now();
        unsigned n = wanted_waits(job, &remote->in, waits, WAITS);
        for (unsigned i = 0; i < n; i++)
                if (waits[i].member != NULL && things->in[waits[i].member->local] == thing) {
                        *ret = waits[i];
                        return true;
                }
        return false;
}

static bool deadlock_find_remote(struct job *job, struct entangled *remote, struct circle *ret) {
        const struct jobs_observer *observer = job->table->config.observer;
        struct job_wait waits[WAITS], lacking;
        unsigned n = machine_is_alone(job) ? 0 : job_waits(job, waits, WAITS);
        struct things things;
        uint32_t thing;

        for (unsigned i = 0; i < n; i++) {
                if (!deadlock_find_waited(job, &waits[i], &things, &thing) ||
                    !observer->entangled(job, &waits[i], job->deadlock.begun, remote) ||
                    !deadlock_find_lacking(job, &things, thing, remote, &lacking))
                        continue;
                circle_set_remote(ret, job, &things.list[thing], lacking.member->local, remote, &lacking);
                return true;
        }
        return false;
}

/* ---- what comes of it */

static bool deadlock_find(struct job *job, struct entangled *remote, struct circle *ret) {
        *ret = (struct circle){ .sign = 0xcbf29ce484222325u };
        if (job->deadlock.generation != job->generation) {
                job->deadlock.generation = job->generation;
                job->deadlock.begun = clock_now();
        }
        if (job->state != JOB_RUNNING || job->paused_at != 0 || job->table->gate != GATE_OPEN ||
            job->handover != HANDOVER_NONE)
                return false;
        return deadlock_find_local(job, ret) || deadlock_find_remote(job, remote, ret);
}

static void circle_tell(const struct circle *circle, const struct job *job, char *text, size_t size) {
        uint32_t shown = circle->n < SHOWN ? circle->n : SHOWN;
        size_t used = (size_t)snprintf(text, size, "job '%s': its members wait for each other", job->name);

        for (uint32_t i = 0; i < shown && used < size; i++) {
                const struct link *link = &circle->link[i];

                used += (size_t)snprintf(text + used, size - used,
                                         "%s rank %" PRIu32 " (pid %d)%s%s is %s, for which rank %" PRIu32
                                         " has to %s",
                                         i == 0 ? ":" : ";", link->rank, (int)link->pid,
                                         link->host[0] != '\0' ? " on host " : "", link->host, link->call,
                                         link->next, link->due);
        }
        if (circle->n > shown && used < size)
                used += (size_t)snprintf(text + used, size - used, "; and %" PRIu32 " more",
                                         circle->n - shown);
        if (used < size)
                snprintf(text + used, size - used,
                         ". All members have to make the same calls in the same order");
        utf8_cut(text);
}

bool deadlock_describe(struct job *job, char *text, size_t size) {
        struct entangled remote;
        struct circle circle;

        if (!deadlock_find(job, &remote, &circle))
                return false;
        circle_tell(&circle, job, text, size);
        return true;
}

void deadlock_forget(struct job *job) {
        job->deadlock.sign = job->deadlock.since = 0;
}

bool deadlock_is_due(struct job *job, uint64_t patience, uint64_t now) {
        uint64_t timeout = job->table->config.deadlock_timeout;
        struct entangled remote;
        struct circle circle;

        if (timeout == 0 || !deadlock_find(job, &remote, &circle)) {
                deadlock_forget(job);
                return false;
        }
        if (circle.sign != job->deadlock.sign || circle.traced) {
                job->deadlock.sign = circle.sign;
                job->deadlock.since = now;
                return false;
        }
        return now - job->deadlock.since >= (timeout > patience ? timeout : patience);
}
