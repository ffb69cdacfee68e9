/* SPDX-License-Identifier: Apache-2.0 */
#include "job/event/event.h"

void job_tell(struct job *job, struct job_event event) {
        event.job = job;
        job->table->config.on_event(job_events_data(job), &event);
}

void member_tell(struct member *member, struct job_event event) {
        event.member = member;
        job_tell(member->job, event);
}

void member_tell_refused(struct member *member, uint32_t request, const struct refusal *refusal) {
        member_tell(member,
                    (struct job_event){ .kind = JOB_EVENT_REFUSED, .request = request, .refusal = refusal });
}

void member_expel(struct member *member, const struct refusal *why) {
        member_tell(member, (struct job_event){ .kind = JOB_EVENT_EXPELLED, .refusal = why });
}
