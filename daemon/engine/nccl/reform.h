/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a communicator is made. If the older one of the job is still there, and has no collective left, NCCL
 * can make the new one of it: of the nodes that stay (ncclCommShrink), or of all its nodes and others
 * (ncclCommGrow). Rank 0 chooses, and its table says which. The tables of all ranks say whether they can do
 * it, and all ranks judge these alike. If a rank cannot, or if it fails, the communicator is broken. The
 * older one is lent once, so the next one is made anew (ncclCommInitRankConfig), as is each one that is
 * neither a part nor an extension of the older one.
 *
 * NCCL numbers the ranks of a part in their old order, and lets old ranks keep their numbers in an extension.
 * Ranks go by addresses: that is right for every part, and for an extension by nodes of higher addresses.
 */
#pragma once

#include "engine/nccl/common.h"

/* Lends `older` to the new communicator, unless it is of no use or NULL. On the loop thread, with the lock
 * held, before the worker begins. */
void reform_begin(struct communicator *comm, struct communicator *older);
/* Gives the older communicator back, if that was not done before. The lock is held. */
void reform_end(struct communicator *comm);

/* Writes into this node's table what the node has; on rank 0 also how the communicator is made, and the id if
 * that needs one. For the worker, without the lock, as is reform_find_unfit(). */
nccl_result reform_offer(struct communicator *comm, struct table *own);
/* Returns the first rank that cannot do what rank 0 has chosen, or n_nodes if all can. */
uint32_t reform_find_unfit(const struct communicator *comm);
/* Lists the ranks of the older communicator that are not in this one. Returns their number. */
int reform_list_left_out(const struct communicator *comm, int *ret);
