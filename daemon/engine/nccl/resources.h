/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resources of the GPU that a lane needs besides those of NCCL. To free memory waits for all work of the GPU,
 * and a kernel of another communicator may wait for a rank that is lost. So resources go from a communicator
 * that has ended to the next one, and are freed only when no communicator is left.
 */
#pragma once

#include "engine/nccl/common.h"

#define RESOURCES_SCRATCH ((UINT64_C(8) << 20) * sizeof(float)) /* bytes for the first collectives */
#define RESOURCES_PANES ((size_t)ENGINE_WINDOW * TABLE_PANE)

struct resources {
        struct list link; /* common->resources, while no lane has them */
        cuda_stream stream;
        void *pinned;       /* ENGINE_VALUES values for each flight of the window */
        cuda_address votes; /* as much of the device's memory */
        cuda_event event[ENGINE_WINDOW];
        cuda_address scratch; /* 0 if none */
        void *panes;          /* TABLE_PANE bytes for each flight; NULL if none */
};

/* Gives resources to that lane, with `scratch` if it is wanted. The lock is not held. */
cuda_result resources_take(struct common *common, struct lane *lane, bool scratch);
/* Gives the lane's resources the panes that windows are made of. False: NCCL has no windows, or the GPU has
 * no memory left. */
bool resources_take_panes(const struct nccl *nccl, struct lane *lane);
/* Takes the resources from a lane of which no work is left on the GPU. A lane without resources is fine. The
 * lock is held. */
void resources_leave(struct lane *lane, struct common *common);
/* Frees all resources that no lane has. The lock is held, and released meanwhile. */
void resources_free(struct common *common);
