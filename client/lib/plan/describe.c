/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The description of a plan as a series of frames: its size, its parameters and its buckets in chunks, and
 * the end. Goes on where the socket was full, or where a call was interrupted.
 */
#include "client/lib/plan/describe.h"

#include "client/lib/memory/registered.h"
#include "client/lib/plan/plan.h"

/* Room for parameters in a frame: the message around them is smaller than the rest. */
#define CHUNK_BYTES (FRAME_PAYLOAD_MAX - 64u)

static int describe_begin(struct gradsync_plan *plan, uint32_t request) {
        Wire__PlanBegin begin = WIRE__PLAN_BEGIN__INIT;

        SET_PLAN(begin, plan);
        SET(begin, generation, plan->job->standing.generation);
        SET(begin, params, plan->layout.n_params);
        SET(begin, buckets, plan->layout.n_buckets);
        SET(begin, arena_bytes, plan->layout.arena_bytes);
        SET(begin, control_bytes, plan->layout.control_bytes);
        SET(begin, reduce, (Wire__Reduce)plan->reduce);
        SET(begin, timeout_ms, plan->job->wish.timeout_ms);
        SET_IF(begin, void_on_loss, plan->void_on_loss && plan->phase != PLAN_AGREED, true);
        return link_send(&plan->job->gs->link, WIRE__MESSAGE_TYPE__PLAN_BEGIN, request, &begin.base, -1);
}

static void describe_param(const struct gradsync_plan *plan, uint32_t index, Wire__Param *message) {
        const struct param *param = &plan->params.list[index];

        wire__param__init(message);
        message->name = param->name;
        SET(*message, dtype, (Wire__Dtype)param->dtype);
        message->n_shape = param->dims;
        message->shape = (uint64_t *)(uintptr_t)param->shape;
        SET(*message, bucket, plan->layout.bucket_of[index]);
}

/* Sends as many parameters as a chunk may have, and as fit a frame with their names. */
static int describe_params(struct gradsync_plan *plan, uint32_t request) {
        Wire__PlanParams chunk = WIRE__PLAN_PARAMS__INIT;
        Wire__Param message[LIMIT_CHUNK], *list[LIMIT_CHUNK];
        size_t bytes = 0;

        SET_PLAN(chunk, plan);
        chunk.param = list;
        while (chunk.n_param < LIMIT_CHUNK && plan->at + chunk.n_param < plan->layout.n_params) {
                Wire__Param *next = &message[chunk.n_param];

                describe_param(plan, plan->at + (uint32_t)chunk.n_param, next);
                /* Tag and length. */
                bytes += wire__param__get_packed_size(next) + 4;
                if (bytes > CHUNK_BYTES)
                        break;
                list[chunk.n_param++] = next;
        }
        int r = link_send(&plan->job->gs->link, WIRE__MESSAGE_TYPE__PLAN_PARAMS, request, &chunk.base, -1);
        if (r == GRADSYNC_OK)
                plan->at += (uint32_t)chunk.n_param;
        return r;
}

static int describe_buckets(struct gradsync_plan *plan, uint32_t request) {
        Wire__PlanBuckets chunk = WIRE__PLAN_BUCKETS__INIT;
        Wire__Bucket message[LIMIT_CHUNK], *list[LIMIT_CHUNK];
        uint32_t first = plan->at - plan->layout.n_params;

        SET_PLAN(chunk, plan);
        chunk.bucket = list;
        while (chunk.n_bucket < LIMIT_CHUNK && first + chunk.n_bucket < plan->layout.n_buckets) {
                const struct layout_bucket *bucket = &plan->layout.bucket[first + chunk.n_bucket];
                Wire__Bucket *next = &message[chunk.n_bucket];

                wire__bucket__init(next);
                SET(*next, dtype, (Wire__Dtype)bucket->dtype);
                SET(*next, offset, bucket->offset);
                SET(*next, bytes, bucket->bytes);
                SET(*next, payload, bucket->payload);
                SET_IF(*next, memory, bucket->memory != NULL, bucket->memory->handle);
                list[chunk.n_bucket++] = next;
        }
        int r = link_send(&plan->job->gs->link, WIRE__MESSAGE_TYPE__PLAN_BUCKETS, request, &chunk.base, -1);
        if (r == GRADSYNC_OK)
                plan->at += (uint32_t)chunk.n_bucket;
        return r;
}

static int describe_commit(struct gradsync_plan *plan) {
        Wire__PlanCommit commit = WIRE__PLAN_COMMIT__INIT;

        SET_PLAN(commit, plan);
        return link_send(&plan->job->gs->link, WIRE__MESSAGE_TYPE__PLAN_COMMIT, plan->request.id,
                         &commit.base, -1);
}

int describe_next(struct gradsync_plan *plan, uint32_t request, bool *ret_last) {
        uint32_t all = plan->layout.n_params + plan->layout.n_buckets;

        *ret_last = plan->begun && plan->at == all;
        if (*ret_last)
                return GRADSYNC_OK;
        int r = !plan->begun                       ? describe_begin(plan, request)
                : plan->at < plan->layout.n_params ? describe_params(plan, request)
                                                   : describe_buckets(plan, request);
        if (r == GRADSYNC_OK)
                plan->begun = true;
        return r;
}

int describe_plan(struct gradsync_plan *plan) {
        struct gradsync *gs = plan->job->gs;
        bool last;
        int r;

        while (!plan->request.answered) {
                r = describe_next(plan, plan->request.id, &last);
                if (r == GRADSYNC_OK && last)
                        r = describe_commit(plan);
                if (r == GRADSYNC_OK && last)
                        return GRADSYNC_OK;
                if (r == GRADSYNC_AGAIN)
                        r = context_wait(gs, plan->deadline);
                if (r == GRADSYNC_TIMEOUT)
                        return request_give_up(gs);
                if (r != GRADSYNC_OK)
                        return r;
        }
        return GRADSYNC_OK;
}
