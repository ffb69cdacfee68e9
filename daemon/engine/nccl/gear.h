/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources of the GPU that a lane needs besides those of NCCL. To free memory waits for all work of the GPU,
 * and a kernel of another communicator may wait for a rank that is lost. So gear goes from a communicator
 * that has ended to the next one, and is freed only when no communicator is left.
 */
#pragma once

#include "engine/nccl/shop.h"

#define GEAR_SCRATCH ((UINT64_C(8) << 20) * sizeof(float)) /* bytes for the first collectives */
#define GEAR_PANES ((size_t)ENGINE_WINDOW * TABLE_PANE)

struct gear {
        struct list link; /* shop->gear, while no lane has it */
        cuda_stream stream;
        void *pinned;       /* ENGINE_VALUES values for each flight of the window */
        cuda_address votes; /* as much of the device's memory */
        cuda_event event[ENGINE_WINDOW];
        cuda_address scratch; /* 0 if none */
        void *panes;          /* TABLE_PANE bytes for each flight; NULL if none */
};

/* Gives gear to that lane, with `scratch` if it is wanted. The lock is not held. */
cuda_result gear_take(struct shop *shop, struct lane *lane, bool scratch);
/* Gives the lane's gear the panes that windows are made of. False: NCCL has no windows, or the GPU has no
 * memory left. */
bool gear_take_panes(const struct nccl *nccl, struct lane *lane);
/* Takes the gear from a lane of which no work is left on the GPU. A lane without gear is fine. The lock is
 * held. */
void gear_leave(struct lane *lane, struct shop *shop);
/* Frees all gear that no lane has. The lock is held, and released meanwhile. */
void gear_free(struct shop *shop);
