/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a membership in memory. */
#include "client/lib/member/member.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/registered.h"
#include "proto/cleanup.h"

struct gradsync_job *member_new(struct gradsync *gs, const struct wish *wish) {
        struct member *member = calloc(1, sizeof(*member));

        if (member == NULL)
                return NULL;
        struct gradsync_job *job = &member->job;
        job->gs = gs;
        memcpy(job->name, wish->name, sizeof(job->name));
        job->wish = *wish;
        job->plans = &member->plans;
        job->collective = &member->collective;
        job->collective->job = job;
        job->collective->staging_fd = -1;
        job->sync = &member->sync;
        job->next = gs->jobs;
        gs->jobs = job;
        return job;
}

void member_free(struct gradsync_job *job) {
        struct gradsync *gs = job->gs;
        struct gradsync_job **at = &gs->jobs;

        while (*at != job)
                at = &(*at)->next;
        *at = job->next;
        request_close(gs, &job->request);
        request_close(gs, &job->collective->request);
        request_close(gs, &job->rejoin.request);
        if (job->plans->making != NULL && job->plans->making->phase != PLAN_AGREED)
                plan_free(job->plans->making);
        while (job->plans->list != NULL) {
                struct gradsync_plan *plan = job->plans->list;

                job->plans->list = plan->next;
                plan_free(plan);
        }
        if (job->registering != NULL)
                registered_free(job->registering);
        while (job->memories != NULL) {
                struct gradsync_memory *memory = job->memories;

                job->memories = memory->next;
                registered_free(memory);
        }
        shared_unmap(&job->collective->staging);
        fd_close(job->collective->staging_fd);
        params_deinit(&job->plans->params);
        sync_end(job->sync);
        /* The job is the first field of its struct member. */
        free(job);
}

void member_abandon(struct gradsync_job *job) {
        if (job->plans->making != NULL)
                plan_close_fds(job->plans->making);
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                plan_close_fds(plan);
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                memory->kept = fd_close(memory->kept);
        if (job->registering != NULL)
                job->registering->kept = fd_close(job->registering->kept);
        job->collective->staging_fd = fd_close(job->collective->staging_fd);
}

void member_forget(struct gradsync_job *job) {
        if (job->plans->making != NULL)
                job->plans->making->arena.base = job->plans->making->control.base = NULL;
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                plan->arena.base = plan->control.base = NULL;
        if (job->registering != NULL)
                job->registering->mapped_here = false;
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                memory->mapped_here = false;
        job->collective->staging.base = NULL;
}
