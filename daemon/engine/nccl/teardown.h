/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a communicator, by its worker. */
#pragma once

#include "engine/nccl/common.h"

/*
 * Ends the work that is under way, whatever the other ranks do, and frees nothing (ncclCommRevoke, from
 * 2.28.7 on). From then on the communicator touches no memory of others, and has to be aborted. False: it may
 * still touch memory, because it was not made, or because NCCL cannot revoke, fails, or takes half of the
 * time that the end may take. Both functions may take for ever. The lock is not held.
 */
bool teardown_revoke(struct communicator *comm);
/* Ends a communicator; nothing of it is left on the GPU then. It may have been made in part only. `abort`:
 * whatever the other ranks do; else they end it, too, and nothing is under way. */
void teardown(struct communicator *comm, bool abort);
