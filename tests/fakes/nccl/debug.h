/* SPDX-License-Identifier: Apache-2.0 */
/* What NCCL writes of its own accord. */
#pragma once

#include "comm.h"

/* How each peer is reached, as NCCL_DEBUG=INFO asks for it, in the file that NCCL_DEBUG_FILE names. */
void debug_print_channels(const struct ncclComm *comm);
