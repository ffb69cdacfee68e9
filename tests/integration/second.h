/* SPDX-License-Identifier: Apache-2.0 */
/* A second thread beside that which finishes a step. */
#pragma once

#include <stdint.h>

#include <gradsync/gradsync.h>

/* gradsync_finish(), and gradsync_wait() for the parameter by a thread "waiter" that begins when the caller
 * sleeps in the former, and asks for its place in the job until that returns. *ret_waited is what it was
 * told; *ret_left what gradsync_leave() told it before. */
int finish_waited(struct gradsync_job *job, struct gradsync_plan *plan, uint32_t param, int *ret_waited,
                  int *ret_left);
