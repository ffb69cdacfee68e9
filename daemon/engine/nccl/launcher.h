/* SPDX-License-Identifier: Apache-2.0 */
/* The one thread that gives collectives to NCCL, in the order in which they were launched, and learns which
 * have ended. It never waits for another process. */
#pragma once

#include "engine/nccl/common.h"

/* 0 or a negative errno. */
int launcher_start(struct common *common, pthread_t *ret);
