/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs and unpacks the payloads, with bounded memory. A decoder allocates only from the caller's fixed
 * buffer, so a hostile payload can neither exhaust memory nor leave anything behind. After unpacking, the
 * limits of the message (string lengths, repeated fields, UTF-8) are checked, so that callers may index
 * without further checks.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "frame.h"
#include "gradsync.pb-c.h"
#include "scratch.h"

#define CODEC_SCRATCH (256u * 1024u) /* enough for any legal frame */

/* Sets a field of a message before it is packed, and marks it as present. SET_IF evaluates the value only if
 * the condition holds. */
#define SET(message, field, value) ((message).has_##field = true, (message).field = (value))
#define SET_IF(message, field, condition, value)                                                             \
        do {                                                                                                 \
                if (condition)                                                                               \
                        SET(message, field, value);                                                          \
        } while (0)

struct codec {
        struct scratch scratch; /* CODEC_SCRATCH bytes, owned */
};

/* 0 or -ENOMEM. */
int codec_init(struct codec *codec);
void codec_deinit(struct codec *codec);

/* Descriptor of a message type, or NULL if this version does not know the type. */
const ProtobufCMessageDescriptor *codec_descriptor(uint16_t type);
/* "HELLO", …, or "type 77". The result for an unknown type lives in thread-local memory until the next
 * call. */
const char *codec_type_name(uint16_t type);

/* Unpacks a payload. The message lives in the codec until the next codec_unpack() or codec_deinit() on it:
 * never free it. NULL if the bytes are malformed, too complex for the scratch memory, or break a limit of
 * this message type; then *ret_why (if given) is a constant sentence. */
const ProtobufCMessage *codec_unpack(struct codec *codec, uint16_t type, const void *payload, size_t length,
                                     const char **ret_why);

/* The message of a given type that codec_unpack() has returned. */
#define CAST(type, from) (const type *)(const void *)(from)

/* Packs header and message into `out` (FRAME_MAX bytes) and returns the bytes of the frame, or -EMSGSIZE if
 * it does not fit. `type` must match the message's descriptor (asserted). */
ssize_t codec_pack(uint8_t out[FRAME_MAX], uint16_t type, uint32_t request, unsigned fds,
                   const ProtobufCMessage *message);
