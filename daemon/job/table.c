/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a job by its owner and name, and keeping the clock going. */
#include <string.h>

#include "base/clock.h"
#include "gradsync.pb-c.h"
#include "job/private.h"

#define TICK (100 * USEC_PER_MSEC) /* resolution of join and plan time-outs and of stall notices */

void jobs_watch(struct jobs *jobs) {
        if (jobs->ticking || list_empty(&jobs->list))
                return;
        jobs->ticking = loop_timer_arm(jobs->tick, TICK) >= 0;
}

struct job *jobs_find(const struct jobs *jobs, uid_t uid, const char *name) {
        struct job *job;

        list_for_each(job, &jobs->list, link)
                if (job->open && job->uid == uid && strcmp(job->name, name) == 0)
                        return job;
        return NULL;
}

int job_check_token(const struct job *job, const struct token *token, struct refusal *refusal) {
        if (token_equal(&job->token, token))
                return 0;
        return refuse(refusal, WIRE__CODE__DENIED,
                      "job '%s' of uid %u has another token than this process, or only one of them has one: "
                      "set the token of the job's other members, or choose another name",
                      job->name, (unsigned)job->uid);
}
