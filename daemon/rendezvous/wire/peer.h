/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between daemons as bytes: protobuf-c with bounds. Pure: no socket, no log, and no memory but the
 * caller's. A decoded message obeys every limit, and is valid, so that a machine may take it as it is. The
 * fields are in peer.proto, limits and versions in PROTOCOL.md.
 */
#pragma once

#include <sys/types.h>

#include "proto/scratch.h"
#include "rendezvous/machine/message.h"

#define PEER_MAJOR 1u             /* another major version is refused */
#define PEER_MINOR 0u             /* highest minor version this build speaks */
#define PEER_MAX (96u << 10)      /* bytes of a message: any one that is valid; typical ones have hundreds */
#define PEER_SCRATCH (512u << 10) /* bytes that are enough for any of them */

/* The bytes; -EINVAL if order_valid() is false, -EMSGSIZE if the scratch is too small. A text that is not
 * UTF-8 is refused by the receiver. */
ssize_t peer_encode_order(struct scratch *scratch, const struct order *order, uint8_t out[PEER_MAX]);
ssize_t peer_encode_report(struct scratch *scratch, const struct report *report, uint8_t out[PEER_MAX]);

/* False: nothing of *ret may be used, and *ret_why is a constant sentence. */
bool peer_decode_order(struct scratch *scratch, const void *bytes, size_t length, struct order *ret,
                       const char **ret_why);
bool peer_decode_report(struct scratch *scratch, const void *bytes, size_t length, struct report *ret,
                        const char **ret_why);
