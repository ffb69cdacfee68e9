/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons as bytes: protobuf-c with bounds. Pure: no socket, no log, and no memory but the
 * caller's. What is decoded obeys every limit and message_valid(), so that a machine may take it as it is.
 * The fields are in peer.proto, limits and versions in PROTOCOL.md.
 */
#pragma once

#include <sys/types.h>

#include "proto/scratch.h"
#include "rendezvous/message.h"

#define PEER_MAJOR 1u             /* another major version is refused */
#define PEER_MINOR 0u             /* highest minor version this build speaks */
#define PEER_MAX (96u << 10)      /* bytes of a message: any one that is valid; typical ones have hundreds */
#define PEER_SCRATCH (512u << 10) /* bytes that are enough for any of them */

/* The bytes; -EINVAL if message_valid() is false, -EMSGSIZE if the scratch is too small. A text that is not
 * UTF-8 is refused by the receiver. */
ssize_t peer_encode(struct scratch *scratch, const struct message *message, uint8_t out[PEER_MAX]);

/* False: nothing of *ret may be used, and *ret_why is a constant sentence. */
bool peer_decode(struct scratch *scratch, const void *bytes, size_t length, struct message *ret,
                 const char **ret_why);
