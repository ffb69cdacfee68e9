/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a membership in memory. */
#include "client/lib/member/member.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/memory/registered.h"

struct gradsync_job *member_new(struct gradsync *gs, const struct wish *wish) {
        struct member *member = calloc(1, sizeof(*member));
        struct gradsync_job *job;

        if (member == NULL)
                return NULL;
        job = &member->job;
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
        if (job->plans->making != NULL && job->plans->making->phase != PLAN_AGREED) {
                request_close(gs, &job->plans->making->request);
                plan_free(job->plans->making);
        }
        while (job->plans->list != NULL) {
                struct gradsync_plan *plan = job->plans->list;

                job->plans->list = plan->next;
                request_close(gs, &plan->request);
                plan_free(plan);
        }
        if (job->registering != NULL) {
                request_close(gs, &job->registering->request);
                registered_free(job->registering);
        }
        while (job->memories != NULL) {
                struct gradsync_memory *memory = job->memories;

                job->memories = memory->next;
                request_close(gs, &memory->request);
                registered_free(memory);
        }
        shared_unmap(&job->collective->staging);
        if (job->collective->staging_fd >= 0)
                close(job->collective->staging_fd);
        params_deinit(&job->plans->params);
        sync_end(job->sync);
        free(job); /* the member begins with it */
}

static int member_close_fd(int fd) {
        if (fd >= 0)
                close(fd);
        return -1;
}

void member_abandon(struct gradsync_job *job) {
        if (job->plans->making != NULL)
                job->plans->making->fd = member_close_fd(job->plans->making->fd);
        for (struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                plan->fd = member_close_fd(plan->fd);
        for (struct gradsync_memory *memory = job->memories; memory != NULL; memory = memory->next)
                memory->kept = member_close_fd(memory->kept);
        if (job->registering != NULL)
                job->registering->kept = member_close_fd(job->registering->kept);
        job->collective->staging_fd = member_close_fd(job->collective->staging_fd);
}

void member_forget(struct gradsync_job *job) {
        if (job->plans->making != NULL && job->plans->making->phase != PLAN_AGREED)
                plan_forget(job->plans->making);
        while (job->plans->list != NULL) {
                struct gradsync_plan *plan = job->plans->list;

                job->plans->list = plan->next;
                plan_forget(plan);
        }
        if (job->registering != NULL)
                registered_forget(job->registering);
        while (job->memories != NULL) {
                struct gradsync_memory *memory = job->memories;

                job->memories = memory->next;
                registered_forget(memory);
        }
        params_deinit(&job->plans->params);
        sync_end(job->sync);
        free(job->request.text);
        free(job->collective->request.text);
        free(job->rejoin.request.text);
        free(job);
}

