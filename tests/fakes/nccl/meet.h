/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a communicator wait for each other. All of it ends when the communicator is aborted. */
#pragma once

#include "task.h"

/* Joins the others: `task->comm` has its id, its rank, and the number of ranks. */
nccl_result meet(struct task *task);
/* Exchanges words with the ranks of `mask`, which make the same call. */
nccl_result meet_agree(struct task *task, struct ncclComm *comm, unsigned mask,
                       const int64_t word[BOARD_WORDS], int64_t ret[BOARD_RANKS][BOARD_WORDS]);
/* Waits until the work of all ranks is over. */
nccl_result meet_finally(struct task *task);
/* Likewise, of those on this host. */
void meet_neighbours(struct task *task);
