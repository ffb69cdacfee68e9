/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By which way NCCL goes to each rank. It tells nobody but its log, so that is read: lines that look like
 * "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", and "NVLS comm …" where NVLink's switches add up. They do not
 * say of which communicator they are, so nothing is known of those that are made at the same time.
 */
#pragma once

#include "engine/nccl/shop.h"

/* It is about to be made. */
void transports_begin(struct communicator *comm);
/* It has been made, as far as that went. The lock is held. */
void transports_end(struct communicator *comm);
/* Pure: a line of the log. False: it is of something else. */
bool transports_parse(const char *line, uint32_t *ret_from, uint32_t *ret_to, char name[TRANSPORT]);
