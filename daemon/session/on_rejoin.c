/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of members that come back after a restart of the daemon. */
#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/rejoin.h"
#include "job/restart/takeover.h"
#include "session/private.h"

static struct job_rejoin rejoin_request(struct session *session, const struct request *request,
                                        const Wire__Rejoin *rejoin, const struct token *token) {
        const struct jobs_config *config = &session->sessions->config.jobs->config;

        return (struct job_rejoin){
                .join = {
                        .name = rejoin->job,
                        .uid = session->peer.uid,
                        .pid = session->peer.pid,
                        .client = session->id,
                        .program = session->program,
                        .request = request->id,
                        .token = token,
                        .returns = session->returns,
                        .membership = {
                                .min_world = rejoin->min_world,
                                .max_world = rejoin->max_world,
                                .rank = rejoin->rank,
                                .slot = rejoin->local_rank,
                                .incarnation = rejoin->incarnation,
                                .grace = rejoin->has_rejoin_grace_ms ? clock_from_ms(rejoin->rejoin_grace_ms)
                                                                     : config->rejoin_grace,
                                .adapts = true,
                        },
                        .owner = session,
                        .owner_members = &session->members,
                },
                .asked_rank = rejoin->asked_rank,
                .asked_slot = rejoin->asked_slot,
                .generation = rejoin->generation,
                .world = rejoin->world,
                .next_plan = rejoin->next_plan,
                .stable = rejoin->member,
                .wait = clock_from_ms(rejoin->wait_ms),
                .operations = rejoin->operations,
                .operation_failed = rejoin->operation_failed,
                .orderly = rejoin->orderly,
                .resumed = rejoin->resumed,
                .history = rejoin->history,
                .ended = rejoin->ended,
                .has_lost = rejoin->has_lost_rank,
                .lost = rejoin->lost_rank,
        };
}

int on_rejoin(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Rejoin *rejoin = CAST(Wire__Rejoin, message);
        Wire__Rejoined rejoined = WIRE__REJOINED__INIT;
        struct job_rejoin what;
        struct member *member;
        struct token token;
        int r;

        r = session_check_job(session, rejoin->job, rejoin->min_world, rejoin->max_world, &request->refusal);
        if (r == 0 && !token_set(&token, rejoin->token))
                r = refuse(&request->refusal, WIRE__CODE__INVALID, "job '%s': a token has 1 to %u bytes",
                           rejoin->job, LIMIT_TOKEN);
        if (r != 0)
                return r;
        what = rejoin_request(session, request, rejoin, &token);
        if (rejoin->has_instance)
                r = session_identify(&what.join.membership, rejoin->job, rejoin->asked_rank, rejoin->instance,
                                     &request->refusal);
        if (r == 0)
                r = jobs_rejoin(session->sessions->config.jobs, &what, &member, &request->refusal);
        token_clear(&token);
        if (r != 0)
                return r;
        SET(rejoined, job, member->job->id);
        session_send(session, WIRE__MESSAGE_TYPE__REJOINED, request->id, -1, &rejoined.base);
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
        return takeover_plan(request->member,
                             &(struct plan_word){
                                     .plan = plan->plan, .launched = plan->launched, .step = plan->step },
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
        return takeover_told(request->member, &request->refusal);
}
