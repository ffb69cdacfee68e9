/* SPDX-License-Identifier: Apache-2.0 */
/* How long a member that has failed waits for its next start. */
#pragma once

#include <stdint.h>

/* A member that fails right after each start gets longer and longer pauses, in which the thing that it lacks
 * may return. A member that has worked for a while starts again at once, because the others miss it. `quick`:
 * how often in a row it has ended soon after a start. All times are in milliseconds. */
int64_t pause_before_start(unsigned long *quick, int64_t lived, int64_t most);
