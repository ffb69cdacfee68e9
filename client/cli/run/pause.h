/* SPDX-License-Identifier: Apache-2.0 */
/* How long a member that has failed waits for its next start. */
#pragma once

#include <stdint.h>

/* A member that fails as soon as it runs gets more and more time, in which what it lacks may come back. One
 * that has worked for a while is missed by the others, and begins anew. `quick`: how often in a row it has
 * ended soon after a start. All times are in milliseconds. */
int64_t pause_before_start(unsigned long *quick, int64_t lived, int64_t most);
