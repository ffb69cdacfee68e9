/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a communicator. It makes it, waits, and ends it. */
#pragma once

#include "engine/nccl/shop.h"

/* 0 or a negative errno. */
int communicator_start(struct communicator *comm);
/* After NEWS_ENDED: the communicator goes with it. */
void communicator_join(struct communicator *comm);
