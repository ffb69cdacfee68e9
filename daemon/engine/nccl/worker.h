/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a communicator, which makes the communicator, waits, and ends it. */
#pragma once

#include "engine/nccl/common.h"

/* 0 or a negative errno. */
int communicator_start(struct communicator *comm);
/* Waits for the end of the thread, which tells NEWS_ENDED last. */
void communicator_join(struct communicator *comm);
