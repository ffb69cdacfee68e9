/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a communicator, by its worker. */
#pragma once

#include "engine/nccl/common.h"

/* The communicator works afterwards, or is broken, unless it is to end by now. The GPU's context is current;
 * the lock is not held. */
void form_communicator(struct communicator *comm);
