/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a membership back. */
#include <stddef.h>

#include "client/lib/base/clock.h"
#include "client/lib/base/fail.h"
#include "client/lib/member/member.h"

/* The membership ends when the answer comes, and not only when the caller's thread runs: the daemon may be
 * gone by then, and a member that has left must not come back. */
static int leave_take_left(struct request *request, const ProtobufCMessage *message,
                           struct fdpass_packet *packet) {
        struct gradsync_job *job = OWNER(request, struct gradsync_job, request);

        job->handle = 0;
        job->rejoin.phase = REJOIN_NONE;
        return GRADSYNC_OK;
}

/* The daemon may be gone already: the job is over then, and the caller gets that result. */
static int leave_ask(struct gradsync_job *job) {
        Wire__Leave leave = WIRE__LEAVE__INIT;

        SET(leave, job, job->handle);
        return request_call(job->gs, &job->request, WIRE__MESSAGE_TYPE__LEAVE, &leave.base, -1,
                            WIRE__MESSAGE_TYPE__LEFT, leave_take_left, NEVER);
}

/* After a restart of the daemon, LEAVE can be sent as soon as it knows this member again. */
static int leave_until_known(struct gradsync_job *job) {
        while (job_is_joined(job)) {
                bool known = job->handle != 0;
                int r = known ? leave_ask(job) : context_wait(job->gs, NEVER);

                if (r != REQUEST_BROKEN && (known || r != GRADSYNC_OK))
                        return r;
        }
        return GRADSYNC_OK;
}

/* A thread that waits for a step, which may be the caller itself in a stall callback, would find its plan
 * freed. */
static int leave_check_waiters(const struct gradsync_job *job) {
        for (const struct gradsync_plan *plan = job->plans->list; plan != NULL; plan = plan->next)
                if (plan->waiters > 0)
                        return fail(
                                GRADSYNC_STATE,
                                "gradsync_leave(): step %llu of a plan of job '%s' is being waited for, by "
                                "gradsync_finish() or gradsync_wait(); it has to return first",
                                (unsigned long long)plan->step.number, job->name);
        return GRADSYNC_OK;
}

int gradsync_leave(struct gradsync_job *job) {
        int r = job_enter_alone(job, "gradsync_leave");

        if (r != GRADSYNC_OK)
                return r;
        struct gradsync *gs = job->gs;
        r = stall_wait(job);
        if (r == GRADSYNC_OK)
                r = leave_check_waiters(job);
        if (r != GRADSYNC_OK)
                return job_leave(job, r);
        r = leave_until_known(job);
        if (r == GRADSYNC_AGAIN || r == GRADSYNC_INTERRUPTED)
                return job_leave(job, r);
        /* The job is gone in any case, so the result must be none that says it is still there. */
        if (r == GRADSYNC_STATE || r == GRADSYNC_INVALID)
                r = fail(GRADSYNC_DAEMON_LOST, "%s", fail_text());
        member_free(job);
        return context_leave(gs, r);
}
