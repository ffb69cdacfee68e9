/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protobuf-c with bounds. Unpacking takes memory from one fixed block per codec, which forgets everything at
 * the next unpack. The block stores the size of each allocation (scratch.h), which shows a NUL inside a
 * string: protobuf-c copies it like any byte, and a reader of the C string would see a shorter one than was
 * sent.
 */
#include "proto/codec.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/cleanup.h"
#include "proto/names.h"

#define LIMIT_BYTES (LIMIT_BUCKET_PARAMS / 8u) /* of a `bytes` field */

static const ProtobufCMessageDescriptor *const descriptors[] = {
        [WIRE__MESSAGE_TYPE__HELLO] = &wire__hello__descriptor,
        [WIRE__MESSAGE_TYPE__WELCOME] = &wire__welcome__descriptor,
        [WIRE__MESSAGE_TYPE__REFUSED] = &wire__refused__descriptor,
        [WIRE__MESSAGE_TYPE__JOIN] = &wire__join__descriptor,
        [WIRE__MESSAGE_TYPE__JOINED] = &wire__joined__descriptor,
        [WIRE__MESSAGE_TYPE__LEAVE] = &wire__leave__descriptor,
        [WIRE__MESSAGE_TYPE__LEFT] = &wire__left__descriptor,
        [WIRE__MESSAGE_TYPE__LOST] = &wire__lost__descriptor,
        [WIRE__MESSAGE_TYPE__NEWGEN] = &wire__newgen__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_BEGIN] = &wire__plan_begin__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_PARAMS] = &wire__plan_params__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_BUCKETS] = &wire__plan_buckets__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_COMMIT] = &wire__plan_commit__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_ARENA] = &wire__plan_arena__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_MAPPED] = &wire__plan_mapped__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_AGREED] = &wire__plan_agreed__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_DROP] = &wire__plan_drop__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_DROPPED] = &wire__plan_dropped__descriptor,
        [WIRE__MESSAGE_TYPE__READY] = &wire__ready__descriptor,
        [WIRE__MESSAGE_TYPE__STEP] = &wire__step__descriptor,
        [WIRE__MESSAGE_TYPE__STALL] = &wire__stall__descriptor,
        [WIRE__MESSAGE_TYPE__STAGING] = &wire__staging__descriptor,
        [WIRE__MESSAGE_TYPE__STAGING_ARENA] = &wire__staging_arena__descriptor,
        [WIRE__MESSAGE_TYPE__STAGING_MAPPED] = &wire__staging_mapped__descriptor,
        [WIRE__MESSAGE_TYPE__STAGING_READY] = &wire__staging_ready__descriptor,
        [WIRE__MESSAGE_TYPE__OPERATION] = &wire__operation__descriptor,
        [WIRE__MESSAGE_TYPE__OPERATION_DONE] = &wire__operation_done__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS] = &wire__status__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_DAEMON] = &wire__status_daemon__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_CLIENT] = &wire__status_client__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_JOB] = &wire__status_job__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_MEMBER] = &wire__status_member__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_PLAN] = &wire__status_plan__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_WAIT] = &wire__status_wait__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_END] = &wire__status_end__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_LINK] = &wire__status_link__descriptor,
        [WIRE__MESSAGE_TYPE__STATUS_ENDED] = &wire__status_ended__descriptor,
        [WIRE__MESSAGE_TYPE__TRACE] = &wire__trace__descriptor,
        [WIRE__MESSAGE_TYPE__TRACE_STEP] = &wire__trace_step__descriptor,
        [WIRE__MESSAGE_TYPE__TRACE_END] = &wire__trace_end__descriptor,
        [WIRE__MESSAGE_TYPE__CONTROL] = &wire__control__descriptor,
        [WIRE__MESSAGE_TYPE__CONTROL_DONE] = &wire__control_done__descriptor,
        [WIRE__MESSAGE_TYPE__REJOIN] = &wire__rejoin__descriptor,
        [WIRE__MESSAGE_TYPE__REJOINED] = &wire__rejoined__descriptor,
        [WIRE__MESSAGE_TYPE__REJOIN_PLAN] = &wire__rejoin_plan__descriptor,
        [WIRE__MESSAGE_TYPE__REJOIN_STAGING] = &wire__rejoin_staging__descriptor,
        [WIRE__MESSAGE_TYPE__REJOIN_END] = &wire__rejoin_end__descriptor,
        [WIRE__MESSAGE_TYPE__RESUMED] = &wire__resumed__descriptor,
        [WIRE__MESSAGE_TYPE__RESTARTING] = &wire__restarting__descriptor,
        [WIRE__MESSAGE_TYPE__PLAN_STEP] = &wire__plan_step__descriptor,
        [WIRE__MESSAGE_TYPE__REGISTER] = &wire__register__descriptor,
        [WIRE__MESSAGE_TYPE__REGISTERED] = &wire__registered__descriptor,
        [WIRE__MESSAGE_TYPE__UNREGISTER] = &wire__unregister__descriptor,
        [WIRE__MESSAGE_TYPE__UNREGISTERED] = &wire__unregistered__descriptor,
};

/* How often a repeated field may occur. A repeated field without a row here may not occur at all. */
static const struct {
        const ProtobufCMessageDescriptor *message;
        uint32_t field;
        size_t limit;
} repeat_limits[] = {
        { &wire__joined__descriptor, 10, LIMIT_PLANS },                /* plan */
        { &wire__plan_params__descriptor, 3, LIMIT_CHUNK },            /* param */
        { &wire__plan_buckets__descriptor, 3, LIMIT_CHUNK },           /* bucket */
        { &wire__param__descriptor, 3, LIMIT_DIMS },                   /* shape */
        { &wire__step__descriptor, 5, LIMIT_RESULTS },                 /* result */
        { &wire__bucket_result__descriptor, 3, LIMIT_LOCAL },          /* rank_sum_squares */
        { &wire__bucket_result__descriptor, 4, LIMIT_LOCAL },          /* rank_nonfinite */
        { &wire__status_links__descriptor, 5, LIMIT_LINK_REASONS },    /* refused */
        { &wire__status_job__descriptor, 33, LIMIT_CLASSES },          /* reduce_class */
        { &wire__status_job__descriptor, 61, LIMIT_RECOVERY_CLASSES }, /* recovery_class */
        { &wire__status_job__descriptor, 63, LIMIT_CAUSES },           /* rebuilds */
        { &wire__status_job__descriptor, 67, LIMIT_PEERS },            /* peers */
        { &wire__status_wait__descriptor, 16, LIMIT_LOCAL },           /* blocked */
        { &wire__trace_step__descriptor, 5, LIMIT_LOCAL },             /* pid */
        { &wire__trace_step__descriptor, 14, LIMIT_RESULTS },          /* bucket */
        { &wire__trace_end__descriptor, 5, LIMIT_TRACE_NODES },        /* node */
        { &wire__trace_bucket__descriptor, 2, LIMIT_LOCAL },           /* ready */
        { &wire__trace_bucket__descriptor, 6, LIMIT_LOCAL },           /* rank_nonfinite */
};

int codec_init(struct codec *codec) {
        codec->scratch = (struct scratch){ .buffer = aligned_alloc(SCRATCH_ALIGN, CODEC_SCRATCH),
                                           .size = CODEC_SCRATCH };
        return codec->scratch.buffer ? 0 : -ENOMEM;
}

void codec_deinit(struct codec *codec) {
        free(codec->scratch.buffer);
        codec->scratch.buffer = NULL;
}

const ProtobufCMessageDescriptor *codec_descriptor(uint16_t type) {
        return type < array_size(descriptors) ? descriptors[type] : NULL;
}

const char *codec_type_name(uint16_t type) {
        static __thread char unknown[sizeof("type 65535")];
        const ProtobufCEnumValue *value =
                protobuf_c_enum_descriptor_get_value(&wire__message_type__descriptor, type);

        if (value && codec_descriptor(type))
                return value->name;
        snprintf(unknown, sizeof(unknown), "type %u", (unsigned)type);
        return unknown;
}

static const char *codec_check_message(const ProtobufCMessage *message);

static size_t codec_repeat_limit(const ProtobufCMessageDescriptor *message, uint32_t field) {
        for (size_t i = 0; i < array_size(repeat_limits); i++)
                if (repeat_limits[i].message == message && repeat_limits[i].field == field)
                        return repeat_limits[i].limit;
        return 0;
}

static const char *codec_check_string(const char *text) {
        if (!text)
                return NULL;
        size_t size = scratch_size(text);
        if (size - 1 > LIMIT_TEXT)
                return "a string is too long";
        if (memchr(text, 0, size - 1))
                return "a string contains a NUL byte";
        return utf8_valid(text, size - 1) ? NULL : "a string is not valid UTF-8";
}

static const char *codec_check_repeated(const ProtobufCMessage *message,
                                        const ProtobufCFieldDescriptor *field) {
        const uint8_t *base = (const uint8_t *)message;
        size_t count = *(const size_t *)(const void *)(base + field->quantifier_offset);
        void *const *items = *(void *const *const *)(const void *)(base + field->offset);
        const char *why = NULL;

        if (count > codec_repeat_limit(message->descriptor, field->id))
                return "a repeated field has too many elements";
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                for (size_t i = 0; i < count && !why; i++)
                        why = codec_check_message(items[i]);
        return why;
}

static const char *codec_check_field(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field) {
        const uint8_t *base = (const uint8_t *)message;

        if (field->label == PROTOBUF_C_LABEL_REPEATED)
                return codec_check_repeated(message, field);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
                const ProtobufCMessage *part =
                        *(const ProtobufCMessage *const *)(const void *)(base + field->offset);

                return part != NULL ? codec_check_message(part) : NULL;
        }
        if (field->type == PROTOBUF_C_TYPE_STRING)
                return codec_check_string(*(char *const *)(const void *)(base + field->offset));
        if (field->type == PROTOBUF_C_TYPE_BYTES &&
            *(const protobuf_c_boolean *)(base + field->quantifier_offset) &&
            ((const ProtobufCBinaryData *)(const void *)(base + field->offset))->len > LIMIT_BYTES)
                return "a bytes field is too long";
        return NULL;
}

/* Recursion ends with the schema, which is two levels deep. */
static const char *codec_check_message(const ProtobufCMessage *message) {
        const ProtobufCMessageDescriptor *descriptor = message->descriptor;
        const char *why = NULL;

        for (unsigned i = 0; i < message->n_unknown_fields && !why; i++)
                /* protobuf-c sees it only where it takes one byte */
                if (message->unknown_fields[i].tag == 0)
                        why = "a field has the number 0";
        for (unsigned i = 0; i < descriptor->n_fields && !why; i++)
                why = codec_check_field(message, &descriptor->fields[i]);
        return why;
}

const ProtobufCMessage *codec_unpack(struct codec *codec, uint16_t type, const void *payload, size_t length,
                                     const char **ret_why) {
        const ProtobufCMessageDescriptor *descriptor = codec_descriptor(type);
        const ProtobufCMessage *message = NULL;
        const char *why = !descriptor                  ? "the message type is unknown"
                          : length > FRAME_PAYLOAD_MAX ? "the payload is larger than a frame may carry"
                                                       : NULL;

        if (!why)
                message = protobuf_c_message_unpack(descriptor, scratch_begin(&codec->scratch), length,
                                                    payload);
        if (message)
                why = codec_check_message(message);
        else if (!why)
                why = scratch_exhausted(&codec->scratch) ? "the payload is too complex"
                                                         : "the payload is malformed";
        if (why && ret_why)
                *ret_why = why;
        return why ? NULL : message;
}

ssize_t codec_pack(uint8_t out[FRAME_MAX], uint16_t type, uint32_t request, unsigned fds,
                   const ProtobufCMessage *message) {
        struct frame_header header = {
                .major = FRAME_MAJOR, .type = type, .fds = (uint16_t)fds, .request = request
        };

        assert(message->descriptor == codec_descriptor(type));
        assert(fds <= FRAME_FDS_MAX);
        size_t size = protobuf_c_message_get_packed_size(message);
        if (size > FRAME_PAYLOAD_MAX)
                return -EMSGSIZE;
        header.length = (uint32_t)size;
        frame_encode(out, &header);
        protobuf_c_message_pack(message, out + FRAME_HEADER);
        return (ssize_t)(FRAME_HEADER + size);
}
