/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for a member's staging memory, attaching it, and taking back the one of a former daemon. */
#include "job/op/staging.h"

#include <inttypes.h>

#include "gradsync.pb-c.h"
#include "job/event/event.h"
#include "job/plan/plan.h"

static void staging_answer(struct member *member) {
        struct staging *staging = &member->staging;
        const struct memory_ops *ops = staging->arena->backend->memory;
        struct job_event event = { .kind = JOB_EVENT_STAGING_READY, .request = staging->request };
        int fds[MEMORY_FDS];

        staging->request = 0;
        if (staging->arena->state != HOLDING_ATTACHED) {
                ops->fds(staging->arena->memory, fds);
                event.kind = JOB_EVENT_STAGING_ARENA;
                event.memory.fds = fds;
                event.memory.n_fds = ops->n_fds;
                event.memory.bytes = ops->bytes(staging->arena->memory);
        }
        member_tell(member, event);
}

static void staging_late(struct job *job, const struct holder *holder, const struct refusal *refusal) {
        struct member *member = holder_find(job, holder);
        struct staging *staging = &member->staging;
        uint32_t request = staging->request;
        bool returning = staging->returning;

        if (member->owner == NULL)
                return; /* it goes with its member */
        staging->returning = false;
        if (refusal == NULL && !returning)
                staging_answer(member);
        if (refusal == NULL)
                return;
        if (staging->arena->state == HOLDING_NONE)
                staging_deinit(staging);
        plan_refuse(member, returning, request, refusal);
}

static int staging_new(struct member *member, struct refusal *refusal) {
        const struct jobs_config *config = &member->job->table->config;
        struct charges_amount cost = holding_cost(config->staging, config->staging_bytes, 0);

        if (member->staging.arena != NULL)
                return refuse(refusal, WIRE__CODE__STATE,
                              "rank %u of job '%s' has its staging memory already", member->rank,
                              member->job->name);
        return holding_new(member->job, member, 0, config->staging, &cost, staging_late,
                           &member->staging.arena, refusal);
}

int staging_ask(struct member *member, uint32_t request, struct refusal *refusal) {
        struct memory_request what = { .kind = MEMORY_SHARED,
                                       .bytes = member->job->table->config.staging_bytes };
        struct staging *staging = &member->staging;
        int r = staging_new(member, refusal);

        if (r != 0)
                return r;
        staging->request = request;
        r = holding_ask(staging->arena, member->job, &what, refusal);
        if (r != 0)
                staging_deinit(staging);
        else if (!holding_is_busy(staging->arena))
                staging_answer(member);
        return r;
}

int staging_attach(struct member *member, uint32_t request, struct refusal *refusal) {
        struct memory_request what = { .kind = MEMORY_ATTACH };
        struct staging *staging = &member->staging;

        if (staging->arena == NULL || staging->arena->state != HOLDING_THERE)
                return refuse(refusal, WIRE__CODE__STATE, "rank %u of job '%s' has no staging memory to map",
                              member->rank, member->job->name);
        staging->request = request;
        int r = holding_ask(staging->arena, member->job, &what, refusal);
        if (r == 0 && !holding_is_busy(staging->arena))
                staging_answer(member);
        return r;
}

void staging_deinit(struct staging *staging) {
        staging->arena = holding_free(staging->arena);
}

static int staging_check_return(const struct member *member, uint64_t bytes, struct refusal *refusal) {
        uint64_t now = member->job->table->config.staging_bytes;

        if (bytes == now)
                return 0;
        return refuse(refusal, WIRE__CODE__INVALID,
                      "rank %u of job '%s' has a staging memory of %" PRIu64
                      " bytes from before the restart of gradsyncd, "
                      "which gives %" PRIu64 " now (staging_bytes): the job has to be started again",
                      member->rank, member->job->name, bytes, now);
}

int staging_return(struct member *member, uint64_t bytes, uint32_t request, int *fds, unsigned n_fds,
                   struct refusal *refusal) {
        struct memory_request what = { .kind = MEMORY_RETURNED, .bytes = bytes, .fds = fds, .n_fds = n_fds };
        struct staging *staging = &member->staging;
        struct refusal why;
        int r = staging_new(member, refusal);

        if (r != 0)
                return r;
        r = staging_check_return(member, bytes, refusal);
        if (r == 0) {
                r = holding_ask(staging->arena, member->job, &what, &why);
                if (r > 0)
                        refuse(refusal, why.code, "the staging memory of rank %u of job '%s': %s",
                               member->rank, member->job->name, why.text);
        }
        if (r != 0)
                staging_deinit(staging);
        staging->request = request;
        staging->returning = r == 0 && holding_is_busy(staging->arena);
        return r;
}
