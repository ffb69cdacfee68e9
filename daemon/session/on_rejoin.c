/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of members that come back after a restart of the daemon. */
#include "base/clock.h"
#include "job/plan/plan.h"
#include "job/rejoin.h"
#include "job/restart/takeover.h"
#include "session/private.h"
#include "session/proof.h"

static struct returned rejoin_said(const Wire__Rejoin *rejoin) {
        return (struct returned){
                .history = rejoin->history,
                .word = { .generation = rejoin->generation,
                          .orderly = rejoin->orderly,
                          .resumed = rejoin->resumed,
                          .ended = rejoin->ended },
                .operation_failed = rejoin->operation_failed,
                .next_plan = rejoin->next_plan,
                .operations = rejoin->operations,
                .lacks = rejoin->stateless,
                .unsynced = rejoin->behind,
        };
}

/* Whether this daemon can have a job with members on others. */
static int rejoin_check_cluster(const struct jobs_config *config, const struct job_join *join,
                                struct refusal *refusal) {
        if (!join->cluster || (config->cluster != NULL && config->engine != NULL))
                return 0;
        return refuse(refusal, WIRE__CODE__MEMBER_LOST,
                      "job '%s' has members on other daemons, and this gradsyncd has no coordinator, or no "
                      "engine, any more: set `coordinator` in its configuration, and join again",
                      join->name);
}

int on_rejoin(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Rejoin *rejoin = CAST(Wire__Rejoin, message);
        Wire__Rejoined rejoined = WIRE__REJOINED__INIT;
        struct job_rejoin what = { .said = rejoin_said(rejoin),
                                   .world = rejoin->world,
                                   .stable = rejoin->member,
                                   .wait = clock_from_ms(rejoin->wait_ms),
                                   .has_lost = rejoin->has_lost_rank,
                                   .lost = rejoin->lost_rank };
        struct membership_request *wish = &what.join.membership;
        struct member *member;
        struct token token;
        what.proven = rejoin->has_proof && rejoin->job != NULL &&
                      proof_holds(session->sessions, session->peer.uid, rejoin->job, rejoin->incarnation,
                                  rejoin->member, &rejoin->proof);
        int r = session_begin_join(session, request, rejoin->job, rejoin->min_world, rejoin->max_world,
                                   rejoin->token, &token, &what.join);

        if (r != 0)
                return r;
        what.join.cluster = rejoin->scope == WIRE__SCOPE__SCOPE_CLUSTER;
        r = rejoin_check_cluster(&session->sessions->config.jobs->config, &what.join, &request->refusal);
        if (r != 0)
                return r;
        wish->has_rank = rejoin->asked_rank;
        wish->has_slot = rejoin->asked_slot;
        wish->rank = rejoin->rank;
        wish->slot = rejoin->local_rank;
        wish->incarnation = rejoin->incarnation;
        if (rejoin->has_rejoin_grace_ms)
                wish->grace = clock_from_ms(rejoin->rejoin_grace_ms);
        if (rejoin->has_instance)
                r = session_identify(wish, rejoin->job, rejoin->instance, &request->refusal);
        if (r == 0)
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
        return takeover_told(request->member, request->id, &request->refusal);
}
