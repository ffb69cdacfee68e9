/* SPDX-License-Identifier: Apache-2.0 */
/* A member of a job: made, found, refused, and freed with all that it has. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/flood.h"
#include "base/log.h"
#include "gradsync.pb-c.h"
#include "job/private.h"
#include "proto/names.h"

const char *cause_text(uint32_t cause) {
        switch (cause) {
        case WIRE__CAUSE__EXITED: return "its process ended";
        case WIRE__CAUSE__CLOSED: return "it closed its connection without leaving the job";
        case WIRE__CAUSE__EVICTED: return "it was evicted, and the log of its daemon says why";
        case WIRE__CAUSE__SUPERSEDED: return "a newer incarnation of the job has started";
        case WIRE__CAUSE__SHUTDOWN: return "gradsyncd is ending";
        case WIRE__CAUSE__RESTARTED: return "gradsyncd was restarted";
        case WIRE__CAUSE__UNREACHABLE: return "its daemon is not reached";
        default: return "unknown cause";
        }
}

bool member_loss_is_eviction(const struct job *job, const struct membership_loss *loss,
                             char text[LOSS_TEXT]) {
        const struct member *member = member_of_id(job, loss->member);
        bool faulty = member != NULL && loss->cause == WIRE__CAUSE__EVICTED && member->fault != NULL;

        if (member != NULL && member->evicted)
                snprintf(text, LOSS_TEXT, "was evicted by uid %u", (unsigned)member->evictor);
        else if (member != NULL && member->overdue)
                snprintf(text, LOSS_TEXT, "was evicted: the step deadline of %.1f s has passed",
                         (double)job->table->config.step_deadline / 1e6);
        else if (faulty)
                snprintf(text, LOSS_TEXT, "was evicted: %s", member->fault);
        else if (loss->cause == WIRE__CAUSE__SUPERSEDED)
                snprintf(text, LOSS_TEXT, "a newer process has taken its rank");
        else if (loss->cause == WIRE__CAUSE__RESTARTED)
                snprintf(text, LOSS_TEXT,
                         "it has not come back since its gradsyncd was restarted or cut off");
        else
                snprintf(text, LOSS_TEXT, "%s", cause_text(loss->cause));
        return faulty || (member != NULL && (member->evicted || member->overdue));
}

/* The text about the member begins with the name of the job anyway. Without memory the fault is not known. */
void member_note_fault(struct member *member, const char *fault) {
        char start[LIMIT_NAME + 16];
        size_t length = (size_t)snprintf(start, sizeof(start), "job '%s'", member->job->name);

        if (strncmp(fault, start, length) == 0)
                fault += length + strspn(fault + length, ":, ");
        free(member->fault);
        member->fault = strndup(fault, LOSS_TEXT / 2);
        if (member->fault != NULL)
                utf8_cut(member->fault);
}

void member_set_state(struct member *member, enum member_state state) {
        assert(state != MEMBER_JOINING && member->state != MEMBER_LEFT);
        member->state = state;
}

int member_new(struct job *job, struct member **ret, struct refusal *refusal) {
        struct member *member = calloc(1, sizeof(*member));

        if (member == NULL)
                return -ENOMEM;
        int r = charge_take(&member->self, job->table->config.accounts, job->uid, ACCOUNT_OWN,
                            sizeof(*member), refusal);
        if (r != 0) {
                free(member);
                return r;
        }
        member->job = job;
        list_init(&member->link);
        list_init(&member->owner_link);
        *ret = member;
        return 0;
}

/* Logs an eviction for which there is no line about a loss, since the job was about to change already, or
 * another member was lost first. */
void member_tell_evicted(struct member *member) {
        const struct job *job = member->job;
        struct log_context context = LOG_CONTEXT_OF(job);

        if (member->evict_told)
                return;
        member->evict_told = true;
        context.rank = member->rank;
        context.pid = member->pid;
        if (flood_admits(FLOOD_ORDERS, member->evictor, clock_now()))
                log_write(LOG_NOTICE, &context, "job '%s': rank %u (pid %d) was evicted by uid %u", job->name,
                          member->rank, (int)member->pid, (unsigned)member->evictor);
}

void member_free(struct member *member) {
        if (member->evicted)
                member_tell_evicted(member);
        list_remove(&member->link);
        list_remove(&member->owner_link);
        staging_deinit(&member->staging);
        memories_release(member);
        charge_release(&member->self);
        free(member->fault);
        free(member);
}

void member_take(struct member *member, const struct job_join *join) {
        member->pid = join->pid;
        member->joined = clock_now();
        member->client = join->client;
        member->join_request = join->request;
        member->owner = join->owner;
        member->returns = join->returns;
        snprintf(member->program, sizeof(member->program), "%s", join->program);
        list_append(join->owner_members, &member->owner_link);
}

struct member *member_of_id(const struct job *job, uint64_t id) {
        struct member *member;

        list_for_each(member, &job->members, link)
                if (member->id == id)
                        return member;
        return NULL;
}

struct member *member_of_rank(const struct job *job, uint32_t rank) {
        for (uint32_t local = 0; local < job->n_local; local++)
                if (job->local[local]->rank == rank)
                        return job->local[local];
        return NULL;
}

bool member_waits(const struct member *member) {
        return member->spare && member->state == MEMBER_JOINING &&
               node_waits(&member->job->machine.node, member->id);
}

void job_release_lost(struct job *job, uint32_t n_local) {
        struct plan *plan;

        for (uint32_t local = 0; local < n_local; local++) {
                if (job->local[local]->owner != NULL)
                        continue;
                list_for_each(plan, &job->plans, link)
                        plan_release(plan, local);
                staging_deinit(&job->local[local]->staging);
                memories_release(job->local[local]);
        }
}

bool job_is_abandoned(const struct job *job) {
        struct member *member;

        list_for_each(member, &job->members, link)
                if (member->owner != NULL)
                        return false;
        return true;
}

/* A join that came to nothing: the refusal is the end of the member. */
void member_answer_join(struct member *member, const struct refusal *refusal) {
        struct job *job = member->job;

        member_tell_refused(member, member->join_request, refusal);
        if (job->state == JOB_FORMING)
                job_note_refusal(job, refusal);
        member->owner = NULL;
        member_free(member);
}

void member_unseat(struct member *member, uint32_t cause, const struct refusal *refusal) {
        if (member->owner == NULL)
                return;
        member_expel(member, refusal);
        list_remove(&member->owner_link);
        member->owner = NULL;
        member->cause = cause;
        member_set_state(member, MEMBER_LOST);
}

void member_refused(struct job *job, uint64_t id, enum job_end end, const struct refusal *refusal) {
        struct member *member = member_of_id(job, id);

        if (job->asking != NULL && job->asking->member == id) {
                *job->asking->refusal = *refusal;
                job->asking->refused = true;
                return;
        }
        if (member == NULL || end == JOB_END_NONE)
                return; /* a member that has left, or is lost, knows it */
        if (member->state == MEMBER_JOINING)
                member_answer_join(member, refusal);
        else if (end == JOB_END_FENCED)
                member_unseat(member, WIRE__CAUSE__SUPERSEDED, refusal);
}

int member_check(struct member *member, struct refusal *refusal) {
        const struct job *job = member->job;

        if (job->state == JOB_FORMING)
                return refuse(refusal, WIRE__CODE__STATE, "job '%s' has not formed yet", job->name);
        if (member->state == MEMBER_JOINING)
                return refuse(refusal, WIRE__CODE__STATE,
                              "job '%s': pid %d has no place in it yet; wait for the answer to its join",
                              job->name, (int)member->pid);
        if (job->state == JOB_RUNNING)
                return 0;
        member->waits_in = job->generation;
        return operation_refuse_void(job, refusal);
}
