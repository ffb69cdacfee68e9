/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way by which NCCL goes to each rank. NCCL shows that only in its log, so the log is read: lines that
 * look like "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", and "NVLS comm …" if NVLink's switches add up. The
 * lines do not name their communicator, so nothing is known of communicators that are made at the same time.
 */
#pragma once

#include "engine/nccl/common.h"

/* Called before a communicator is made. */
void transports_begin(struct communicator *comm);
/* Called when a communicator has been made, as far as that went. The lock is held. */
void transports_end(struct communicator *comm);
/* Parses a line of the log. Pure. False if the line is about something else. */
bool transports_parse(const char *line, uint32_t *ret_from, uint32_t *ret_to, char name[TRANSPORT]);
