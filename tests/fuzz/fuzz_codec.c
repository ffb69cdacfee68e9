/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Payloads: two bytes choose the message type, the rest is the payload. An accepted message keeps every limit
 * that callers rely on, and what it packs to unpacks to the same.
 */
#include "fuzz.h"

#include <errno.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/names.h"

static void check_params(const Wire__PlanParams *chunk) {
        must(chunk->n_param <= LIMIT_CHUNK);
        for (size_t i = 0; i < chunk->n_param; i++) {
                const Wire__Param *param = chunk->param[i];
                must(param->n_shape <= LIMIT_DIMS);
                if (param->name)
                        must(strlen(param->name) <= LIMIT_TEXT &&
                             utf8_valid(param->name, strlen(param->name)));
        }
}

static void check_step(const Wire__Step *step) {
        must(step->n_result <= LIMIT_RESULTS);
        for (size_t i = 0; i < step->n_result; i++) {
                const Wire__BucketResult *result = step->result[i];
                must(result->n_rank_sum_squares <= LIMIT_LOCAL && result->n_rank_nonfinite <= LIMIT_LOCAL);
                must(!result->has_unused || result->unused.len <= LIMIT_BUCKET_PARAMS / 8);
        }
        if (step->text)
                must(strlen(step->text) <= LIMIT_TEXT && utf8_valid(step->text, strlen(step->text)));
}

static void check_limits(uint16_t type, const ProtobufCMessage *message) {
        if (type == WIRE__MESSAGE_TYPE__PLAN_PARAMS)
                check_params((const Wire__PlanParams *)message);
        else if (type == WIRE__MESSAGE_TYPE__PLAN_BUCKETS)
                must(((const Wire__PlanBuckets *)message)->n_bucket <= LIMIT_CHUNK);
        else if (type == WIRE__MESSAGE_TYPE__STEP)
                check_step((const Wire__Step *)message);
        else if (type == WIRE__MESSAGE_TYPE__READY)
                must(!((const Wire__Ready *)message)->has_absent ||
                     ((const Wire__Ready *)message)->absent.len <= LIMIT_BUCKET_PARAMS / 8);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
        static struct codec codec;
        static uint8_t first[FRAME_MAX], second[FRAME_MAX];
        const ProtobufCMessage *message;
        const char *why = NULL;
        ssize_t packed;
        uint16_t type;

        if (size < 2 || (!codec.scratch.buffer && codec_init(&codec) < 0))
                return 0;
        type = (uint16_t)(data[0] | data[1] << 8);
        message = codec_unpack(&codec, type, data + 2, size - 2, &why);
        must(*codec_type_name(type));
        must(!message == (why != NULL));
        if (!message)
                return 0;
        must(message->descriptor == codec_descriptor(type));
        check_limits(type, message);
        packed = codec_pack(first, type, 1, 0, message);
        if (packed == -EMSGSIZE)
                return 0; /* negative numbers may be sent in fewer bytes than they are packed to */
        must(packed >= (ssize_t)FRAME_HEADER && packed <= (ssize_t)FRAME_MAX);
        message = codec_unpack(&codec, type, first + FRAME_HEADER, (size_t)packed - FRAME_HEADER, &why);
        must(message);
        must(codec_pack(second, type, 1, 0, message) == packed && !memcmp(first, second, (size_t)packed));
        return 0;
}
