/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a plan, as a series of frames. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct gradsync_plan;

/* Sends the rest of the description. OK once the last frame is out, or an early refusal has come. */
int describe_plan(struct gradsync_plan *plan);
/* Sends the next frame of the description, except the last; *ret_last: only that one is left. OK, AGAIN, or
 * the link has failed. */
int describe_next(struct gradsync_plan *plan, uint32_t request, bool *ret_last);
