/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lane needs of the GPU beside what NCCL has for itself. Giving memory back waits for all that the GPU
 * is doing, and a kernel of another communicator may wait for a rank that is lost: so it goes from a
 * communicator that has ended to the next one, and back only when there is none left.
 */
#pragma once

#include "engine/nccl/shop.h"

#define GEAR_SCRATCH ((UINT64_C(8) << 20) * sizeof(float)) /* bytes for the first collectives */
#define GEAR_PANES ((size_t)ENGINE_WINDOW * TABLE_PANE)

struct gear {
        struct list link; /* shop->gear, while no lane has it */
        cuda_stream stream;
        void *pinned;       /* ENGINE_VALUES for each flight of the window, */
        cuda_address votes; /* … and as much of the device's memory */
        cuda_event event[ENGINE_WINDOW];
        cuda_address scratch; /* or 0 */
        void *panes;          /* TABLE_PANE bytes for each flight; or NULL */
};

/* For that lane, with `scratch` if it is wanted. The lock is not held. */
cuda_result gear_take(struct shop *shop, struct lane *lane, bool scratch);
/* And what windows are made of. False: NCCL has none, or the GPU has nothing left. */
bool gear_take_panes(const struct nccl *nccl, struct lane *lane);
/* Nothing that the lane has begun is still at work. The lock is held. A lane without gear is fine. */
void gear_leave(struct lane *lane, struct shop *shop);
/* All that no lane has. The lock is held, and given up for a while. */
void gear_free(struct shop *shop);
