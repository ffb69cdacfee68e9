/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that NCCL writes of its own accord. */
#pragma once

#include "comm.h"

/* Prints how each peer is reached, as NCCL_DEBUG=INFO does, into the file that NCCL_DEBUG_FILE names. */
void debug_print_channels(const struct ncclComm *comm);
