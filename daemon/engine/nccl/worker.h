/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of a communicator. It makes it, waits, and ends it. */
#pragma once

#include "engine/nccl/shop.h"

/* 0 or a negative errno. */
int communicator_start(struct communicator *comm);
/* Waits until it has told NEWS_ENDED. */
void communicator_join(struct communicator *comm);
