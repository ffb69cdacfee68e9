/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the running job: READY, which is the hot path, and operations outside steps. */
#include "job/op/operation.h"
#include "job/plan/step.h"
#include "session/private.h"

int on_ready(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Ready *ready = CAST(Wire__Ready, message);

        return step_ready(request->member,
                          &(struct ready){
                                  .generation = ready->generation,
                                  .plan = ready->plan,
                                  .bucket = ready->bucket,
                                  .divisor = ready->divisor,
                                  .step = ready->step,
                                  .has_absent = ready->has_absent,
                                  .absent = ready->absent.data,
                                  .absent_bytes = ready->absent.len,
                          },
                          &request->refusal);
}

int on_staging(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Staging *staging = CAST(Wire__Staging, message);
        Wire__StagingArena arena = WIRE__STAGING_ARENA__INIT;
        int fd, r;

        r = staging_new(request->member, &fd, &arena.bytes, &request->refusal);
        if (r != 0)
                return r;
        arena.has_job = arena.has_bytes = true;
        arena.job = staging->job;
        session_send(session, WIRE__MESSAGE_TYPE__STAGING_ARENA, request->id, fd, &arena.base);
        return 0;
}

int on_staging_mapped(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__StagingMapped *mapped = CAST(Wire__StagingMapped, message);
        Wire__StagingReady ready = WIRE__STAGING_READY__INIT;
        int r;

        r = staging_attach(request->member, &request->refusal);
        if (r != 0)
                return r;
        ready.has_job = true;
        ready.job = mapped->job;
        session_send(session, WIRE__MESSAGE_TYPE__STAGING_READY, request->id, -1, &ready.base);
        return 0;
}

int on_operation(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Operation *operation = CAST(Wire__Operation, message);
        struct member *member = request->member;

        if (request->id == 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID, "OPERATION needs a request number");
        if (operation->generation < member->job->generation && session->minor >= FRAME_MINOR_1)
                return refuse(&request->refusal, WIRE__CODE__VOID_RETRY,
                              "job '%s' has gone on to generation %u; call again there", member->job->name,
                              member->job->generation);
        if (operation->generation != member->job->generation)
                return refuse(&request->refusal, WIRE__CODE__STALE,
                              "job '%s' is in generation %u, the operation is for %u", member->job->name,
                              member->job->generation, operation->generation);
        return operation_call(member, request->id,
                              &(struct operation_request){
                                      .sequence = operation->sequence,
                                      .kind = (unsigned)operation->kind,
                                      .dtype = (unsigned)operation->dtype,
                                      .reduce = (unsigned)operation->reduce,
                                      .root = operation->root,
                                      .bytes = operation->bytes,
                                      .input = operation->input,
                                      .output = operation->output,
                                      .total = operation->has_total ? operation->total : operation->bytes,
                              },
                              &request->refusal);
}
