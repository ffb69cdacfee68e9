/* SPDX-License-Identifier: Apache-2.0 */
/* A ticket (job/restart/ticket.h) between two daemons: bytes that a member keeps and does not read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "job/restart/ticket.h"

/* How many bytes of `out` it takes. */
size_t contents_pack(const struct ticket *ticket, uint8_t out[LIMIT_TICKET]);
/* INVALID if it is no ticket; -ENOMEM. What it says is not checked yet: ticket_check(). */
int contents_read(const uint8_t *bytes, size_t length, struct ticket *ret, struct refusal *refusal);
