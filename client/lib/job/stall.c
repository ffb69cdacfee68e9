/* SPDX-License-Identifier: Apache-2.0 */
/* Calls the trainer's callback with the member that it waits for. */
#include "client/lib/job/stall.h"

#include <stdio.h>

#include "client/lib/base/fail.h"
#include "client/lib/job/job.h"

void stall_note(struct gradsync_job *job, const Wire__Stall *message) {
        struct stall *stall = &job->stall;

        if (job->gs->stall == NULL)
                return;
        stall->shown = (struct gradsync_stall){ .size = sizeof(stall->shown),
                                                .step = message->step,
                                                .since_ms = message->since_ms,
                                                .rank = message->has_rank ? message->rank : UINT32_MAX,
                                                .bucket = message->bucket,
                                                .pid = message->pid };
        snprintf(stall->process_state, sizeof(stall->process_state), "%s",
                 message->process_state ? message->process_state : "");
        snprintf(stall->parameter, sizeof(stall->parameter), "%s",
                 message->parameter ? message->parameter : "");
        snprintf(stall->text, sizeof(stall->text), "%s", message->text ? message->text : "");
        snprintf(stall->host, sizeof(stall->host), "%s", message->host ? message->host : "");
        stall->pending = true;
}

/* The callback may make any call that does not free the job. The texts are copied, because they may change
 * meanwhile. */
static void stall_call(struct gradsync *gs, struct gradsync_job *job) {
        struct stall copy = job->stall;

        copy.shown.process_state = copy.process_state;
        copy.shown.parameter = copy.parameter;
        copy.shown.text = copy.text;
        copy.shown.host = copy.host;
        job->stall.pending = false;
        job->stall.running = true;
        job->stall.thread = pthread_self();
        pthread_mutex_unlock(&gs->link.lock);
        gs->stall(gs->stall_data, job, &copy.shown);
        pthread_mutex_lock(&gs->link.lock);
        job->stall.running = false;
        link_notify(&gs->link);
}

void stall_tell(struct gradsync *gs) {
        struct gradsync_job *job;

        do {
                job = gs->jobs;
                while (job != NULL && (!job->stall.pending || job->stall.running))
                        job = job->next;
                if (job != NULL)
                        stall_call(gs, job);
        } while (job != NULL);
}

int stall_wait(struct gradsync_job *job) {
        int r = GRADSYNC_OK;

        while (job->stall.running && r == GRADSYNC_OK) {
                if (pthread_equal(job->stall.thread, pthread_self()))
                        return fail(GRADSYNC_STATE,
                                    "gradsync_leave() cannot be called by the stall callback of that job");
                r = link_sleep(&job->gs->link);
        }
        return r;
}
