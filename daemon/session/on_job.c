/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of the handshake, of joining and leaving, of plans and of memory for them. Each handler checks its
 * message and calls the job layer.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proc.h"
#include "job/plan/plan.h"
#include "proto/cuda.h"
#include "proto/names.h"
#include "session/private.h"

/* Keeps the client's pidfd if the kernel gave none. A pidfd of another process is an attempt to deceive. */
static int hello_take_pidfd(struct session *session, struct request *request) {
        if (request->n_fds == 0)
                return 0;
        if (!proc_pidfd_is(request->fds[0], session->client.pid))
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "the fd with HELLO is no pidfd of process %d", (int)session->client.pid);
        if (session->pidfd >= 0) {
                request->fds[0] = fd_close(request->fds[0]); /* of a pidfd that takes no time */
                return 0;
        }
        int r = charge_take(&session->pidfd_charge, session->sessions->config.accounts, session->client.uid,
                            ACCOUNT_FDS, 1, &request->refusal);
        if (r != 0)
                return r;
        r = session_watch_pidfd(session, request->fds[0]);
        if (r == 0)
                request->fds[0] = -1;
        return r;
}

/* Takes a text about the client, for people: as one line, and cut between characters if it is too long. */
static void hello_take_text(char *to, size_t size, const char *from) {
        size_t length = (size_t)snprintf(to, size, "%s", from != NULL ? from : "");

        if (length >= size)
                for (length = size - 1; !utf8_valid(to, length); length--)
                        to[length - 1] = '\0';
        for (char *at = to; *at != '\0'; at++)
                if ((unsigned char)*at < 0x20 || *at == 0x7f)
                        *at = ' ';
}

int on_hello(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Hello *hello = CAST(Wire__Hello, message);
        const struct sessions_config *config = &session->sessions->config;
        Wire__Welcome welcome = WIRE__WELCOME__INIT;
        struct backend_gpu gpu;
        int r = hello_take_pidfd(session, request);

        if (r > 0)
                session_evict(session, &request->refusal);
        if (r != 0)
                return r > 0 ? 0 : r;
        session->client.admin = hello->admin;
        session->returns = hello->returns;
        hello_take_text(session->client.program, sizeof(session->client.program), hello->program);
        hello_take_text(session->client.library, sizeof(session->client.library), hello->library);
        session_set_state(session, SESSION_OPEN);
        session->deadline = loop_timer_free(session->deadline);
        SET(welcome, minor, frame_minor_with(hello->minor));
        SET(welcome, instance, config->instance);
        welcome.device = (char *)config->device;
        welcome.version = (char *)GRADSYNC_RELEASE;
        SET(welcome, staging_bytes, config->staging_bytes);
        SET_IF(welcome, cluster, config->jobs->config.cluster != NULL, true);
        if (config->backend != NULL && config->backend->ops->gpu(config->backend, &gpu)) {
                welcome.uuid = (char *)gpu.uuid;
                SET(welcome, mps, gpu.mps);
        }
        session_send(session, WIRE__MESSAGE_TYPE__WELCOME, request->id, &welcome.base);
        return 0;
}

int on_join(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Join *join = CAST(Wire__Join, message);
        struct job_join what;
        struct token token;

        if (request->id == 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID, "JOIN needs a request number");
        int r = session_begin_join(session, request, join->job, join->min_world, join->max_world, &what);
        if (r == 0)
                r = token_set(&token, session->client.uid, join->job, join->token);
        if (r == -EINVAL)
                r = refuse(&request->refusal, WIRE__CODE__INVALID, "job '%s': a token has 1 to %u bytes",
                           join->job, LIMIT_TOKEN);
        if (r != 0)
                return r;
        what.token = &token;
        struct membership_request *wish = &what.membership;
        what.cluster = join->scope == WIRE__SCOPE__SCOPE_CLUSTER ||
                       (join->scope == WIRE__SCOPE__SCOPE_NONE &&
                        session->sessions->config.jobs->config.cluster != NULL);
        wish->has_rank = join->has_rank;
        wish->has_slot = join->has_slot;
        wish->rank = join->rank;
        wish->slot = join->slot;
        wish->spare = join->spare;
        wish->incarnation = join->incarnation;
        wish->timeout = clock_from_ms(join->timeout_ms);
        wish->last_call = clock_from_ms(join->last_call_ms);
        if (join->has_rejoin_grace_ms)
                wish->grace = clock_from_ms(join->rejoin_grace_ms);
        if (join->has_instance)
                r = session_identify(wish, join->job, join->instance, &request->refusal);
        if (r == 0)
                r = jobs_join(session->sessions->config.jobs, &what, &request->refusal);
        return r;
}

int on_leave(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Leave *leave = CAST(Wire__Leave, message);
        Wire__Left left = WIRE__LEFT__INIT;

        results_flush(&session->sessions->results);
        member_gone(request->member, WIRE__CAUSE__LEAVING);
        SET(left, job, leave->job);
        session_send(session, WIRE__MESSAGE_TYPE__LEFT, request->id, &left.base);
        return 0;
}

int on_plan_begin(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__PlanBegin *begin = CAST(Wire__PlanBegin, message);

        return plan_begin(request->member,
                          &(struct offer){
                                  .generation = begin->generation,
                                  .plan = begin->plan,
                                  .params = begin->params,
                                  .buckets = begin->buckets,
                                  .reduce = (unsigned)begin->reduce,
                                  .arena_bytes = begin->arena_bytes,
                                  .control_bytes = begin->control_bytes,
                                  .timeout = clock_from_ms(begin->timeout_ms),
                                  .void_on_loss = begin->void_on_loss,
                          },
                          &request->refusal);
}

int on_plan_params(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__PlanParams *chunk = CAST(Wire__PlanParams, message);
        struct offer_param param[LIMIT_CHUNK];

        for (size_t i = 0; i < chunk->n_param; i++)
                param[i] = (struct offer_param){
                        .name = chunk->param[i]->name,
                        .shape = chunk->param[i]->shape,
                        .dims = chunk->param[i]->n_shape,
                        .bucket = chunk->param[i]->bucket,
                        .dtype = (unsigned)chunk->param[i]->dtype,
                };
        return plan_params(request->member, chunk->plan, param, chunk->n_param, &request->refusal);
}

int on_plan_buckets(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__PlanBuckets *chunk = CAST(Wire__PlanBuckets, message);
        struct offer_bucket bucket[LIMIT_CHUNK];

        for (size_t i = 0; i < chunk->n_bucket; i++)
                bucket[i] = (struct offer_bucket){
                        .offset = chunk->bucket[i]->offset,
                        .bytes = chunk->bucket[i]->bytes,
                        .payload = chunk->bucket[i]->payload,
                        .memory = chunk->bucket[i]->memory,
                        .dtype = (unsigned)chunk->bucket[i]->dtype,
                };
        return plan_buckets(request->member, chunk->plan, bucket, chunk->n_bucket, &request->refusal);
}

int on_plan_commit(struct session *session, struct request *request, const ProtobufCMessage *message) {
        return plan_commit(request->member, (CAST(Wire__PlanCommit, message))->plan, request->id,
                           &request->refusal);
}

int on_plan_mapped(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__PlanMapped *mapped = CAST(Wire__PlanMapped, message);

        if (request->id == 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID, "PLAN_MAPPED needs a request number");
        return plan_mapped(request->member, mapped->plan, request->id, &request->refusal);
}

int on_plan_drop(struct session *session, struct request *request, const ProtobufCMessage *message) {
        return plan_drop(request->member, (CAST(Wire__PlanDrop, message))->plan, request->id,
                         &request->refusal);
}

/* The driver opens such a handle for processes of one user only. */
static int register_ipc(const struct session *session, struct request *request, const Wire__Register *offer) {
        const struct backend *backend = session->sessions->config.backend;
        struct backend_gpu gpu;
        struct cuda_ipc ipc;

        if (backend == NULL || !backend->ops->gpu(backend, &gpu))
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "memory of a GPU cannot be registered: this gradsyncd serves %s",
                              session->sessions->config.device);
        if (offer->ipc.len != sizeof(ipc) || request->n_fds > 0 || offer->offset % ARENA_ALIGN != 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "a CUDA IPC handle has %zu bytes and comes without a descriptor, and the range "
                              "begins at a multiple of %u bytes",
                              sizeof(ipc), ARENA_ALIGN);
        if (session->client.uid != geteuid())
                return refuse(
                        &request->refusal, WIRE__CODE__DENIED,
                        "memory of a trainer on a GPU can be opened by processes of the same user only: "
                        "this trainer has uid %u, gradsyncd has %u. Let gradsyncd allocate the gradients "
                        "(gradsync_param), or run it as that user (gradsyncctl run)",
                        (unsigned)session->client.uid, (unsigned)geteuid());
        memcpy(&ipc, offer->ipc.data, sizeof(ipc));
        return memory_offer(request->member, request->id,
                            &(struct memory_request){ .kind = MEMORY_OFFERED,
                                                      .bytes = offer->bytes,
                                                      .offset = offer->offset,
                                                      .ipc = &ipc },
                            &request->refusal);
}

int on_register(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Register *offer = CAST(Wire__Register, message);

        if (offer->has_ipc)
                return register_ipc(session, request, offer);
        if (request->n_fds == 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID,
                              "REGISTER came without the memory's file descriptor");
        return memory_register(request->member, request->id, request->fds, request->n_fds, offer->offset,
                               offer->bytes, &request->refusal);
}

int on_unregister(struct session *session, struct request *request, const ProtobufCMessage *message) {
        return memory_unregister(request->member, request->id, (CAST(Wire__Unregister, message))->memory,
                                 &request->refusal);
}
