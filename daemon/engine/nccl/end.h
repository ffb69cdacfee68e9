/* SPDX-License-Identifier: Apache-2.0 */
/* How a communicator ends, by its worker. */
#pragma once

#include "engine/nccl/shop.h"

/* Nothing of it is left on the GPU. It may have been made in part only. `abort`: whatever the other ranks do;
 * else they end it, too, and nothing is under way. Both may take for ever. The lock is not held. */
void end_communicator(struct communicator *comm, bool abort);
