/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that the daemon sends unasked. */
#pragma once

#include "client/lib/wire/context.h"

/* Runs with the lock held, and sends nothing. OK, or PROTOCOL with the text. */
int notices_take(struct gradsync *gs, uint16_t type, const ProtobufCMessage *message);
