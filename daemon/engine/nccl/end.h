/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator ends, by its worker. */
#pragma once

#include "engine/nccl/shop.h"

/* Where the library has that (ncclCommRevoke, 2.28.7), ends what is under way, whatever the other ranks do,
 * and frees nothing: from then on the communicator touches no memory of anybody else, and is to be aborted.
 * False: it may still do so, as it was not made, or NCCL cannot, or fails, or takes half of the time that the
 * end may. This and the other one may take for ever. The lock is not held. */
bool end_revoke(struct communicator *comm);
/* Nothing of it is left on the GPU. It may have been made in part only. `abort`: whatever the other ranks do;
 * else they end it, too, and nothing is under way. */
void end_communicator(struct communicator *comm, bool abort);
