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
        return staging_ask(request->member, request->id, &request->refusal);
}

int on_staging_mapped(struct session *session, struct request *request, const ProtobufCMessage *message) {
        return staging_attach(request->member, request->id, &request->refusal);
}

int on_operation(struct session *session, struct request *request, const ProtobufCMessage *message) {
        const Wire__Operation *operation = CAST(Wire__Operation, message);
        struct member *member = request->member;

        if (request->id == 0)
                return refuse(&request->refusal, WIRE__CODE__INVALID, "OPERATION needs a request number");
        if (member_defers(member, request->id, operation->generation))
                return 0;
        int r = member_check(member, &request->refusal);
        if (r != 0)
                return r;
        if (operation->generation < member->job->generation)
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
                                      .sealed = operation->sealed,
                                      .offset = operation->offset,
                                      .total = operation->has_total ? operation->total : operation->bytes,
                                      .blocking = operation->blocking,
                              },
                              &request->refusal);
}
