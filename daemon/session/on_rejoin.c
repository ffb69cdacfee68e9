/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of members that come back after a restart of the daemon. */
#include <string.h>

#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/rejoin.h"
#include "job/restart/takeover.h"
#include "session/private.h"

int on_rejoin(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Rejoin *rejoin = CAST(Wire__Rejoin, message);
        struct job_rejoin what = { .generation = rejoin->generation, .wait = clock_from_ms(rejoin->wait_ms) };
        Wire__Rejoined rejoined = WIRE__REJOINED__INIT;
        struct member *member;
        int r = session_begin_join(session, request, rejoin->job, 1, LIMIT_WORLD, &what.join);

        if (r != 0)
                return r;
        if (rejoin->secret.len == sizeof(what.secret))
                memcpy(&what.secret, rejoin->secret.data, sizeof(what.secret));
        r = jobs_rejoin(session->sessions->config.jobs, &what, &member, &request->refusal);
        if (r != 0)
                return r;
        SET(rejoined, job, member->job->id);
        session_send(session, WIRE__MESSAGE_TYPE__REJOINED, request->id, &rejoined.base);
        return 0;
}

/* Whether this frame brought memory. */
static int rejoin_check_fd(struct request *request) {
        if (request->n_fds > 0)
                return 0;
        return refuse(&request->refusal, WIRE__CODE__INVALID, "the memory's file descriptor is missing");
}

int on_rejoin_plan(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__RejoinPlan *plan = CAST(Wire__RejoinPlan, message);
        int r = rejoin_check_fd(request);

        if (r != 0)
                return r;
        return takeover_plan(request->member, &(struct plan_former){ .plan = plan->plan, .step = plan->step },
                             request->id, request->fds, request->n_fds, &request->refusal);
}

int on_rejoin_staging(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__RejoinStaging *staging = CAST(Wire__RejoinStaging, message);
        int r = rejoin_check_fd(request);

        if (r != 0)
                return r;
        return takeover_staging(request->member, staging->bytes, request->id, request->fds, request->n_fds,
                                &request->refusal);
}

int on_rejoin_end(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__RejoinEnd *end = CAST(Wire__RejoinEnd, message);

        return takeover_told(request->member, end->next_plan, request->id, &request->refusal);
}
