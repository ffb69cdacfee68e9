/* SPDX-License-Identifier: Apache-2.0 */
/*
 * By which way a communicator is made. Where the one that the job had before is still there, and nothing of
 * it is under way, NCCL can make the new one of it: of those nodes that stay (ncclCommShrink), or of all of
 * its nodes and others (ncclCommGrow). Rank 0 chooses a way by what it has, and its table says which; the
 * tables of all say whether they can go it, and all of them judge these in the same way. Where they cannot,
 * or where it fails, the communicator is broken. The older one is lent once: so the next one is made of
 * nothing (ncclCommInitRankConfig), as is each one that is no part and no extension of the older one.
 *
 * NCCL numbers the ranks of a part in their old order, and lets old ranks keep their numbers in an extension.
 * Ranks go by addresses: that is right for every part, and for an extension by nodes of higher addresses.
 */
#pragma once

#include "engine/nccl/shop.h"

/* Lends `older`, or nothing if it is of no use or NULL. On the loop thread, with the lock held, before the
 * worker begins. */
void way_begin(struct communicator *comm, struct communicator *older);
/* Gives it back, if that was not done before. The lock is held. */
void way_end(struct communicator *comm);

/* Writes into this node's table what it has; on rank 0 also the way, and the id if that needs one. For the
 * worker, without the lock; so is the next one. */
nccl_result way_offer(struct communicator *comm, struct table *own);
/* The first rank that cannot go the way of rank 0, or n_nodes: all can. */
uint32_t way_find_unfit(const struct communicator *comm);
/* Ranks of the older one that are not in this one. Returns how many they are. */
int way_list_left_out(const struct communicator *comm, int *ret);
